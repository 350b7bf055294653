#include "infer/kv_cache.h"

#include "engine/core/shape.h"

namespace taper {

KvCache::KvCache(const ModelConfig& config, int64_t sequences, Dtype dtype)
    : heads_(config.kv_heads),
      layers_(config.layers),
      sequences_(sequences),
      head_size_(config.head_size),
      element_(size_of(dtype)) {
  const int64_t pair = dtype == Dtype::bf16 ? 2 : 1;
  const char* what = "key-value cache";
  const auto product = [&](int64_t a, int64_t b) { return checked_product(a, b, what); };
  value_panel_stride_ = product(round_up(config.context, pair), kPanelRows);
  key_bytes_ = product(product(round_up(config.context, kPanelRows), round_up(head_size_, pair)), element_);
  value_bytes_ = product(product(value_panel_stride_, round_up(head_size_, kPanelRows) / kPanelRows), element_);
  key_bytes_ = round_up(key_bytes_, kCacheLine);
  value_bytes_ = round_up(value_bytes_, kCacheLine);
  memory_ = HugeMemory(product(product(product(layers_, sequences), heads_), key_bytes_ + value_bytes_), what);
}

std::byte* KvCache::keys(int64_t layer, int64_t sequence, int64_t head) const {
  return memory_.data() + ((layer * sequences_ + sequence) * heads_ + head) * (key_bytes_ + value_bytes_);
}

std::byte* KvCache::values(int64_t layer, int64_t sequence, int64_t head) const {
  return keys(layer, sequence, head) + key_bytes_;
}

int64_t KvCache::bytes_per_position() const { return 2 * layers_ * heads_ * head_size_ * element_; }

}  // namespace taper

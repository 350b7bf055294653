#include "infer/decode_profile.h"

#include <utility>

#include "engine/core/profile_entries.h"

namespace taper {
namespace {

constexpr std::array<const char*, kDecodeStages> kNames = {
    "decode_embed", "decode_residual", "decode_norm",   "decode_scale",  "decode_blend",
    "decode_qkv",   "decode_append",   "decode_attend", "decode_output", "decode_up",
    "decode_down",  "decode_unembed",  "decode_choose", "decode_wait"};

KernelWork attention_work(const ModelConfig& config, Dtype cache, std::span<const DecodeRow> rows) {
  int64_t read = 0, scores = 0;  // positions: of each sequence once, and of each row
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t count = rows[r].position + 1;
    scores += count;
    if (r + 1 == rows.size() || rows[r + 1].sequence != rows[r].sequence) read += count;
  }
  KernelWork work;
  work.bytes = 2 * config.layers * config.kv_heads * config.head_size * read * size_of(cache);
  work.f32_flops = 4.0 * static_cast<double>(config.layers * config.heads * config.head_size * scores);
  return work;
}

}  // namespace

const char* to_string(DecodeStage stage) { return kNames[static_cast<size_t>(stage)]; }

DecodeStage stage_of(NormForm form) {
  switch (form) {
    case NormForm::norm:
      return DecodeStage::norm;
    case NormForm::scale:
      return DecodeStage::scale;
    case NormForm::both:
      return DecodeStage::blend;
    case NormForm::none:
      break;
  }
  return DecodeStage::residual;
}

int64_t matrix_elements(DecodeStage stage, const ModelConfig& config) {
  const int64_t inner = config.heads * config.head_size, kv = config.kv_heads * config.head_size;
  switch (stage) {
    case DecodeStage::qkv:
      return config.width * (inner + 2 * kv);
    case DecodeStage::output:
      return inner * config.width;
    case DecodeStage::up:
      return config.width * config.mlp_hidden * (config.is_gated_mlp ? 2 : 1);
    case DecodeStage::down:
      return config.mlp_hidden * config.width;
    case DecodeStage::unembed:
      return config.vocab_size * config.width;
    default:
      return 0;
  }
}

KernelWork decode_work(DecodeStage stage, const ModelConfig& config, const DecodeTypes& types,
                       std::span<const DecodeRow> rows, int64_t first_logits_row) {
  const bool is_unembedding = stage == DecodeStage::unembed;
  const int64_t products = std::ssize(rows) - (is_unembedding ? first_logits_row : 0);
  if (products == 0) return {};
  KernelWork work;
  if (stage == DecodeStage::attend) {
    work = attention_work(config, types.cache, rows);
  } else {
    const int64_t elements = matrix_elements(stage, config) * (is_unembedding ? 1 : config.layers);
    work.bytes = elements * size_of(types.weights);
    work.f32_flops = 2.0 * static_cast<double>(elements * products);
  }
  if (types.products == Dtype::bf16) std::swap(work.f32_flops, work.bf16_flops);
  return work;
}

void DecodeProfile::report(const ModelConfig& config, const DecodeTypes& types, std::span<const DecodeRow> rows,
                           int64_t first_logits_row) const {
  for (int i = 0; i < kDecodeStages; ++i) {
    const auto stage = static_cast<DecodeStage>(i);
    const Laps& laps = laps_[static_cast<size_t>(i)];
    if (laps.count == 0) continue;
    add_to_profile(to_string(stage), {std::chrono::duration<double>(laps.time).count(), laps.count,
                                      decode_work(stage, config, types, rows, first_logits_row)});
  }
}

}  // namespace taper

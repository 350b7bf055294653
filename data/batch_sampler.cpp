#include "data/batch_sampler.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/random.h"

namespace taper {
namespace {

void check_size(const TokenDataset& data, int64_t context) {
  require_usage(context >= 1, "context: too short; got {}, want at least 1", context);
  require_usage(data.size() > static_cast<uint64_t>(context),
                "data: too short: needs at least T+1 = {} tokens, {} has {}", context + 1, data.name(), data.size());
}

void copy_window(const TokenDataset& data, uint64_t start, int64_t context, int32_t* tokens, int32_t* targets) {
  const auto length = static_cast<uint64_t>(context);
  data.copy(start, length, tokens);
  std::copy(tokens + 1, tokens + context, targets);
  data.copy(start + length, 1, targets + context - 1);
}

}  // namespace

BatchSampler::BatchSampler(const TokenDataset& data, int64_t context, uint64_t seed)
    : data_(data), context_(context), seed_(seed) {
  check_size(data, context);
}

uint64_t BatchSampler::window_start(uint64_t window) const {
  const Random random(seed_, RandomStream::batches);
  const uint64_t bits = uint64_t{random.u32_at(2 * window)} << 32 | random.u32_at(2 * window + 1);
  // The high half of a 128-bit product maps 64 random bits to [0, starts) with a bias below starts / 2^64, and unlike
  // drawing again it takes exactly one draw, which keeps windows addressable by their index.
  const uint64_t starts = data_.size() - static_cast<uint64_t>(context_);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * starts >> 64);
}

void BatchSampler::next(int64_t batch, int32_t* tokens, int32_t* targets) {
  for (int64_t b = 0; b < batch; ++b, ++position_) {
    copy_window(data_, window_start(position_), context_, tokens + b * context_, targets + b * context_);
  }
}

EvaluationWindows::EvaluationWindows(const TokenDataset& data, int64_t context) : data_(data), context_(context) {
  check_size(data, context);
  count_ = static_cast<int64_t>((data.size() - 1) / static_cast<uint64_t>(context));
}

int64_t EvaluationWindows::batch(int64_t first, int64_t batch, int32_t* tokens, int32_t* targets) const {
  const int64_t taken = std::clamp<int64_t>(count_ - first, 0, batch);
  for (int64_t b = 0; b < taken; ++b) {
    const auto start = static_cast<uint64_t>(first + b) * static_cast<uint64_t>(context_);
    copy_window(data_, start, context_, tokens + b * context_, targets + b * context_);
  }
  return taken;
}

}  // namespace taper

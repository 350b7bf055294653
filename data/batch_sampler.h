// Windows of a token sequence as batches: T input tokens, and as target of position i the token i+1 of the same window.
// B windows a batch, T the context, N the length of the data.
#pragma once

#include <cstdint>

#include "data/token_shards.h"

namespace taper {

// Training windows: T+1 tokens, starting anywhere in [0, N-T-1] with equal chance, with replacement. The start of the
// i-th window depends on (seed, i) alone, so the draw does not change with batch size, micro-batches or threads, and
// the number of windows drawn so far is all that resuming needs.
class BatchSampler {
 public:
  // UsageError where the data has fewer than T+1 tokens. Keeps a reference to the data.
  BatchSampler(const TokenDataset& data, int64_t context, uint64_t seed);

  // The next `batch` windows into tokens [B, T] and targets [B, T].
  void next(int64_t batch, int32_t* tokens, int32_t* targets);
  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

  uint64_t window_start(uint64_t window) const;

 private:
  const TokenDataset& data_;
  int64_t context_;
  uint64_t seed_;
  uint64_t position_ = 0;
};

// Evaluation windows in order: window k predicts tokens kT+1 .. kT+T, so it ends where window k+1 begins and no token
// is predicted twice. There are floor((N-1)/T); the rest is left out.
class EvaluationWindows {
 public:
  // UsageError where the data has fewer than T+1 tokens. Keeps a reference to the data.
  EvaluationWindows(const TokenDataset& data, int64_t context);

  int64_t count() const { return count_; }
  // Windows [first, first + batch), fewer at the end, into tokens [B, T] and targets [B, T]; returns how many.
  int64_t batch(int64_t first, int64_t batch, int32_t* tokens, int32_t* targets) const;

 private:
  const TokenDataset& data_;
  int64_t context_;
  int64_t count_;
};

}  // namespace taper

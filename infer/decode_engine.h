// What runs a Decoder's tokens: the threads of the processor (infer/cpu_engine.cpp) or a CUDA device
// (infer/cuda_engine.cpp). It owns the weights in its own layout, the key-value cache and the logits; the Decoder has
// checked what it asks for and counts the positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "infer/decoder.h"

namespace taper {

struct DecodeRow {
  int32_t token;
  int64_t sequence;
  int64_t position;
};

class DecodeEngine {
 public:
  virtual ~DecodeEngine() = default;

  // Appends rows, in the order of their positions, and keeps the logits of those from first_logits_row on.
  virtual void run(std::span<const DecodeRow> rows, int64_t first_logits_row) = 0;
  // Those of the last run, where the caller can read them: rows logits_stride() apart.
  virtual const float* logits() = 0;
  virtual int64_t logits_stride() const = 0;

  // Sampling starts afresh; the rows run from here on count as seen.
  virtual void set_sampler(const SamplerOptions& options) = 0;
  // The tokens that follow, for sequences from first_sequence on, from rows of logits from first_logits_row on.
  virtual void choose(std::span<int32_t> tokens, int64_t first_sequence, int64_t first_logits_row) = 0;
  // One row for each sequence, with the token chosen for it last; then chooses the next.
  virtual void advance(std::span<const DecodeRow> rows, std::span<int32_t> tokens) {
    run(rows, 0);
    choose(tokens, 0, 0);
  }

  virtual void record_steps(bool) {}
  virtual int64_t launches_of_step() const { return 0; }

  virtual int64_t weight_bytes() const = 0;        // of the matrices, as a step reads them
  virtual int64_t bytes_per_position() const = 0;  // of the cache
};

// Error where memory is short.
std::unique_ptr<DecodeEngine> make_cpu_engine(const Transformer& model, const DecoderOptions& options);
std::unique_ptr<DecodeEngine> make_cuda_engine(const Transformer& model, const DecoderOptions& options);

}  // namespace taper

// Runs a model over tokens with a key-value cache: prompts in blocks, then one token of every sequence at a time; and
// chooses the tokens that follow. On the processor or on a CUDA device, behind one interface.
//
// Nothing is allocated after construction. To the bit, logits do not depend on the number of threads, on the other
// sequences, or on how a prompt is cut into blocks (bf16 on AMX aside).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core/device.h"
#include "engine/kernels/decode.h"
#include "infer/plan.h"
#include "infer/sampler.h"
#include "model/transformer.h"

namespace taper {

struct DecoderOptions {
  Plan plan = Plan::normed;
  WeightType weights = WeightType::f32;  // of matrices and cache; with int8 the cache is f32
  int64_t sequences = 1;
  int64_t block = 128;      // tokens of a prompt at once
  bool all_logits = false;  // feed() returns those of every token, not of the last alone; block bounds their number
  Device device = Device::cpu;
};

class DecodeEngine;
struct DecodeRow;

class Decoder {
 public:
  // The model has f32 masters in the processor's memory, and is not needed afterwards; the plan folded wants a folded
  // model. Error where memory is short, or the device is not to be had.
  Decoder(const Transformer& model, const DecoderOptions& options);
  ~Decoder();

  int64_t vocab_size() const { return vocab_size_; }
  int64_t context() const { return context_; }
  int64_t sequences() const { return options_.sequences; }
  int64_t length(int64_t sequence = 0) const { return lengths_[static_cast<size_t>(sequence)]; }

  // Appends tokens to one sequence and returns the logits [V] after the last of them; with all_logits, of each: rows
  // logits_stride() apart. Valid until the next call. UsageError where the tokens do not fit the context, Error for an
  // id outside the vocabulary: nothing was appended then.
  std::span<const float> feed(std::span<const int32_t> tokens, int64_t sequence = 0);
  // One token for each sequence; logits rows logits_stride() apart.
  std::span<const float> step(std::span<const int32_t> tokens);
  int64_t logits_stride() const;

  // How tokens are chosen from here on, greedily until this is called: each sequence draws from random numbers of its
  // own. UsageError as check_sampler().
  void set_sampler(const SamplerOptions& options);
  // The tokens that follow what the last call appended: one after feed(), else one for each sequence. Error where a
  // logit is not finite. What was appended since set_sampler() counts as seen.
  std::span<const int32_t> choose();
  // Appends to every sequence the token chosen for it last, and chooses the next. UsageError where one has no room.
  std::span<const int32_t> advance();

  // On a CUDA device: whether work that comes up again is recorded and launched as a whole, as it is until told
  // otherwise; or kernel by kernel. Elsewhere nothing.
  void record_steps(bool records);
  // Kernels that one launch of the recorded advance() runs; 0 where none is recorded.
  int64_t launches_of_step() const;

  // Forgets all but the first `length` tokens of every sequence.
  void reset(int64_t length = 0);

  // What a step reads when each sequence holds `length` tokens: the matrices, once for all, and the caches.
  int64_t bytes_per_step(int64_t length) const;

 private:
  void check(std::span<const int32_t> tokens, int64_t sequence) const;
  void make_step(std::span<const int32_t> tokens);  // rows_: one token for each sequence
  void count_step();

  DecoderOptions options_;
  int64_t vocab_size_, context_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<DecodeEngine> engine_;
  std::vector<DecodeRow> rows_;  // of the call at work
  std::vector<int32_t> chosen_;  // for each sequence, last
  // Of the last call: what choose() chooses for, and the first row of its logits.
  int64_t first_sequence_ = 0, sequence_count_ = 0, first_row_ = 0;
};

}  // namespace taper

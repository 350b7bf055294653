// Runs a model over tokens with a key-value cache: prompts in blocks, then one token of every sequence at a time.
// A call is one parallel region; the threads meet at spinning barriers, twice a layer where heads and hidden channels
// divide among them. Nothing is allocated after construction. To the bit, logits do not depend on the number of
// threads, on the other sequences, or on how a prompt is cut into blocks (bf16 on AMX aside).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "infer/decode_weights.h"
#include "infer/kv_cache.h"

namespace taper {

struct DecoderOptions {
  Plan plan = Plan::normed;
  Dtype weights = Dtype::f32;  // f32 or bf16: of matrices and cache
  int64_t sequences = 1;
  int64_t block = 128;      // tokens of a prompt at once
  bool all_logits = false;  // feed() returns those of every token, not of the last alone; block bounds their number
};

struct DecodeRow;
struct DecodeWorkspace;

class Decoder {
 public:
  // The packed weights may serve several decoders. Error where memory is short.
  Decoder(std::shared_ptr<const DecodeWeights> weights, const DecoderOptions& options);
  // For a model at hand: packs it first. The plan folded wants a folded model.
  Decoder(const Transformer& model, const DecoderOptions& options);
  ~Decoder();

  int64_t vocab_size() const { return shape_.config.vocab_size; }
  int64_t context() const { return shape_.config.context; }
  int64_t sequences() const { return options_.sequences; }
  int64_t length(int64_t sequence = 0) const { return cache_.length(sequence); }

  // Appends tokens to one sequence and returns the logits [V] after the last of them; with all_logits, of each: rows
  // logits_stride() apart. Valid until the next call. UsageError where the tokens do not fit the context, Error for an
  // id outside the vocabulary: nothing was appended then.
  std::span<const float> feed(std::span<const int32_t> tokens, int64_t sequence = 0);
  // One token for each sequence; logits rows logits_stride() apart.
  std::span<const float> step(std::span<const int32_t> tokens);
  int64_t logits_stride() const { return shape_.vocabulary; }

  // Forgets all but the first `length` tokens of every sequence.
  void reset(int64_t length = 0);

  // What a step reads when each sequence holds `length` tokens: the packed weights, once for all, and the caches.
  int64_t bytes_per_step(int64_t length) const;
  const DecodeWeights& weights() const { return *weights_; }

 private:
  void check(std::span<const int32_t> tokens, int64_t sequence) const;
  void run(int64_t first_logits_row);

  DecoderOptions options_;
  std::shared_ptr<const DecodeWeights> weights_;
  const DecodeShape& shape_;
  KvCache cache_;
  int threads_;
  std::vector<DecodeRow> rows_;  // of the call at work
  std::unique_ptr<DecodeWorkspace> workspace_;
};

}  // namespace taper

// The next token from logits. Order: repetition penalty, temperature, top-k, top-p, min-p; each works on what the one
// before has left, renormalised, and leaves at least one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/random.h"

namespace taper {

struct SamplerOptions {
  double temperature = 1.0;         // >= 0; 0: the greatest logit, the lowest id among equals
  int64_t top_k = 0;                // the k most probable; 0: all
  double top_p = 1.0;               // in [0, 1]: the fewest most probable tokens that have this much of the mass
  double min_p = 0.0;               // in [0, 1]: at least this times the greatest probability
  double repetition_penalty = 1.0;  // > 0: logits of tokens seen are divided by it where positive, else multiplied
                                    // (Keskar et al., CTRL, arXiv 1909.05858)
  uint64_t seed = 42;
};

// UsageError where an option is out of range or no number.
void check_sampler(const SamplerOptions& options);

// The greatest logit, the lowest id among equals. Error that names the first logit that is NaN or infinite.
int32_t greedy(std::span<const float> logits);

struct Candidate {
  int32_t id = 0;
  double probability = 0;
};

class Sampler {
 public:
  // Texts that are sampled side by side with one seed have a substream each.
  Sampler(const SamplerOptions& options, int64_t vocab_size, uint32_t substream = 0);

  // A token of the prompt or of the text so far, for the repetition penalty.
  void accept(int32_t token);
  int32_t next(std::span<const float> logits);

  // What next() draws from: most probable first, equals by id; probabilities sum to 1.
  std::vector<Candidate> candidates(std::span<const float> logits);

 private:
  std::span<const float> penalised(std::span<const float> logits);
  void prepare(std::span<const float> logits);  // fills choice_
  const Candidate& ordered(size_t i);           // the i-th most probable of choice_
  void keep(size_t count);                      // the first of choice_, renormalised

  SamplerOptions options_;
  Random random_;
  std::vector<bool> is_seen_;
  std::vector<float> logits_;
  std::vector<Candidate> choice_;
  size_t ordered_ = 0;  // so many of choice_ are where they belong
};

}  // namespace taper

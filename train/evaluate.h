// Loss on held-out data, in windows of T tokens in order: window k predicts tokens kT+1 .. kT+T and sees nothing before
// it, so each is predicted once; floor((N-1)/T) windows, the rest is left out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/token_shards.h"
#include "data/tokenizer.h"
#include "model/transformer.h"

namespace taper {

// Windows to evaluate on, wherever they come from.
struct WindowSource {
  int64_t count = 0;
  int64_t context = 0;
  // Windows [first, first + batch) into tokens and targets [batch, context].
  std::function<void(int64_t first, int64_t batch, int32_t* tokens, int32_t* targets)> copy;
};

// UsageError where there are fewer than T+1 tokens. Both keep a reference to what they read.
WindowSource windows_of(const TokenDataset& data, int64_t context);
WindowSource windows_of(std::span<const int32_t> ids, const std::string& name, int64_t context);

struct Evaluation {
  double loss = 0;  // mean over predicted tokens, in nats
  int64_t tokens = 0;
  double perplexity = 0;
  double bits_per_byte = 0;  // total loss / ln 2 / the bytes the predicted tokens decode to; 0 without a tokenizer
};

// At most `max_tokens` predicted tokens (0: all), from the front. Stops early where a stop was requested
// (engine/core/interrupt.h) and then returns what it has. A loss that is not finite is returned as it is.
Evaluation evaluate(const Transformer& model, Gate gate, const WindowSource& windows, const Tokenizer* tokenizer,
                    int64_t max_tokens = 0);

// Error where it is not.
void require_finite(double loss);

// Mean next-token loss over rows of ids, and the logits at the last position of each row. Error where a row is empty,
// too long or has an id outside the vocabulary, or a logit is not finite.
struct RowsEvaluation {
  std::optional<double> loss;  // absent where no row has a next token
  std::vector<std::vector<double>> last_logits;
};
RowsEvaluation evaluate_rows(const Transformer& model, Gate gate, const std::vector<std::vector<int32_t>>& rows);

}  // namespace taper

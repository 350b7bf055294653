#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "data/batch_sampler.h"
#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"

namespace taper {
namespace {

// Enough rows for the products to run well, few enough for the memory to stay small.
constexpr int64_t kBatchTokens = 2048;

int64_t byte_count(const Tokenizer& tokenizer, const Tensor& ids) {
  int64_t bytes = 0;
  const int32_t* values = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) bytes += static_cast<int64_t>(tokenizer.token_bytes(values[i]).size());
  return bytes;
}

}  // namespace

WindowSource windows_of(const TokenDataset& data, int64_t context) {
  const auto windows = std::make_shared<EvaluationWindows>(data, context);
  return {windows->count(), context, [windows](int64_t first, int64_t batch, int32_t* tokens, int32_t* targets) {
            windows->batch(first, batch, tokens, targets);
          }};
}

WindowSource windows_of(std::span<const int32_t> ids, const std::string& name, int64_t context) {
  require_usage(ids.size() > static_cast<size_t>(context), "{}: too short: needs at least T+1 = {} tokens, it has {}",
                name, context + 1, ids.size());
  const int64_t count = (static_cast<int64_t>(ids.size()) - 1) / context;
  return {count, context, [ids, context](int64_t first, int64_t batch, int32_t* tokens, int32_t* targets) {
            const int32_t* begin = ids.data() + first * context;
            std::copy(begin, begin + batch * context, tokens);
            std::copy(begin + 1, begin + 1 + batch * context, targets);
          }};
}

Evaluation evaluate(const Transformer& model, Gate gate, const WindowSource& windows, const Tokenizer* tokenizer,
                    int64_t max_tokens) {
  const NoGrad no_grad;
  const int64_t context = windows.context;
  const int64_t wanted = max_tokens > 0 ? std::max<int64_t>(1, max_tokens / context) : windows.count;
  const int64_t count = std::min(windows.count, wanted);
  const int64_t most = std::max<int64_t>(1, kBatchTokens / context);
  double total = 0;
  int64_t bytes = 0;
  Evaluation result;
  for (int64_t first = 0; first < count && !stop_requested(); first += most) {
    const int64_t batch = std::min(most, count - first);
    const Tensor tokens = Tensor::empty({batch, context}, Dtype::i32);
    const Tensor targets = Tensor::empty({batch, context}, Dtype::i32);
    windows.copy(first, batch, tokens.data<int32_t>(), targets.data<int32_t>());
    total += model.cross_entropy(model.hidden(tokens, gate).normed, targets, 1.0).loss.item();
    if (tokenizer) bytes += byte_count(*tokenizer, targets);
    result.tokens += targets.numel();
  }
  if (result.tokens == 0) return result;
  result.loss = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  if (bytes > 0) result.bits_per_byte = total / std::numbers::ln2 / static_cast<double>(bytes);
  return result;
}

void require_finite(double loss) { require(std::isfinite(loss), "evaluate: the loss is not finite; got {}", loss); }

RowsEvaluation evaluate_rows(const Transformer& model, Gate gate, const std::vector<std::vector<int32_t>>& rows) {
  const NoGrad no_grad;
  RowsEvaluation result;
  double total = 0;
  int64_t predicted = 0;
  for (const std::vector<int32_t>& row : rows) {
    const auto length = static_cast<int64_t>(row.size());
    require(length > 0, "ids: row {} is empty", result.last_logits.size());
    const HiddenStates states = model.hidden(Tensor::from(row, {1, length}), gate);
    const Tensor flat = states.normed.reshaped({length, model.config().width});
    if (length > 1) {
      const Tensor targets = Tensor::from(std::vector<int32_t>(row.begin() + 1, row.end()), {length - 1});
      total += model.cross_entropy(flat.rows(0, length - 1), targets, 1.0).loss.item();
      predicted += length - 1;
    }
    result.last_logits.push_back(model.unembed(flat.rows(length - 1, length)).to_doubles());
    for (const double logit : result.last_logits.back())
      require(std::isfinite(logit), "evaluate: a logit is not finite");
  }
  if (predicted > 0) result.loss = total / static_cast<double>(predicted);
  return result;
}

}  // namespace taper

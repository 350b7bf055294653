#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/error.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_run.h"
#include "train/evaluate.h"

using namespace taper;
using namespace taper::test;

namespace {

std::vector<int32_t> ids(size_t count) {
  std::vector<int32_t> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = static_cast<int32_t>(i * 7 % 31);
  return result;
}

}  // namespace

TEST_CASE("evaluate: floor((N-1)/T) windows, and an error below T+1 tokens") {
  const auto count = [](size_t tokens) { return windows_of(ids(tokens), "text", 1024).count; };
  CHECK_THROWS_WITH_AS(count(0), doctest::Contains("needs at least T+1 = 1025 tokens, it has 0"), UsageError);
  CHECK_THROWS_AS(count(1024), UsageError);
  CHECK(count(1025) == 1);
  CHECK(count(2048) == 1);
  CHECK(count(2049) == 2);
}

TEST_CASE("evaluate: the mean over predicted tokens, whatever the windows' batches") {
  const Transformer model(tiny_config(), Precision::f64);
  scramble(model, 1);
  const std::vector<int32_t> text = ids(50);
  const Evaluation all = evaluate(model, Gate{0.0}, windows_of(text, "text", 8), nullptr);
  CHECK(all.tokens == 48);
  CHECK(all.bits_per_byte == 0);
  CHECK(all.perplexity == doctest::Approx(std::exp(all.loss)));
  double sum = 0;
  for (int64_t window = 0; window < 6; ++window) {
    const std::vector<int32_t> row(text.begin() + window * 8, text.begin() + window * 8 + 9);
    // A row of nine does not fit the context: its loss position by position through the logits.
    const Tensor tokens = Tensor::from(std::vector<int32_t>(row.begin(), row.end() - 1), {1, 8});
    const auto logits = model.logits(tokens, Gate{0.0}).to_doubles();
    for (size_t t = 0; t < 8; ++t) {
      double total = 0;
      for (size_t v = 0; v < 31; ++v) total += std::exp(logits[t * 31 + v]);
      sum += std::log(total) - logits[t * 31 + static_cast<size_t>(row[t + 1])];
    }
  }
  CHECK(all.loss == doctest::Approx(sum / 48));
  CHECK(evaluate(model, Gate{0.0}, windows_of(text, "text", 8), nullptr, 16).tokens == 16);
}

TEST_CASE("evaluate: bits a byte are those of the predicted tokens' bytes") {
  ModelConfig config = tiny_config();
  config.vocab_size = 256;
  const Transformer model(config, Precision::f64);
  scramble(model, 1);
  const Tokenizer tokenizer = byte_tokenizer();
  const Evaluation result = evaluate(model, Gate{0.0}, windows_of(ids(50), "text", 8), &tokenizer);
  CHECK(result.bits_per_byte == doctest::Approx(result.loss / std::log(2.0)));
}

TEST_CASE("evaluate: rows of ids, their mean loss and their last logits") {
  const Transformer model(tiny_config(), Precision::f64);
  scramble(model, 1);
  const RowsEvaluation result = evaluate_rows(model, Gate{0.0}, {{1, 2, 3}, {4}});
  CHECK(result.last_logits.size() == 2);
  const auto logits = model.logits(Tensor::from<int32_t>({1, 2, 3}, {1, 3}), Gate{0.0}).to_doubles();
  for (size_t v = 0; v < 31; ++v) CHECK(result.last_logits[0][v] == doctest::Approx(logits[62 + v]));
  double sum = 0;
  for (size_t t = 0; t < 2; ++t) {
    double total = 0;
    for (size_t v = 0; v < 31; ++v) total += std::exp(logits[t * 31 + v]);
    sum += std::log(total) - logits[t * 31 + t + 2];
  }
  REQUIRE(result.loss.has_value());
  CHECK(*result.loss == doctest::Approx(sum / 2));
  CHECK_FALSE(evaluate_rows(model, Gate{0.0}, {{4}}).loss.has_value());
  CHECK_THROWS_AS(evaluate_rows(model, Gate{0.0}, {{}}), Error);
  CHECK_THROWS_AS(evaluate_rows(model, Gate{0.0}, {{31}}), Error);
}

TEST_CASE("evaluate: a loss that is not finite is an error") {
  const Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  model.parameter("wte.weight").master.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Evaluation result = evaluate(model, Gate{0.0}, windows_of(ids(50), "text", 8), nullptr);
  CHECK_THROWS_WITH_AS(require_finite(result.loss), doctest::Contains("not finite"), Error);
}

// What samples of random numbers do not reach: very large logits, and logits that are no numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/autograd/tape.h"
#include "engine/ops/ops.h"

using namespace taper;

namespace {

struct Result {
  double loss;
  std::vector<double> dlogits;
};

// The bias carries the logits, the weight is zero: so infinite logits reach the loss as they are.
Result cross_entropy(const std::vector<double>& logits, int32_t target, Dtype dtype) {
  const int64_t n = static_cast<int64_t>(logits.size());
  Tensor bias = Tensor::from(logits, {n}).cast(accumulation_dtype(dtype));
  bias.set_requires_grad();
  const Tensor weight = Tensor::zeros({n, 1}, dtype);
  const Tensor x = Tensor::full({1, 1}, 1.0, dtype), targets = Tensor::from(std::vector<int32_t>{target}, {1});
  const auto result = unembed_cross_entropy(x, weight, bias, targets, 1.0);
  backward(result.loss);
  return {result.loss.item(), bias.grad().to_doubles()};
}

}  // namespace

TEST_CASE("cross_entropy: large logits neither overflow nor lose the small term") {
  struct Case {
    std::vector<double> logits;
    int32_t target;
    double want;
  };
  const Case cases[] = {{{1e8, 1e8}, 0, 0.6931472},   {{1e4, 0}, 1, 10000}, {{1e4, 0}, 0, 0},
                        {{-1e4, -1e4}, 1, 0.6931472}, {{3e38, 0}, 1, 3e38}, {{100, -100, 0}, 0, 0}};
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Case& c : cases) {
      CAPTURE(to_string(dtype));
      CAPTURE(c.want);
      const Result result = cross_entropy(c.logits, c.target, dtype);
      CHECK(result.loss == doctest::Approx(c.want).epsilon(1e-6));
      double sum = 0;
      for (const double d : result.dlogits) {
        CHECK(std::isfinite(d));
        sum += d;
      }
      CHECK(std::abs(sum) < (dtype == Dtype::bf16 ? 1e-2 : 1e-6));
    }
  }
}

TEST_CASE("cross_entropy: a logit that is no finite number shows in the loss") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    CAPTURE(to_string(dtype));
    CHECK_FALSE(std::isfinite(cross_entropy({0, infinity, 1}, 0, dtype).loss));
    CHECK_FALSE(std::isfinite(cross_entropy({0, infinity, 1}, 1, dtype).loss));
    CHECK_FALSE(std::isfinite(cross_entropy({0, std::nan(""), 1}, 0, dtype).loss));
    CHECK_FALSE(std::isfinite(cross_entropy({std::nan(""), 0, 1}, 2, dtype).loss));
    CHECK_FALSE(std::isfinite(cross_entropy({0, -infinity, 1}, 1, dtype).loss));
    CHECK(std::isfinite(cross_entropy({0, -infinity, 1}, 0, dtype).loss));
  }
}

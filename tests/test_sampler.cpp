#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "infer/sampler.h"

using namespace taper;

namespace {

const std::vector<double> kProbabilities{0.5, 0.2, 0.15, 0.1, 0.05};

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int32_t> kept(const SamplerOptions& options) {
  Sampler sampler(options, 5);
  std::vector<int32_t> ids;
  double sum = 0;
  for (const Candidate& each : sampler.candidates(logits_of(kProbabilities))) {
    ids.push_back(each.id);
    sum += each.probability;
  }
  CHECK(sum == doctest::Approx(1.0));
  return ids;
}

SamplerOptions with(double temperature, int64_t top_k, double top_p, double min_p = 0) {
  SamplerOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  options.min_p = min_p;
  return options;
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("sampler: top-p keeps the fewest tokens that reach the mass, never none") {
  CHECK(kept(with(1, 0, 0.0)) == Ids{0});
  CHECK(kept(with(1, 0, 0.5)) == Ids{0});
  CHECK(kept(with(1, 0, 0.8)) == Ids{0, 1, 2});
  CHECK(kept(with(1, 0, 1.0)) == Ids{0, 1, 2, 3, 4});
}

TEST_CASE("sampler: top-k is off at 0, greedy at 1, and everything when large") {
  CHECK(kept(with(1, 0, 1)).size() == 5);
  CHECK(kept(with(1, 1, 1)) == Ids{0});
  CHECK(kept(with(1, 3, 1)) == Ids{0, 1, 2});
  CHECK(kept(with(1, 1'000'000, 1)).size() == 5);
}

TEST_CASE("sampler: top-p counts on what top-k has left") {
  CHECK(kept(with(1, 1, 0.8)) == Ids{0});
  // Of three, renormalised: .588, .235, .176.
  CHECK(kept(with(1, 3, 0.8)) == Ids{0, 1});
}

TEST_CASE("sampler: min-p is relative to the most probable token") {
  CHECK(kept(with(1, 0, 1, 0.35)) == Ids{0, 1});
  CHECK(kept(with(1, 0, 1, 1.0)) == Ids{0});
}

TEST_CASE("sampler: temperature 0 and nearly 0 are greedy, with the lowest id on ties") {
  const std::vector<float> logits{1, 3, -2, 3, 0};
  for (double temperature : {0.0, 1e-6}) {
    CAPTURE(temperature);
    Sampler sampler(with(temperature, 0, 1), 5);
    CHECK(sampler.candidates(logits).front().id == 1);
  }
  Sampler sampler(with(0, 0, 1), 5);
  for (int i = 0; i < 20; ++i) CHECK(sampler.next(logits) == 1);
  CHECK(greedy(std::vector<float>{-0.0f, 0.0f}) == 0);
  CHECK(greedy(std::vector<float>{-3.0f, -1.0f, -2.0f}) == 1);
  Sampler nearly(with(1e-6, 0, 1), 5);
  for (int i = 0; i < 20; ++i) CHECK(nearly.next(std::vector<float>{1, 2, 0, 0, 0}) == 1);
}

TEST_CASE("sampler: of a large vocabulary the most probable come first, and a draw goes by them") {
  constexpr size_t kVocabulary = 3000;
  std::vector<float> logits(kVocabulary);
  for (size_t i = 0; i < kVocabulary; ++i) logits[i] = static_cast<float>(i * 997 % 1009) / 100.0f;
  for (const SamplerOptions& options : {with(1, 0, 1), with(0.7, 500, 1), with(1, 0, 0.9), with(1, 0, 1, 0.01)}) {
    const auto order = Sampler(options, kVocabulary).candidates(logits);
    CHECK(order.size() > 64);
    CHECK(std::is_sorted(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
    }));
    Sampler sampler(options, kVocabulary);
    Random random(options.seed, RandomStream::sampling, 0);
    for (int draw = 0; draw < 50; ++draw) {
      double rest = random.next_uniform();
      size_t i = 0;
      while (i + 1 < order.size() && (rest -= order[i].probability) >= 0) ++i;
      CHECK(sampler.next(logits) == order[i].id);
    }
  }
}

TEST_CASE("sampler: options out of range or no number are wrong use") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (double temperature : {-1.0, nan, infinity}) CHECK_THROWS_AS(check_sampler(with(temperature, 0, 1)), UsageError);
  for (double p : {-1.0, 1.5, nan}) {
    CHECK_THROWS_AS(check_sampler(with(1, 0, p)), UsageError);
    CHECK_THROWS_AS(check_sampler(with(1, 0, 1, p)), UsageError);
  }
  CHECK_THROWS_AS(check_sampler(with(1, -1, 1)), UsageError);
  SamplerOptions penalty;
  for (double value : {0.0, -1.0, nan}) {
    penalty.repetition_penalty = value;
    CHECK_THROWS_AS(check_sampler(penalty), UsageError);
  }
}

TEST_CASE("sampler: logits that are no numbers are refused by name, in every mode") {
  for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const std::vector<float> logits{0, 1, bad, 2, 0};
    for (double temperature : {0.0, 1.0}) {
      Sampler sampler(with(temperature, 2, 0.9), 5);
      CHECK_THROWS_WITH_AS(sampler.next(logits), doctest::Contains("logit of token 2"), Error);
    }
    CHECK_THROWS_AS(greedy(logits), Error);
  }
}

TEST_CASE("sampler: draws follow the probabilities and the seed") {
  SamplerOptions options;
  Sampler a(options, 5), b(options, 5);
  options.seed = 43;
  Sampler other(options, 5);
  std::vector<int> counts(5);
  const auto logits = logits_of(kProbabilities);
  constexpr int kDraws = 20000;
  int differing = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t id = a.next(logits);
    CHECK(id == b.next(logits));
    differing += id != other.next(logits);
    ++counts[static_cast<size_t>(id)];
  }
  CHECK(differing > kDraws / 4);
  // Six standard deviations.
  for (size_t i = 0; i < 5; ++i) {
    const double p = kProbabilities[i];
    CHECK(std::abs(counts[i] - kDraws * p) < 6 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST_CASE("sampler: the repetition penalty lowers seen tokens, whatever the sign of their logit") {
  SamplerOptions options = with(0, 0, 1);
  options.repetition_penalty = 2;
  Sampler sampler(options, 3);
  CHECK(sampler.next(std::vector<float>{2.0f, 1.5f, -1.0f}) == 0);
  sampler.accept(0);
  CHECK(sampler.next(std::vector<float>{2.0f, 1.5f, -1.0f}) == 1);
  CHECK(sampler.next(std::vector<float>{-1.0f, -1.5f, -3.0f}) == 1);
}

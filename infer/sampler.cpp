#include "infer/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/core/error.h"

namespace taper {
namespace {

// Integers compare as the floats do, so that the search for the greatest needs no floating-point order.
int32_t ordered(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value + 0.0f);  // -0 counts as 0
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

void check_finite(std::span<const float> logits) {
  uint32_t greatest = 0;
  for (const float logit : logits) greatest = std::max(greatest, std::bit_cast<uint32_t>(logit) & 0x7fffffffu);
  if (greatest < 0x7f800000u) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    require(std::isfinite(logits[i]),
            "generate: the logit of token {} is {}; the model's parameters are damaged or too "
            "large for this precision",
            i, logits[i]);
  }
}

bool is_more_probable(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

void normalise(std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& each : candidates) sum += each.probability;
  for (Candidate& each : candidates) each.probability /= sum;
}

}  // namespace

void check_sampler(const SamplerOptions& o) {
  require_usage(std::isfinite(o.temperature) && o.temperature >= 0, "temperature: got {}, want 0 or more",
                o.temperature);
  require_usage(o.top_k >= 0, "top-k: got {}, want 0 (off) or more", o.top_k);
  require_usage(o.top_p >= 0 && o.top_p <= 1, "top-p: got {}, want 0 to 1", o.top_p);
  require_usage(o.min_p >= 0 && o.min_p <= 1, "min-p: got {}, want 0 to 1", o.min_p);
  require_usage(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0,
                "repetition-penalty: got {}, want more than 0", o.repetition_penalty);
}

int32_t greedy(std::span<const float> logits) {
  require(!logits.empty(), "generate: no logits");
  check_finite(logits);
  int32_t greatest = ordered(logits[0]);
  for (const float logit : logits) greatest = std::max(greatest, ordered(logit));
  const auto found =
      std::find_if(logits.begin(), logits.end(), [&](float logit) { return ordered(logit) == greatest; });
  return static_cast<int32_t>(found - logits.begin());
}

Sampler::Sampler(const SamplerOptions& options, int64_t vocab_size, uint32_t substream)
    : options_(options),
      random_(options.seed, RandomStream::sampling, substream),
      is_seen_(static_cast<size_t>(vocab_size), false),
      logits_(static_cast<size_t>(vocab_size)) {
  check_sampler(options);
}

void Sampler::accept(int32_t token) { is_seen_.at(static_cast<size_t>(token)) = true; }

std::span<const float> Sampler::penalised(std::span<const float> logits) {
  if (options_.repetition_penalty == 1.0) return logits;
  const float penalty = static_cast<float>(options_.repetition_penalty);
  for (size_t i = 0; i < logits.size(); ++i)
    logits_[i] = !is_seen_[i] ? logits[i] : logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
  return {logits_.data(), logits.size()};
}

int32_t Sampler::next(std::span<const float> logits) {
  if (options_.temperature == 0.0) {
    if (options_.repetition_penalty != 1.0) check_finite(logits);
    return greedy(penalised(logits));
  }
  const std::vector<Candidate> choice = candidates(logits);
  double rest = random_.next_uniform();
  for (const Candidate& each : choice) {
    rest -= each.probability;
    if (rest < 0) return each.id;
  }
  return choice.back().id;
}

std::vector<Candidate> Sampler::candidates(std::span<const float> raw) {
  check_finite(raw);
  const std::span<const float> logits = penalised(raw);
  const int32_t best = greedy(logits);
  if (options_.temperature == 0.0) return {{best, 1.0}};
  // Beyond this many nats below the greatest a token is never drawn: its probability is under 1e-20.
  constexpr double kNegligible = -46;
  const double top = logits[static_cast<size_t>(best)];
  std::vector<Candidate> result;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double below = (logits[i] - top) / options_.temperature;
    if (below > kNegligible) result.push_back({static_cast<int32_t>(i), std::exp(below)});
  }
  const auto keep = [&](size_t count) { result.resize(std::max<size_t>(1, count)); };
  if (options_.top_k > 0 && options_.top_k < std::ssize(result)) {
    std::nth_element(result.begin(), result.begin() + options_.top_k - 1, result.end(), is_more_probable);
    keep(static_cast<size_t>(options_.top_k));
  }
  std::sort(result.begin(), result.end(), is_more_probable);
  normalise(result);
  if (options_.top_p < 1) {
    // A sum that misses the wanted mass by rounding alone has reached it.
    constexpr double kRounding = 1e-12;
    double mass = 0;
    size_t count = 0;
    while (count < result.size() && (count == 0 || mass < options_.top_p - kRounding))
      mass += result[count++].probability;
    keep(count);
    normalise(result);
  }
  if (options_.min_p > 0) {
    const double least = options_.min_p * result[0].probability;
    keep(static_cast<size_t>(
        std::find_if(result.begin(), result.end(), [&](const Candidate& each) { return each.probability < least; }) -
        result.begin()));
    normalise(result);
  }
  return result;
}

}  // namespace taper

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
  prepare(logits);
  double rest = random_.next_uniform();
  for (size_t i = 0; i < choice_.size(); ++i) {
    rest -= ordered(i).probability;
    if (rest < 0) return choice_[i].id;
  }
  return choice_.back().id;
}

std::vector<Candidate> Sampler::candidates(std::span<const float> logits) {
  prepare(logits);
  ordered(choice_.size() - 1);
  return choice_;
}

// A draw ends among the first few nearly always: most of a large vocabulary is never put in order.
const Candidate& Sampler::ordered(size_t i) {
  constexpr size_t kFirst = 64, kGrowth = 4;
  while (i >= ordered_) {
    const size_t end = std::min(choice_.size(), std::max(kFirst, ordered_ * kGrowth));
    const auto from = choice_.begin() + static_cast<std::ptrdiff_t>(ordered_);
    const auto to = choice_.begin() + static_cast<std::ptrdiff_t>(end);
    if (to != choice_.end()) std::nth_element(from, to, choice_.end(), is_more_probable);
    std::sort(from, to, is_more_probable);
    ordered_ = end;
  }
  return choice_[i];
}

void Sampler::keep(size_t count) {
  choice_.resize(std::max<size_t>(1, count));
  ordered_ = std::min(ordered_, choice_.size());
  double sum = 0;
  for (const Candidate& each : choice_) sum += each.probability;
  for (Candidate& each : choice_) each.probability /= sum;
}

void Sampler::prepare(std::span<const float> raw) {
  check_finite(raw);
  const std::span<const float> logits = penalised(raw);
  const int32_t best = greedy(logits);
  choice_.clear();
  ordered_ = 0;
  if (options_.temperature == 0.0) return choice_.push_back({best, 1.0});
  // Beyond this many nats below the greatest a token is never drawn: its probability is under 1e-20.
  constexpr double kNegligible = -46;
  const double top = logits[static_cast<size_t>(best)];
  for (size_t i = 0; i < logits.size(); ++i) {
    const double below = (logits[i] - top) / options_.temperature;
    if (below > kNegligible) choice_.push_back({static_cast<int32_t>(i), std::exp(below)});
  }
  const auto k = static_cast<size_t>(options_.top_k);
  if (k > 0 && k < choice_.size()) {
    std::nth_element(choice_.begin(), choice_.begin() + options_.top_k - 1, choice_.end(), is_more_probable);
    keep(k);
  } else {
    keep(choice_.size());
  }
  if (options_.top_p < 1) {
    // A sum that misses the wanted mass by rounding alone has reached it.
    constexpr double kRounding = 1e-12;
    double mass = 0;
    size_t count = 0;
    while (count < choice_.size() && (count == 0 || mass < options_.top_p - kRounding))
      mass += ordered(count++).probability;
    keep(count);
  }
  if (options_.min_p > 0) {
    const double least = options_.min_p * ordered(0).probability;
    size_t count = 0;
    while (count < choice_.size() && ordered(count).probability >= least) ++count;
    keep(count);
  }
}

}  // namespace taper

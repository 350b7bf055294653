// How unusual a number of a run is among those before it: z = (x - mean) / deviation, where a value weighs kDecay times
// as much as the one after it (West, "Updating mean and variance estimates", CACM 1979, with falling weights).
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace taper {

class ZScore {
 public:
  static constexpr double kDecay = 0.99;
  static constexpr int64_t kFewest = 10;

  // z of the value, which then counts itself. None where fewer than kFewest came before, all were alike, or the value
  // is not finite and does not count.
  std::optional<double> observe(double value) {
    if (!std::isfinite(value)) return {};
    const double difference = value - mean_;
    std::optional<double> z;
    if (count_ >= kFewest && variance_ > 0) z = difference / std::sqrt(variance_);
    ++count_;
    weight_ = kDecay * weight_ + 1;
    mean_ += difference / weight_;
    variance_ = (1 - 1 / weight_) * (variance_ + difference * difference / weight_);
    return z;
  }

 private:
  int64_t count_ = 0;
  double weight_ = 0, mean_ = 0, variance_ = 0;
};

}  // namespace taper

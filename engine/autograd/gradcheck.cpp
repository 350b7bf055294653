#include "engine/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/core/random.h"

namespace taper {
namespace {

class Checker {
 public:
  explicit Checker(const GradCheck& check) : check_(check), random_(check.seed, RandomStream::test, 1) {
    for (const Tensor& input : check.inputs) inputs_.push_back(input ? input.clone() : input);
  }

  std::string run() {
    differentiate();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (check_.is_differentiated[i]) check_entries(i);
    }
    check_direction();
    return report_;
  }

 private:
  bool counts(size_t output) const {
    const auto& left_out = check_.outputs_without_grad;
    return std::find(left_out.begin(), left_out.end(), static_cast<int>(output)) == left_out.end();
  }

  void differentiate() {
    Tensors leaves, roots, cotangents;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      leaves.push_back(inputs_[i] ? inputs_[i].clone() : inputs_[i]);
      if (check_.is_differentiated[i]) leaves.back().set_requires_grad();
    }
    const Tensors outputs = check_.function(leaves);
    for (size_t i = 0; i < outputs.size(); ++i) {
      cotangents_.push_back(random_normal(outputs[i].shape(), Dtype::f64, check_.seed + 100 + i));
      if (!counts(i)) continue;
      roots.push_back(outputs[i]);
      cotangents.push_back(cotangents_.back());
    }
    backward(roots, cotangents);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const bool has_gradient = check_.is_differentiated[i] && leaves[i].grad();
      analytic_.push_back(has_gradient ? leaves[i].grad().to_doubles() : std::vector<double>());
      if (check_.is_differentiated[i] && !has_gradient) say("input {} received no gradient", i);
    }
  }

  double value() const {
    const NoGrad no_grad;
    const Tensors outputs = check_.function(inputs_);
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!counts(i)) continue;
      const double* y = outputs[i].data<double>();
      const double* w = cotangents_[i].data<double>();
      for (int64_t j = 0; j < outputs[i].numel(); ++j) sum += y[j] * w[j];
    }
    return sum;
  }

  double allowed(size_t input) const {
    double greatest = 1;
    for (const double g : analytic_[input]) greatest = std::max(greatest, std::fabs(g));
    return check_.tolerance * greatest;
  }

  void check_entries(size_t input) {
    const int64_t n = inputs_[input].numel();
    if (analytic_[input].empty()) return;
    double* x = inputs_[input].data<double>();
    const int64_t tries = std::min(n, check_.most_entries);
    for (int64_t i = 0; i < tries; ++i) {
      const int64_t at =
          n <= check_.most_entries ? i : static_cast<int64_t>(random_.next_below(static_cast<uint64_t>(n)));
      const double before = x[at];
      x[at] = before + check_.step;
      const double above = value();
      x[at] = before - check_.step;
      const double below = value();
      x[at] = before;
      const double numeric = (above - below) / (2 * check_.step);
      const double analytic = analytic_[input][static_cast<size_t>(at)];
      if (std::fabs(numeric - analytic) <= allowed(input)) continue;
      say("input {}, entry {} of {}: numeric {:.9g}, analytic {:.9g}", input, at, to_string(inputs_[input].shape()),
          numeric, analytic);
    }
  }

  // Along one random direction through all inputs at once.
  void check_direction() {
    Tensors directions;
    double analytic = 0, scale = 1;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      directions.push_back(analytic_[i].empty() ? Tensor()
                                                : random_normal(inputs_[i].shape(), Dtype::f64, check_.seed + 200 + i));
      for (size_t j = 0; j < analytic_[i].size(); ++j) {
        const double term = analytic_[i][j] * directions[i].data<double>()[j];
        analytic += term;
        scale += term * term;
      }
    }
    const auto move = [&](double distance) {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        for (size_t j = 0; j < analytic_[i].size(); ++j) {
          inputs_[i].data<double>()[j] += distance * directions[i].data<double>()[j];
        }
      }
      return value();
    };
    const double above = move(check_.step);
    const double below = move(-2 * check_.step);
    const double numeric = (above - below) / (2 * check_.step);
    if (std::fabs(numeric - analytic) <= 10 * check_.tolerance * std::sqrt(scale)) return;
    say("along a random direction: numeric {:.9g}, analytic {:.9g}", numeric, analytic);
  }

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    report_ += check_.what + ": " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  const GradCheck& check_;
  Random random_;
  Tensors inputs_, cotangents_;
  std::vector<std::vector<double>> analytic_;
  std::string report_;
};

}  // namespace

std::string check_gradients(const GradCheck& check) {
  require(check.inputs.size() == check.is_differentiated.size(),
          "gradient check: got {} inputs and {} flags, want as many", check.inputs.size(),
          check.is_differentiated.size());
  return Checker(check).run();
}

Tensor random_normal(const Shape& shape, Dtype dtype, uint64_t seed) {
  const Random random(seed, RandomStream::test);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal_at(i);
  return Tensor::from(values, shape).cast(dtype);
}

}  // namespace taper

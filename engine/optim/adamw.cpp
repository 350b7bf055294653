#include "engine/optim/adamw.h"

#include <cmath>
#include <unordered_map>

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {
namespace {

void check(const AdamwConfig& config) {
  require_usage(std::isfinite(config.lr) && config.lr >= 0, "adamw: lr is out of range; got {}, want at least 0",
                config.lr);
  for (const auto& [name, beta] : {std::pair("beta1", config.beta1), std::pair("beta2", config.beta2)}) {
    require_usage(beta >= 0 && beta < 1, "adamw: {} is out of range; got {}, want 0 <= {} < 1", name, beta, name);
  }
  require_usage(std::isfinite(config.eps) && config.eps > 0, "adamw: eps is out of range; got {}, want more than 0",
                config.eps);
  require_usage(std::isfinite(config.weight_decay) && config.weight_decay >= 0,
                "adamw: weight_decay is out of range; got {}, want at least 0", config.weight_decay);
}

void check(const AdamwParameter& p) {
  require(p.master && (p.master.dtype() == Dtype::f32 || p.master.dtype() == Dtype::f64),
          "adamw: {}: the master has the wrong type; got {}, want f32 or f64", p.name, describe(p.master));
  require(p.leaf && p.leaf.shape() == p.master.shape(), "adamw: {}: the leaf has the wrong shape; got {}, want {}",
          p.name, describe(p.leaf), to_string(p.master.shape()));
  require(!p.copy || (p.copy.dtype() == Dtype::bf16 && p.copy.shape() == p.master.shape()),
          "adamw: {}: the copy is wrong; got {}, want bf16 {}", p.name, describe(p.copy), to_string(p.master.shape()));
}

}  // namespace

Adamw::Adamw(std::vector<AdamwParameter> parameters, const AdamwConfig& config) : config_(config) {
  check(config);
  std::unordered_map<const void*, std::string> owners;
  std::unordered_map<std::string, int> names;
  for (AdamwParameter& p : parameters) {
    check(p);
    require(names[p.name]++ == 0, "adamw: two parameters are named {}", p.name);
    const auto [owner, is_new] = owners.emplace(p.master.raw(), p.name);
    require(is_new || p.master.numel() == 0, "adamw: {} and {} are one tensor; want each listed once", owner->second,
            p.name);
    const Tensor m = Tensor::zeros(p.master.shape(), p.master.dtype(), p.master.device(), "a first moment");
    const Tensor v = Tensor::zeros(p.master.shape(), p.master.dtype(), p.master.device(), "a second moment");
    states_.push_back({std::move(p), m, v});
  }
  const Device device = states_.empty() ? Device::cpu : states_.front().m.device();
  scalars_ = Tensor::zeros({kUpdateScalars}, Dtype::f64, device, "the scalars of an update");
  write_copies();
}

AdamwOptions Adamw::options() const { return {config_.beta1, config_.beta2, config_.eps, 0}; }

void Adamw::step(double lr, double clip_factor) {
  const auto count = static_cast<double>(step_count() + 1);
  const std::vector<double> scalars = {lr, clip_factor, 1 - std::pow(config_.beta1, count),
                                       1 - std::pow(config_.beta2, count), count};
  scalars_.copy_from(Tensor::from(scalars, {kUpdateScalars}));
  update();
}

void Adamw::step(const Tensor& learning_rate, const Tensor& squares, const Tensor& losses, double max_norm) {
  kernels::plan_update(scalars_, learning_rate, squares, losses, max_norm, options());
  update();
}

void Adamw::update() const {
  AdamwOptions options = this->options();
  for (const State& state : states_) {
    const Tensor grad = state.parameter.leaf.grad();
    if (!grad) continue;
    options.weight_decay = state.parameter.decays ? config_.weight_decay : 0.0;
    kernels::adamw(state.parameter.master, state.m, state.v, state.parameter.copy, grad, scalars_, options);
  }
}

int64_t Adamw::step_count() const { return static_cast<int64_t>(scalars_.rows(kUpdates, kUpdates + 1).item()); }

void Adamw::set_step_count(int64_t count) {
  require(count >= 0, "adamw: the step count is out of range; got {}, want at least 0", count);
  scalars_.rows(kUpdates, kUpdates + 1).copy_from(Tensor::from(std::vector<double>{static_cast<double>(count)}, {1}));
}

const Adamw::State& Adamw::state(const std::string& name) const {
  for (const State& state : states_) {
    if (state.parameter.name == name) return state;
  }
  fail("adamw: there is no parameter named {}", name);
}

void Adamw::write_copies() const {
  for (const State& state : states_) {
    if (state.parameter.copy) state.parameter.copy.copy_from(state.parameter.master);
  }
}

std::string Adamw::summary() const {
  int64_t tensors[2] = {}, parameters[2] = {};
  for (const State& state : states_) {
    ++tensors[state.parameter.decays];
    parameters[state.parameter.decays] += state.parameter.master.numel();
  }
  return fmt::format(
      "AdamW: weight decay {} on {} tensors, {} parameters; none on {} tensors, {} parameters; {} parameters in all",
      config_.weight_decay, tensors[1], parameters[1], tensors[0], parameters[0], parameters[0] + parameters[1]);
}

}  // namespace taper

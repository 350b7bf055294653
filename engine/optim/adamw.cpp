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
  write_copies();
}

void Adamw::step(double lr, double clip_factor) {
  ++step_count_;
  AdamwOptions options{};
  options.lr = lr;
  options.beta1 = config_.beta1;
  options.beta2 = config_.beta2;
  options.eps = config_.eps;
  options.clip_factor = clip_factor;
  options.correction1 = 1 - std::pow(config_.beta1, static_cast<double>(step_count_));
  options.correction2 = 1 - std::pow(config_.beta2, static_cast<double>(step_count_));
  for (const State& state : states_) {
    const Tensor grad = state.parameter.leaf.grad();
    if (!grad) continue;
    options.weight_decay = state.parameter.decays ? config_.weight_decay : 0.0;
    kernels::adamw(state.parameter.master, state.m, state.v, state.parameter.copy, grad, options);
  }
}

void Adamw::set_step_count(int64_t count) {
  require(count >= 0, "adamw: the step count is out of range; got {}, want at least 0", count);
  step_count_ = count;
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

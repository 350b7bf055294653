// Loss, logits, gradients, AdamW trajectories and whole tapering runs against numbers that PyTorch computed in f64.
// Everything goes through the Transformer, the Trainer and the Calibration that training uses.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "engine/autograd/tape.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/parity.h"
#include "tests/support/shared.h"

using namespace taper;
using namespace taper::test;

namespace {

// How near ours must be: numbers relative to the file's, tensors to the file's greatest element. bf16 has 8 bits of
// significand, 4e-3, and results of a few layers agree within some of its roundings. The trajectories learn a batch by
// heart at a high rate, where roundings grow from step to step: in bf16 their numbers are held to the greatest of their
// column, the first steps closely and those after kEarlySteps less so. Over five instruction sets and two compilers,
// each with roundings of its own, gradient norms were off by at most 0.005 in the first three steps, 0.073 in all
// eight.
struct Tolerances {
  Precision precision;
  double number, tensor, early_trajectory, trajectory;
};
constexpr int64_t kEarlySteps = 3;
constexpr Tolerances kTolerances[] = {{Precision::f64, 1e-6, 1e-6, 1e-6, 1e-6},
                                      {Precision::f32, 1e-4, 1e-4, 1e-4, 1e-4},
                                      {Precision::bf16, 2e-2, 5e-2, 2e-2, 1e-1}};

double relative(double ours, double file, double scale) { return std::abs(ours - file) / std::max(1e-12, scale); }
double relative(double ours, double file) { return relative(ours, file, std::abs(file)); }

void check_number(const std::string& what, double ours, const nlohmann::json& file, double tolerance) {
  CAPTURE(what);
  CAPTURE(ours);
  CAPTURE(file.dump());
  CHECK(relative(ours, file.get<double>()) <= tolerance);
}

// A number of the trajectory's line `step`.
void check_column(const std::string& what, double ours, const nlohmann::json& trajectory, int64_t step,
                  const Tolerances& want) {
  const double file = trajectory[static_cast<size_t>(step)][what];
  double scale = std::abs(file);
  if (want.precision == Precision::bf16) {
    for (const auto& line : trajectory) scale = std::max(scale, std::abs(line[what].get<double>()));
  }
  CAPTURE(what);
  CAPTURE(step);
  CAPTURE(ours);
  CAPTURE(file);
  CHECK(relative(ours, file, scale) <= (step < kEarlySteps ? want.early_trajectory : want.trajectory));
}

void check_first_step(const ParityCase& parity, Trainer& trainer, const Transformer& model, const Tolerances& want) {
  const Gate gate{parity.config()["g"].get<double>()};
  const Tensor tokens = parity.tokens("tokens"), targets = parity.tokens("targets");
  {
    const NoGrad no_grad;
    CHECK(relative_error(model.logits(tokens, gate), parity.tensors.read("logits", Dtype::f64)) <= want.tensor);
  }
  const StepReport report = trainer.compute_gradients(gate, tokens, targets);
  check_number("loss", report.loss, parity.json["loss"], want.number);
  check_number("ce", report.ce, parity.json["ce"], want.number);
  REQUIRE(report.aux.has_value());
  check_number("aux", *report.aux, parity.json["aux"], want.number);
  for (const Parameter& p : model.parameters()) {
    if (!p.is_trained) continue;
    CAPTURE(p.name);
    const Tensor file = parity.tensors.read("grad." + p.name, Dtype::f64);
    const Tensor grad = p.compute.grad() ? p.compute.grad() : Tensor::zeros(file.shape(), Dtype::f64);
    CHECK(relative_error(grad, file) <= want.tensor);
  }
}

void check_trajectory(const ParityCase& parity, Trainer& trainer, const Tolerances& want) {
  const Gate gate{parity.config()["g"].get<double>()};
  const double lr = parity.json["adamw"]["lr"];
  const nlohmann::json& trajectory = parity.json["trajectory"];
  for (int64_t step = 0; step < static_cast<int64_t>(trajectory.size()); ++step) {
    const StepReport report = trainer.step({step, lr, gate}, parity.tokens("tokens"), parity.tokens("targets"));
    check_column("loss", report.loss, trajectory, step, want);
    check_column("ce", report.ce, trajectory, step, want);
    check_column("aux", report.aux.value_or(NAN), trajectory, step, want);
    check_column("grad_norm", report.gradient_norm, trajectory, step, want);
  }
}

void check_fixed_gate(const std::string& name, Device device) {
  const ParityCase parity = ParityCase::open(name);
  for (const Tolerances& want : kTolerances) {
    CAPTURE(name);
    const std::string precision = to_string(want.precision);
    CAPTURE(precision);
    Transformer model = parity.load_model(want.precision);
    model.move_to(device);
    Trainer trainer(model, parity.trainer_options());
    trainer.calibration().fix_target(parity.config()["s_tgt"]);
    check_first_step(parity, trainer, model, want);
    check_trajectory(parity, trainer, want);
  }
}

void check_taper_start(const ParityCase& parity, Transformer& model, Trainer& trainer, double tolerance) {
  const auto& start = parity.json["taper_start"];
  for (const TaperNorm* norm : model.tapered_norms()) {
    CAPTURE(norm->name());
    CHECK(relative(norm->c(), start["c"][norm->name()].get<double>()) <= tolerance);
  }
  CHECK(relative(trainer.calibration().scale_target().value(), start["s_tgt"].get<double>()) <= tolerance);
}

// The gradient of k's bias is mathematically zero, and AdamW turns its rounding into steps.
bool is_qkv_bias(const std::string& name) { return name.find("attn.qkv.bias") != std::string::npos; }

void check_final_parameters(const ParityCase& parity, const Transformer& model, const Tolerances& want) {
  for (const Parameter& p : model.parameters()) {
    CAPTURE(p.name);
    const Tensor file = parity.tensors.read("final." + p.name, Dtype::f64).reshaped(p.master.shape());
    if (want.precision == Precision::f64 || !is_qkv_bias(p.name)) {
      CHECK(relative_error(p.master, file) <= want.tensor);
      continue;
    }
    const int64_t third = p.master.numel() / 3;
    for (const int64_t begin : {int64_t{0}, 2 * third}) {
      CHECK(relative_error(p.master.rows(begin, begin + third), file.rows(begin, begin + third)) <= want.tensor);
    }
  }
}

void check_schedule(const std::string& name, Device device) {
  const ParityCase parity = ParityCase::open(name);
  const Tensor tokens = parity.tokens("tokens"), targets = parity.tokens("targets");
  const Shape window{tokens.dim(1), tokens.dim(2)};
  for (const Tolerances& want : kTolerances) {
    CAPTURE(name);
    const std::string precision = to_string(want.precision);
    CAPTURE(precision);
    Transformer model = parity.load_model(want.precision);
    model.move_to(device);
    Trainer trainer(model, parity.trainer_options());
    for (const auto& line : parity.json["steps"]) {
      const int64_t step = line["step"];
      CAPTURE(step);
      const StepReport report =
          trainer.step(tokens.rows(step, step + 1).reshaped(window), targets.rows(step, step + 1).reshaped(window));
      CHECK(report.step == step);
      CHECK(report.learning_rate == doctest::Approx(line["lr"].get<double>()).epsilon(1e-12));
      CHECK(report.gate == doctest::Approx(line["g"].get<double>()).epsilon(1e-12));
      check_number("loss", report.loss, line["loss"], want.number);
      check_number("ce", report.ce, line["ce"], want.number);
      check_number("scale", report.scale, line["scale"], want.number);
      check_number("grad_norm", report.gradient_norm, line["grad_norm"], want.number);
      CHECK(report.aux.has_value() == !line["aux"].is_null());
      if (report.aux) check_number("aux", *report.aux, line["aux"], want.number);
      if (step == parity.config()["T0"]) check_taper_start(parity, model, trainer, want.number);
    }
    check_final_parameters(parity, model, want);
  }
}

}  // namespace

#define PARITY_CASE(name, check)                 \
  TEST_CASE("parity: " name) {                   \
    SKIP_WITHOUT_SHARED("parity/" name ".json"); \
    check(name, Device::cpu);                    \
  }
// Whole steps of training on the device.
#define PARITY_CASE_ON_CUDA(name, check)         \
  TEST_CASE("parity on cuda: " name) {           \
    SKIP_WITHOUT_CUDA();                         \
    SKIP_WITHOUT_SHARED("parity/" name ".json"); \
    check(name, Device::cuda);                   \
  }

PARITY_CASE("rms_internal_g1", check_fixed_gate)
PARITY_CASE("rms_internal_g037", check_fixed_gate)
PARITY_CASE("rms_all_g0_aux", check_fixed_gate)
PARITY_CASE("ln_all_g05", check_fixed_gate)
PARITY_CASE("ln_internal_g0_aux", check_fixed_gate)
PARITY_CASE("schedule_rms_all", check_schedule)
PARITY_CASE("schedule_ln_all", check_schedule)
PARITY_CASE_ON_CUDA("rms_internal_g037", check_fixed_gate)
PARITY_CASE_ON_CUDA("ln_all_g05", check_fixed_gate)
PARITY_CASE_ON_CUDA("rms_all_g0_aux", check_fixed_gate)
PARITY_CASE_ON_CUDA("schedule_rms_all", check_schedule)
PARITY_CASE_ON_CUDA("schedule_ln_all", check_schedule)

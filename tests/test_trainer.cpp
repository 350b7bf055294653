#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "tests/support/tiny_model.h"
#include "train/trainer.h"

using namespace taper;
using namespace taper::test;

namespace {

TrainerOptions options(int64_t steps = 20) {
  TrainerOptions result;
  result.schedule = make_schedule(steps, 1e-2, {}, true);
  result.anchor = 0.1;
  return result;
}

double greatest_relative_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  double difference = 0, greatest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference = std::max(difference, std::abs(x[i] - y[i]));
    greatest = std::max(greatest, std::abs(y[i]));
  }
  return difference / std::max(greatest, 1e-30);
}

std::vector<Tensor> masters(const Transformer& model) {
  std::vector<Tensor> copies;
  for (const Parameter& p : model.parameters()) copies.push_back(p.master.clone());
  return copies;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace

TEST_CASE("trainer: every split into micro-batches gives the same step") {
  const Tensor tokens = random_ids({8, 8}, 31, 1), targets = random_ids({8, 8}, 31, 2);
  Transformer whole(tiny_config("gpt2"), Precision::f32);
  whole.initialise(1);
  TrainerOptions one = options();
  one.micro_batch_windows = 8;
  Trainer reference(whole, one);
  reference.calibration().fix_target(1.0);
  const StepReport want = reference.compute_gradients(Gate{0.5}, tokens, targets);
  for (const int64_t windows : {4, 3, 1}) {
    CAPTURE(windows);
    Transformer model(tiny_config("gpt2"), Precision::f32);
    model.initialise(1);
    TrainerOptions split = options();
    split.micro_batch_windows = windows;
    Trainer trainer(model, split);
    trainer.calibration().fix_target(1.0);
    const StepReport got = trainer.compute_gradients(Gate{0.5}, tokens, targets);
    CHECK(got.loss == doctest::Approx(want.loss).epsilon(1e-5));
    CHECK(*got.aux == doctest::Approx(*want.aux).epsilon(1e-5));
    CHECK(got.gradient_norm == doctest::Approx(want.gradient_norm).epsilon(1e-5));
    CHECK(got.greatest_scale == doctest::Approx(want.greatest_scale));
    CHECK(got.radial_of_loss.outward == doctest::Approx(want.radial_of_loss.outward).epsilon(1e-3));
    for (const Parameter& p : model.parameters()) {
      // Zero but for rounding: k's bias shifts all scores of a query alike.
      if (!p.is_trained || p.name.find("qkv.bias") != std::string::npos) continue;
      CAPTURE(p.name);
      CHECK(greatest_relative_difference(p.compute.grad(), whole.parameter(p.name).compute.grad()) < 1e-5);
    }
  }
}

TEST_CASE("trainer: the running means are those of the whole step, micro-batches or not") {
  const Tensor tokens = random_ids({6, 8}, 31, 1), targets = random_ids({6, 8}, 31, 2);
  std::vector<std::vector<double>> constants;
  for (const int64_t windows : {6, 4, 1}) {
    Transformer model(tiny_config(), Precision::f64);
    model.initialise(1);
    TrainerOptions split = options();
    split.micro_batch_windows = windows;
    Trainer trainer(model, split);
    for (int i = 0; i < 3; ++i) trainer.step(tokens, targets);
    constants.emplace_back();
    for (const TaperNorm* norm : model.tapered_norms()) constants.back().push_back(norm->c());
    CHECK(trainer.calibration().is_fixed());
  }
  for (size_t i = 0; i < constants[0].size(); ++i) {
    CHECK(constants[0][i] > 0);
    CHECK(constants[1][i] == doctest::Approx(constants[0][i]).epsilon(1e-9));
    CHECK(constants[2][i] == doctest::Approx(constants[0][i]).epsilon(1e-9));
  }
}

TEST_CASE("trainer: a taper from step 0 measures its first batch before it starts") {
  Transformer model(tiny_config(), Precision::f64);
  model.initialise(1);
  TrainerOptions from_start;
  from_start.schedule = make_schedule(10, 1e-2, {0.1, 0.0, 0.6}, true);
  Trainer trainer(model, from_start);
  const StepReport report = trainer.step(random_ids({3, 8}, 31, 1), random_ids({3, 8}, 31, 2));
  CHECK(report.gate == 1.0);
  CHECK(report.aux.has_value());
  CHECK(trainer.calibration().scale_target().value() == doctest::Approx(report.scale));
  for (const TaperNorm* norm : model.tapered_norms()) CHECK(norm->c() > 0);
  CHECK(trainer.step(random_ids({3, 8}, 31, 3), random_ids({3, 8}, 31, 4)).gate < 1.0);
}

TEST_CASE("trainer: norms that are gone from the start leave a fitted scale, or none") {
  for (const NormStart start : {NormStart::fixed, NormStart::unit}) {
    Transformer model(tiny_config(), Precision::f64);
    model.initialise(1);
    TrainerOptions from_start = options();
    from_start.norm_start = start;
    from_start.schedule.taper_start = from_start.schedule.taper_end = 0;
    Trainer trainer(model, from_start);
    const StepReport report = trainer.step(random_ids({3, 8}, 31, 1), random_ids({3, 8}, 31, 2));
    CHECK(report.gate == 0.0);
    CHECK(report.aux.has_value());
    for (const TaperNorm* norm : model.tapered_norms()) {
      if (start == NormStart::unit) CHECK(norm->c() == 1.0);
      // The stream starts at about 0.03 a channel, and the fit undoes that.
      if (start == NormStart::fixed) CHECK(norm->c() > 10.0);
    }
    // With unit scales the target is the stream's own scale; a fitted one is that of live norms.
    if (start == NormStart::unit) {
      CHECK(trainer.calibration().scale_target().value() == doctest::Approx(report.scale));
    }
    CHECK(trainer.step(random_ids({3, 8}, 31, 3), random_ids({3, 8}, 31, 4)).gate == 0.0);
  }
}

TEST_CASE("trainer: before taper start gamma_tilde is zero and does not move, at taper start it is gamma") {
  Transformer model(tiny_config("gpt2"), Precision::f32);
  model.initialise(1);
  Trainer trainer(model, options(50));  // taper start 5
  for (int i = 0; i < 5; ++i) trainer.step(random_ids({2, 8}, 31, 1), random_ids({2, 8}, 31, 2));
  for (const char* name : {"h.0.norm1.gamma_tilde", "norm_f.beta_tilde"}) {
    for (const double value : model.parameter(name).master.to_doubles()) CHECK(value == 0.0);
  }
  const Tensor gamma = model.parameter("h.0.norm1.gamma").master.clone();
  StepScalars still{5, 0.0, Gate{1.0}};
  trainer.step(still, random_ids({2, 8}, 31, 1), random_ids({2, 8}, 31, 2));
  CHECK(equal_bits(model.parameter("h.0.norm1.gamma_tilde").master, gamma));
}

TEST_CASE("trainer: the gradient of the cross-entropy is told from the anchor's") {
  const Tensor tokens = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
  for (const char* arch : {"taper", "gpt2"}) {
    CAPTURE(arch);
    Transformer model(tiny_config(arch), Precision::f64);
    scramble(model, 3);
    TrainerOptions anchored = options();
    Trainer with(model, anchored);
    with.calibration().fix_target(0.2);
    const StepReport a = with.compute_gradients(Gate{0.3}, tokens, targets);
    anchored.anchor = 0;
    Trainer without(model, anchored);
    without.calibration().fix_target(0.2);
    const StepReport b = without.compute_gradients(Gate{0.3}, tokens, targets);
    CHECK(a.radial_of_ce.outward == doctest::Approx(b.radial_of_ce.outward).epsilon(1e-9));
    CHECK(a.radial_of_ce.share == doctest::Approx(b.radial_of_ce.share).epsilon(1e-9));
    CHECK(b.radial_of_ce.outward == b.radial_of_loss.outward);
    CHECK(a.radial_of_loss.outward > a.radial_of_ce.outward);  // s is above its target: the anchor pulls inwards
    CHECK(a.loss == doctest::Approx(a.ce + 0.1 * *a.aux).epsilon(1e-12));
  }
}

TEST_CASE("trainer: with a final norm the radial part vanishes, without it growth lowers the loss") {
  const Tensor tokens = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
  ModelConfig config = tiny_config("taper", Variant::baseline);
  config.eps = 1e-12;
  Transformer model(config, Precision::f64);
  scramble(model, 3);
  Trainer trainer(model, options());
  const StepReport report = trainer.compute_gradients(Gate{1.0}, tokens, targets);
  CHECK(report.radial_of_ce.share < 1e-6);
  CHECK(report.gradient_norm > 0);

  // Trained on one batch until it is learned by heart, the norm-free model is pushed outwards by every token.
  Transformer linear(tiny_config(), Precision::f64);
  linear.initialise(1);
  TrainerOptions long_run = options(300);
  long_run.anchor = 0;
  Trainer learner(linear, long_run);
  StepReport last;
  // No further: at a loss of zero the gradient is nothing but rounding.
  bool is_learned = false;
  for (int i = 0; i < 300 && !is_learned; ++i) {
    last = learner.step(tokens, targets);
    is_learned = last.gate == 0.0 && last.loss < 0.1;
  }
  CHECK(is_learned);
  CHECK(last.radial_of_ce.outward < 0);
  CHECK(last.radial_of_ce.share > 0.01);
}

TEST_CASE("trainer: the identity on radial gradients holds at every gate, for every kind of norm") {
  const Tensor tokens = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
  for (const char* arch : {"taper", "gpt2"}) {
    for (const Variant variant : {Variant::baseline, Variant::internal, Variant::all}) {
      for (const double gate : {1.0, 0.4, 0.0}) {
        CAPTURE(arch);
        CAPTURE(to_string(variant));
        CAPTURE(gate);
        ModelConfig config = tiny_config(arch, variant);
        config.eps = 1e-2;  // so that its share is seen
        Transformer model(config, Precision::f64);
        scramble(model, 3);
        TrainerOptions checked = options();
        checked.checks_radial = true;
        checked.micro_batch_windows = 1;
        Trainer trainer(model, checked);
        trainer.calibration().fix_target(0.2);
        const StepReport report = trainer.compute_gradients(Gate{gate}, tokens, targets);
        REQUIRE(report.identity.has_value());
        CHECK(report.identity->error < 1e-12);
        CHECK(report.identity->expected == doctest::Approx(report.radial_of_ce.outward).epsilon(1e-10));
        CHECK(report.identity->expected != 0.0);
        checked.checks_radial = false;
        Trainer unchecked(model, checked);
        unchecked.calibration().fix_target(0.2);
        CHECK(unchecked.compute_gradients(Gate{gate}, tokens, targets).loss == report.loss);
      }
    }
  }
}

TEST_CASE("trainer: what is not finite updates nothing and is named") {
  Transformer model(tiny_config("gpt2"), Precision::f32);
  model.initialise(1);
  Trainer trainer(model, options());
  const Tensor tokens = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
  trainer.step(tokens, targets);
  const auto moments = trainer.optimizer().states()[0].m.clone();
  model.parameter("h.1.mlp.up.weight").master.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const auto before = masters(model);
  const CalibrationState means = trainer.calibration().state();
  const StepReport report = trainer.step(tokens, targets);
  CHECK(report.bad_tensor == "h.1.mlp.up.weight");
  for (size_t i = 0; i < before.size(); ++i) CHECK(equal_bits(before[i], model.parameters()[i].master));
  CHECK(equal_bits(moments, trainer.optimizer().states()[0].m));
  CHECK(trainer.state().updates == 1);
  CHECK(trainer.next_step() == 2);
  CHECK(trainer.calibration().state().norms[0].a == means.norms[0].a);
}

TEST_CASE("trainer: a tied matrix is one parameter with one step") {
  Transformer model(tiny_config("taper", Variant::baseline), Precision::f32);
  model.initialise(1);
  const Trainer trainer(model, options());
  int found = 0;
  for (const Adamw::State& state : trainer.optimizer().states()) found += state.parameter.name == "wte.weight";
  CHECK(found == 1);
  CHECK(trainer.optimizer().states().size() == model.parameters().size());
}

TEST_CASE("trainer: a repeated sequence is learned, each target the token that follows") {
  ModelConfig config = tiny_config("taper", Variant::all);
  config.vocab_size = 8;
  Transformer model(config, Precision::f32);
  model.initialise(1);
  Trainer trainer(model, options(200));
  const Tensor tokens = Tensor::empty({4, 8}, Dtype::i32), targets = Tensor::empty({4, 8}, Dtype::i32);
  for (int32_t i = 0; i < 32; ++i) {
    tokens.data<int32_t>()[i] = (i % 8 + i / 8) % 8;
    targets.data<int32_t>()[i] = (i % 8 + i / 8 + 1) % 8;
  }
  StepReport report;
  for (int i = 0; i < 200; ++i) report = trainer.step(tokens, targets);
  CHECK(report.ce < 0.05);
  const NoGrad no_grad;
  const auto logits = model.logits(Tensor::from<int32_t>({3, 4, 5}, {1, 3}), Gate{0.0}).to_doubles();
  for (int position = 0; position < 3; ++position) {
    const auto* row = logits.data() + position * 8;
    CHECK(std::max_element(row, row + 8) - row == (4 + position) % 8);
  }
}

TEST_CASE("trainer: the same seed gives the same bits") {
  std::vector<Tensor> ends[2];
  for (auto& end : ends) {
    Transformer model(tiny_config(), Precision::bf16);
    model.initialise(1);
    Trainer trainer(model, options());
    for (uint64_t i = 0; i < 4; ++i) trainer.step(random_ids({3, 8}, 31, i), random_ids({3, 8}, 31, i + 100));
    end = masters(model);
  }
  for (size_t i = 0; i < ends[0].size(); ++i) CHECK(equal_bits(ends[0][i], ends[1][i]));
}

TEST_CASE("trainer: micro-batches shrink with the model's width and never below one window") {
  CHECK(default_micro_batch_windows(named_config("xl", "gpt2"), Precision::f32, 1024) == 1);
  CHECK(default_micro_batch_windows(named_config("1M", "taper"), Precision::f32, 512) >
        default_micro_batch_windows(named_config("9M", "taper"), Precision::f32, 512));
  CHECK(default_micro_batch_windows(named_config("9M", "taper"), Precision::bf16, 512) >=
        default_micro_batch_windows(named_config("9M", "taper"), Precision::f32, 512));
}

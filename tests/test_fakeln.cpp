#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "model/fold.h"
#include "model/model_folder.h"
#include "model/with_variant.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/checkpoint.h"
#include "train/fakeln.h"
#include "train/trainer.h"

using namespace taper;
using namespace taper::test;

namespace {

constexpr int64_t kSteps = 30;
constexpr int32_t kEndOfText = 4;

TrainerOptions options() {
  TrainerOptions result;
  result.schedule = make_schedule(kSteps, 1e-2, {}, false);
  result.anchor = 0.1;
  result.fakeln = FakeLnSchedule(2, kSteps, default_fakeln_times(kSteps));
  return result;
}

Transformer start(const std::string& arch = "gpt2", Precision precision = Precision::f32) {
  Transformer plain(tiny_config(arch, Variant::baseline), precision);
  plain.initialise(2);
  return with_norms_in_turn(plain, kEndOfText);
}

StepReport take_step(Trainer& trainer) {
  const auto seed = static_cast<uint64_t>(trainer.next_step());
  return trainer.step(random_ids({4, 8}, 31, 2 * seed), random_ids({4, 8}, 31, 2 * seed + 1));
}

}  // namespace

TEST_CASE("fakeln: a running mean has no bias towards its start") {
  RunningMean mean;
  CHECK_FALSE(mean.is_known());
  mean.observe(5, 0.9);
  CHECK(mean.mean() == doctest::Approx(5));
  mean.observe(3, 0.9);
  CHECK(mean.mean() == doctest::Approx((0.9 * 0.1 * 5 + 0.1 * 3) / (0.9 * 0.1 + 0.1)));
}

TEST_CASE("fakeln: each norm is fixed to the average of the moment, norm2 then q and k, v, the last, the kinds") {
  Transformer model = start();
  Trainer trainer(model, options());
  const std::vector<FakeLnEvent> events = trainer.options().fakeln->events();
  CHECK_FALSE(trainer.scale_target().has_value());
  size_t next = 0;
  while (trainer.next_step() < kSteps) {
    const TrainerState before = trainer.state();
    const StepReport report = take_step(trainer);
    CAPTURE(report.step);
    CHECK(report.bad_tensor.empty());
    CHECK(report.aux.has_value() == (report.step > 0));
    if (report.aux) CHECK(report.loss == doctest::Approx(report.ce + 0.1 * *report.aux));
    for (; next < events.size() && events[next].step == report.step; ++next) {
      const FakeLnEvent& event = events[next];
      CAPTURE(next);
      if (event.phase > FakeLnPhase::final_norm) continue;
      const size_t norm = event.phase == FakeLnPhase::final_norm ? 4
                          : event.phase == FakeLnPhase::norm2    ? static_cast<size_t>(2 * event.block + 1)
                                                                 : static_cast<size_t>(2 * event.block);
      const int64_t path = event.phase == FakeLnPhase::norm1_v ? 1 : 0;
      const FixedScales& scales = model.tapered_norms()[norm]->scales();
      for (const TokenKind kind : {TokenKind::ordinary, TokenKind::first_position, TokenKind::end_of_text}) {
        const double mean = before.fakeln[norm][static_cast<size_t>(kind)].mean();
        CHECK(scales.get(path, kind) == doctest::Approx(1 / mean).epsilon(1e-6));
      }
    }
    CHECK(report.gate == trainer.options().fakeln->gate(report.step));
    CHECK(model.config().gate == report.gate);
  }
  CHECK(next == events.size());
  CHECK(model.config().gate == 0.0);
  CHECK_FALSE(model.config().is_replaced_in_turn);
  CHECK(model.config().variant() == Variant::all);
  CHECK(model.parameter("norm_f.c").master.item() > 0);

  const NoGrad no_grad;
  const Tensor ids = random_ids({2, 8}, 31, 99);
  const auto whole = model.logits(ids, Gate{0.0}).to_doubles();
  const auto folded = fold(model).logits(ids, Gate{0.0}).to_doubles();
  for (size_t i = 0; i < whole.size(); ++i) CHECK(folded[i] == doctest::Approx(whole[i]).epsilon(1e-4).scale(1));
}

TEST_CASE("fakeln: the kinds lose their averages one after the other, and the last replacement changes no logit") {
  Transformer model = start();
  Trainer trainer(model, options());
  const std::vector<FakeLnEvent> events = trainer.options().fakeln->events();
  const auto step_of = [&](FakeLnPhase phase) {
    for (const FakeLnEvent& event : events) {
      if (event.phase == phase) return event.step;
    }
    return int64_t{-1};
  };
  while (trainer.next_step() <= step_of(FakeLnPhase::final_norm)) take_step(trainer);
  for (TaperNorm* norm : model.tapered_norms()) {
    CHECK(norm->scales().get(0, TokenKind::first_position) != norm->scales().get(0, TokenKind::ordinary));
  }
  while (trainer.next_step() <= step_of(FakeLnPhase::first_position)) take_step(trainer);
  for (TaperNorm* norm : model.tapered_norms()) {
    CHECK(norm->scales().get(0, TokenKind::first_position) == norm->scales().get(0, TokenKind::ordinary));
    CHECK(norm->scales().get(0, TokenKind::end_of_text) != norm->scales().get(0, TokenKind::ordinary));
  }
}

TEST_CASE("fakeln: the same bits when it goes on from any checkpoint") {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    CAPTURE(to_string(precision));
    const TempDir folder;
    Transformer whole = start("gpt2", precision);
    Trainer trainer(whole, options());
    std::vector<std::filesystem::path> checkpoints;
    while (trainer.next_step() < kSteps) {
      take_step(trainer);
      if (trainer.next_step() % 4 == 1) {
        checkpoints.push_back(save_checkpoint(folder.path(), whole, trainer, {1, 0}, nullptr));
      }
    }
    for (const auto& checkpoint : checkpoints) {
      CAPTURE(checkpoint.filename().string());
      Transformer model = load_model(checkpoint, precision);
      Trainer resumed(model, options());
      load_training_state(checkpoint, resumed);
      while (resumed.next_step() < kSteps) take_step(resumed);
      CHECK(resumed.scale_target() == trainer.scale_target());
      for (const Parameter& p : whole.parameters()) {
        CAPTURE(p.name);
        CHECK(model.parameter(p.name).master.to_doubles() == p.master.to_doubles());
      }
    }
    // A run of another variant is told apart.
    TrainerOptions other = options();
    other.fakeln.reset();
    Transformer model = load_model(checkpoints.back(), precision);
    Trainer trainer_of_other(model, other);
    CHECK_THROWS_WITH_AS(load_training_state(checkpoints.back(), trainer_of_other),
                         doctest::Contains("is of another variant"), Error);
  }
}

TEST_CASE("fakeln: micro-batches change nothing") {
  std::vector<TrainerState> states;
  std::vector<double> losses;
  for (const int64_t windows : {4, 1}) {
    Transformer model = start("taper");
    TrainerOptions split = options();
    split.micro_batch_windows = windows;
    Trainer trainer(model, split);
    double loss = 0;
    for (int i = 0; i < 5; ++i) loss = take_step(trainer).loss;
    losses.push_back(loss);
    states.push_back(trainer.state());
  }
  CHECK(losses[0] == doctest::Approx(losses[1]).epsilon(1e-5));
  for (size_t i = 0; i < states[0].fakeln.size(); ++i) {
    for (size_t kind = 0; kind < kTokenKinds; ++kind) {
      CHECK(states[0].fakeln[i][kind].sum == doctest::Approx(states[1].fakeln[i][kind].sum).epsilon(1e-5));
    }
  }
}

TEST_CASE("fakeln: a kind of token that never comes by does as the rest") {
  Transformer plain(tiny_config("llama", Variant::baseline), Precision::f32);
  plain.initialise(2);
  Transformer model = with_norms_in_turn(plain, -1);
  Trainer trainer(model, options());
  while (!model.tapered_norms()[1]->scales().is_fixed(0)) take_step(trainer);
  const FixedScales& scales = model.tapered_norms()[1]->scales();
  CHECK(scales.get(0, TokenKind::end_of_text) == scales.get(0, TokenKind::ordinary));
  while (trainer.next_step() < kSteps) take_step(trainer);
  CHECK(model.config().gate == 0.0);
}

// What the anchor is for, on a model small enough to learn its one batch by heart.
#include <doctest/doctest.h>

#include "tests/support/tiny_model.h"
#include "train/trainer.h"

using namespace taper;
using namespace taper::test;

namespace {

// s at the last step over s where the norms had just gone.
double growth(double anchor) {
  const Tensor tokens = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
  Transformer model(tiny_config(), Precision::f32);
  model.initialise(1);
  TrainerOptions options;
  options.schedule = make_schedule(400, 3e-3, {0.05, 0.05, 0.06}, true);
  options.anchor = anchor;
  Trainer trainer(model, options);
  double at_taper_end = 0;
  StepReport report;
  for (int step = 0; step < 400; ++step) {
    report = trainer.step(tokens, targets);
    if (step == options.schedule.taper_end) at_taper_end = report.scale;
  }
  return report.scale / at_taper_end;
}

}  // namespace

TEST_CASE("logit chasing: without the anchor the pre-logit scale runs away, with it it does not") {
  const double free = growth(0), anchored = growth(0.1);
  CAPTURE(free);
  CAPTURE(anchored);
  CHECK(free > 3);
  CHECK(anchored < 1.1);
}

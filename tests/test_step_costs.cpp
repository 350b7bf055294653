// The launches that tools/common/step_costs.h counts are those of recorded steps on the emulated device.
#include <doctest/doctest.h>

#include "engine/core/cuda_runtime.h"
#include "infer/decoder.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/shared.h"
#include "tests/support/tiny_model.h"
#include "tools/common/step_costs.h"
#include "train/trainer.h"

namespace taper::test {
namespace {

int64_t launches(const std::vector<KernelCost>& costs) {
  int64_t sum = 0;
  for (const KernelCost& cost : costs) sum += cost.calls * cost.launches;
  return sum;
}

TEST_CASE("step costs: launches on cuda are those of recorded steps") {
  SKIP_WITHOUT_CUDA();
  if (!cuda_runtime().device().is_emulated) SKIP_TEST("a library of products launches what it likes");
  for (const char* arch : {"taper", "gpt2"}) {
    for (const int64_t layers : {2, 3}) {
      ModelConfig config = tiny_config(arch);
      config.layers = layers;
      Transformer model(config, Precision::bf16);
      model.initialise(7);
      model.move_to(Device::cuda);
      TrainerOptions options;
      options.schedule = make_schedule(30, 1e-3, {0.1, 0.2, 0.5}, true);
      options.anchor = 0.1;
      Trainer trainer(model, options);
      struct Phase {
        int64_t end;
        double gate;
      };
      for (const Phase& phase : {Phase{5, 1.0}, Phase{10, 0.5}, Phase{20, 0.0}}) {
        while (trainer.next_step() < phase.end) trainer.step(random_ids({2, 8}, 31, 1), random_ids({2, 8}, 31, 2));
        CAPTURE(arch);
        CAPTURE(layers);
        CAPTURE(phase.gate);
        CHECK(launches(step_costs(config, 2, Dtype::bf16, phase.gate)) == trainer.launches_of_recorded_step());
      }
    }
  }
}

TEST_CASE("step costs: launches of a token on cuda are those of a recorded step") {
  SKIP_WITHOUT_CUDA();
  for (const char* arch : {"taper", "gpt2"}) {
    for (const int64_t layers : {1, 3}) {
      ModelConfig config = tiny_config(arch);
      config.layers = layers;
      Transformer model(config, Precision::f32);
      model.initialise(7);
      DecoderOptions options;
      options.device = Device::cuda;
      Decoder decoder(model, options);
      decoder.feed(std::vector<int32_t>{1, 2});
      decoder.choose();
      CHECK(decoder.launches_of_step() == 0);
      for (int i = 0; i < 2; ++i) decoder.advance();
      CAPTURE(arch);
      CAPTURE(layers);
      CHECK(decoder.launches_of_step() == token_cost(config, 1, Dtype::f32).launches);
    }
  }
}

TEST_CASE("step costs: bytes and operations of a known size") {
  ModelConfig config = named_config("small", "gpt2");
  set_variant(config, Variant::all);
  double flops = 0;
  for (const KernelCost& cost : step_costs(config, 1, Dtype::bf16, 0)) flops += double(cost.calls) * cost.flops;
  // 6 operations a weight and token, and of attention, 2 forward and 5 backward, half of the square.
  const double weights = 123.53e6, attention = 7.0 * 12 * 768 * 1024;
  CHECK(flops == doctest::Approx((6 * weights + attention) * 1024).epsilon(0.01));
  const KernelCost token = token_cost(config, 1023, Dtype::bf16);
  CHECK(double(token.bytes) == doctest::Approx(2 * (weights + 2 * 12 * 768 * 1023)).epsilon(0.01));
  CHECK(least_seconds({"", 1, 3350, 1, 1}, kCards[0], Dtype::bf16) == doctest::Approx(1e-9));
  CHECK(least_seconds({"", 1, 1, 989e3, 1}, kCards[1], Dtype::bf16) == doctest::Approx(1e-9));
}

}  // namespace
}  // namespace taper::test

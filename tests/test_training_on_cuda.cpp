// A model that lives on the CUDA device of the tests: the same function as on the processor, training runs that are
// saved, resumed and evaluated there, and the memory of a step.
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "engine/autograd/gradcheck.h"
#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "model/model_folder.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/random_models.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace taper::test {
namespace {

TrainerOptions short_taper() {
  TrainerOptions options;
  options.schedule.steps = 8;
  options.schedule.taper_start = 3;
  options.schedule.taper_end = 6;
  options.schedule.tapers = true;
  options.schedule.peak = 1e-2;
  options.anchor = 0.1;
  return options;
}

// The losses of the steps [begin, end) on batches that depend on the step alone.
std::vector<double> train(Trainer& trainer, const ModelConfig& config, int64_t end) {
  std::vector<double> losses;
  for (int64_t step = trainer.next_step(); step < end; ++step) {
    const auto seed = static_cast<uint64_t>(100 + step);
    const Tensor tokens = random_ids({2, config.context}, config.vocab_size, seed);
    const Tensor targets = random_ids({2, config.context}, config.vocab_size, seed + 50);
    losses.push_back(trainer.step(tokens, targets).loss);
  }
  return losses;
}

TEST_CASE("training on cuda: a model of every kind gives the processor's logits, and comes back unchanged") {
  SKIP_WITHOUT_CUDA();
  for (const char* arch : {"taper", "gpt2", "llama"}) {
    for (const Variant variant : {Variant::baseline, Variant::all}) {
      CAPTURE(arch);
      Transformer model = random_model(small_config(arch, variant));
      const Tensor want = sample_logits(model);
      model.move_to(Device::cuda);
      CHECK(model.device() == Device::cuda);
      const Tensor got = sample_logits(model);
      CHECK(got.device() == Device::cuda);
      CHECK(logit_distance(want, got.to(Device::cpu)) < 1e-5);
      model.move_to(Device::cpu);
      CHECK(logit_distance(want, sample_logits(model)) == 0);
    }
  }
}

TEST_CASE("training on cuda: steps through a whole taper agree with the processor's") {
  SKIP_WITHOUT_CUDA();
  for (const char* arch : {"taper", "llama"}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const ModelConfig config = tiny_config(arch);
      std::vector<double> losses[2];
      for (const Device device : {Device::cpu, Device::cuda}) {
        Transformer model(config, precision);
        model.initialise(7);
        model.move_to(device);
        TrainerOptions options = short_taper();
        options.micro_batch_windows = 1;
        Trainer trainer(model, options);
        losses[device == Device::cuda] = train(trainer, config, 8);
        CHECK(model.config().gate == 0);
      }
      for (size_t i = 0; i < losses[0].size(); ++i) {
        CAPTURE(arch);
        CAPTURE(i);
        CHECK(losses[1][i] == doctest::Approx(losses[0][i]).epsilon(precision == Precision::f32 ? 1e-5 : 1e-2));
      }
    }
  }
}

TEST_CASE("training on cuda: a checkpoint is the processor's, and a resumed run goes on with the same bits") {
  SKIP_WITHOUT_CUDA();
  const TempDir folder;
  const ModelConfig config = tiny_config();
  Transformer model(config, Precision::bf16);
  model.initialise(3);
  model.move_to(Device::cuda);
  Trainer trainer(model, short_taper());
  train(trainer, config, 5);
  const auto place = save_checkpoint(folder.path(), model, trainer, {}, nullptr);
  const std::vector<double> rest = train(trainer, config, 8);

  Transformer again = load_model(place, Precision::bf16);
  CHECK(again.device() == Device::cpu);
  again.move_to(Device::cuda);
  Trainer resumed(again, short_taper());
  load_training_state(place, resumed);
  CHECK(resumed.next_step() == 5);
  CHECK(train(resumed, config, 8) == rest);
  for (const Parameter& p : again.parameters()) {
    CAPTURE(p.name);
    CHECK(p.master.to_doubles() == model.parameter(p.name).master.to_doubles());
  }
}

// Calibration, taper and the steps after it, of losses queued and of steps waited for.
TEST_CASE("training on cuda: recorded steps give the bits of separate launches, and fewer launches without norms") {
  SKIP_WITHOUT_CUDA();
  for (const char* arch : {"taper", "gpt2"}) {
    const ModelConfig config = tiny_config(arch);
    const Precision precision = arch == std::string("taper") ? Precision::bf16 : Precision::f32;
    TrainerOptions options = short_taper();
    options.schedule.steps = 20;
    options.schedule.warmup = 2;
    options.schedule.taper_start = 6;
    options.schedule.taper_end = 13;
    options.micro_batch_windows = 1;
    std::vector<std::vector<double>> parameters[2];
    std::vector<StepReport> reports[2];
    std::vector<int64_t> launches;
    for (const bool records : {false, true}) {
      CAPTURE(arch);
      Transformer model(config, precision);
      model.initialise(7);
      model.move_to(Device::cuda);
      options.records_steps = records;
      Trainer trainer(model, options);
      for (int64_t step = 0; step < 20; ++step) {
        trainer.queue_step(random_ids({2, 8}, 31, 100 + uint64_t(step)), random_ids({2, 8}, 31, 150 + uint64_t(step)));
        launches.push_back(trainer.launches_of_recorded_step());
        // In the middle of a form, gradients for another use and another batch: both leave the records behind.
        if (step == 9) trainer.compute_gradients(Gate{0.25}, random_ids({1, 8}, 31, 1), random_ids({1, 8}, 31, 2));
      }
      reports[records] = trainer.take_reports();
      for (const Parameter& p : model.parameters()) parameters[records].push_back(p.master.to_doubles());
    }
    CHECK(parameters[0] == parameters[1]);
    REQUIRE(reports[1].size() == 20);
    for (size_t i = 0; i < 20; ++i) {
      const StepReport &a = reports[0][i], &b = reports[1][i];
      CAPTURE(i);
      CHECK(a.step == int64_t(i));
      CHECK(b.step == int64_t(i));
      CHECK(a.loss == b.loss);
      CHECK(a.aux == b.aux);
      CHECK(a.gate == b.gate);
      CHECK(a.gradient_norm == b.gradient_norm);
      CHECK(a.radial_of_ce.outward == b.radial_of_ce.outward);
      CHECK(launches[i] == 0);
    }
    const auto launches_of = [&](size_t step) { return launches[20 + step]; };
    CHECK(launches_of(0) == 0);  // the first of its form
    CHECK(launches_of(5) > 0);
    CHECK(launches_of(6) == 0);
    CHECK(launches_of(9) > 0);
    CHECK(launches_of(10) == 0);
    CHECK(launches_of(12) == launches_of(9));
    CHECK(launches_of(13) == 0);
    CHECK(launches_of(19) > 0);
    CHECK(launches_of(19) < launches_of(5));
    CHECK(launches_of(19) <= launches_of(9));
    MESSAGE(std::string(arch) << ": " << launches_of(5) << " launches at g = 1, " << launches_of(9) << " between, "
                              << launches_of(19) << " at g = 0");
  }
}

TEST_CASE("training on cuda: what is not finite updates nothing, recorded or not") {
  SKIP_WITHOUT_CUDA();
  for (const bool records : {false, true}) {
    CAPTURE(records);
    const ModelConfig config = tiny_config("gpt2");
    Transformer model(config, Precision::f32);
    model.initialise(1);
    model.move_to(Device::cuda);
    TrainerOptions options = short_taper();
    options.schedule.taper_start = 7;
    options.schedule.taper_end = 8;
    options.records_steps = records;
    Trainer trainer(model, options);
    train(trainer, config, 3);
    CHECK((trainer.launches_of_recorded_step() > 0) == records);
    const Tensor weight = model.parameter("h.1.mlp.up.weight").master, sound = weight.clone();
    const std::vector<double> moments = trainer.optimizer().states()[0].m.to_doubles();
    const double mean = trainer.calibration().state().norms[0].a;
    weight.copy_from(Tensor::full(weight.shape(), std::numeric_limits<double>::quiet_NaN(), weight.dtype()));
    const std::vector<double> before = model.parameters()[0].master.to_doubles();
    const StepReport report = trainer.step(random_ids({2, 8}, 31, 1), random_ids({2, 8}, 31, 2));
    CHECK(report.bad_tensor == "h.1.mlp.up.weight");
    CHECK(report.clip_factor == 0);
    CHECK(model.parameters()[0].master.to_doubles() == before);
    CHECK(trainer.optimizer().states()[0].m.to_doubles() == moments);
    CHECK(trainer.calibration().state().norms[0].a == mean);
    CHECK(trainer.state().updates == 3);
    CHECK(trainer.next_step() == 4);
    weight.copy_from(sound);
    CHECK(trainer.step(random_ids({2, 8}, 31, 1), random_ids({2, 8}, 31, 2)).bad_tensor.empty());
    CHECK(trainer.state().updates == 4);
  }
}

TEST_CASE("training on cuda: after the first step nothing is taken from the device, and nothing is lost") {
  SKIP_WITHOUT_CUDA();
  const ModelConfig config = tiny_config();
  release_cached_memory(Device::cuda);
  const int64_t before = memory_use(Device::cuda).live_bytes;
  {
    Transformer model(config, Precision::f32);
    model.initialise(3);
    model.move_to(Device::cuda);
    TrainerOptions options;
    options.schedule.steps = 8;
    Trainer trainer(model, options);
    train(trainer, config, 3);
    const MemoryUse second = memory_use(Device::cuda);
    train(trainer, config, 6);
    const MemoryUse fourth = memory_use(Device::cuda);
    CHECK(fourth.live_bytes == second.live_bytes);
    CHECK(fourth.live_bytes + fourth.cached_bytes == second.live_bytes + second.cached_bytes);
    CHECK(fourth.peak_bytes == second.peak_bytes);
  }
  CHECK(memory_use(Device::cuda).live_bytes == before);
}

TEST_CASE("training on cuda: what does not fit is said with the tensor's name and what is in use") {
  SKIP_WITHOUT_CUDA();
  const int64_t much = cuda_runtime().device().memory_bytes;
  std::string text = "nothing was thrown";
  try {
    Tensor::empty({much}, Dtype::f32, Device::cuda, "the test's tensor");
  } catch (const Error& error) {
    text = error.what();
  }
  CAPTURE(text);
  CHECK(text.rfind("out of memory: the test's tensor wants ", 0) == 0);
  CHECK(text.find("the GPU has ") != std::string::npos);
}

TEST_CASE("tensors on cuda: values cross between the devices, casts, rows and copies included") {
  SKIP_WITHOUT_CUDA();
  const Tensor host = random_normal({5, 7}, Dtype::f32, 1);
  const Tensor device = host.to(Device::cuda);
  CHECK(device.device() == Device::cuda);
  CHECK(device.to(Device::cuda).shares_storage(device));
  CHECK(device.to_doubles() == host.to_doubles());
  CHECK(device.rows(2, 4).to_doubles() == host.rows(2, 4).to_doubles());
  CHECK(device.rows(2, 3).clone().to_doubles() == host.rows(2, 3).to_doubles());
  CHECK(device.cast(Dtype::bf16).to_doubles() == host.cast(Dtype::bf16).to_doubles());
  CHECK(Tensor::full({3}, 2.5, Dtype::bf16, Device::cuda).to_doubles() == std::vector<double>{2.5, 2.5, 2.5});
  CHECK(Tensor::zeros({2}, Dtype::i32, Device::cuda).to_doubles() == std::vector<double>{0, 0});
  CHECK(device.rows(0, 1).reshaped({7}).rows(3, 4).item() == host.to_doubles()[3]);
  const Tensor wide = Tensor::empty({5, 7}, Dtype::f64);
  wide.copy_from(device);
  CHECK(wide.to_doubles() == host.to_doubles());
  device.copy_from(wide.cast(Dtype::bf16));
  CHECK(device.to_doubles() == host.cast(Dtype::bf16).to_doubles());
  CHECK(Tensor::empty({0, 3}, Dtype::f32, Device::cuda).to_doubles().empty());
  CHECK_THROWS_AS(device.data<float>(), Error);
  CHECK_THROWS_AS(add(device, host), Error);
}

}  // namespace
}  // namespace taper::test

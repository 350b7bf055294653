// Times full training steps of the real trainer: forward, backward, clipping, AdamW. The first step is not timed.
// Without
// --data every step sees the same random tokens; with it, the steps and their losses are pretrain's.
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "data/batch_sampler.h"
#include "data/prepared_data.h"
#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/random.h"
#include "tools/common/cli.h"
#include "tools/common/device.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"

namespace taper {
namespace {

struct Bench {
  ModelOptions model;
  ScheduleOptions schedule{7};
  std::string data;
  int64_t batch = 4;
};

// Operations of a step: 6 for each weight and token, and 12 for each layer, position and channel of attention, whose
// causal half that is not computed is counted as the peers count it.
double step_flops(const ModelConfig& config, int64_t tokens) {
  const int64_t positions = config.positions == Positions::learned ? config.context * config.width : 0;
  const auto weights = static_cast<double>(parameter_count(config) - positions);
  const auto attention = static_cast<double>(config.layers * config.heads * config.head_size * config.context);
  return (6 * weights + 12 * attention) * static_cast<double>(tokens);
}

void fill_random(const Tensor& ids, int64_t vocab_size, Random& random) {
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(random.next_below(static_cast<uint64_t>(vocab_size)));
  }
}

double peak_memory_mb(Device device) {
  if (device == Device::cuda) return static_cast<double>(memory_use(device).peak_bytes) / double(1 << 20);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int run(int argc, char** argv) {
  leave_at_first_signal();
  Bench bench;
  Cli cli("train-bench", "Times training steps.");
  declare_model_options(cli, bench.model);
  bench.schedule.declare(cli);
  cli.option("--data", bench.data, "prepared folder to train on").value_name("DIR").default_text("random tokens");
  cli.option("--batch", bench.batch, "of a step").unit("windows").range(1, kMostWindows);
  cli.allow_cuda();
  const CommonOptions common = cli.parse(argc, argv);
  const Device device = choose_device(common.device);
  const TrainerOptions options = bench.schedule.trainer_options(parse_variant(bench.model.variant));
  std::optional<TokenDataset> data;
  if (!bench.data.empty()) data.emplace(open_training_data(bench.data));
  const int64_t own_vocabulary = named_config(bench.model.size, bench.model.arch).vocab_size;
  const ModelConfig config =
      model_config(bench.model, data ? static_cast<int64_t>(data->info().vocabulary_size) : own_vocabulary);
  std::optional<BatchSampler> sampler;
  if (data) sampler.emplace(*data, config.context, common.seed);

  Transformer model(config, parse_precision(common));
  model.initialise(common.seed);
  model.move_to(device);
  Trainer trainer(model, options);
  const Tensor tokens = Tensor::empty({bench.batch, config.context}, Dtype::i32, Device::cpu, "the tokens");
  const Tensor targets = Tensor::empty({bench.batch, config.context}, Dtype::i32, Device::cpu, "the targets");
  Random random(common.seed, RandomStream::test);
  fill_random(tokens, config.vocab_size, random);
  fill_random(targets, config.vocab_size, random);

  std::vector<double> seconds;
  StepReport report;
  for (int64_t i = 0; i < bench.schedule.steps(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (sampler) sampler->next(bench.batch, tokens.data<int32_t>(), targets.data<int32_t>());
    report = trainer.step(tokens, targets);
    require(report.bad_tensor.empty(), "train-bench: {} is not finite at step {}", report.bad_tensor, report.step);
    if (i > 0 || bench.schedule.steps() == 1) {
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  nlohmann::ordered_json result;
  result["tokens_per_s"] = static_cast<double>(tokens.numel()) / median;
  result["step_ms"] = median * 1e3;
  result["gflops"] = step_flops(config, tokens.numel()) / median / 1e9;
  result["peak_memory_mb"] = peak_memory_mb(device);
  result["loss"] = report.loss;
  write_result(result.dump(common.json ? -1 : 2) + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

// The whole forward pass over B x T tokens without a cache from before, logits of each last position alone: tokens per
// second are B T by the time of a pass. The microbenchmark of Kanavalau et al., arXiv 2602.10408 v1.
//
//   last-token-bench --size 30M --batch 1,4 --context 128,256,512

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/core/cpu_features.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "tools/common/cli.h"
#include "tools/common/plan_bench.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

struct Options {
  std::string size = "30M";
  std::string plan = "all";
  std::vector<int64_t> batch{1, 4}, context{128, 256, 512};
  int64_t repeat = 5;

  explicit Options(Cli& cli) {
    cli.choice("--size", size, size_names(), "a random model of this size");
    cli.choice("--plan", plan, {"normed", "scaled", "folded", "all"}, "what tapered norms are");
    cli.option("--batch", batch, "sequences in a pass").at_least(1).at_most(1024);
    cli.option("--context", context, "tokens of a sequence").unit("tokens").at_least(1).at_most(1 << 20);
    cli.option("--repeat", repeat, "timed passes of each plan").at_least(1).at_most(10000);
  }
};

double run_once(Decoder& decoder, int64_t context) {
  std::vector<int32_t> tokens(static_cast<size_t>(context));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(decoder.vocab_size()));
  const auto start = std::chrono::steady_clock::now();
  decoder.reset();
  for (int64_t s = 0; s < decoder.sequences(); ++s) decoder.feed(tokens, s);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return double(context * decoder.sequences()) / seconds;
}

void print_row(const nlohmann::json& row) {
  std::string line =
      fmt::format("batch {:4} context {:5}:", row["batch"].get<int64_t>(), row["context"].get<int64_t>());
  for (const char* plan : {"normed", "scaled", "folded"}) {
    if (row.contains(plan))
      line += fmt::format("  {} {:.0f} tokens/s", plan, row[plan]["tokens_per_s"]["median"].get<double>());
  }
  write_result(line + "\n");
}

int run(int argc, char** argv) {
  leave_at_first_signal();
  Cli cli("last-token-bench", "Times forward passes over whole sequences, in the three plans in turn.");
  Options options(cli);
  cli.allow_cuda();
  cli.allow_int8();
  cli.footer(std::string(kSeparateLaunchesHelp) + kDecodeProfileHelp);
  const CommonOptions common = cli.parse(argc, argv);
  const WeightType weights = decode_weights(common);
  const Device device = decode_device(common);
  const int64_t longest = *std::max_element(options.context.begin(), options.context.end());
  const Transformer model = random_model(options.size, longest, common.seed);
  print_message(fmt::format("{} parameters, {} weights, {} threads, {}", parameter_count(model.config()),
                            to_string(weights), thread_count(), cpu_isa_name()));
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t batch : options.batch) {
    DecoderOptions decoding;
    decoding.weights = weights;
    decoding.sequences = batch;
    decoding.device = device;
    if (device == Device::cuda) decoding.block = longest;
    std::vector<BenchDecoder> decoders = bench_decoders(model, options.plan, decoding);
    if (rows.empty() && !decoders.empty()) profile_from_here(*decoders.front().decoder);
    for (const int64_t context : options.context) {
      nlohmann::json row = measure_settings(decoders, device, options.repeat,
                                            [&](Decoder& decoder) { return run_once(decoder, context); });
      row["batch"] = batch;
      row["context"] = context;
      if (!common.json) print_row(row);
      rows.push_back(row);
    }
  }
  if (common.json) write_result(rows.dump() + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

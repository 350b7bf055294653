// Tokens per second of decoding with a key-value cache: live norms, explicit scales and folded, side by side; on the
// processor as shares of what reading the weights alone allows, measured in turn with them.
//
//   decode-bench --size 30M --precision bf16

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/cpu_features.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/core/profile.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/plan_bench.h"
#include "tools/common/read_chain.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30, kTokens = 256;

struct Options {
  std::filesystem::path model;
  std::string size = "30M";
  std::string plan = "all";
  int64_t tokens = 0, prompt_tokens = 1, batch = 1, repeat = 5;  // tokens 0: kTokens, or what the context holds

  explicit Options(Cli& cli) {
    CliOption& by_model = cli.option("--model", model, "a model's folder, or a run's").value_name("DIR");
    CliOption& by_size = cli.choice("--size", size, size_names(), "a random model of this size instead");
    cli.exclusive({&by_model, &by_size});
    cli.choice("--plan", plan, {"normed", "scaled", "folded", "all"}, "what tapered norms are while decoding");
    cli.option("--tokens", tokens, "timed, for each sequence")
        .unit("tokens")
        .range(1, kMostTokens)
        .default_text(fmt::format("{}, fewer where the model's context is shorter", kTokens));
    cli.option("--prompt-tokens", prompt_tokens, "before that, not timed").unit("tokens").range(1, kMostTokens);
    cli.option("--batch", batch, "sequences decoded together").at_least(1).at_most(1024);
    cli.option("--repeat", repeat, "timed runs of each plan").at_least(1).at_most(10000);
  }
};

// Greedy, so that picking the token is inside, as it is for whoever waits for text.
double run_once(Decoder& decoder, const Options& options) {
  const std::vector<int32_t> prompt(static_cast<size_t>(options.prompt_tokens), 0);
  decoder.reset();
  for (int64_t s = 0; s < options.batch; ++s) {
    decoder.feed(prompt, s);
    decoder.choose();
  }
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.tokens; ++i) decoder.advance();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return double(options.tokens * options.batch) / seconds;
}

// Nothing but the weights, read once for each step.
double read_once(ReadChain& chain, const Options& options) {
  const ProfileScope profile("reading, and nothing else", {.bytes = options.tokens * chain.bytes()});
  const auto start = std::chrono::steady_clock::now();
  chain.read(options.tokens);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return double(options.tokens * options.batch) / seconds;
}

std::string range_of(const nlohmann::json& rate) {
  return fmt::format("{:10.1f} tokens/s (min {:.1f}, max {:.1f})", rate["median"].get<double>(),
                     rate["min"].get<double>(), rate["max"].get<double>());
}

void print_rates(const nlohmann::json& result, const char* setting) {
  for (const char* plan : {"normed", "scaled", "folded"}) {
    if (!result.contains(plan)) continue;
    const nlohmann::json share = result[plan].value("share_of_limit", nlohmann::json());
    const nlohmann::json ratio = result["ratios"].value(plan, nlohmann::json());
    write_result(fmt::format("{:7} {}{}{}{}\n", plan, range_of(result[plan]["tokens_per_s"]),
                             share.is_number() ? fmt::format("  {:.0f} % of the limit", 100 * share.get<double>()) : "",
                             ratio.is_number() ? fmt::format("  {:.3f}x normed", ratio.get<double>()) : "", setting));
  }
  if (result.contains("limit"))
    write_result(fmt::format("{:7} {}  {:.1f} GB/s: the weights read in order, and nothing else\n", "limit",
                             range_of(result["limit"]["tokens_per_s"]), result["limit"]["gb_per_s"].get<double>()));
}

int run(int argc, char** argv) {
  leave_at_first_signal();
  Cli cli("decode-bench", "Times decoding with a key-value cache, in the three plans in turn.");
  Options options(cli);
  cli.allow_cuda();
  cli.allow_int8();
  cli.footer(std::string(kSeparateLaunchesHelp) + kDecodeProfileHelp);
  const CommonOptions common = cli.parse(argc, argv);
  const WeightType weights = decode_weights(common);
  const Device device = decode_device(common);
  const Transformer model =
      options.model.empty() ? random_model(options.size, 512, common.seed) : load_model(options.model);
  if (options.tokens == 0)
    options.tokens = std::clamp<int64_t>(model.config().context - options.prompt_tokens, 1, kTokens);
  const int64_t positions = options.prompt_tokens + options.tokens;
  require_usage(positions <= model.config().context,
                "--prompt-tokens and --tokens: {} positions do not fit; the model's context is {} tokens", positions,
                model.config().context);
  print_message(fmt::format("{} parameters, {} weights, {} threads, {}", parameter_count(model.config()),
                            to_string(weights), thread_count(), cpu_isa_name()));
  DecoderOptions decoding;
  decoding.weights = weights;
  decoding.sequences = options.batch;
  decoding.device = device;
  std::vector<BenchDecoder> decoders = bench_decoders(model, options.plan, decoding);
  std::optional<ReadChain> chain;
  if (device == Device::cpu) chain.emplace(matrix_bytes(model.config(), weights));
  if (!decoders.empty()) profile_from_here(*decoders.front().decoder);
  nlohmann::json result = measure_settings(
      decoders, device, options.repeat, [&](Decoder& decoder) { return run_once(decoder, options); },
      chain ? [&] { return read_once(*chain, options); } : std::function<double()>());
  if (result.empty()) return 0;
  if (chain) {
    nlohmann::json& limit = result["limit"];
    limit["bytes_per_token"] = chain->bytes() / options.batch;
    limit["gb_per_s"] =
        1e-9 * double(chain->bytes()) * limit["tokens_per_s"]["median"].get<double>() / double(options.batch);
  }
  for (const BenchDecoder& each : decoders)
    result[to_string(each.plan)]["bytes_per_token"] =
        each.decoder->bytes_per_step(options.prompt_tokens + options.tokens / 2) / options.batch;
  if (common.json) {
    write_result(result.dump() + "\n");
    return 0;
  }
  print_rates(result, "");
  if (result.contains("separate_launches")) print_rates(result["separate_launches"], "  (kernel by kernel)");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

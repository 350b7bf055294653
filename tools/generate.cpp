// Continues a text with a trained model.
//
//   generate --model runs/stories --prompt "Once upon a time" --max-tokens 200

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_stream.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "infer/generator.h"
#include "infer/text_stream.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/plan_bench.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

struct Options {
  std::filesystem::path model;
  std::string prompt, prompt_file, ids, plan;
  bool is_special = false, is_greedy = false, ignores_end = false;
  std::vector<std::string> stops;
  GenerateOptions generation;
  bool has_ids = false, has_prompt_file = false;

  Options(Cli& cli, int argc, char** argv, CommonOptions& common) {
    cli.option("--model", model, "a model's folder, or a run's: its newest checkpoint").value_name("DIR").required();
    CliOption& by_text = cli.option("--prompt", prompt, "text to continue; none: from the end-of-text marker")
                             .value_name("TEXT")
                             .may_be_empty();
    CliOption& by_file =
        cli.option("--prompt-file", prompt_file, "the same from a file; - is standard input").value_name("FILE");
    CliOption& by_ids =
        cli.option("--ids", ids, "token ids with commas between them; needs no tokenizer").value_name("IDS");
    cli.exclusive({&by_text, &by_file, &by_ids});
    cli.flag_pair("--special", "--no-special", is_special, "read <|endoftext|> in the prompt as the marker");
    SamplerOptions& sampler = generation.sampler;
    cli.option("--max-tokens", generation.max_tokens, "new tokens at most").unit("tokens").at_least(0);
    CliOption& temperature =
        cli.option("--temperature", sampler.temperature, "divides the logits; 0: greedy").at_least(0);
    cli.option("--top-k", sampler.top_k, "draw from the k most probable tokens; 0: from all")
        .unit("tokens")
        .at_least(0);
    cli.option("--top-p", sampler.top_p, "draw from the fewest tokens of this much probability").range(0, 1);
    cli.option("--min-p", sampler.min_p, "draw from tokens of at least this times the greatest probability")
        .range(0, 1);
    cli.option("--repetition-penalty", sampler.repetition_penalty, "against tokens seen before; 1: none")
        .above(0)
        .at_most(100);
    cli.option("--stop", stops, "end before this text comes up").value_name("TEXT");
    const CliOption& greedy = cli.flag("--greedy", is_greedy, "always the most probable token");
    cli.exclusive({&temperature, &greedy});
    cli.flag("--ignore-end", ignores_end, "go on after the end-of-text marker");
    CliOption& by_plan =
        cli.choice("--plan", plan, {"normed", "scaled", "folded"}, "what tapered norms are while decoding")
            .default_text("folded where the norms have tapered away, else normed");
    cli.allow_cuda();
    cli.allow_int8();
    cli.footer(kDecodeProfileHelp);
    common = cli.parse(argc, argv);
    has_ids = by_ids.is_given();
    has_prompt_file = by_file.is_given();
    if (!by_plan.is_given()) plan.clear();
    if (is_greedy) sampler.temperature = 0;
    sampler.seed = common.seed;
    check_sampler(sampler);
  }
};

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (const char *at = text.data(), *end = at + text.size(); at <= end;) {
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    require_usage(error == std::errc() && (rest == end || *rest == ','),
                  "--ids: got '{}', want whole numbers with commas between them", text);
    require_usage(id >= 0 && id < vocab_size, "--ids: got {}, want 0 to {}", id, vocab_size - 1);
    ids.push_back(id);
    at = rest + 1;
  }
  return ids;
}

std::vector<int32_t> encode_prompt(const Options& options, const std::optional<Tokenizer>& tokenizer,
                                   int64_t vocab_size) {
  if (options.has_ids) return parse_ids(options.ids, vocab_size);
  const std::string text = options.has_prompt_file ? read_all(options.prompt_file, kMaxSmallTextBytes) : options.prompt;
  std::vector<int32_t> ids = tokenizer->encode(text, options.is_special ? Special::kMarker : Special::kText);
  if (ids.empty()) {
    require_usage(tokenizer->end_of_text().has_value(),
                  "prompt: empty, and the tokenizer has no <|endoftext|> to start from; want a text");
    ids.push_back(*tokenizer->end_of_text());
  }
  for (const int32_t id : ids) {
    require_usage(id < vocab_size,
                  "tokenizer: id {} is not in the model's vocabulary of {}; want the tokenizer that the "
                  "model was trained with",
                  id, vocab_size);
  }
  return ids;
}

int run(int argc, char** argv) {
  Cli cli("generate", "Continues a text with a trained model.");
  CommonOptions common;
  Options options(cli, argc, argv, common);
  const auto start = std::chrono::steady_clock::now();
  const std::filesystem::path folder = find_model_folder(options.model);
  const ModelConfig config = read_model_config(folder);
  const Plan plan = choose_plan(config, options.plan.empty() ? std::nullopt : std::optional(parse_plan(options.plan)));
  DecoderOptions decoding;
  decoding.plan = plan;
  decoding.weights = decode_weights(common);
  decoding.device = decode_device(common);

  std::optional<Tokenizer> tokenizer;
  if (!options.has_ids) tokenizer = Tokenizer::load(folder);
  require_usage(!tokenizer || tokenizer->vocab_size() <= config.vocab_size,
                "{}: the tokenizer is not the model's; got {} tokens, want at most {}", folder.string(),
                tokenizer ? tokenizer->vocab_size() : 0, config.vocab_size);
  const std::vector<int32_t> prompt = encode_prompt(options, tokenizer, config.vocab_size);
  require_usage(std::ssize(prompt) <= config.context,
                "prompt: {} tokens are too many; the model's context is {} tokens", prompt.size(), config.context);

  Decoder decoder(prepare(load_model(folder, Precision::f32, print_message), plan), decoding);
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  profile_from_here(decoder);

  if (tokenizer && !options.ignores_end) options.generation.end_marker = tokenizer->end_of_text();
  std::string text;
  TextStream stream(options.stops, [&](std::string_view bytes) {
    text += bytes;
    if (!common.json) write_result(bytes);
  });
  const Generated generated = generate(decoder, prompt, options.generation, [&](int32_t id) {
    return tokenizer && stream.push(tokenizer->token_bytes(id));
  });
  stream.finish();
  if (common.json) {
    nlohmann::json result = {{"ids", generated.ids}, {"ended", to_string(generated.reason)}};
    if (tokenizer) result["text"] = text;
    write_result(result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else if (options.has_ids) {
    write_result(fmt::format("{}\n", fmt::join(generated.ids, ",")));
  } else if (isatty(STDOUT_FILENO)) {
    write_result("\n");  // files and pipes receive the text alone
  }
  print_message(statistics(generated, load_s));
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

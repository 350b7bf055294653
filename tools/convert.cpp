// Hands a model to other programs, or takes one from them.
//
//   convert --model runs/stories --to hf --output stories-hf
//   convert --model runs/stories --to gguf --dtype f16 --output stories.gguf
//   convert --model some-gpt2 --to taper --output native

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <string>

#include "data/gguf_tokenizer.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "engine/io/read_file.h"
#include "model/hf_export.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "Routes of --to hf and --to gguf, by default the first that fits:\n"
    "  gpt2         GPT2LMHeadModel; an RMSNorm model with its stream doubled to [x, -x], whose LayerNorm is RMSNorm\n"
    "  imagegpt     ImageGPTForCausalImageModeling: an RMSNorm model in its own size (hf alone)\n"
    "  extra-block  GPT2LMHeadModel with one block more, for a model whose last norm alone is left\n"
    "  custom       a class in a file beside the weights, opened with trust_remote_code; runs without norms (hf "
    "alone)\n"
    "Llama models become LlamaForCausalLM. Removed norms are written as norms with eps 2^40 and gain 2^20 (f16: 2^28 "
    "and\n"
    "2^14), which are the identity. Whatever is written is read back and compared first.";

struct Options {
  fs::path model, output;
  std::string to = "hf", dtype = "source", route = "automatic";
};

// The ends a Hugging Face model came with, else the tokenizer's marker.
void set_ids(ExportOptions& options, const std::optional<Tokenizer>& tokenizer, const fs::path& folder) {
  const std::string file = (folder / "config.json").string();
  const std::string text = read_file(file, 1 << 20);
  if (model_type_of(text, file) != "taper") {
    const HfConfig config = hf_config_from_json(text, file);
    options.bos_id = config.bos_id;
    options.eos_id = config.eos_id;
  }
  if (!tokenizer) return;
  const std::optional<int32_t> end = tokenizer->end_of_text();
  if (!options.eos_id && end) options.eos_id = *end;
  if (!options.bos_id && end) options.bos_id = *end;
}

ExportedTokenizer exported_tokenizer(const Tokenizer& tokenizer, const ExportOptions& options) {
  return {tokenizer.vocab_size(),
          [tokenizer](const fs::path& folder, int64_t context) { tokenizer.save(folder, context); },
          [tokenizer, bos = options.bos_id, eos = options.eos_id](int64_t vocab_size) {
            return gguf_tokenizer(tokenizer, vocab_size, bos, eos);
          }};
}

StoredDtype stored_dtype(const Options& options, const fs::path& folder) {
  if (options.dtype == "f32") return StoredDtype::f32;
  if (options.dtype == "bf16") return StoredDtype::bf16;
  if (options.dtype == "f16") return StoredDtype::f16;
  return stored_dtype_of(folder);
}

ExportRoute parse_route(const Options& options) {
  const std::map<std::string, ExportRoute> routes{{"automatic", ExportRoute::automatic},
                                                  {"gpt2", ExportRoute::gpt2},
                                                  {"imagegpt", ExportRoute::imagegpt},
                                                  {"extra-block", ExportRoute::extra_block},
                                                  {"custom", ExportRoute::custom}};
  return routes.at(options.route);
}

int run(int argc, char** argv) {
  Options options;
  Cli cli("convert", "Writes a model in the form of other programs, or in the native one.");
  cli.option("--model", options.model, "a model's folder, native or Hugging Face's, or a run's")
      .value_name("DIR")
      .required();
  cli.choice("--to", options.to, {"taper", "hf", "gguf"}, "native folder, Hugging Face folder or llama.cpp's file")
      .required();
  cli.choice("--dtype", options.dtype, {"source", "f32", "bf16", "f16"}, "how matrices are stored");
  const CliOption& route = cli.choice(
      "--route", options.route, {"automatic", "gpt2", "imagegpt", "extra-block", "custom"}, "the form it takes, below");
  cli.option("--output", options.output, "what to write; must not be there yet").value_name("PATH").required();
  cli.footer(kFooter);
  const CommonOptions common = cli.parse(argc, argv);
  require_usage(options.to != "taper" || !route.is_given(), "--route: has no meaning with --to taper");
  require_usage(options.to != "gguf" || !fs::is_directory(options.output),
                "--output: {} is a folder; want the name of a file for --to gguf", options.output.string());

  const fs::path folder = find_model_folder(options.model);
  ExportOptions exported;
  exported.stored = stored_dtype(options, folder);
  exported.route = parse_route(options);
  exported.name = fs::absolute(options.model).lexically_normal().filename().string();
  exported.say = [](std::string_view text) { print_message(text); };
  const std::optional<Tokenizer> tokenizer = Tokenizer::find(folder);
  set_ids(exported, tokenizer, folder);
  if (tokenizer) exported.tokenizer = exported_tokenizer(*tokenizer, exported);
  const Transformer model = load_model(folder, Precision::f32, exported.say);
  const ExportResult result = options.to == "hf"     ? export_hf(model, options.output, exported)
                              : options.to == "gguf" ? export_gguf(model, options.output, exported)
                                                     : export_native(model, options.output, exported);
  const char* dtype = exported.stored == StoredDtype::bf16  ? "bf16"
                      : exported.stored == StoredDtype::f16 ? "f16"
                                                            : "f32";
  if (common.json) {
    const nlohmann::json json = {{"output", options.output.string()},
                                 {"form", result.form},
                                 {"dtype", dtype},
                                 {"tensors", result.tensors},
                                 {"max_logit_difference", result.max_logit_difference},
                                 {"allowed_logit_difference", result.allowed},
                                 {"has_tokenizer", exported.tokenizer.has_value()}};
    write_result(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    write_result(fmt::format(
        "{}: {}, {}, {} tensors; read back they are the same, logits differ by {:.3g} of {:.3g} "
        "allowed\n",
        options.output.string(), result.form, dtype, result.tensors, result.max_logit_difference, result.allowed));
  }
  if (!exported.tokenizer) print_message("the model has no tokenizer beside it: none was written");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

// The loss of a model on held-out text: a prepared folder's validation shards, a text file, or rows of ids. With int8
// beside that of the same model in f32.
#include "train/evaluate.h"

#include <nlohmann/json.hpp>

#include <optional>

#include "data/byte_stream.h"
#include "data/prepared_data.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/io/json_text.h"
#include "infer/int8_weights.h"
#include "infer/plan.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/device.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string model, data, input, ids;
  int64_t context = 0;
};

std::string name_of(const std::string& input) { return input == "-" ? "standard input" : input; }

std::vector<std::vector<int32_t>> parse_rows(const std::string& text, const std::string& name, int64_t vocab_size) {
  const Json json = parse_json<Json>(text, name);
  require_usage(json.is_array() && !json.empty(), "ids: {} is no JSON array of rows of ids", name);
  std::vector<std::vector<int32_t>> rows;
  for (const Json& row : json) {
    require_usage(row.is_array() && !row.empty(), "ids: row {} of {} is no row of ids; got {}", rows.size(), name,
                  shown(row));
    std::vector<int32_t> ids;
    for (const Json& id : row) {
      const bool is_known = id.is_number_integer() && id >= 0 && id < vocab_size;
      require_usage(is_known, "ids: row {} of {} has {}, want ids from 0 to {}", rows.size(), name, shown(id),
                    vocab_size - 1);
      ids.push_back(id.get<int32_t>());
    }
    rows.push_back(std::move(ids));
  }
  return rows;
}

Json evaluate_ids(const Transformer& model, const Options& options) {
  const auto rows =
      parse_rows(read_all(options.ids, kMaxSmallTextBytes), name_of(options.ids), model.config().vocab_size);
  for (const auto& row : rows) {
    require_usage(row.size() <= static_cast<size_t>(model.config().context),
                  "ids: a row is too long for the model; got {} ids, want at most {}", row.size(),
                  model.config().context);
  }
  const RowsEvaluation result = evaluate_rows(model, Gate{model.config().gate}, rows);
  if (result.loss) require_finite(*result.loss);
  return {{"loss", result.loss ? Json(*result.loss) : Json()}, {"last_logits", result.last_logits}};
}

Json to_json(const Evaluation& result) {
  require_finite(result.loss);
  return {{"loss", result.loss},
          {"perplexity", result.perplexity},
          {"bits_per_byte", result.bits_per_byte},
          {"tokens", result.tokens}};
}

Json evaluate_text(const Transformer& model, const fs::path& folder, const Options& options) {
  const int64_t context = options.context > 0 ? options.context : model.config().context;
  require_usage(context <= model.config().context, "--context: longer than the model's; got {}, want at most {}",
                context, model.config().context);
  const Gate gate{model.config().gate};
  const std::optional<Tokenizer> own = Tokenizer::find(folder);
  if (!options.data.empty()) {
    const TokenDataset data = open_validation_data(options.data);
    require_tokenizer_of(folder.string(), data);
    const std::optional<Tokenizer> tokenizer = own ? own : Tokenizer::find(options.data);
    require_usage(data.info().vocabulary_size <= static_cast<uint64_t>(model.config().vocab_size),
                  "data: made with another tokenizer than the model's; got a vocabulary of {}, want at most {}",
                  data.info().vocabulary_size, model.config().vocab_size);
    return to_json(evaluate(model, gate, windows_of(data, context), tokenizer ? &*tokenizer : nullptr));
  }
  require_usage(own.has_value(), "model: {} has no tokenizer, which --input needs", folder.string());
  const std::vector<int32_t> ids = own->encode(read_all(options.input, kMaxTextBytes), Special::kMarker);
  return to_json(evaluate(model, gate, windows_of(ids, name_of(options.input), context), &*own));
}

int run(int argc, char** argv) {
  Options options;
  Cli cli("evaluate", "The loss of a model on held-out text.");
  cli.option("--model", options.model, "model or run folder").value_name("DIR").required();
  const CliOption& data = cli.option("--data", options.data, "prepared folder: its validation data").value_name("DIR");
  const CliOption& input = cli.option("--input", options.input, "text, - for stdin").value_name("FILE");
  const CliOption& ids = cli.option("--ids", options.ids, "JSON rows of ids, - for stdin").value_name("FILE");
  cli.option("--context", options.context, "of a window").unit("tokens").at_least(1).default_text("the model's");
  cli.exclusive({&data, &input, &ids});
  cli.allow_cuda();
  cli.allow_int8();
  const CommonOptions common = cli.parse(argc, argv);
  const Device device = choose_device(common.device);
  require_usage(data.is_given() || input.is_given() || ids.is_given(),
                "--data, --input or --ids: one of them is required");
  const fs::path folder = find_model_folder(options.model);
  const bool is_int8 = common.precision == "int8";
  // int8 as generate decodes with it: folded first where the norms have tapered away.
  Transformer model = [&] {
    Transformer loaded = load_model(folder, parse_precision(common), print_message);
    if (!is_int8) return loaded;
    const Plan plan = choose_plan(loaded.config(), {});
    return prepare(std::move(loaded), plan);
  }();
  const auto evaluate_on_device = [&] {
    model.move_to(device);
    model.set_requires_grad(false);
    return ids.is_given() ? evaluate_ids(model, options) : evaluate_text(model, folder, options);
  };
  Json f32_loss;
  if (is_int8) {
    f32_loss = evaluate_on_device().at("loss");
    model.move_to(Device::cpu);
    round_to_int8(model);
  }
  Json result = evaluate_on_device();
  if (is_int8) result["f32_loss"] = f32_loss;
  if (stop_requested()) return 0;
  write_result(result.dump(common.json ? -1 : 2) + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

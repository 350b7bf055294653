// Folds the norms of a model that has tapered to gate 0 into its matrices, checks that it is still the same function,
// and writes it.
//
//   fold --model runs/stories --output stories-folded

#include "model/fold.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>

#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "engine/io/staged_output.h"
#include "model/logit_check.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"
#include "train/evaluate.h"

namespace taper {
namespace {

// Greatest logit difference that passes, by the greatest logit where that is above 1: f32 rounding, summed in another
// order.
constexpr double kTolerance = 1e-4;

nlohmann::json to_json(std::optional<double> number) { return number ? nlohmann::json(*number) : nlohmann::json(); }

int run(int argc, char** argv) {
  std::filesystem::path model_path, output;
  Cli cli("fold", "Folds the norms of a model at gate 0 into the matrices that read them.");
  cli.option("--model", model_path, "a model's folder, or a run's: its newest checkpoint").value_name("DIR").required();
  cli.option("--output", output, "where the folded model goes; absent or empty").value_name("DIR").required();
  const CommonOptions common = cli.parse(argc, argv);
  const std::filesystem::path folder = find_model_folder(model_path);
  StagedOutput staged(output);
  // The tokenizer goes along; read before anything is written.
  const auto tokenizer = Tokenizer::find(folder);
  const Transformer model = load_model(folder);
  const Transformer folded = fold(model);
  const LogitCheck check(model, print_message);
  const LogitDifference difference = check.difference(folded);
  require(difference.is_within(kTolerance),
          "fold: the folded model is another function, so nothing was written; logits differ by {:.3g}, want at most "
          "{:.3g}",
          difference.most, difference.allowed(kTolerance));
  const nlohmann::json result = {{"max_logit_difference", difference.most},
                                 {"loss_before", to_json(evaluate_rows(model, Gate{0}, check.windows()).loss)},
                                 {"loss_after", to_json(evaluate_rows(folded, Gate{0}, check.windows()).loss)},
                                 {"norms_left", norm_count(folded.config())}};
  save_model(folded, staged.path());
  if (tokenizer) tokenizer->save(staged.path(), model.config().context);
  staged.commit();
  print_message(fmt::format("{}: {} of {} norms left, logits differ by {:.3g} at most", output.string(),
                            norm_count(folded.config()), norm_count(model.config()), difference.most));
  write_result(result.dump() + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

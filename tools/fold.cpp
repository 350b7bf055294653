// Folds the norms of a model that has tapered to gate 0 into its matrices, checks that it is still the same function,
// and writes it.
//
//   fold --model runs/stories --output stories-folded

#include "model/fold.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/io/staged_output.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"
#include "train/evaluate.h"

namespace taper {
namespace {

// Greatest logit difference that passes, by the greatest logit where that is above 1: f32 rounding, summed in another
// order.
constexpr double kTolerance = 1e-4;

std::vector<std::vector<int32_t>> check_tokens(const ModelConfig& config) {
  constexpr int64_t kRows = 4, kTokens = 64;
  Random random(1, RandomStream::test);
  std::vector<std::vector<int32_t>> rows(kRows);
  for (auto& row : rows) {
    for (int64_t i = 0; i < std::min(kTokens, config.context); ++i)
      row.push_back(static_cast<int32_t>(random.next_below(static_cast<uint64_t>(config.vocab_size))));
  }
  return rows;
}

struct Check {
  double difference = 0;  // greatest, over all positions
  double allowed = 0;
  std::optional<double> loss_before, loss_after;  // absent where a row is one token
};

Check compare(const Transformer& model, const Transformer& folded) {
  Check check;
  double greatest = 1;
  const auto rows = check_tokens(model.config());
  for (const auto& row : rows) {
    const Tensor tokens = Tensor::from(row, {1, std::ssize(row)});
    const Tensor before = model.logits(tokens, Gate{0}), after = folded.logits(tokens, Gate{0});
    for (int64_t i = 0; i < before.numel(); ++i) {
      const double a = before.data<float>()[i], b = after.data<float>()[i];
      require(std::isfinite(a) && std::isfinite(b), "check: a logit is not finite; got {} before folding and {} after",
              a, b);
      greatest = std::max(greatest, std::fabs(a));
      check.difference = std::max(check.difference, std::fabs(a - b));
    }
  }
  check.allowed = kTolerance * greatest;
  check.loss_before = evaluate_rows(model, Gate{0}, rows).loss;
  check.loss_after = evaluate_rows(folded, Gate{0}, rows).loss;
  return check;
}

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
  const Check check = compare(model, folded);
  require(check.difference <= check.allowed,
          "fold: the folded model is another function, so nothing was written; logits differ by {:.3g}, want at most "
          "{:.3g}",
          check.difference, check.allowed);
  save_model(folded, staged.path());
  if (tokenizer) tokenizer->save(staged.path(), model.config().context);
  staged.commit();
  print_message(fmt::format("{}: {} of {} norms left, logits differ by {:.3g} at most", output.string(),
                            norm_count(folded.config()), norm_count(model.config()), check.difference));
  const nlohmann::json result = {{"max_logit_difference", check.difference},
                                 {"loss_before", to_json(check.loss_before)},
                                 {"loss_after", to_json(check.loss_after)},
                                 {"norms_left", norm_count(folded.config())}};
  write_result(result.dump() + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

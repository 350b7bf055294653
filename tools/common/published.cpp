#include "tools/common/published.h"

namespace taper {
namespace {

constexpr const char* kPaper = "Kanavalau, Amo Alonso, Lall, arXiv 2602.10408";

ResultTable table(const std::string& title, std::vector<std::string> columns,
                  const std::vector<std::vector<std::string>>& rows, const std::string& source) {
  ResultTable result{"published", title, std::move(columns), {}, source};
  for (const auto& row : rows) {
    result.rows.emplace_back();
    for (const std::string& text : row) result.rows.back().push_back(text_cell(text));
  }
  return result;
}

}  // namespace

std::vector<ResultTable> published_figures(const std::string& experiment) {
  if (experiment == "tinystories-table") {
    return {table("Published: validation loss on TinyStories, difference from the baseline",
                  {"models", "variant", "difference %"},
                  {{"1M to 30M, 6 seeds", "internal, internal + anchor", "+0.7 to +1.5"},
                   {"1M to 30M, 6 seeds", "all, all + anchor", "+0.8 to +1.8"},
                   {"17.7M, replication, 2.1 billion tokens", "internal", "+0.28 to +0.34"}},
                  std::string(kPaper) + ", and its public replication. One 9M seed of all was an outlier.")};
  }
  if (experiment == "logit-chasing") {
    return {table("Published: the final norm removed", {"", "pre-logit scale and logits", "gradient norm"},
                  {{"without the anchor", "run away", "-"}, {"with the anchor", "held", "follows the baseline's"}},
                  kPaper)};
  }
  if (experiment == "gpt2-table") {
    return {table("Published for FakeLN: CE on OpenWebText / The Pile",
                  {"model", "as it is", "vanilla", "without norms"},
                  {{"GPT-2 small", "3.1006 / 2.8450", "3.0126 / 2.8511", "3.0797 / 2.8852"},
                   {"GPT-2 medium", "2.8145 / 2.5163", "2.7390 / 2.5752", "2.7642 / 2.6579"}},
                  "Baroni et al., arXiv 2507.02559. TaperNorm's all is competitive with it (arXiv 2602.10408).")};
  }
  if (experiment == "decode-bench") {
    return {table("Published: decoding with a cache, against the norms", {"plan", "ratio"},
                  {{"scaled", "1.10 to 1.14"}, {"folded", "1.15 to 1.18"}}, std::string(kPaper) + "; H100, bf16.")};
  }
  if (experiment == "last-token-bench") {
    return {table(
        "Published: logits of the last position, 30M, thousands of tokens/s at T = 128 / 256 / 512",
        {"batch", "norms", "folded"},
        {{"1", "40.7 / 79.3 / 163.2", "48.7 / 96.8 / 195.5"}, {"4", "149.3 / 290.5 / 546.3", "180.4 / 344.9 / 615.9"}},
        std::string(kPaper) + ", version 1; H100, no cache.")};
  }
  return {};
}

}  // namespace taper

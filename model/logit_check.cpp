#include "model/logit_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "model/model_folder.h"

namespace taper {
namespace {

constexpr int64_t kWindows = 4, kTokens = 64;

std::vector<std::vector<int32_t>> random_windows(const ModelConfig& config) {
  Random random(1, RandomStream::test);
  std::vector<std::vector<int32_t>> windows(kWindows);
  for (auto& window : windows) {
    for (int64_t i = 0; i < std::min(kTokens, config.context); ++i)
      window.push_back(static_cast<int32_t>(random.next_below(static_cast<uint64_t>(config.vocab_size))));
  }
  return windows;
}

Tensor logits_of(const Transformer& model, const std::vector<int32_t>& window) {
  const NoGrad no_grad;
  return model.logits(Tensor::from(window, {1, std::ssize(window)}), Gate{model.config().gate});
}

std::span<const float> values(const Tensor& logits) {
  return {logits.data<float>(), static_cast<size_t>(logits.numel())};
}

}  // namespace

LogitCheck::LogitCheck(const Transformer& model, const Say& say) {
  const auto bad = first_non_finite(model);
  require(!bad, "tensor {}: has values that are not finite; want finite ones", bad.value_or(""));
  for (std::vector<int32_t>& window : random_windows(model.config())) {
    Tensor logits = logits_of(model, window);
    const auto all = values(logits);
    if (!std::all_of(all.begin(), all.end(), [](float logit) { return std::isfinite(logit); })) continue;
    windows_.push_back(std::move(window));
    logits_.push_back(std::move(logits));
  }
  require(!windows_.empty(), "check: the model's own logits are not finite in any of {} windows of random ids",
          kWindows);
  if (say && std::ssize(windows_) < kWindows) {
    say(
        fmt::format("check: in {} of {} windows of random ids the model's own logits are not finite; only the others "
                    "are compared",
                    kWindows - std::ssize(windows_), kWindows));
  }
}

LogitDifference LogitCheck::difference(const Transformer& other) const {
  LogitDifference worst;
  for (size_t w = 0; w < windows_.size(); ++w) {
    const Tensor logits = logits_of(other, windows_[w]);
    const auto want = values(logits_[w]), got = values(logits);
    LogitDifference here;
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = std::fabs(double(got[i]) - double(want[i]));
      if (std::isnan(difference)) return {difference, here.greatest};
      here.most = std::max(here.most, difference);
      here.greatest = std::max(here.greatest, std::fabs(double(want[i])));
    }
    if (here.most * worst.greatest > worst.most * here.greatest) worst = here;
  }
  return worst;
}

}  // namespace taper

#include "train/fakeln.h"

#include "engine/core/error.h"

namespace taper {

FakeLn::FakeLn(Transformer& model, FakeLnSchedule schedule, double decay)
    : model_(model),
      schedule_(std::move(schedule)),
      decay_(decay),
      norms_(model.tapered_norms()),
      means_(norms_.size()) {}

void FakeLn::begin_step(int64_t step) {
  for (const FakeLnEvent& event : schedule_.events()) {
    if (event.step == step) replace(event);
  }
}

void FakeLn::replace(const FakeLnEvent& event) {
  const auto norm1 = static_cast<size_t>(2 * event.block);
  switch (event.phase) {
    case FakeLnPhase::norm2:
      return fix(norm1 + 1, 0);
    case FakeLnPhase::norm1_qk:
      return fix(norm1, 0);
    case FakeLnPhase::norm1_v:
      return fix(norm1, 1);
    case FakeLnPhase::final_norm:
      return fix(norms_.size() - 1, 0);
    case FakeLnPhase::first_position:
      return level(TokenKind::first_position);
    case FakeLnPhase::end_of_text:
      level(TokenKind::end_of_text);
      model_.end_replacement();
  }
}

void FakeLn::fix(size_t norm, int64_t path) {
  const FixedScales& scales = norms_[norm]->scales();
  const auto mean_of = [&](TokenKind kind) { return means_[norm][static_cast<size_t>(kind)]; };
  // Kinds that have not come by, short windows or texts without an end, do as the rest; and the rest as position 0
  // where windows are of one token.
  const RunningMean ordinary =
      mean_of(TokenKind::ordinary).is_known() ? mean_of(TokenKind::ordinary) : mean_of(TokenKind::first_position);
  require(ordinary.is_known(), "fakeln: {} cannot be replaced: no step was observed before", norms_[norm]->name());
  for (const TokenKind kind : {TokenKind::ordinary, TokenKind::first_position, TokenKind::end_of_text}) {
    const RunningMean mean = mean_of(kind).is_known() ? mean_of(kind) : ordinary;
    scales.set(path, kind, 1 / mean.mean());
  }
}

// The average of its own that a kind of token has gives way to that of ordinary tokens, in every norm.
void FakeLn::level(TokenKind kind) {
  for (TaperNorm* norm : norms_) {
    const FixedScales& scales = norm->scales();
    for (int64_t path = 0; path < scales.paths(); ++path) {
      scales.set(path, kind, scales.get(path, TokenKind::ordinary));
    }
  }
}

void FakeLn::observe(const std::vector<Tensor>& sums) {
  require(sums.size() == means_.size(), "fakeln: got sums of {} norms, want {}", sums.size(), means_.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::vector<double> all = sums[i].to_doubles();
    for (size_t kind = 0; kind < means_[i].size(); ++kind) {
      const double* values = all.data() + 2 * kind;
      if (values[1] > 0) means_[i][kind].observe(values[0] / values[1], decay_);
    }
  }
}

std::optional<double> FakeLn::mean_scale() const {
  const RunningMean& mean = means_.back()[static_cast<size_t>(TokenKind::ordinary)];
  if (!mean.is_known()) return {};
  return mean.mean();
}

void FakeLn::restore(std::vector<KindMeans> means) {
  require(means.size() == means_.size(), "fakeln: got the averages of {} norms, want {}", means.size(), means_.size());
  means_ = std::move(means);
}

}  // namespace taper

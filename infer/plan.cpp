#include "infer/plan.h"

#include "engine/core/error.h"
#include "model/fold.h"

namespace taper {

const char* to_string(Plan plan) {
  switch (plan) {
    case Plan::normed:
      return "normed";
    case Plan::scaled:
      return "scaled";
    case Plan::folded:
      return "folded";
    case Plan::blended:
      return "blended";
  }
  return "?";
}

Plan parse_plan(std::string_view name) {
  for (const Plan plan : {Plan::normed, Plan::scaled, Plan::folded}) {
    if (name == to_string(plan)) return plan;
  }
  fail_usage("plan: got '{}', want normed, scaled or folded", name);
}

Plan choose_plan(const ModelConfig& config, std::optional<Plan> asked) {
  require_usage(
      !config.is_replaced_in_turn || config.gate == 1.0,
      "model: its norms are being replaced one after another, saved at step {}; want a later checkpoint, with "
      "gate 0: its run goes on with --resume",
      config.step);
  if (is_folded(config)) {
    require_usage(asked.value_or(Plan::folded) == Plan::folded,
                  "plan {}: the norms of this model are folded away; want plan folded", to_string(*asked));
    return Plan::folded;
  }
  if (config.has_taper() && config.gate == 0.0) {
    require_usage(
        asked != Plan::normed,
        "plan normed: this model has gate 0, and live norms would be another function; want scaled or folded");
    return asked.value_or(Plan::folded);
  }
  require_usage(asked.value_or(Plan::normed) == Plan::normed,
                "plan {}: wants a model whose norms have tapered away; got {}", to_string(*asked),
                config.has_taper() ? fmt::format("gate {} at step {}", config.gate, config.step)
                                   : std::string("a baseline, whose norms stay"));
  return config.has_taper() && config.gate < 1.0 ? Plan::blended : Plan::normed;
}

Transformer prepare(Transformer model, Plan plan) {
  if (plan == Plan::folded && model.config().has_taper()) return fold(model);
  return model;
}

}  // namespace taper

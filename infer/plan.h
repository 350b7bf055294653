// What a tapered norm is while decoding. At g = 0 the training forward, scaled and folded are one function in three
// forms; normed is another, for baselines, unfinished models and comparisons of speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/transformer.h"

namespace taper {

enum class Plan : uint8_t {
  normed,   // live norms
  scaled,   // explicit scales: x = c h' gamma_tilde + beta_tilde
  folded,   // nothing: the model went through fold() first
  blended,  // both branches, at the gate of the model's configuration
};

const char* to_string(Plan plan);
Plan parse_plan(std::string_view name);  // normed, scaled or folded; UsageError for others

// How a model is to be decoded: by default folded where its norms tapered away (g = 0), blended between, else normed.
// UsageError where another function would come out: normed at g = 0, scaled or folded elsewhere.
Plan choose_plan(const ModelConfig& config, std::optional<Plan> asked);

// The model as the plan wants it: folded for Plan::folded where norms that taper are left.
Transformer prepare(Transformer model, Plan plan);

}  // namespace taper

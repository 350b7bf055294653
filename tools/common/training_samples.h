// Texts that a model writes while it is being trained.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/tokenizer.h"
#include "model/transformer.h"
#include "tools/common/cli.h"

namespace taper {

struct SampleOptions {
  int64_t tokens = 40;  // of each; 0: none
  std::string prompt = "Once upon a time";
};

void declare_sample_options(Cli& cli, SampleOptions& options);

// For RunOptions::after_evaluation: prints, as a message, how the model, one in f32, continues the prompt.
// Deterministic in the step; norms are decoded as the gate at hand has them, and not at all while they are replaced one
// after another. Both references must outlive the function.
std::function<void(int64_t step)> sample_printer(const Transformer& model, const Tokenizer& tokenizer,
                                                 const SampleOptions& options);

}  // namespace taper

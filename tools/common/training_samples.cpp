#include "tools/common/training_samples.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "infer/generator.h"
#include "tools/common/run_tool.h"

namespace taper {

namespace {

// Decoding reads its weights on the processor.
Transformer copy_on_host(const Transformer& model) {
  Transformer copy(model.config(), model.precision());
  for (const Parameter& p : copy.parameters()) {
    p.master.copy_from(model.parameter(p.name).master);
    p.refresh_copy();
  }
  return copy;
}

}  // namespace

void declare_sample_options(Cli& cli, SampleOptions& options) {
  cli.option("--sample-tokens", options.tokens, "of a text written after each evaluation; 0: none")
      .unit("tokens")
      .at_least(0);
  cli.option("--sample-prompt", options.prompt, "that text's beginning; none: the end-of-text marker")
      .value_name("TEXT")
      .may_be_empty();
}

std::function<void(int64_t step)> sample_printer(const Transformer& model, const Tokenizer& tokenizer,
                                                 const SampleOptions& options) {
  std::vector<int32_t> prompt = tokenizer.encode(options.prompt, Special::kText);
  if (prompt.empty() && tokenizer.end_of_text()) prompt.push_back(*tokenizer.end_of_text());
  // A decoder packs f32 masters alone.
  const bool can_decode = model.precision() != Precision::f64 && std::ssize(prompt) <= model.config().context;
  if (options.tokens == 0 || prompt.empty() || !can_decode) return nullptr;
  return [&model, &tokenizer, prompt, options](int64_t step) {
    if (model.config().is_replaced_in_turn) return;
    DecoderOptions decoding;
    const Plan plan = choose_plan(model.config(), {});
    // The same function without folding a model that goes on training.
    decoding.plan = plan == Plan::folded && model.config().has_taper() ? Plan::scaled : plan;
    decoding.block = std::ssize(prompt);
    std::optional<Transformer> on_host;
    if (model.device() != Device::cpu) on_host.emplace(copy_on_host(model));
    Decoder decoder(on_host ? *on_host : model, decoding);
    GenerateOptions generation;
    generation.max_tokens = options.tokens;
    generation.sampler.temperature = 0.8;
    generation.sampler.seed = static_cast<uint64_t>(step);
    generation.end_marker = tokenizer.end_of_text();
    const Generated generated = generate(decoder, prompt, generation, [](int32_t) { return false; });
    std::string text = options.prompt + tokenizer.decode(generated.ids);
    std::replace(text.begin(), text.end(), '\n', ' ');
    print_message(fmt::format("sample: {}", text));
  };
}

}  // namespace taper

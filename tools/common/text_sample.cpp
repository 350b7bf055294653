#include "tools/common/text_sample.h"

#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "infer/generator.h"
#include "infer/text_stream.h"
#include "model/model_folder.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrompt = "Once upon a time";
constexpr int64_t kTokens = 80;

TextSample draw_sample(const fs::path& folder) {
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const Plan plan = choose_plan(read_model_config(folder), std::nullopt);
  DecoderOptions decoding;
  decoding.plan = plan;
  Decoder decoder(prepare(load_model(folder), plan), decoding);
  GenerateOptions options;
  options.max_tokens = kTokens;
  options.sampler.temperature = 0.7;
  options.sampler.top_k = 40;
  options.sampler.seed = 1;
  options.end_marker = tokenizer.end_of_text();
  TextSample sample{kPrompt, ""};
  TextStream stream({}, [&](std::string_view bytes) { sample.text += bytes; });
  generate(decoder, tokenizer.encode(kPrompt, Special::kText), options,
           [&](int32_t id) { return stream.push(tokenizer.token_bytes(id)); });
  stream.finish();
  return sample;
}

}  // namespace

std::optional<TextSample> sample_of(const fs::path& run) {
  const std::vector<fs::path> checkpoints = complete_checkpoints(run);
  if (checkpoints.empty()) return {};
  try {
    return draw_sample(checkpoints.front());
  } catch (const Error& error) {
    print_message(fmt::format("report: no sample of {}: {}", run.string(), error.what()));
    return {};
  }
}

}  // namespace taper

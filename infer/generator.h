// Continues a prompt, token by token, and says why it ended and how long it took.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/decoder.h"
#include "infer/sampler.h"

namespace taper {

enum class EndReason : uint8_t { max_tokens, context_full, end_marker, stop_text, stop_requested };
const char* to_string(EndReason reason);

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  std::optional<int32_t> end_marker;  // ends the text where it comes up; none: nothing does
};

struct Generated {
  std::vector<int32_t> ids;  // new ones, without the end marker
  EndReason reason = EndReason::max_tokens;
  int64_t prompt_tokens = 0;
  double prompt_s = 0;      // until the logits after the prompt
  double generation_s = 0;  // from there to the last token; sampling and output inside
};

// on_token receives each new id and ends the generation by returning true (a stop text is complete). Starts the decoder
// afresh with `prompt`, not empty: UsageError where it is longer than the context. A token may be predicted from the
// last position of the context, so at most context - prompt + 1 new ones come; then the reason is context_full.
Generated generate(Decoder& decoder, std::span<const int32_t> prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& on_token);

// One line: tokens, seconds, tokens/s and what they include, and why it ended.
std::string statistics(const Generated& generated, double load_s);

}  // namespace taper

#include "infer/generator.h"

#include <fmt/core.h>

#include <chrono>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"

namespace taper {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

const char* to_string(EndReason reason) {
  switch (reason) {
    case EndReason::max_tokens:
      return "as many tokens as asked for";
    case EndReason::context_full:
      return "context full";
    case EndReason::end_marker:
      return "end-of-text marker";
    case EndReason::stop_text:
      return "stop text";
    case EndReason::stop_requested:
      return "stopped";
  }
  return "?";
}

Generated generate(Decoder& decoder, std::span<const int32_t> prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& on_token) {
  require_usage(std::ssize(prompt) <= decoder.context(),
                "prompt: {} tokens are too many; the model's context is {} tokens", prompt.size(), decoder.context());
  Generated result;
  result.prompt_tokens = std::ssize(prompt);
  for (const int32_t token : prompt) {
    require(token >= 0 && token < decoder.vocab_size(), "prompt: id out of range; got {}, want 0 to {}", token,
            decoder.vocab_size() - 1);
  }
  decoder.set_sampler(options.sampler);
  decoder.reset();
  auto start = std::chrono::steady_clock::now();
  decoder.feed(prompt);
  result.prompt_s = seconds_since(start);

  start = std::chrono::steady_clock::now();
  while (std::ssize(result.ids) < options.max_tokens) {
    if (stop_requested()) {
      result.reason = EndReason::stop_requested;
      break;
    }
    const bool is_first = result.ids.empty();
    if (!is_first && decoder.length() == decoder.context()) {
      result.reason = EndReason::context_full;
      break;
    }
    const int32_t token = is_first ? decoder.choose()[0] : decoder.advance()[0];
    if (token == options.end_marker) {
      result.reason = EndReason::end_marker;
      break;
    }
    result.ids.push_back(token);
    if (on_token(token)) {
      result.reason = EndReason::stop_text;
      break;
    }
  }
  result.generation_s = seconds_since(start);
  return result;
}

std::string statistics(const Generated& generated, double load_s) {
  const auto rate = [](int64_t tokens, double seconds) {
    return tokens > 0 && seconds > 0 ? fmt::format(" ({:.1f} tokens/s)", double(tokens) / seconds) : std::string();
  };
  const int64_t count = std::ssize(generated.ids);
  return fmt::format(
      "generated {} tokens in {:.3f} s{}, sampling and output included; before that, not included: loading {:.3f} s, "
      "prompt of {} tokens {:.3f} s{}; ended: {}",
      count, generated.generation_s, rate(count, generated.generation_s), load_s, generated.prompt_tokens,
      generated.prompt_s, rate(generated.prompt_tokens, generated.prompt_s), to_string(generated.reason));
}

}  // namespace taper

#include "infer/decoder.h"

#include <algorithm>

#include "engine/core/error.h"
#include "infer/decoder_pass.h"

namespace taper {

Decoder::Decoder(std::shared_ptr<const DecodeWeights> weights, const DecoderOptions& options)
    : options_(options),
      weights_(std::move(weights)),
      shape_(weights_->shape()),
      cache_(shape_.config, options.sequences, weights_->kernels().weight_dtype),
      threads_(thread_count()) {
  options_.block = std::clamp<int64_t>(options.block, 1, std::max<int64_t>(1, shape_.config.context));
  const int64_t rows = std::max(options_.block, options_.sequences);
  rows_.reserve(static_cast<size_t>(rows));
  workspace_ =
      std::make_unique<DecodeWorkspace>(*weights_, rows, options_.all_logits ? rows : options_.sequences, threads_);
}

Decoder::Decoder(const Transformer& model, const DecoderOptions& options)
    : Decoder(std::make_shared<DecodeWeights>(model, options.plan, options.weights), options) {}

Decoder::~Decoder() = default;

void Decoder::check(std::span<const int32_t> tokens, int64_t sequence) const {
  require(!tokens.empty(), "decode: no tokens; want at least one");
  require_usage(std::ssize(tokens) <= cache_.room(sequence),
                "context: {} tokens do not fit behind {}; the model's context is {} tokens", tokens.size(),
                cache_.length(sequence), context());
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocab_size(), "tokens: id out of range; got {} at position {}, want 0 to {}",
            tokens[i], i, vocab_size() - 1);
  }
}

std::span<const float> Decoder::feed(std::span<const int32_t> tokens, int64_t sequence) {
  check(tokens, sequence);
  require(!options_.all_logits || std::ssize(tokens) <= options_.block,
          "decode: logits of {} tokens at once; want at most {}", tokens.size(), options_.block);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(options_.block)) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(options_.block));
    rows_.clear();
    for (size_t i = begin; i < end; ++i)
      rows_.push_back({tokens[i], sequence, cache_.length(sequence) + static_cast<int64_t>(i - begin)});
    const auto count = std::ssize(rows_);
    run(options_.all_logits ? 0 : end == tokens.size() ? count - 1 : count);
    cache_.advance(sequence, count);
  }
  const int64_t rows = options_.all_logits ? std::ssize(tokens) : 1;
  return {workspace_->logits, static_cast<size_t>((rows - 1) * logits_stride() + vocab_size())};
}

std::span<const float> Decoder::step(std::span<const int32_t> tokens) {
  require(std::ssize(tokens) == sequences(), "decode: {} tokens for {} sequences", tokens.size(), sequences());
  rows_.clear();
  for (int64_t s = 0; s < sequences(); ++s) {
    check(tokens.subspan(static_cast<size_t>(s), 1), s);
    rows_.push_back({tokens[static_cast<size_t>(s)], s, cache_.length(s)});
  }
  run(0);
  for (int64_t s = 0; s < sequences(); ++s) cache_.advance(s, 1);
  return {workspace_->logits, static_cast<size_t>((sequences() - 1) * logits_stride() + vocab_size())};
}

void Decoder::run(int64_t first_logits_row) {
  parallel_team(
      [&](const Worker& worker) { DecoderPass(*weights_, cache_, *workspace_, rows_, first_logits_row, worker).run(); },
      threads_);
}

void Decoder::reset(int64_t length) {
  for (int64_t s = 0; s < sequences(); ++s) cache_.truncate(s, std::min(length, cache_.length(s)));
}

int64_t Decoder::bytes_per_step(int64_t length) const {
  return weights_->bytes() + sequences() * length * cache_.bytes_per_position();
}

}  // namespace taper

#include "infer/decoder.h"

#include <algorithm>

#include "engine/core/error.h"
#include "infer/decode_engine.h"

namespace taper {

Decoder::Decoder(const Transformer& model, const DecoderOptions& options)
    : options_(options),
      vocab_size_(model.config().vocab_size),
      context_(model.config().context),
      lengths_(static_cast<size_t>(options.sequences), 0),
      chosen_(static_cast<size_t>(options.sequences), 0) {
  options_.block = std::clamp<int64_t>(options.block, 1, std::max<int64_t>(1, context_));
  rows_.reserve(static_cast<size_t>(std::max(options_.block, options_.sequences)));
  engine_ = options.device == Device::cuda ? make_cuda_engine(model, options_) : make_cpu_engine(model, options_);
  SamplerOptions greedily;
  greedily.temperature = 0;
  set_sampler(greedily);
}

Decoder::~Decoder() = default;

int64_t Decoder::logits_stride() const { return engine_->logits_stride(); }

void Decoder::check(std::span<const int32_t> tokens, int64_t sequence) const {
  require(!tokens.empty(), "decode: no tokens; want at least one");
  require_usage(std::ssize(tokens) <= context_ - length(sequence),
                "context: {} tokens do not fit behind {}; the model's context is {} tokens", tokens.size(),
                length(sequence), context_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocab_size_, "tokens: id out of range; got {} at position {}, want 0 to {}",
            tokens[i], i, vocab_size_ - 1);
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
      rows_.push_back({tokens[i], sequence, length(sequence) + static_cast<int64_t>(i - begin)});
    const auto count = std::ssize(rows_);
    engine_->run(rows_, options_.all_logits ? 0 : end == tokens.size() ? count - 1 : count);
    lengths_[static_cast<size_t>(sequence)] += count;
  }
  const int64_t rows = options_.all_logits ? std::ssize(tokens) : 1;
  first_sequence_ = sequence;
  sequence_count_ = 1;
  first_row_ = rows - 1;
  return {engine_->logits(), static_cast<size_t>((rows - 1) * logits_stride() + vocab_size_)};
}

std::span<const float> Decoder::step(std::span<const int32_t> tokens) {
  require(std::ssize(tokens) == sequences(), "decode: {} tokens for {} sequences", tokens.size(), sequences());
  make_step(tokens);
  engine_->run(rows_, 0);
  count_step();
  return {engine_->logits(), static_cast<size_t>((sequences() - 1) * logits_stride() + vocab_size_)};
}

void Decoder::make_step(std::span<const int32_t> tokens) {
  rows_.clear();
  for (int64_t s = 0; s < sequences(); ++s) {
    check(tokens.subspan(static_cast<size_t>(s), 1), s);
    rows_.push_back({tokens[static_cast<size_t>(s)], s, length(s)});
  }
}

void Decoder::count_step() {
  for (int64_t& length : lengths_) ++length;
  first_sequence_ = first_row_ = 0;
  sequence_count_ = sequences();
}

void Decoder::set_sampler(const SamplerOptions& options) {
  check_sampler(options);
  engine_->set_sampler(options);
}

std::span<const int32_t> Decoder::choose() {
  require(sequence_count_ > 0, "decode: nothing was appended that a token could follow");
  const std::span<int32_t> tokens(chosen_.data() + first_sequence_, static_cast<size_t>(sequence_count_));
  engine_->choose(tokens, first_sequence_, first_row_);
  return tokens;
}

std::span<const int32_t> Decoder::advance() {
  make_step(chosen_);
  engine_->advance(rows_, chosen_);
  count_step();
  return chosen_;
}

void Decoder::record_steps(bool records) { engine_->record_steps(records); }

int64_t Decoder::launches_of_step() const { return engine_->launches_of_step(); }

void Decoder::reset(int64_t length) {
  for (int64_t& each : lengths_) each = std::min(length, each);
  sequence_count_ = 0;
}

int64_t Decoder::bytes_per_step(int64_t length) const {
  return engine_->weight_bytes() + sequences() * length * engine_->bytes_per_position();
}

}  // namespace taper

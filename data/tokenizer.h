// Byte-level BPE with GPT-2's splitting rule: text to ids and back, without loss for any bytes, valid UTF-8 or not.
// Given GPT-2's tables the ids are GPT-2's. No beginning or end marker is ever added.
//
//   Tokenizer tokenizer = Tokenizer::load("runs/stories");
//   std::vector<int32_t> ids = tokenizer.encode("Once upon a time", Special::kText);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/vocabulary.h"

namespace taper {

// How a control token such as <|endoftext|> written out in the text is read. Only its exact spelling counts.
enum class Special {
  kText,    // as the characters it is made of: for text of users
  kMarker,  // as its one id, which also cuts the text before it is split: for training files
};

// A value: copies share the tables. All members may be called from several threads at once.
class Tokenizer {
 public:
  // Throws Error, naming `source`, where the tables contradict themselves (check in vocabulary.h).
  explicit Tokenizer(Vocabulary vocabulary, std::string_view source = "vocabulary");

  // Reads a tokenizer.json, or a vocab.json with the merges.txt beside it, or a folder that holds either
  // (tokenizer.json goes first). Throws UsageError where there is none, Error naming file and place for anything
  // damaged or of another kind.
  static Tokenizer load(const std::filesystem::path& file_or_folder);
  // The same for a folder, none where it has neither file.
  static std::optional<Tokenizer> find(const std::filesystem::path& folder);
  // Writes vocab.json, merges.txt, tokenizer.json and tokenizer_config.json into the folder, made if missing; each file
  // under a temporary name, then renamed. Returns only after the folder was loaded again and found equal.
  // `max_tokens` is the context stated to other programs as model_max_length; none: no limit.
  void save(const std::filesystem::path& folder, std::optional<std::int64_t> max_tokens = std::nullopt) const;

  std::int64_t vocab_size() const;
  std::vector<std::int32_t> encode(std::string_view text, Special special) const;
  // The same, appended to `ids`.
  void encode(std::string_view text, Special special, std::vector<std::int32_t>& ids) const;
  // The bytes of the ids, joined; one character may be spread over several ids. Throws Error for an id outside
  // 0 .. vocab_size - 1, naming its position.
  std::string decode(std::span<const std::int32_t> ids) const;
  // Valid as long as any copy of this tokenizer. Throws Error for an id outside the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  // The id of <|endoftext|>, where the vocabulary has it.
  std::optional<std::int32_t> end_of_text() const;
  const Vocabulary& vocabulary() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace taper

#include "data/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "data/bpe/splitter.h"
#include "data/bpe/tokenizer_files.h"
#include "data/bpe/word_encoder.h"
#include "engine/core/error.h"

namespace taper {
namespace {

// Finds the added tokens in a text: the leftmost, and of those that begin there the longest.
class AddedTokenFinder {
 public:
  struct Match {
    std::size_t begin = std::string_view::npos;
    const AddedToken* token = nullptr;  // null: none
  };

  explicit AddedTokenFinder(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) longest_first_.push_back(&token);
    std::stable_sort(longest_first_.begin(), longest_first_.end(),
                     [](const AddedToken* a, const AddedToken* b) { return a->text.size() > b->text.size(); });
    for (const AddedToken* token : longest_first_) {
      if (first_bytes_.find(token->text[0]) == std::string::npos) first_bytes_ += token->text[0];
      has_ordinary_ |= !token->is_special;
    }
  }

  Match find(std::string_view text, std::size_t from, Special special) const {
    if (special == Special::kText && !has_ordinary_) return {};
    for (std::size_t at = next_start(text, from); at < text.size(); at = next_start(text, at + 1)) {
      for (const AddedToken* token : longest_first_) {
        if (token->is_special && special == Special::kText) continue;
        if (text.compare(at, token->text.size(), token->text) == 0) return {at, token};
      }
    }
    return {};
  }

 private:
  std::size_t next_start(std::string_view text, std::size_t from) const {
    // One byte is looked for at the memory's speed, several are not.
    return first_bytes_.size() == 1 ? text.find(first_bytes_[0], from) : text.find_first_of(first_bytes_, from);
  }

  std::vector<const AddedToken*> longest_first_;
  std::string first_bytes_;
  bool has_ordinary_ = false;
};

}  // namespace

struct Tokenizer::State {
  State(Vocabulary v, std::string_view source)
      : vocabulary((check(v, source), std::move(v))), merges(vocabulary), finder(vocabulary.added) {}

  // Encoders carry caches and serve one thread each: an idle one is taken, or a new one made, and given back after.
  std::unique_ptr<WordEncoder> take_encoder() const {
    const std::lock_guard lock(mutex);
    if (idle_encoders.empty()) return std::make_unique<WordEncoder>(merges);
    std::unique_ptr<WordEncoder> encoder = std::move(idle_encoders.back());
    idle_encoders.pop_back();
    return encoder;
  }
  void give_back(std::unique_ptr<WordEncoder> encoder) const {
    const std::lock_guard lock(mutex);
    idle_encoders.push_back(std::move(encoder));
  }

  const Vocabulary vocabulary;
  const MergeTable merges;
  const AddedTokenFinder finder;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<WordEncoder>> idle_encoders;
};

Tokenizer::Tokenizer(Vocabulary vocabulary, std::string_view source)
    : state_(std::make_shared<const State>(std::move(vocabulary), source)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& file_or_folder) {
  return Tokenizer(read_vocabulary(file_or_folder), file_or_folder.string());
}

std::optional<Tokenizer> Tokenizer::find(const std::filesystem::path& folder) {
  const bool has_one =
      std::filesystem::exists(folder / "tokenizer.json") || std::filesystem::exists(folder / "vocab.json");
  return has_one ? std::optional(load(folder)) : std::nullopt;
}

void Tokenizer::save(const std::filesystem::path& folder, std::optional<std::int64_t> max_tokens) const {
  write_vocabulary(vocabulary(), folder, max_tokens);
}

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(state_->vocabulary.tokens.size()); }

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Special special) const {
  std::vector<std::int32_t> ids;
  encode(text, special, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, Special special, std::vector<std::int32_t>& ids) const {
  std::unique_ptr<WordEncoder> encoder = state_->take_encoder();
  for (std::size_t at = 0; at < text.size();) {
    const AddedTokenFinder::Match match = state_->finder.find(text, at, special);
    Splitter words(text.substr(at, match.token ? match.begin - at : std::string_view::npos),
                   state_->vocabulary.splits_digits);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) encoder->encode(word, ids);
    if (!match.token) break;
    ids.push_back(match.token->id);
    at = match.begin + match.token->text.size();
  }
  state_->give_back(std::move(encoder));
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocab_size(), "decode: position {}: no such id; got {}, want 0 to {}", i, ids[i],
            vocab_size() - 1);
    text += state_->vocabulary.tokens[static_cast<std::size_t>(ids[i])];
  }
  return text;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  require(id >= 0 && id < vocab_size(), "tokenizer: no such id; got {}, want 0 to {}", id, vocab_size() - 1);
  return state_->vocabulary.tokens[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  for (const AddedToken& added : state_->vocabulary.added) {
    if (added.text == kEndOfText) return added.id;
  }
  return std::nullopt;
}

}  // namespace taper

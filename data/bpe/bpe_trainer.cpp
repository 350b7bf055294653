#include "data/bpe/bpe_trainer.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "data/bpe/byte_alphabet.h"
#include "data/bpe/pair_map.h"
#include "data/bpe/splitter.h"
#include "engine/core/error.h"

namespace taper {
namespace {

using Position = std::uint32_t;

constexpr Position kNone = std::numeric_limits<Position>::max();
constexpr std::int32_t kMerged = -1;

struct PairCount {
  std::int64_t count = 0;  // exact
  // Left places where the pair stood when it arose, ascending; some may have gone since.
  std::vector<Position> positions;
  bool has_grown = false;  // since it was last queued
  bool is_merged = false;
};

struct Candidate {
  std::int64_t count;
  std::uint64_t pair;
  // A priority queue puts the greatest first: the most frequent, then the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// All distinct words side by side, each a doubly linked list of ids that merges shorten. Every merge touches only the
// places of its pair, so training costs about the number of symbols that vanish, even in words of megabytes.
class MergeLearner {
 public:
  MergeLearner(const std::array<std::int32_t, 256>& byte_ids, std::size_t symbols) : byte_ids_(byte_ids) {
    symbols_.reserve(symbols);
  }

  void add_word(std::string_view word, std::int64_t count) {
    const auto index = static_cast<std::uint32_t>(counts_.size());
    counts_.push_back(count);
    for (std::size_t i = 0; i < word.size(); ++i) {
      const auto here = static_cast<Position>(symbols_.size());
      const bool is_last = i + 1 == word.size();
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
      symbols_.push_back({id, index, i == 0 ? kNone : here - 1, is_last ? kNone : here + 1});
      if (i > 0) add_place(symbols_[here - 1].id, id, here - 1, count);
    }
  }

  // The most frequent pair and its count; count 0 where none is left.
  Candidate best() {
    for (const std::uint64_t pair : grown_) {
      PairCount& grown = pairs_[pair];
      grown.has_grown = false;
      queue_.push({grown.count, pair});
    }
    grown_.clear();
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const std::int64_t count = pairs_[top.pair].count;
      if (count == top.count) return top;
      // It has fallen since it was queued: it goes back to where it belongs now.
      queue_.pop();
      if (count > 0) queue_.push({count, top.pair});
    }
    return {0, 0};
  }

  // False where the pair has merged before and came up again.
  bool merge(std::uint64_t pair, std::int32_t result) {
    const std::int32_t left = left_of(pair), right = right_of(pair);
    const std::vector<Position> positions = std::exchange(pairs_[pair].positions, {});
    for (const Position at : positions) {
      Symbol& symbol = symbols_[at];
      if (symbol.id != left || symbol.after == kNone || symbols_[symbol.after].id != right) continue;
      join(at, result);
    }
    // Overlapping places were counted and are not there any more.
    pairs_[pair].count = 0;
    return !std::exchange(pairs_[pair].is_merged, true);
  }

 private:
  struct Symbol {
    std::int32_t id;
    std::uint32_t word;
    Position before, after;
  };

  void add_place(std::int32_t left, std::int32_t right, Position at, std::int64_t count) {
    PairCount& pair = pairs_[pair_key(left, right)];
    if (!std::exchange(pair.has_grown, true)) grown_.push_back(pair_key(left, right));
    pair.count += count;
    pair.positions.push_back(at);
  }

  void join(Position at, std::int32_t result) {
    Symbol& symbol = symbols_[at];
    Symbol& merged = symbols_[symbol.after];
    const std::int64_t count = counts_[symbol.word];
    const Position before = symbol.before, after = merged.after;
    if (before != kNone) {
      pairs_[pair_key(symbols_[before].id, symbol.id)].count -= count;
      add_place(symbols_[before].id, result, before, count);
    }
    if (after != kNone) {
      pairs_[pair_key(merged.id, symbols_[after].id)].count -= count;
      add_place(result, symbols_[after].id, at, count);
      symbols_[after].before = at;
    }
    merged.id = kMerged;
    symbol.id = result;
    symbol.after = after;
  }

  const std::array<std::int32_t, 256> byte_ids_;
  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> counts_;  // by word
  PairMap<PairCount> pairs_;
  std::vector<std::uint64_t> grown_;
  std::priority_queue<Candidate> queue_;
};

Vocabulary untrained_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.added.push_back({std::string(kEndOfText), 0, true});
  for (const std::uint8_t byte : bytes_in_alphabet_order()) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  return vocabulary;
}

}  // namespace

void BpeTrainer::add_text(std::string_view text) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t marker = std::min(text.find(kEndOfText, at), text.size());
    add_document(text.substr(at, marker - at));
    at = marker + kEndOfText.size();
  }
}

void BpeTrainer::add_document(std::string_view text) {
  Splitter words(text);
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    ++words_;
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(word, 1);
    }
  }
}

Vocabulary BpeTrainer::train(std::int64_t vocabulary_size, std::int64_t min_count,
                             const std::function<void(std::int64_t)>& on_progress) const {
  require_usage(vocabulary_size >= kMinTrainedVocabulary && vocabulary_size <= kMaxVocabulary,
                "vocabulary size: got {}, want {} (256 bytes and the end-of-text marker) to {}", vocabulary_size,
                kMinTrainedVocabulary, kMaxVocabulary);
  std::uint64_t symbols = 0;
  for (const auto& [word, count] : counts_) symbols += word.size();
  require(
      symbols < kNone && counts_.size() < kNone,
      "tokenizer training: the distinct words are too long in all; got {} bytes, want fewer than {}: train on a part "
      "of the text",
      symbols, kNone);

  Vocabulary vocabulary = untrained_vocabulary();
  MergeLearner learner(byte_ids(vocabulary, "vocabulary"), symbols);
  for (const auto& [word, count] : counts_) learner.add_word(word, count);

  // Two pairs may join to the same bytes; those stay one token.
  std::unordered_map<std::string, std::int32_t> id_of;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    id_of.emplace(vocabulary.tokens[id], static_cast<std::int32_t>(id));
  }
  constexpr std::int64_t kProgressStep = 256;
  while (static_cast<std::int64_t>(vocabulary.tokens.size()) < vocabulary_size) {
    const Candidate best = learner.best();
    if (best.count < std::max<std::int64_t>(min_count, 1)) break;
    const std::int32_t left = left_of(best.pair), right = right_of(best.pair);
    std::string token =
        vocabulary.tokens[static_cast<std::size_t>(left)] + vocabulary.tokens[static_cast<std::size_t>(right)];
    const auto [found, is_new] = id_of.emplace(token, static_cast<std::int32_t>(vocabulary.tokens.size()));
    if (is_new) vocabulary.tokens.push_back(std::move(token));
    if (!learner.merge(best.pair, found->second)) continue;
    vocabulary.merges.push_back({left, right, found->second});
    if (on_progress && vocabulary.merges.size() % kProgressStep == 0) {
      on_progress(static_cast<std::int64_t>(vocabulary.tokens.size()));
    }
  }
  return vocabulary;
}

}  // namespace taper

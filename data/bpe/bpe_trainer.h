// Learns the merges of a byte-level BPE vocabulary: join the pair of neighbours that is most frequent, again and again
// (Sennrich, Haddow, Birch 2016, arXiv 1508.07909, on bytes).
//
// Rules, the same as those of Hugging Face's tokenizers, so that the same text gives the same vocabulary whatever its
// order and the number of runs:
//   - <|endoftext|> cuts the text into documents and is no part of any; words are those of splitter.h;
//   - a pair counts once for each place, overlaps included (`aaa` has `aa` twice), times the count of its word;
//   - of pairs equally frequent the one with the smaller left id goes first, then the smaller right id;
//   - ids: 0 is <|endoftext|>, 1 to 256 the bytes in the order of their alphabet (byte_alphabet.h), then the merges.
// Memory follows the distinct words, not the text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe/vocabulary.h"

namespace taper {

// The marker and the bytes.
inline constexpr std::int64_t kMinTrainedVocabulary = 257;

class BpeTrainer {
 public:
  // Counts the words of a text that may hold several documents. Calls count alike in any order, as long as no text is
  // cut within a word or a marker.
  void add_text(std::string_view text);

  std::int64_t words() const { return words_; }
  std::int64_t distinct_words() const { return static_cast<std::int64_t>(counts_.size()); }

  // At most `vocabulary_size` tokens, markers and bytes included: fewer where no pair is left that occurs `min_count`
  // times. `on_progress`, where given, is called now and then with the tokens so far. Throws UsageError for a size
  // outside kMinTrainedVocabulary .. kMaxVocabulary.
  Vocabulary train(std::int64_t vocabulary_size, std::int64_t min_count = 1,
                   const std::function<void(std::int64_t tokens)>& on_progress = {}) const;

 private:
  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  void add_document(std::string_view text);

  std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>> counts_;
  std::int64_t words_ = 0;
};

}  // namespace taper

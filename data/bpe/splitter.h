// Cuts text into the words that byte-level BPE merges within. The rule is GPT-2's (openai/gpt-2, src/encoder.py):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// that is: a contraction's end; a run of letters, of numbers or of other signs, with one ASCII space before it if there
// is one; a run of white space, without its last character where a word follows. The words joined are the text again.
// One pass, no recursion, constant memory. A byte that is not part of valid UTF-8 counts as a sign by itself.
#pragma once

#include <cstdint>
#include <string_view>

namespace taper {

enum class CharClass : std::uint8_t { kSign, kLetter, kNumber, kSpace };

// Unicode's general categories L and N, and its 25 White_Space code points; everything else is a sign.
CharClass char_class(char32_t code_point);

class Splitter {
 public:
  // With splits_digits every number character is cut out first and is a word by itself; the rule holds for what is left
  // between them.
  explicit Splitter(std::string_view text, bool splits_digits = false)
      : at_(text.data()), end_(text.data() + text.size()), piece_end_(end_), splits_digits_(splits_digits) {
    if (splits_digits_) find_piece();
  }

  // The next word, or an empty view after the last.
  std::string_view next();

 private:
  void find_piece();
  std::string_view next_of_piece();

  const char* at_;
  const char* end_;
  const char* piece_end_;  // where the rule takes the text to end
  bool splits_digits_;
};

}  // namespace taper

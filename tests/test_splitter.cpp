#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "data/bpe/splitter.h"

using namespace taper;

namespace {

std::vector<std::string> words_of(std::string_view text, bool splits_digits = false) {
  std::vector<std::string> words;
  Splitter splitter(text, splits_digits);
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) words.emplace_back(word);
  return words;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("splitter: letters, numbers and signs make runs, each with one space before it") {
  CHECK(words_of("") == Words{});
  CHECK(words_of("Once upon, 3 times!?") == Words{"Once", " upon", ",", " 3", " times", "!?"});
  CHECK(words_of("abc123def") == Words{"abc", "123", "def"});
}

TEST_CASE("splitter: digits apart are cut out before the rule") {
  CHECK(words_of("", true) == Words{});
  CHECK(words_of("12", true) == Words{"1", "2"});
  CHECK(words_of("to paint 12 pictures", true) == Words{"to", " paint", " ", "1", "2", " pictures"});
  CHECK(words_of("a  3\n\n\xC2\xBD don't9", true) == Words{"a", "  ", "3", "\n\n", "\xC2\xBD", " don", "'t", "9"});
}

TEST_CASE("splitter: contractions are cut off, in lower case alone and not after a space") {
  CHECK(words_of("I'm you're he's we've I'd they'll don't") ==
        Words{"I", "'m", " you", "'re", " he", "'s", " we", "'ve", " I", "'d", " they", "'ll", " don", "'t"});
  CHECK(words_of("I'M") == Words{"I", "'", "M"});
  CHECK(words_of("a 's") == Words{"a", " '", "s"});
  CHECK(words_of("''sx'") == Words{"''", "sx", "'"});
  CHECK(words_of("'r") == Words{"'", "r"});
  CHECK(words_of("'") == Words{"'"});
}

TEST_CASE("splitter: only an ASCII space goes to the word that follows white space") {
  CHECK(words_of("  hello") == Words{" ", " hello"});
  CHECK(words_of("a    b") == Words{"a", "   ", " b"});
  CHECK(words_of("\n =") == Words{"\n", " ="});
  CHECK(words_of("\n\n\nx \n") == Words{"\n\n", "\n", "x", " \n"});
  CHECK(words_of("a\u00A0b") == Words{"a", "\u00A0", "b"});
  CHECK(words_of(" \u3000\u3000b") == Words{" \u3000", "\u3000", "b"});
  CHECK(words_of("hello  ") == Words{"hello", "  "});
}

TEST_CASE("splitter: classes are Unicode's, and white space is exactly 25 code points") {
  CHECK(words_of("\u0414\u043E\u041F") == Words{"\u0414\u043E\u041F"});
  CHECK(words_of("cafe\u0301") == Words{"cafe", "\u0301"});
  CHECK(words_of("\u00BD\u00B3\u0663x") == Words{"\u00BD\u00B3\u0663", "x"});
  CHECK(words_of("a\x1C\x1D"
                 "b") == Words{"a", "\x1C\x1D", "b"});
  int spaces = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) spaces += char_class(c) == CharClass::kSpace;
  CHECK(spaces == 25);
  for (const char32_t c : {0x1C, 0x1D, 0x1E, 0x1F, 0x180E, 0x200B, 0xFEFF}) CHECK(char_class(c) == CharClass::kSign);
  // The ends of ranges, and gaps beside them.
  CHECK(char_class(0x10FFFF) == CharClass::kSign);
  CHECK(char_class(U'\u00AA') == CharClass::kLetter);
  CHECK(char_class(U'\u00AB') == CharClass::kSign);
  CHECK(char_class(0x1D400) == CharClass::kLetter);
  CHECK(char_class(0x1D7FF) == CharClass::kNumber);
  CHECK(char_class(0x4E00) == CharClass::kLetter);
  CHECK(char_class(0xD7A3) == CharClass::kLetter);
}

TEST_CASE("splitter: a byte outside valid UTF-8 is a sign by itself, and no byte is lost") {
  CHECK(words_of("a\x80"
                 "b") == Words{"a", "\x80", "b"});
  CHECK(words_of("\xE6\xAD") == Words{"\xE6\xAD"});
  CHECK(words_of("x\xC0\xAFy") == Words{"x", "\xC0\xAF", "y"});                  // overlong
  CHECK(words_of("x\xED\xA0\x80y") == Words{"x", "\xED\xA0\x80", "y"});          // surrogate
  CHECK(words_of("x\xF4\x90\x80\x80y") == Words{"x", "\xF4\x90\x80\x80", "y"});  // above 10FFFF
  CHECK(words_of("x\xE0\x80\x80y") == Words{"x", "\xE0\x80\x80", "y"});
  // Any two bytes and what may come before and after them.
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = std::string(" \xC3") + static_cast<char>(first) + static_cast<char>(second) + "\x85 ";
      std::string joined;
      for (const std::string& word : words_of(text)) joined += word;
      REQUIRE(joined == text);
    }
  }
}

TEST_CASE("splitter: a run of a million characters is one word, without recursion") {
  for (const char* unit : {"a", "^", "7", " ", "\xFF", "\u3042"}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += unit;
    const Words words = words_of(text);
    REQUIRE(words.size() == 1);
    CHECK(words[0].size() == text.size());
  }
}

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "data/bpe/byte_alphabet.h"

using namespace taper;

TEST_CASE("byte alphabet: every byte is spelt by a character of its own and comes back") {
  std::set<std::string> spellings;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    all += one;
    spellings.insert(spell_bytes(one));
    CHECK(unspell_bytes(spell_bytes(one)) == one);
  }
  CHECK(spellings.size() == 256);
  CHECK(unspell_bytes(spell_bytes(all)) == all);
}

TEST_CASE("byte alphabet: GPT-2's characters") {
  CHECK(spell_bytes(" \n~!A") == "\u0120\u010A~!A");
  CHECK(spell_bytes(std::string("\0\x7F\xA0\xAD", 4)) == "\u0100\u0121\u0142\u0143");
  CHECK(spell_bytes("\xC3\xBF") == "\u00C3\u00BF");
}

TEST_CASE("byte alphabet: bytes are ordered as their characters") {
  const auto& order = bytes_in_alphabet_order();
  CHECK(order[0] == '!');
  CHECK(order[93] == '~');
  CHECK(order[94] == 0xA1);
  CHECK(order[188] == 0);
  CHECK(order[220] == ' ');
  CHECK(order[255] == 0xAD);
  CHECK(std::set<int>(order.begin(), order.end()).size() == 256);
}

TEST_CASE("byte alphabet: other text spells no bytes") {
  for (const char* text : {" ", "\n", "a b", "\u00AD", "\u0144", "\u3042", "\xC4", "\xC0\x80", "\xFF", "\xC4\x20"}) {
    CAPTURE(text);
    CHECK_FALSE(unspell_bytes(text).has_value());
  }
}

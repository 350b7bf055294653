#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "data/bpe/byte_alphabet.h"
#include "data/bpe/word_encoder.h"

using namespace taper;

namespace {

// The 256 bytes by value, then one token a merge.
Vocabulary vocabulary_of(const std::vector<std::pair<std::string, std::string>>& merges) {
  Vocabulary v;
  for (int byte = 0; byte < 256; ++byte) v.tokens.emplace_back(1, static_cast<char>(byte));
  const auto id_of = [&v](const std::string& token) {
    for (std::size_t id = 0; id < v.tokens.size(); ++id) {
      if (v.tokens[id] == token) return static_cast<std::int32_t>(id);
    }
    return -1;
  };
  for (const auto& [left, right] : merges) {
    if (id_of(left + right) < 0) v.tokens.push_back(left + right);
    v.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  check(v, "test");
  return v;
}

// Literally the definition: the best-ranked pair, leftmost, again and again.
std::vector<std::int32_t> merged_by_definition(const Vocabulary& v, std::string_view word) {
  std::vector<std::int32_t> ids;
  for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
  for (bool has_merged = true; has_merged;) {
    has_merged = false;
    for (const Merge& merge : v.merges) {
      for (std::size_t i = 0; i + 1 < ids.size() && !has_merged; ++i) {
        if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
        ids[i] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        has_merged = true;
      }
      if (has_merged) break;
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("word encoder: equals the definition for words of every length, met once or again") {
  // Ranks that do not grow with the length, and one token made in two ways.
  const Vocabulary v = vocabulary_of({{"b", "b"},
                                      {"a", "b"},
                                      {"ab", "a"},
                                      {"b", "a"},
                                      {"a", "ba"},
                                      {"a", "a"},
                                      {"aa", "aa"},
                                      {"bb", "a"},
                                      {"aba", "bb"},
                                      {"c", "ab"}});
  const MergeTable table(v);
  WordEncoder encoder(table);
  std::uint32_t random = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string word;
    const std::size_t length = 1 + static_cast<std::size_t>(round) % 90;
    while (word.size() < length) {
      random = random * 1664525 + 1013904223;
      word += "aaabbbc"[(random >> 16) % 7];
    }
    const std::vector<std::int32_t> want = merged_by_definition(v, word);
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<std::int32_t> ids = {-7};
      encoder.encode(word, ids);
      REQUIRE(ids.size() == want.size() + 1);
      REQUIRE(ids[0] == -7);
      REQUIRE(std::equal(want.begin(), want.end(), ids.begin() + 1));
    }
  }
}

TEST_CASE("word encoder: words that differ in zero bytes alone are told apart") {
  const Vocabulary v = vocabulary_of({});
  const MergeTable table(v);
  WordEncoder encoder(table);
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (std::size_t length = 1; length < 40; ++length) {
      std::vector<std::int32_t> ids;
      encoder.encode(std::string(length, '\0'), ids);
      CHECK(ids == std::vector<std::int32_t>(length, 0));
    }
  }
}

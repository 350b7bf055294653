#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "data/bpe/bpe_trainer.h"
#include "data/bpe/byte_alphabet.h"
#include "data/bpe/tokenizer_files.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "tests/support/shared.h"

using namespace taper;
using namespace std::string_literals;

namespace {

Vocabulary trained(const std::string& text, std::int64_t size, std::int64_t min_count = 1) {
  BpeTrainer trainer;
  trainer.add_text(text);
  return trainer.train(size, min_count);
}

// The merges as "left right", in the bytes themselves.
std::vector<std::string> merges_of(const Vocabulary& v) {
  std::vector<std::string> merges;
  for (const Merge& merge : v.merges) {
    merges.push_back(v.tokens[static_cast<std::size_t>(merge.left)] + " " +
                     v.tokens[static_cast<std::size_t>(merge.right)]);
  }
  return merges;
}

using Merges = std::vector<std::string>;

}  // namespace

TEST_CASE("bpe trainer: the most frequent pair first, whatever the order of the text") {
  std::vector<std::string> lines;
  for (const auto& [word, times] :
       std::vector<std::pair<std::string, int>>{{"hug", 10}, {"pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}}) {
    for (int i = 0; i < times; ++i) lines.push_back(word + "\n");
  }
  Vocabulary first;
  for (int order = 0; order < 4; ++order) {
    std::string text;
    for (const std::string& line : lines) text += line;
    const Vocabulary v = trained(text, 261);
    CHECK(merges_of(v) == Merges{"u g", "u n", "h ug", "p un"});
    if (order == 0) first = v;
    CHECK(v == first);
    std::rotate(lines.begin(), lines.begin() + 11, lines.end());
    std::reverse(lines.begin(), lines.begin() + 20);
  }
}

TEST_CASE("bpe trainer: of equally frequent pairs the smaller ids go first") {
  // Ids follow the byte alphabet, in which the letters come before the space.
  CHECK(merges_of(trained("dc ab", 260)) == Merges{"a b", "d c", "  ab"});
  CHECK(merges_of(trained("ba\nbb", 258)) == Merges{"b a"});
}

TEST_CASE("bpe trainer: the marker is id 0, the bytes follow in their alphabet's order") {
  const Vocabulary v = trained("", 1000);
  REQUIRE(v.tokens.size() == 257);
  CHECK(v.tokens[0] == "<|endoftext|>");
  CHECK(v.added == std::vector<AddedToken>{{"<|endoftext|>", 0, true}});
  CHECK(v.tokens[1] == "!");
  CHECK(v.tokens[256] == "\xAD");
  const Tokenizer tokenizer(v);
  CHECK(tokenizer.end_of_text() == 0);
}

TEST_CASE("bpe trainer: a small text gives fewer tokens than asked, never more") {
  CHECK(trained("hello", 10'000).tokens.size() == 261);
  CHECK(trained("hello", 10'000, 2).tokens.size() == 257);
  CHECK(trained("", 10'000).tokens.size() == 257);
  CHECK(trained("H", 10'000).tokens.size() == 257);
  CHECK(trained("hello", 259).tokens.size() == 259);
  CHECK(trained("hello", 257).tokens.size() == 257);
}

TEST_CASE("bpe trainer: sizes that cannot be are wrong use") {
  BpeTrainer trainer;
  CHECK_THROWS_WITH_AS(trainer.train(100), doctest::Contains("got 100, want 257"), UsageError);
  CHECK_THROWS_AS(trainer.train(256), UsageError);
  CHECK_THROWS_AS(trainer.train(-1), UsageError);
  CHECK_THROWS_AS(trainer.train(kMaxVocabulary + 1), UsageError);
}

TEST_CASE("bpe trainer: the marker cuts documents and is no text") {
  CHECK(trained("ab<|endoftext|>ab<|endoftext|>", 300) == trained("ab<|endoftext|>ab", 300));
  CHECK(merges_of(trained("ab<|endoftext|>cd", 300)) == Merges{"a b", "c d"});
  // White space at the end of a document is one word; before a word it would be two.
  CHECK(merges_of(trained("\n\n<|endoftext|>a", 300)) == Merges{"\n \n"});
  CHECK(merges_of(trained("\n\na", 300)).empty());
  // Anything but the exact spelling is text.
  CHECK_FALSE(merges_of(trained("<|ENDOFTEXT|>", 300)).empty());
}

TEST_CASE("bpe trainer: overlapping pairs count for each place") {
  // `aaa` has `aa` twice: as often as `bb` in two words.
  CHECK(merges_of(trained("aaa\nbb\nbb", 258)) == Merges{"a a"});
  CHECK(merges_of(trained("aaaaa", 300)) == Merges{"a a", "aa a", "aa aaa"});
}

TEST_CASE("bpe trainer: one word of a megabyte is no trouble, nor are bytes of every kind") {
  std::string text;
  std::uint32_t random = 1;
  while (text.size() < 1'000'000) {
    random = random * 1664525 + 1013904223;
    text += static_cast<char>('a' + (random >> 20) % 26);
  }
  CHECK(trained(text, 2000).tokens.size() == 2000);
  CHECK(trained(std::string(100'000, 'a'), 300).tokens.size() > 257 + 10);
  for (char& byte : text) {
    random = random * 1664525 + 1013904223;
    byte = static_cast<char>(random >> 24);
  }
  const Tokenizer tokenizer(trained(text, 1000));
  CHECK(tokenizer.decode(tokenizer.encode(text, Special::kMarker)) == text);
}

TEST_CASE("bpe trainer: memory follows the distinct words, which parts of a text share") {
  BpeTrainer trainer;
  for (int part = 0; part < 1000; ++part) trainer.add_text(" ab cd");
  CHECK(trainer.words() == 2000);
  CHECK(trainer.distinct_words() == 2);
}

TEST_CASE("bpe trainer: the vocabulary Hugging Face's trainer learned from the same stories") {
  SKIP_WITHOUT_SHARED("hf/gpt2_stories/vocab.json");
  SKIP_WITHOUT_SHARED("tinystories/train.txt");
  const Vocabulary want = read_vocabulary(test::shared_file("hf/gpt2_stories"));
  // It was given the lines one by one, the marker as text.
  BpeTrainer trainer;
  std::ifstream file(test::shared_file("tinystories/train.txt"), std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    for (std::size_t at; (at = line.find(kEndOfText)) != std::string::npos; line.erase(0, at + kEndOfText.size())) {
      for (const std::string& part : {line.substr(0, at), "<|"s, "endoftext"s, "|>"s}) trainer.add_text(part);
    }
    trainer.add_text(line + "\n");
  }
  const Vocabulary got = trainer.train(static_cast<std::int64_t>(want.tokens.size()));
  CHECK(got.tokens == want.tokens);
  CHECK(got.merges == want.merges);
}

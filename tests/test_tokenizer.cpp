#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "data/bpe/byte_alphabet.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "tests/support/shared.h"

using namespace taper;
using nlohmann::json;

namespace {

using Ids = std::vector<std::int32_t>;

json bpe_cases() {
  std::ifstream file(test::shared_file("bpe/bpe_cases.json"));
  return json::parse(file);
}

Tokenizer gpt2() { return Tokenizer::load(test::shared_file("gpt2")); }

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string repeated(const std::string& unit, std::int64_t times) {
  std::string text;
  for (std::int64_t i = 0; i < times; ++i) text += unit;
  return text;
}

// Bytes in their alphabet's order, and these added tokens behind them.
Vocabulary bytes_and(const std::vector<std::pair<std::string, bool>>& added) {
  Vocabulary v;
  for (const std::uint8_t byte : bytes_in_alphabet_order()) v.tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [text, is_special] : added) {
    v.added.push_back({text, static_cast<std::int32_t>(v.tokens.size()), is_special});
    v.tokens.push_back(text);
  }
  return v;
}

}  // namespace

TEST_CASE("tokenizer: GPT-2's ids for every reference text") {
  SKIP_WITHOUT_SHARED("bpe/bpe_cases.json");
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  const Tokenizer tokenizer = gpt2();
  CHECK(tokenizer.vocab_size() == 50257);
  CHECK(tokenizer.end_of_text() == 50256);
  const json cases = bpe_cases();
  REQUIRE(cases["cases"].size() > 0);
  for (const json& one : cases["cases"]) {
    CAPTURE(one["name"].get<std::string>());
    const auto text = one["text"].get<std::string>();
    CHECK(from_hex(one["utf8_hex"].get<std::string>()) == text);
    const auto ids = one["ids"].get<Ids>();
    CHECK(tokenizer.encode(text, Special::kText) == ids);
    CHECK(tokenizer.encode(text, Special::kMarker) == one.value("ids_allowed_special", ids));
    CHECK(tokenizer.decode(ids) == text);
  }
}

TEST_CASE("tokenizer: runs without a split point") {
  SKIP_WITHOUT_SHARED("bpe/bpe_cases.json");
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  const Tokenizer tokenizer = gpt2();
  const json cases = bpe_cases();
  REQUIRE(cases["long"].size() > 0);
  for (const json& one : cases["long"]) {
    CAPTURE(one["name"].get<std::string>());
    const auto text = repeated(one["unit"].get<std::string>(), one["repeat"].get<std::int64_t>());
    const Ids ids = tokenizer.encode(text, Special::kText);
    CHECK(ids.size() == one["n"].get<std::size_t>());
    // Each has one distinct id, so that count and id are the whole answer.
    REQUIRE(one["distinct"].size() == 1);
    const std::int32_t id = std::stoi(one["distinct"].items().begin().key());
    CHECK(ids == Ids(ids.size(), id));
    CHECK(tokenizer.decode(ids) == text);
  }
  const std::string signs(1'000'000, '^');
  CHECK(tokenizer.decode(tokenizer.encode(signs, Special::kText)) == signs);
}

TEST_CASE("tokenizer: bytes that are no UTF-8 are kept") {
  SKIP_WITHOUT_SHARED("bpe/bpe_cases.json");
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  const Tokenizer tokenizer = gpt2();
  const json cases = bpe_cases();
  REQUIRE(cases["invalid_utf8"].size() > 0);
  for (const json& one : cases["invalid_utf8"]) {
    CAPTURE(one["name"].get<std::string>());
    const std::string bytes = from_hex(one["bytes_hex"].get<std::string>());
    const auto ids = one["ids_lossless_bytes"].get<Ids>();
    CHECK(tokenizer.encode(bytes, Special::kText) == ids);
    CHECK(tokenizer.decode(ids) == bytes);
  }
}

TEST_CASE("tokenizer: texts that others split wrongly") {
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  const Tokenizer tokenizer = gpt2();
  const auto encode = [&](const std::string& text) { return tokenizer.encode(text, Special::kText); };
  CHECK(encode("\u0414\u043E\u043A\u0443\u043C\u0435\u043D\u0442\u041F\u0440\u043E\u0434\u0430\u0436\u0438") ==
        Ids{140, 242, 25443, 118, 35072, 43108, 16843, 22177, 20375, 140, 253, 21169, 25443, 112, 16142, 140, 114,
            18849});
  CHECK(encode("a\x1C\x1C"
               "b") == Ids{64, 216, 216, 65});
  CHECK(encode("\n =") == Ids{198, 796});
  CHECK(encode("  hello") == Ids{220, 23748});
  CHECK(encode("a\u00A0b") == Ids{64, 1849, 65});
  CHECK(encode("\u00F6") == Ids{9101});
  CHECK(encode("a<|endoftext|>b") == Ids{64, 27, 91, 437, 1659, 5239, 91, 29, 65});
  CHECK(tokenizer.encode("a<|endoftext|>b", Special::kMarker) == Ids{64, 50256, 65});
  const std::string twice = "<|ENDOFTEXT|> <|endoftext|";
  CHECK(tokenizer.encode(twice, Special::kMarker) == encode(twice));
}

TEST_CASE("tokenizer: every single byte has an id, and any bytes come back") {
  const Tokenizer tokenizer(bytes_and({}));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    CHECK(tokenizer.decode(tokenizer.encode(one, Special::kText)) == one);
    all += one + one;
  }
  CHECK(tokenizer.decode(tokenizer.encode(all, Special::kMarker)) == all);
  CHECK_FALSE(tokenizer.end_of_text().has_value());
  CHECK(tokenizer.encode("", Special::kText).empty());
  CHECK(tokenizer.decode({}).empty());
}

TEST_CASE("tokenizer: of added tokens the leftmost goes first, then the longest; ordinary ones count in every text") {
  const Tokenizer tokenizer(bytes_and({{"<a>", true}, {"<a>b", true}, {"  ", false}, {"b", false}}));
  const Ids marked = tokenizer.encode("<<a>b<a><a  ", Special::kMarker);
  const std::int32_t open = tokenizer.encode("<", Special::kText)[0];
  const std::int32_t a = tokenizer.encode("a", Special::kText)[0];
  CHECK(marked == Ids{open, 257, 256, open, a, 258});
  const std::int32_t close = tokenizer.encode(">", Special::kText)[0];
  CHECK(tokenizer.encode("<a>b", Special::kText) == Ids{open, a, close, 259});
  CHECK(tokenizer.decode(marked) == "<<a>b<a><a  ");
}

TEST_CASE("tokenizer: ids outside the vocabulary are errors that name them") {
  const Tokenizer tokenizer(bytes_and({{"<|endoftext|>", true}}));
  CHECK(tokenizer.end_of_text() == 256);
  CHECK(tokenizer.token_bytes(256) == "<|endoftext|>");
  CHECK_THROWS_WITH_AS(tokenizer.decode(Ids{0, 257}), "decode: position 1: no such id; got 257, want 0 to 256", Error);
  CHECK_THROWS_AS(tokenizer.decode(Ids{-1}), Error);
  CHECK_THROWS_AS(tokenizer.token_bytes(-1), Error);
  CHECK_THROWS_AS(tokenizer.token_bytes(257), Error);
}

TEST_CASE("tokenizer: threads that share one get the ids of one alone") {
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  SKIP_WITHOUT_SHARED("tinystories/valid.txt");
  const Tokenizer tokenizer = gpt2();
  std::ifstream file(test::shared_file("tinystories/valid.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Ids want = tokenizer.encode(text, Special::kMarker);
  CHECK(tokenizer.decode(want) == text);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer.encode(text, Special::kMarker); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) CHECK(ids == want);
}

TEST_CASE("tokenizer: the ids that transformers gives a story") {
  SKIP_WITHOUT_SHARED("hf/gpt2_stories/vocab.json");
  SKIP_WITHOUT_SHARED("tinystories/valid.txt");
  const auto folder = test::shared_file("hf/gpt2_stories");
  std::ifstream expected_file(folder / "expected.json");
  const json expected = json::parse(expected_file);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::ifstream file(test::shared_file("tinystories/valid.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Ids ids = tokenizer.encode(text, Special::kMarker);
  CHECK(ids.size() == expected["valid"]["tokens"].get<std::size_t>());
  const auto first = expected["first_valid_ids"].get<Ids>();
  REQUIRE(first.size() <= ids.size());
  CHECK(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first.size())) == first);
  CHECK(tokenizer.encode(expected["prompt"].get<std::string>(), Special::kText) == expected["prompt_ids"].get<Ids>());
  CHECK(tokenizer.decode(expected["greedy"].get<Ids>()) == expected["greedy_text"].get<std::string>());
}

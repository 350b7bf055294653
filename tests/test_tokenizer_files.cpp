#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe/bpe_trainer.h"
#include "data/bpe/byte_alphabet.h"
#include "data/bpe/tokenizer_files.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

Vocabulary trained() {
  BpeTrainer trainer;
  trainer.add_text("one two \"three\" \\ four\t4444 \xFF\xFE\xFE caf\u00E9 1234567890 1234 567890 on two<|endoftext|>");
  return trainer.train(290);
}

std::string error_of(const fs::path& path) {
  try {
    read_vocabulary(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The tokenizer.json of a trained tokenizer, for tests to change.
json whole_file() {
  const test::TempDir folder;
  write_vocabulary(trained(), folder.path(), {});
  return json::parse(test::read_file(folder / "tokenizer.json"));
}

// What reading says of the file with one value changed.
std::string error_with(const std::string& pointer, const json& value) {
  const test::TempDir folder;
  json file = whole_file();
  file[json::json_pointer(pointer)] = value;
  std::string text = error_of(folder.write("tokenizer.json", file.dump()));
  const std::string name = (folder / "tokenizer.json").string() + ": ";
  CHECK(text.starts_with(name));
  return text.substr(std::min(name.size(), text.size()));
}

}  // namespace

TEST_CASE("tokenizer files: what was written is read, from the folder and from either file") {
  const test::TempDir folder;
  const Vocabulary v = trained();
  REQUIRE(v.merges.size() == 33);
  write_vocabulary(v, folder / "some where/new", {});
  CHECK(read_vocabulary(folder / "some where/new") == v);
  CHECK(read_vocabulary(folder / "some where/new/vocab.json") == v);
  CHECK(read_vocabulary(folder / "some where/new/tokenizer.json") == v);
  fs::remove(folder / "some where/new/tokenizer.json");
  CHECK(read_vocabulary(folder / "some where/new") == v);
  const std::string merges = test::read_file(folder / "some where/new/merges.txt");
  CHECK(merges.starts_with("#version: 0.2\n"));
  CHECK(std::count(merges.begin(), merges.end(), '\n') == 34);
}

TEST_CASE("tokenizer files: the same bytes every time, and no others are left behind") {
  const test::TempDir folder;
  write_vocabulary(trained(), folder / "a", 512);
  write_vocabulary(trained(), folder / "b", {});
  write_vocabulary(trained(), folder / "b", 512);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "b")) {
    ++files;
    CHECK(test::read_file(entry.path()) == test::read_file(folder / "a" / entry.path().filename()));
  }
  CHECK(files == 4);
}

TEST_CASE("tokenizer files: the configuration names class, control tokens and context") {
  const test::TempDir folder;
  write_vocabulary(trained(), folder.path(), 512);
  const json config = json::parse(test::read_file(folder / "tokenizer_config.json"));
  CHECK(config["tokenizer_class"] == "GPT2Tokenizer");
  for (const char* name : {"bos_token", "eos_token", "unk_token"}) CHECK(config[name] == "<|endoftext|>");
  CHECK(config["model_max_length"] == 512);
}

TEST_CASE("tokenizer files: trained, saved and loaded, numbers of any length split alike") {
  const test::TempDir folder;
  const Tokenizer before(trained());
  before.save(folder.path());
  const Tokenizer after = Tokenizer::load(folder.path());
  std::string digits;
  for (int length = 1; length <= 20; ++length) {
    digits += static_cast<char>('0' + length % 10);
    const auto ids = before.encode(digits, Special::kText);
    CHECK(after.encode(digits, Special::kText) == ids);
    CHECK(after.decode(ids) == digits);
  }
}

TEST_CASE("tokenizer files: merges as texts and as pairs are the same") {
  json file = whole_file();
  for (json& merge : file["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    const std::size_t space = text.find(' ');
    merge = {text.substr(0, space), text.substr(space + 1)};
  }
  const test::TempDir folder;
  CHECK(read_vocabulary(folder.write("tokenizer.json", file.dump())) == trained());
}

TEST_CASE("tokenizer files: lines may end in CRLF, and a merge may begin with #") {
  const test::TempDir folder;
  Vocabulary v = trained();
  v.tokens.emplace_back("##");
  v.merges.push_back({v.merges[0].left, v.merges[0].right, v.merges[0].result});
  const auto id = static_cast<std::int32_t>(byte_ids(v, "")['#']);
  v.merges.back() = {id, id, static_cast<std::int32_t>(v.tokens.size()) - 1};
  write_vocabulary(v, folder.path(), {});
  std::string merges = test::read_file(folder / "merges.txt");
  CHECK(merges.ends_with("\n# #\n"));
  for (std::size_t at = 0; (at = merges.find('\n', at)) != std::string::npos; at += 2) merges.insert(at, "\r");
  folder.write("merges.txt", merges);
  CHECK(read_vocabulary(folder / "vocab.json") == v);
}

TEST_CASE("tokenizer files: added tokens may lie behind the vocabulary and hold any text") {
  json file = whole_file();
  file["added_tokens"].push_back({{"id", 290}, {"content", "<a b>\u3042"}, {"special", true}});
  file["added_tokens"].push_back({{"id", 291}, {"content", "    "}, {"special", false}});
  const test::TempDir folder;
  const Tokenizer tokenizer = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  CHECK(tokenizer.vocab_size() == 292);
  CHECK(tokenizer.encode("<a b>\u3042", Special::kMarker) == std::vector<std::int32_t>{290});
  CHECK(tokenizer.encode("    ", Special::kText) == std::vector<std::int32_t>{291});
  tokenizer.save(folder / "again");
  CHECK(Tokenizer::load(folder / "again").vocabulary() == tokenizer.vocabulary());
}

TEST_CASE("tokenizer files: digits apart, before the bytes' rule; a template that adds nothing") {
  json file = whole_file();
  const json byte_level = file["pre_tokenizer"];
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}};
  file["post_processor"] = {{"type", "TemplateProcessing"}, {"special_tokens", json::object()}};
  const test::TempDir folder;
  const Vocabulary v = read_vocabulary(folder.write("tokenizer.json", file.dump()));
  CHECK(v.splits_digits);
  CHECK_FALSE(trained().splits_digits);
  write_vocabulary(v, folder / "again", {});
  CHECK(read_vocabulary(folder / "again") == v);
  CHECK(json::parse(test::read_file(folder / "again/tokenizer.json"))["pre_tokenizer"]["pretokenizers"][0] ==
        file["pre_tokenizer"]["pretokenizers"][0]);
}

TEST_CASE("tokenizer files: other kinds of tokenizer are refused by name") {
  CHECK(error_with("/normalizer", {{"type", "NFC"}}) == "normalizer: not supported; got \"NFC\", want null");
  CHECK(error_with("/pre_tokenizer", {{"type", "Metaspace"}}) ==
        "pre_tokenizer: not supported; got \"Metaspace\", want \"ByteLevel\"");
  CHECK(error_with("/pre_tokenizer", nullptr) == "pre_tokenizer: none; want \"ByteLevel\"");
  CHECK(error_with("/pre_tokenizer/add_prefix_space", true) ==
        "pre_tokenizer: add_prefix_space: not supported; got true, want null or false");
  CHECK(error_with("/pre_tokenizer/use_regex", false) ==
        "pre_tokenizer: use_regex: not supported; got false, want null or true");
  CHECK(error_with("/decoder", {{"type", "WordPiece"}}) ==
        "decoder: not supported; got \"WordPiece\", want \"ByteLevel\"");
  CHECK(
      error_with("/post_processor", {{"type", "TemplateProcessing"}, {"special_tokens", {{"<s>", {{"id", "<s>"}}}}}}) ==
      "post_processor: not supported; got a template that adds tokens, want none");
  CHECK(error_with("/post_processor", {{"type", "BertProcessing"}}) ==
        "post_processor: not supported; got \"BertProcessing\", want \"ByteLevel\"");
  CHECK(error_with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}}}}) ==
        "pre_tokenizer: not supported; want the sequence of \"Digits\" with individual_digits and \"ByteLevel\"");
  CHECK(error_with("/model/type", "Unigram") == "model: type: not supported; got \"Unigram\", want null or \"BPE\"");
  const std::vector<std::pair<std::string, json>> options = {{"dropout", 0.1},
                                                             {"continuing_subword_prefix", "##"},
                                                             {"end_of_word_suffix", "</w>"},
                                                             {"byte_fallback", true},
                                                             {"ignore_merges", true}};
  for (const auto& [name, value] : options) {
    CHECK(error_with("/model/" + name, value).starts_with("model: " + name + ": not supported"));
  }
  CHECK(error_with("/added_tokens/0/lstrip", true) ==
        "added_tokens[0]: lstrip: not supported; got true, want null or false");
}

TEST_CASE("tokenizer files: damage is an error with file and place") {
  CHECK(error_with("/model/vocab/he", 1000) == "no token has the id 290; want every id from 0 to 1000 to have one");
  CHECK(error_with("/model/vocab/zzz", 5) == "two tokens have the id 5; one is \"zzz\"");
  for (const json& id : {json(-1), json(1.5), json("5"), json(nullptr), json(std::uint64_t{1} << 63), json(1 << 24)}) {
    CHECK(error_with("/model/vocab/zzz", id).starts_with("model.vocab: token \"zzz\": not an id; got "));
  }
  CHECK(error_with("/model/vocab/zz z", 290) == "token \"zz z\" spells no bytes and is not an added token");
  CHECK(error_with("/model/vocab", {1, 2}) == "model.vocab: got [1, 2], want an object of tokens and their ids");
  CHECK(error_with("/model/merges/3", "a") ==
        "model.merges[3]: not a merge; got \"a\", want two tokens with one space between");
  CHECK(error_with("/model/merges/3", {"a", 1}) ==
        "model.merges[3]: not a merge; got [\"a\", 1], want a pair of tokens or a text of two");
  CHECK(error_with("/model/merges/3", "q q") == "model.merges[3]: \"qq\" is not in the vocabulary");
  CHECK(error_with("/model/merges", 3) == "model.merges: got 3, want an array");
  CHECK(error_with("/added_tokens/0", 3) == "added_tokens[0]: got 3, want an object with a content");
  CHECK(error_with("/added_tokens/0/id", 4) == "added_tokens[0]: \"<|endoftext|>\" has two ids; got 4, and 0 before");
  CHECK(error_with("/added_tokens", "x") == "added_tokens: got \"x\", want an array");
  json vocabulary = whole_file()["model"]["vocab"];
  vocabulary.erase("A");
  CHECK(error_with("/model/vocab", vocabulary).starts_with("no token has the id 33"));
}

TEST_CASE("tokenizer files: damaged merges.txt and vocab.json") {
  const test::TempDir folder;
  write_vocabulary(trained(), folder.path(), {});
  fs::remove(folder / "tokenizer.json");
  const std::string merges = (folder / "merges.txt").string();
  folder.write("merges.txt", "#version: 0.2\no n\nfour");
  CHECK(error_of(folder.path()) ==
        merges + ": line 3: not a merge; got \"four\", want two tokens with one space between");
  folder.write("merges.txt", "q  q");
  CHECK(error_of(folder.path()).starts_with(merges + ": line 1: not a merge"));
  folder.write("merges.txt", std::string("\xFF \0", 3));
  CHECK(error_of(folder.path()).starts_with(merges + ": line 1: "));
  fs::remove(folder / "merges.txt");
  CHECK(error_of(folder.path()) == merges + ": no such file");
  const std::string vocabulary = folder.write("vocab.json", "{\"a\": 1, ").string();
  CHECK(error_of(folder.path()) == vocabulary + ": not valid JSON at byte 10 of 9");
  folder.write("vocab.json", "[1]");
  CHECK(error_of(folder.path()) == vocabulary + ": got [1], want an object");
  fs::remove(folder / "vocab.json");
  CHECK(error_of(folder.path()) ==
        folder.path().string() + ": no tokenizer in this folder; want tokenizer.json, or vocab.json with merges.txt");
  CHECK_THROWS_AS(read_vocabulary(folder / "missing"), UsageError);
}

TEST_CASE("tokenizer files: any cut or changed byte gives an error or a tokenizer, never a crash") {
  const test::TempDir folder;
  write_vocabulary(trained(), folder.path(), {});
  const std::string whole = test::read_file(folder / "tokenizer.json");
  const test::TempDir damaged;
  std::uint32_t random = 7;
  for (int round = 0; round < 300; ++round) {
    std::string text = whole;
    random = random * 1664525 + 1013904223;
    const std::size_t at = random % text.size();
    if (round % 3 == 0) {
      text.resize(at);
    } else {
      text[at] = static_cast<char>(random >> 24);
    }
    try {
      const Tokenizer tokenizer = Tokenizer::load(damaged.write("tokenizer.json", text));
      CHECK(tokenizer.decode(tokenizer.encode("one four", Special::kMarker)) == "one four");
    } catch (const Error&) {
    }
  }
  // Nested deeper than a stack could hold.
  for (const std::string& text : {std::string(1'000'000, '['), std::string(200'000, '[') + std::string(200'000, ']'),
                                  "{\"model\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}"}) {
    CHECK(error_of(damaged.write("tokenizer.json", text)) != "no error");
  }
}

TEST_CASE("tokenizer files: a folder that cannot be written is an error, and nothing is claimed") {
  const test::TempDir folder;
  folder.write("file", "x");
  CHECK_THROWS_WITH_AS(write_vocabulary(trained(), folder / "file", {}), doctest::Contains("file"), Error);
  CHECK_THROWS_AS(write_vocabulary(trained(), folder / "file/below", {}), Error);
  CHECK(test::read_file(folder / "file") == "x");
  CHECK_THROWS_AS(write_vocabulary(Vocabulary{}, folder / "new", {}), Error);
  CHECK_FALSE(fs::exists(folder / "new"));
}

TEST_CASE("tokenizer files: GPT-2's own, whose vocabulary has a token `model`") {
  SKIP_WITHOUT_SHARED("gpt2/vocab.json");
  const Vocabulary v = read_vocabulary(test::shared_file("gpt2"));
  CHECK(v.tokens.size() == 50257);
  CHECK(v.merges.size() == 50000);
  CHECK(v.added == std::vector<AddedToken>{{"<|endoftext|>", 50256, true}});
  const test::TempDir folder;
  write_vocabulary(v, folder.path(), 1024);
  CHECK(test::read_file(folder / "merges.txt") == test::read_file(test::shared_file("gpt2/merges.txt")));
  CHECK(json::parse(test::read_file(folder / "vocab.json")) ==
        json::parse(test::read_file(test::shared_file("gpt2/vocab.json"))));
}

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "data/story_generator.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

// Marker 0, the bytes 1 to 256, and merges that reach across letters, spaces and line ends.
Tokenizer small_tokenizer() {
  Vocabulary vocabulary;
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.added.push_back({std::string(kEndOfText), 0, true});
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  const auto merge = [&](const std::string& left, const std::string& right) {
    const auto id = [&](const std::string& token) {
      const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
      return static_cast<int32_t>(found - vocabulary.tokens.begin());
    };
    vocabulary.merges.push_back({id(left), id(right), static_cast<int32_t>(vocabulary.tokens.size())});
    vocabulary.tokens.push_back(left + right);
  };
  merge("t", "h");
  merge("th", "e");
  merge(" ", "the");
  merge(" ", " ");
  merge("\n", "\n");
  return Tokenizer(vocabulary);
}

std::vector<int32_t> tokens_of(const TokenDataset& data) {
  std::vector<int32_t> tokens(data.size());
  data.copy(0, data.size(), tokens.data());
  return tokens;
}

std::string stories(uint64_t bytes) {
  std::string all;
  generate_stories(1, bytes, [&](std::string_view piece) { all += piece; });
  return all;
}

PrepareOptions options_for(const std::vector<std::string>& input, const std::string& output) {
  PrepareOptions options;
  options.input = input;
  options.output = output;
  return options;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("prepare: the ids are those of the whole text read with its markers") {
  const test::TempDir scratch;
  const Tokenizer tokenizer = small_tokenizer();
  std::string text = "the\r\n\n<|endoftext|>  the <|ENDOFTEXT|>\xE6\xAD" + stories(300'000);
  // One document far longer than a piece, with the spaces and words that a cut could split wrongly.
  while (text.size() < 4'000'000) text += "the  the\n\nthe \xE3\x80\x80the's 12 " + std::to_string(text.size());
  PrepareOptions options = options_for({scratch.write("a.txt", text)}, scratch / "out");
  options.valid_fraction = 0;
  const auto made = prepare(tokenizer, options);
  REQUIRE(made.has_value());
  CHECK(tokens_of(open_training_data(scratch / "out")) == tokenizer.encode(text, Special::kMarker));
  CHECK(made->valid.tokens == 0);
  CHECK(names_in(scratch / "out") == std::vector<std::string>{"data.json", "merges.txt", "tokenizer.json",
                                                              "tokenizer_config.json", "train-00000.bin",
                                                              "vocab.json"});
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"a.txt", "out"});

  options.reads_markers = false;
  options.output = scratch / "plain";
  prepare(tokenizer, options);
  CHECK(tokens_of(open_training_data(scratch / "plain")) == tokenizer.encode(text, Special::kText));
}

TEST_CASE("prepare: the number of threads does not show in the files") {
  const test::TempDir scratch;
  const int threads = thread_count();
  for (const int count : {1, 3}) {
    set_thread_count(count);
    PrepareOptions options = options_for({scratch.write("a.txt", stories(2'000'000))}, scratch / std::to_string(count));
    options.valid_fraction = 0.1;
    prepare(small_tokenizer(), options);
  }
  set_thread_count(threads);
  for (const char* name : {"train-00000.bin", "valid-00000.bin", "data.json"}) {
    CHECK(test::read_file(scratch / "1" / name) == test::read_file(scratch / "3" / name));
  }
}

TEST_CASE("prepare: the fraction deals whole documents out, by the seed") {
  const test::TempDir scratch;
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i) + "<|endoftext|>\n";
  PrepareOptions options = options_for({scratch.write("a.txt", text)}, scratch / "a");
  options.valid_fraction = 0.1;
  const auto made = prepare(small_tokenizer(), options);
  CHECK(made->train.documents == 180);
  CHECK(made->valid.documents == 20);
  CHECK(made->split == "validation is 20 of 200 documents, drawn with seed 42");
  const std::vector<int32_t> valid = tokens_of(open_validation_data(scratch / "a"));
  CHECK(std::count(valid.begin(), valid.end(), 0) == 20);
  options.output = scratch / "b";
  prepare(small_tokenizer(), options);
  CHECK(tokens_of(open_validation_data(scratch / "b")) == valid);
  options.output = scratch / "c";
  options.seed = 43;
  prepare(small_tokenizer(), options);
  CHECK(tokens_of(open_validation_data(scratch / "c")) != valid);
}

TEST_CASE("prepare: however large the fraction, a document is left for training") {
  const test::TempDir scratch;
  PrepareOptions options = options_for({scratch.write("a.txt", "a<|endoftext|>b<|endoftext|>c")}, scratch / "a");
  options.valid_fraction = 0.9;
  const auto made = prepare(small_tokenizer(), options);
  CHECK(made->train.documents == 1);
  CHECK(made->valid.documents == 2);
}

TEST_CASE("prepare: of few documents the end of the tokens is kept, of small corpora nothing unless asked") {
  const test::TempDir scratch;
  std::string text;
  while (text.size() < 200'000) text += "abcde fghij ";
  PrepareOptions options = options_for({scratch.write("a.txt", text)}, scratch / "a");
  auto made = prepare(small_tokenizer(), options);
  CHECK(made->valid.tokens == std::llround(0.01 * static_cast<double>(made->train.tokens + made->valid.tokens)));
  const std::vector<int32_t> all = small_tokenizer().encode(text, Special::kMarker);
  const std::vector<int32_t> valid = tokens_of(open_validation_data(scratch / "a"));
  CHECK(std::equal(valid.rbegin(), valid.rend(), all.rbegin()));
  CHECK(tokens_of(open_training_data(scratch / "a")).size() + valid.size() == all.size());
  made = prepare(small_tokenizer(), options_for({scratch.write("b.txt", "abc")}, scratch / "b"));
  CHECK(made->train.tokens == 3);
  CHECK(made->valid.tokens == 0);
}

TEST_CASE("prepare: several kinds of input and validation from files of its own") {
  const test::TempDir scratch;
  const std::string tokens("\x05\x00\x00\x00\x06\x00", 6);
  PrepareOptions options = options_for({scratch.write("a.txt", "a"), scratch.write("b.jsonl", "{\"t\":\"b\"}\n"),
                                        scratch.write("c.bin", tokens), scratch.write("d.txt", "d")},
                                       scratch / "out");
  options.json_field = "t";
  options.valid = {scratch.write("v.txt", "vv")};
  const auto made = prepare(small_tokenizer(), options);
  CHECK(tokens_of(open_training_data(scratch / "out")) ==
        std::vector<int32_t>{1 + 'a', 0, 1 + 'b', 0, 5, 0, 6, 0, 1 + 'd'});
  CHECK(made->train.documents == 5);
  CHECK(tokens_of(open_validation_data(scratch / "out")) == std::vector<int32_t>{1 + 'v', 1 + 'v'});
  CHECK(made->sources.size() == 5);
}

TEST_CASE("prepare: what cannot be prepared leaves nothing behind") {
  const test::TempDir scratch;
  const std::string text = scratch.write("a.txt", "text");
  scratch.write("used/file", "x");
  const Tokenizer tokenizer = small_tokenizer();
  const auto refuses = [&](const PrepareOptions& options, const char* part) {
    CHECK_THROWS_WITH_AS(prepare(tokenizer, options), doctest::Contains(part), Error);
    CHECK(names_in(scratch / "used") == std::vector<std::string>{"file"});
    CHECK_FALSE(std::filesystem::exists(scratch / "out"));
    CHECK_FALSE(std::filesystem::exists(scratch / "out.partial"));
  };
  refuses(options_for({text}, scratch / "used"), "is there already");
  refuses(options_for({scratch / "absent"}, scratch / "out"), "no such file or folder");
  refuses(options_for({scratch.write("e.txt", "")}, scratch / "out"), "no text in");
  refuses(options_for({text, scratch.write("b.jsonl", "{}")}, scratch / "out"), "b.jsonl, line 1: no field 'text'");
  refuses(options_for({scratch.write("c.bin", "\xFF\xFF")}, scratch / "out"),
          "token 0 is outside the tokenizer's vocabulary");
  PrepareOptions options = options_for({text}, scratch / "out");
  options.valid = {scratch / "e.txt"};
  refuses(options, "no text in the validation files");
  refuses(options_for({scratch / "used"}, scratch / "out"), "no corpus file in this folder");
  PrepareOptions all_held_out = options_for({text}, scratch / "out");
  all_held_out.valid_fraction = 0.99;
  refuses(all_held_out, "nothing is left to train on");

  request_stop();
  CHECK_FALSE(prepare(tokenizer, options_for({text}, scratch / "out")).has_value());
  clear_stop_request();
  CHECK_FALSE(std::filesystem::exists(scratch / "out.partial"));
  std::filesystem::create_directories(scratch / "out.partial");
  CHECK(prepare(tokenizer, options_for({text}, (scratch / "out").string() + "/")).has_value());
  CHECK(is_prepared_folder(scratch / "out"));
  CHECK_FALSE(std::filesystem::exists(scratch / "out.partial"));
}

TEST_CASE("prepare: the program's counts and exit codes") {
  const test::TempDir scratch;
  small_tokenizer().save(scratch / "tokenizer");
  const std::string text = scratch.write("my text.txt", "\xEF\xBB\xBFthe\r\n");
  const std::string tokenizer = scratch / "tokenizer";
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--tokenizer", tokenizer});
    return test::run_process(test::binary("prepare"), more);
  };
  const auto done = run({"--input", text, "--output", scratch / "out", "--json"});
  CHECK(done.exit_code == 0);
  const auto json = nlohmann::json::parse(done.out);
  CHECK(json.at("train_tokens") == 3);
  CHECK(json.at("text_bytes") == 5);
  CHECK(run({"--input", text, "--output", scratch / "out"}).exit_code == 2);
  CHECK(run({"--input", scratch / "absent", "--output", scratch / "o"}).exit_code == 2);
  CHECK(run({"--input", text, "--output", scratch / "o", "--valid-fraction", "1"}).exit_code == 2);
  CHECK(run({"--input", text, "--output", scratch / "o", "--valid", text, "--valid-fraction", "0.5"}).exit_code == 2);
  CHECK(run({"--input", scratch.write("b.jsonl", "{"), "--output", scratch / "o"}).exit_code == 1);
  // Eight blocks: an OpenMP runtime may need a page of shared memory, which counts as a file.
  const auto limited = test::run_process(
      "/bin/sh", {"-c", "ulimit -f 8; exec \"$0\" \"$@\"", test::binary("prepare"), "--tokenizer", tokenizer, "--input",
                  scratch.write("long.txt", std::string(100000, 't')), "--output", scratch / "o"});
  CAPTURE(limited.err);
  CHECK(limited.exit_code == 1);
  CHECK(limited.err.find("File too large") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(scratch / "o.partial"));
  test::ProcessOptions pipe;
  pipe.input = "the";
  const auto piped = test::run_process(test::binary("prepare"),
                                       {"--tokenizer", tokenizer, "--input", "-", "--output", scratch / "o"}, pipe);
  CHECK(piped.exit_code == 0);
  CHECK(tokens_of(open_training_data(scratch / "o")).size() == 1);
}

TEST_CASE("prepare: a limit on file sizes is an error with a message, and nothing is left") {
  const test::TempDir scratch;
  small_tokenizer().save(scratch / "tokenizer");
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + " ";
  const std::string call = "ulimit -f 8; exec '" + test::binary("prepare") + "' --tokenizer '" +
                           (scratch / "tokenizer").string() + "' --input '" + scratch.write("a.txt", text).string() +
                           "' --output '" + (scratch / "out").string() + "'";
  const auto result = test::run_process("/bin/sh", {"-c", call});
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("cannot be written") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(scratch / "out.partial"));
}

TEST_CASE("stories: the program writes whole stories to a file or to stdout") {
  const test::TempDir scratch;
  const auto to_stdout = test::run_process(test::binary("stories"), {"--megabytes", "0.02", "--seed", "1"});
  CHECK(to_stdout.exit_code == 0);
  CHECK(to_stdout.out == stories(20'000));
  const auto to_file =
      test::run_process(test::binary("stories"), {"--megabytes", "0.02", "--seed", "1", "--output", scratch / "s.txt"});
  CHECK(to_file.exit_code == 0);
  CHECK(to_file.out.empty());
  CHECK(test::read_file(scratch / "s.txt") == to_stdout.out);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"s.txt"});
  CHECK(test::run_process(test::binary("stories"), {"--megabytes", "0"}).exit_code == 2);
  CHECK(test::run_process(test::binary("stories"), {"--output", scratch / "no/such/s.txt"}).exit_code == 1);
}

// The program `tokenizer` as others call it.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_process.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper::test;
using nlohmann::json;

namespace {

ProcessResult tokenizer(const std::vector<std::string>& arguments, const std::string& input = "") {
  ProcessOptions options;
  options.input = input;
  return run_process(binary("tokenizer"), arguments, options);
}

ProcessResult train(const TempDir& folder, const std::string& text, const std::string& size,
                    const std::string& output = "tokenizer") {
  return tokenizer({"train", "--input", folder.write("text.txt", text).string(), "--vocab-size", size, "--output",
                    (folder / output).string(), "--json"});
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("tokenizer tool: train, encode, decode") {
  const TempDir folder;
  const std::string story = "Once upon a time\r\n<|endoftext|>\xE6\xAD once upon";
  const ProcessResult trained = train(folder, story, "270");
  REQUIRE(trained.exit_code == 0);
  CHECK(json::parse(trained.out)["vocab_size"] == 270);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK(std::filesystem::exists(folder / "tokenizer" / name));
  }
  const std::string tokens = (folder / "tokenizer").string();
  for (const char* mode : {"--special", "--no-special"}) {
    const ProcessResult encoded = tokenizer({"encode", "--tokenizer", tokens, mode, "--json"}, story);
    REQUIRE(encoded.exit_code == 0);
    const json ids = json::parse(encoded.out);
    CHECK(std::count(ids.begin(), ids.end(), json(0)) == (std::string(mode) == "--special" ? 1 : 0));
    const ProcessResult decoded = tokenizer({"decode", "--tokenizer", tokens}, encoded.out);
    CHECK(decoded.exit_code == 0);
    CHECK(decoded.out == story);
  }
  const ProcessResult from_file =
      tokenizer({"encode", "--tokenizer", tokens, "--input", (folder / "text.txt").string()});
  CHECK(from_file.out == tokenizer({"encode", "--tokenizer", tokens}, story).out);
  CHECK(tokenizer({"encode", "--tokenizer", tokens}).out == "[]\n");
  CHECK(tokenizer({"decode", "--tokenizer", tokens}, "[]").out.empty());
}

TEST_CASE("tokenizer tool: the same files from the same text, and from its lines in another order") {
  const TempDir folder;
  CHECK(train(folder, "hug\npug\npun\nhug\nbun\n", "300", "a").exit_code == 0);
  CHECK(train(folder, "hug\npug\npun\nhug\nbun\n", "300", "b").exit_code == 0);
  CHECK(train(folder, "pug\nhug\nbun\nhug\npun\n", "300", "c").exit_code == 0);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json"}) {
    CHECK(read_file(folder / "a" / name) == read_file(folder / "b" / name));
    CHECK(read_file(folder / "a" / name) == read_file(folder / "c" / name));
  }
}

TEST_CASE("tokenizer tool: too little text is a warning with both sizes, a size too small an error") {
  const TempDir folder;
  for (const auto& [text, size] : std::vector<std::pair<std::string, int>>{{"hello", 261}, {"", 257}, {"H", 257}}) {
    const ProcessResult result = train(folder, text, "10000", "of-" + std::to_string(text.size()));
    CHECK(result.exit_code == 0);
    CHECK(json::parse(result.out)["vocab_size"] == size);
    CHECK(contains(result.err, "got " + std::to_string(size) + " tokens, asked for 10000"));
  }
  const ProcessResult small = train(folder, "hello", "100", "small");
  CHECK(small.exit_code == 2);
  CHECK(contains(small.err, "257"));
  CHECK_FALSE(std::filesystem::exists(folder / "small"));
}

TEST_CASE("tokenizer tool: JSON lines, a limit on the text, several inputs") {
  const TempDir folder;
  const std::string lines = folder.write("a.jsonl", "{\"story\":\"ab ab\"}\n{\"story\":\"cd\"}\n").string();
  const std::string output = (folder / "tokenizer").string();
  ProcessResult result = tokenizer({"train", "--input", lines, folder.write("b.txt", "ef").string(), "--field", "story",
                                    "--output", output, "--json"});
  REQUIRE(result.exit_code == 0);
  CHECK(json::parse(result.out)["words"] == 4);
  result = tokenizer(
      {"train", "--input", lines, "--field", "story", "--max-bytes", "3", "--output", output + "-short", "--json"});
  REQUIRE(result.exit_code == 0);
  CHECK(json::parse(result.out)["words"] == 2);
}

TEST_CASE("tokenizer tool: wrong use is exit 2, a failure exit 1, each with one line") {
  const TempDir folder;
  REQUIRE(train(folder, "hello", "258").exit_code == 0);
  const std::string tokens = (folder / "tokenizer").string();
  const auto check_error = [](const ProcessResult& result, int exit_code, const std::string& part) {
    CAPTURE(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(contains(result.err, part));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.out.empty());
  };
  check_error(tokenizer({"encode", "--tokenizer", (folder / "none").string()}), 2, "none: no such file");
  check_error(tokenizer({"encode", "--tokenizer", tokens, "--input", (folder / "none").string()}), 2, "none");
  check_error(tokenizer({"train", "--input", (folder / "none").string(), "--output", tokens + "-new"}), 2, "none");
  check_error(tokenizer({"train", "--input", folder.write("tokens.bin", "12").string(), "--output", tokens + "-new"}),
              2, "tokens.bin holds tokens, not text");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, "[1, 258]"), 2, "element 1: not an id of this tokenizer");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, "[1.5]"), 2, "got 1.5");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, "[[1]]"), 2, "got [1]");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, "{}"), 2, "want one array of ids");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, ""), 2, "not valid JSON at byte 1");
  check_error(tokenizer({"decode", "--tokenizer", tokens}, std::string(1'000'000, '[')), 2, "nested too deeply");
  folder.write("tokenizer/tokenizer.json", "{\"model\":{}}");
  check_error(tokenizer({"encode", "--tokenizer", tokens}), 1, "tokenizer.json: pre_tokenizer: none");
  check_error(train(folder, "hello", "258", "text.txt"), 2, "text.txt is there already");
}

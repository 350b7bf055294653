#include "tests/support/prepared_stories.h"

#include "engine/core/error.h"

namespace taper::test {
namespace {

void call(const std::string& program, const std::vector<std::string>& arguments) {
  const ProcessResult result = run_process(binary(program), arguments);
  require(result.exit_code == 0, "{}: {}", program, result.err);
}

}  // namespace

PreparedStories::PreparedStories() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("The {} cat saw {} dogs.\n<|endoftext|>", i % 17, i % 5);
  const std::string file = folder_.write("stories.txt", text).string();
  call("tokenizer", {"train", "--input", file, "--vocab-size", "270", "--output", path("tokenizer")});
  call("prepare", {"--tokenizer", path("tokenizer"), "--input", file, "--valid-fraction", "0.2", "--output", data()});
}

std::vector<std::string> tiny_pretrain(const PreparedStories& stories, const std::string& output, int64_t steps) {
  return {"--data",         stories.data(),
          "--output",       stories.path(output),
          "--steps",        std::to_string(steps),
          "--width",        "16",
          "--layers",       "1",
          "--heads",        "2",
          "--context",      "16",
          "--threads",      "1",
          "--batch-tokens", "64",
          "--json"};
}

std::vector<std::string> tiny_experiment(const PreparedStories& stories, const std::string& output, int steps) {
  return {"--data",
          stories.data(),
          "--output",
          stories.path(output),
          "--steps",
          std::to_string(steps),
          "--width",
          "16",
          "--layers",
          "1",
          "--heads",
          "2",
          "--context",
          "16",
          "--sizes",
          "1M",
          "--batch-tokens",
          "64",
          "--lr",
          "1e-2",
          "--json",
          "--processes",
          "1"};
}

}  // namespace taper::test

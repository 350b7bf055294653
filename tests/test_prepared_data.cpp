#include <doctest/doctest.h>

#include "data/prepared_data.h"
#include "engine/core/error.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

void write_folder(const test::TempDir& scratch) {
  TokenShardWriter writer((scratch / "train-00000.bin").string(), {10, 0xFEDCBA9876543210u});
  const int32_t tokens[] = {1, 2, 3};
  writer.append(tokens, 3);
  writer.finish();
  PreparedManifest manifest;
  manifest.info = {10, 0xFEDCBA9876543210u};
  manifest.train = {3, 1, {"train-00000.bin"}};
  manifest.text_bytes = 7;
  manifest.sources = {"a.txt"};
  manifest.split = "none";
  manifest.write(scratch.path().string());
}

}  // namespace

TEST_CASE("prepared data: the manifest says what the folder holds") {
  const test::TempDir scratch;
  CHECK_FALSE(is_prepared_folder(scratch.path().string()));
  CHECK_THROWS_WITH_AS(open_training_data(scratch.path().string()), doctest::Contains("not a prepared folder"),
                       UsageError);
  write_folder(scratch);
  CHECK(is_prepared_folder(scratch.path().string()));
  const PreparedManifest manifest = PreparedManifest::read(scratch.path().string());
  CHECK(manifest.info.tokenizer_hash == 0xFEDCBA9876543210u);
  CHECK(manifest.train.documents == 1);
  CHECK(manifest.text_bytes == 7);
  CHECK(manifest.sources == std::vector<std::string>{"a.txt"});
  CHECK(open_training_data(scratch.path().string()).size() == 3);
  CHECK_THROWS_WITH_AS(open_validation_data(scratch.path().string()), doctest::Contains("no validation data"),
                       UsageError);
}

TEST_CASE("prepared data: a folder that contradicts itself is refused") {
  const test::TempDir scratch;
  write_folder(scratch);
  const std::string good = test::read_file(scratch / "data.json");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    scratch.write("data.json", text.replace(text.find(from), from.size(), to));
    CHECK_THROWS_AS(open_training_data(scratch.path().string()), UsageError);
  };
  replaced("\"tokens\": 3", "\"tokens\": 4");
  replaced("\"vocabulary_size\": 10", "\"vocabulary_size\": 11");
  replaced("fedcba", "fedcbb");
  replaced("train-00000.bin", "../train-00000.bin");
  replaced("\"format\": 1", "\"format\": 2");
  for (const char* no_count : {"\"3\"", "3.0", "3.5", "1e300", "1e999", "-3", "true", "null"}) {
    CAPTURE(no_count);
    replaced("\"tokens\": 3", std::string("\"tokens\": ") + no_count);
  }
  replaced("}", "");
}

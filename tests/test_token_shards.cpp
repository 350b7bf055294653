#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "data/prepared_data.h"
#include "data/token_shards.h"
#include "engine/core/error.h"
#include "tests/support/memory_maps.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

void write_shard(const std::string& path, const std::vector<int32_t>& tokens, const ShardInfo& info) {
  TokenShardWriter writer(path, info);
  writer.append(tokens.data(), tokens.size());
  writer.finish();
}

std::vector<int32_t> tokens_of(const TokenDataset& data, uint64_t position, uint64_t count) {
  std::vector<int32_t> out(count);
  data.copy(position, count, out.data());
  return out;
}

std::string open_error(const std::string& path) {
  try {
    TokenShard shard(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class Value>
std::string patched(std::string bytes, size_t offset, Value value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

}  // namespace

TEST_CASE("token shards: what is written is read, narrow and wide") {
  const test::TempDir scratch;
  for (const uint64_t vocabulary : {10u, 65536u, 65537u, 200000u}) {
    CAPTURE(vocabulary);
    for (const size_t count : {0u, 1u, 7u, 1'000'000u}) {
      std::vector<int32_t> tokens(count);
      for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i * 7919 % vocabulary);
      const std::string path = (scratch / "a.bin").string();
      write_shard(path, tokens, {vocabulary, 42});
      const TokenShard shard(path);
      CHECK(shard.size() == count);
      CHECK(shard.info().vocabulary_size == vocabulary);
      CHECK(shard.info().tokenizer_hash == 42);
      std::vector<int32_t> got(count);
      shard.copy(0, count, got.data());
      CHECK(std::equal(got.begin(), got.end(), tokens.begin()));
      CHECK(test::read_file(scratch / "a.bin").size() == 48 + count * (vocabulary <= 65536 ? 2 : 4));
    }
  }
}

TEST_CASE("token shards: the file does not depend on how it was appended") {
  const test::TempDir scratch;
  std::vector<int32_t> tokens(1'500'001);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 251);
  write_shard((scratch / "a.bin").string(), tokens, {251, 1});
  TokenShardWriter writer((scratch / "b.bin").string(), {251, 1});
  for (size_t i = 0; i < tokens.size(); i += 333) writer.append(&tokens[i], std::min<size_t>(333, tokens.size() - i));
  writer.finish();
  CHECK(test::read_file(scratch / "a.bin") == test::read_file(scratch / "b.bin"));
}

TEST_CASE("token shards: an unfinished writer leaves nothing and keeps the old file") {
  const test::TempDir scratch;
  const std::string path = (scratch / "a.bin").string();
  write_shard(path, {1, 2, 3}, {10, 1});
  {
    TokenShardWriter writer(path, {10, 1});
    const int32_t token = 4;
    writer.append(&token, 1);
    const int32_t outside = 10;
    CHECK_THROWS_WITH_AS(writer.append(&outside, 1), doctest::Contains("token 1 is outside the vocabulary; got id 10"),
                         Error);
  }
  CHECK(TokenShard(path).size() == 3);
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
  CHECK_THROWS_AS(TokenShardWriter((scratch / "no/such/folder.bin").string(), {10, 1}), Error);
}

TEST_CASE("token shards: every damage is named") {
  const test::TempDir scratch;
  write_shard((scratch / "a.bin").string(), {1, 2, 3, 4, 5}, {10, 1});
  const std::string good = test::read_file(scratch / "a.bin");
  const auto error = [&](const std::string& bytes) { return open_error(scratch.write("x.bin", bytes)); };
  CHECK(error(good) == "no error");
  CHECK(contains(error(""), "x.bin: not a token shard"));
  CHECK(contains(error(good.substr(0, 47)), "not a token shard"));
  CHECK(contains(error(patched(good, 0, 'X')), "not a token shard"));
  CHECK(contains(error(patched(good, 8, uint32_t{2})), "unknown version"));
  CHECK(contains(error(patched(good, 12, uint32_t{0})), "wrong token width"));
  CHECK(contains(error(patched(good, 12, uint32_t{3})), "wrong token width"));
  CHECK(contains(error(good.substr(0, good.size() - 2)), "(truncated)"));
  CHECK(contains(error(good.substr(0, good.size() - 1)), "states 5 tokens"));
  CHECK(contains(error(good + "ab"), "(trailing bytes)"));
  // 2^63 + 5 tokens of 2 bytes wrap around to the size of 5.
  CHECK(contains(error(patched(good, 16, (uint64_t{1} << 63) + 5)), "(truncated)"));
  CHECK(contains(error(patched(good, 24, uint64_t{11})), "checksum"));
  CHECK(contains(error(patched(good, 24, uint64_t{1} << 40)), "vocabulary too large"));
  CHECK(contains(error(patched(good, 32, uint64_t{2})), "checksum"));
  for (size_t at = 48; at < good.size(); ++at) {
    CHECK(contains(error(patched(good, at, static_cast<char>(good[at] ^ 1))), "checksum"));
  }
  CHECK(contains(open_error((scratch / "absent.bin").string()),
                 (scratch / "absent.bin").string() + ": cannot be opened"));
  CHECK(test::count_mappings_of(scratch.path()) == 0);
}

TEST_CASE("token shards: a dataset reads across shards") {
  const test::TempDir scratch;
  write_shard((scratch / "a.bin").string(), {0, 1, 2}, {10, 1});
  write_shard((scratch / "b.bin").string(), {}, {10, 1});
  write_shard((scratch / "c.bin").string(), {3, 4}, {10, 1});
  const TokenDataset data("d",
                          {(scratch / "a.bin").string(), (scratch / "b.bin").string(), (scratch / "c.bin").string()});
  CHECK(data.size() == 5);
  CHECK(tokens_of(data, 0, 5) == std::vector<int32_t>{0, 1, 2, 3, 4});
  CHECK(tokens_of(data, 2, 2) == std::vector<int32_t>{2, 3});
  CHECK(tokens_of(data, 3, 2) == std::vector<int32_t>{3, 4});
  CHECK(tokens_of(data, 5, 0).empty());
  CHECK_THROWS_AS(tokens_of(data, 4, 2), Error);
  int32_t unused = 0;
  CHECK_THROWS_AS(data.copy(UINT64_MAX, 2, &unused), Error);
  write_shard((scratch / "d.bin").string(), {1}, {10, 2});
  CHECK_THROWS_WITH_AS(TokenDataset("d", {(scratch / "a.bin").string(), (scratch / "d.bin").string()}),
                       doctest::Contains("another tokenizer"), Error);
}

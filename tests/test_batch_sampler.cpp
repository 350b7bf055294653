#include <doctest/doctest.h>

#include <vector>

#include "data/batch_sampler.h"
#include "engine/core/error.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

// Token i is i, in shards of 1,000, so that windows cross them.
TokenDataset counting_data(const test::TempDir& scratch, uint32_t count) {
  std::vector<std::string> paths;
  for (uint32_t begin = 0; begin == 0 || begin < count; begin += 1000) {
    paths.push_back((scratch / (std::to_string(count) + "-" + std::to_string(begin) + ".bin")).string());
    TokenShardWriter writer(paths.back(), {1'000'000, 1});
    for (auto i = static_cast<int32_t>(begin); i < static_cast<int32_t>(std::min(count, begin + 1000)); ++i) {
      writer.append(&i, 1);
    }
    writer.finish();
  }
  return {"FILE", paths};
}

}  // namespace

TEST_CASE("batch sampler: the target of a position is the next token of its window") {
  const test::TempDir scratch;
  const TokenDataset data = counting_data(scratch, 5000);
  BatchSampler sampler(data, 16, 1);
  std::vector<int32_t> tokens(8 * 16), targets(8 * 16);
  for (int step = 0; step < 100; ++step) {
    sampler.next(8, tokens.data(), targets.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      CHECK(targets[i] == tokens[i] + 1);
      if (i % 16 != 0) CHECK(tokens[i] == tokens[i - 1] + 1);
    }
  }
}

TEST_CASE("batch sampler: the draw depends on seed and position alone") {
  const test::TempDir scratch;
  const TokenDataset data = counting_data(scratch, 5000);
  std::vector<int32_t> whole(12 * 8), parts(12 * 8), targets(12 * 8);
  BatchSampler(data, 8, 7).next(12, whole.data(), targets.data());
  BatchSampler first(data, 8, 7), second(data, 8, 7);
  first.next(5, parts.data(), targets.data());
  CHECK(first.position() == 5);
  second.seek(first.position());
  second.next(3, parts.data() + 5 * 8, targets.data());
  second.next(4, parts.data() + 8 * 8, targets.data());
  CHECK(parts == whole);
  BatchSampler(data, 8, 8).next(12, parts.data(), targets.data());
  CHECK(parts != whole);
}

TEST_CASE("batch sampler: every start is drawn, none outside, about equally often") {
  const test::TempDir scratch;
  const TokenDataset data = counting_data(scratch, 20);
  const BatchSampler sampler(data, 10, 3);
  std::vector<int> drawn(10);
  for (uint64_t i = 0; i < 10'000; ++i) ++drawn.at(sampler.window_start(i));
  for (const int count : drawn) CHECK(std::abs(count - 1000) < 150);  // five standard deviations
}

TEST_CASE("batch sampler: T+1 tokens are one window, fewer are refused with both numbers") {
  const test::TempDir scratch;
  for (const uint32_t count : {0u, 1u, 1024u}) {
    const TokenDataset data = counting_data(scratch, count);
    const std::string text = "needs at least T+1 = 1025 tokens, FILE has " + std::to_string(count);
    CHECK_THROWS_WITH_AS(BatchSampler(data, 1024, 0), doctest::Contains(text.c_str()), UsageError);
    CHECK_THROWS_WITH_AS(EvaluationWindows(data, 1024), doctest::Contains(text.c_str()), UsageError);
  }
  const TokenDataset data = counting_data(scratch, 1025);
  BatchSampler sampler(data, 1024, 0);
  std::vector<int32_t> tokens(3 * 1024), targets(3 * 1024);
  sampler.next(3, tokens.data(), targets.data());
  for (const size_t row : {0, 1, 2}) {
    CHECK(tokens[row * 1024] == 0);
    CHECK(targets[row * 1024 + 1023] == 1024);
  }
  CHECK_THROWS_AS(BatchSampler(data, 0, 0), UsageError);
}

TEST_CASE("evaluation windows: floor((N-1)/T), each token predicted once") {
  const test::TempDir scratch;
  for (const auto& [size, windows] : {std::pair{1025u, 1}, {2048u, 1}, {2049u, 2}, {3073u, 3}}) {
    CHECK(EvaluationWindows(counting_data(scratch, size), 1024).count() == windows);
  }
  const TokenDataset data = counting_data(scratch, 4011);
  const EvaluationWindows windows(data, 7);
  std::vector<int32_t> tokens(4 * 7), targets(4 * 7);
  int32_t expected = 1;
  for (int64_t first = 0; first < windows.count(); first += 4) {
    const int64_t taken = windows.batch(first, 4, tokens.data(), targets.data());
    CHECK(taken == std::min<int64_t>(4, windows.count() - first));
    for (int64_t i = 0; i < taken * 7; ++i) {
      CHECK(targets[static_cast<size_t>(i)] == expected++);
      CHECK(tokens[static_cast<size_t>(i)] == targets[static_cast<size_t>(i)] - 1);
    }
  }
  CHECK(expected == 1 + 4010 / 7 * 7);
  CHECK(windows.batch(windows.count(), 4, tokens.data(), targets.data()) == 0);
}

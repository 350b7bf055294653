#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "data/token_files.h"
#include "engine/core/error.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

template <class Id>
std::string bytes_of(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

std::string llm_c_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

std::vector<int32_t> tokens_of(const std::string& path, uint64_t vocabulary) {
  std::vector<int32_t> all;
  const uint64_t count = read_token_file(
      path, vocabulary, [&](const int32_t* tokens, size_t n) { all.insert(all.end(), tokens, tokens + n); });
  CHECK(count == all.size());
  return all;
}

std::string error_of(const std::string& path, uint64_t vocabulary) {
  try {
    tokens_of(path, vocabulary);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("token files: llm.c and nanoGPT") {
  const test::TempDir scratch;
  std::vector<uint16_t> many(1'200'001);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<uint16_t>(i % 50257);
  const std::vector<int32_t> wide(many.begin(), many.end());
  const auto count = static_cast<int32_t>(many.size());
  CHECK(tokens_of(scratch.write("a.bin", llm_c_header(20240520, 1, count) + bytes_of(many)), 50257) == wide);
  CHECK(tokens_of(scratch.write("b.bin", llm_c_header(20240801, 7, count) + bytes_of(wide)), 50257) == wide);
  CHECK(tokens_of(scratch.write("c.bin", bytes_of(many)), 50257) == wide);
  CHECK(tokens_of(scratch.write("d.bin", llm_c_header(20240520, 1, 0)), 50257).empty());
  CHECK(tokens_of(scratch.write("e.bin", ""), 50257).empty());
}

TEST_CASE("token files: what contradicts the header or the vocabulary is refused") {
  const test::TempDir scratch;
  const std::string body = bytes_of(std::vector<uint16_t>{1, 2, 300});
  const auto error = [&](const std::string& bytes) { return error_of(scratch.write("x.bin", bytes), 300); };
  CHECK(contains(error(body), "x.bin: token 2 is outside the tokenizer's vocabulary; got id 300, want below 300"));
  CHECK(contains(error(body + "a"), "not a whole number of 2-byte tokens"));
  CHECK(contains(error(llm_c_header(20240520, 1, 4) + body), "states 4 tokens, the file holds 3"));
  CHECK(contains(error(llm_c_header(20240520, 1, 2) + body), "states 2 tokens, the file holds 3"));
  CHECK(contains(error(llm_c_header(20240520, 1, -1) + body), "negative token count"));
  CHECK(contains(error(llm_c_header(20240520, 2, 3) + body), "unknown version"));
  CHECK(contains(error(llm_c_header(20240520, 1, 3).substr(0, 100)), "header is cut off"));
  CHECK(contains(error(llm_c_header(20240326, 3, 3)), "an llm.c model"));
  CHECK(contains(error(llm_c_header(20240522, 1, 3)), "an llm.c evaluation set"));
  CHECK(contains(error("TAPERTOK" + body), "prepared already"));
}

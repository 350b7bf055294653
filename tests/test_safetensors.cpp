#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/float16.h"
#include "engine/io/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using test::error_of;

namespace {

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return with_length(header.size(), header + data);
}

std::string zeros(size_t count) { return std::string(count, '\0'); }

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// The message of the error, "" where the file is accepted.
std::string verdict(const test::TempDir& folder, const std::string& bytes) {
  const auto path = folder.write("f.safetensors", bytes);
  try {
    SafetensorsFile::open(path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}";
}

std::string one(const std::string& name, const std::string& dtype, const std::string& shape,
                const std::string& offsets) {
  return "{" + entry(name, dtype, shape, offsets) + "}";
}

std::string nested(int depth) { return std::string(static_cast<size_t>(depth), '['); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("safetensors: what the format allows is read") {
  const test::TempDir folder;
  const std::string b_then_a = "{" + entry("a", "F32", "1", "4,8") + "," + entry("b", "F32", "1", "0,4") + "}";
  CHECK(verdict(folder, file_of(b_then_a, zeros(8))) == "");
  CHECK(verdict(folder, file_of(one("a", "F32", "2", "0,8") + "     ", zeros(8))) == "");
  CHECK(verdict(folder, file_of("{\"__metadata__\":{\"k\":\"v\"}," + entry("a", "U8", "3", "0,3") + "}", zeros(3))) ==
        "");
  CHECK(verdict(folder, file_of(one("a", "F32", "0,4", "0,0"))) == "");
  CHECK(verdict(folder, file_of(one("a", "F32", "", "0,4"), zeros(4))) == "");
  CHECK(verdict(folder, file_of("{}")) == "");
  CHECK(verdict(folder, file_of("{\"a\":{\"dtype\":\"F32\",\"more\":{\"x\":[1,null,-2.5,{\"shape\":true}]},"
                                "\"shape\":[1],\"data_offsets\":[0,4]}}",
                                zeros(4))) == "");
  CHECK(verdict(folder, file_of(one("a", "F4", "4", "0,2"), zeros(2))) == "");
  // Rank 6, of no tensor here but of the format.
  CHECK(verdict(folder, file_of(one("a", "U8", "1,1,1,1,1,2", "0,2"), zeros(2))) == "");

  folder.write("escaped", file_of(one("\\u00e9\\n\\\"", "F32", "1", "0,4"), bytes_of<float>({2.5f})));
  const auto escaped = SafetensorsFile::open(folder / "escaped");
  CHECK(escaped.names() == std::vector<std::string>{"\xc3\xa9\n\""});
  CHECK(escaped.read("\xc3\xa9\n\"", Dtype::f32).item() == 2.5);

  folder.write("metadata", file_of("{\"__metadata__\":{\"k\":\"v\",\"l\":\"\"}}"));
  CHECK(SafetensorsFile::open(folder / "metadata").metadata() == SafetensorsMetadata{{"k", "v"}, {"l", ""}});
}

TEST_CASE("safetensors: what breaks the format is refused with one line that names the file") {
  const test::TempDir folder;
  struct Case {
    const char* label;
    std::string bytes;
    std::string message;
  };
  const std::string good = one("a", "F32", "2", "0,8");
  const std::vector<Case> cases = {
      {"hole at the start", file_of(one("a", "F32", "1", "4,8"), zeros(8)), "hole"},
      {"hole between", file_of("{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "U8", "1", "2,3") + "}", zeros(3)),
       "\"b\": its data comes after a hole"},
      {"overlap", file_of("{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "U8", "2", "1,3") + "}", zeros(3)),
       "overlaps"},
      {"same range", file_of("{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "U8", "2", "0,2") + "}", zeros(2)),
       "overlaps"},
      {"trailing bytes", file_of(good, zeros(9)), "1 bytes lie behind"},
      {"cut data", file_of(good, zeros(7)), "cut off"},
      {"begin behind end", file_of(one("a", "F32", "0", "4,0"), zeros(4)), "begin 4 lies behind end 0"},
      {"size", file_of(one("a", "F32", "3", "0,8"), zeros(8)), "got 8 bytes, want 12"},
      {"product overflow", file_of(one("a", "F32", "1099511627776,1099511627776", "0,8"), zeros(8)), "64 bits"},
      {"product overflow to zero", file_of(one("a", "F32", "4294967296,4294967296", "0,0")), "64 bits"},
      {"size over 63 bits", file_of(one("a", "F32", "18446744073709551615", "0,8"), zeros(8)), "shape is too large"},
      {"offset over 64 bits", file_of(one("a", "F32", "2", "0,18446744073709551624"), zeros(8)), "data_offsets"},
      {"unknown dtype", file_of(one("a", "Q4", "2", "0,8"), zeros(8)), "got \"Q4\", want one of F64"},
      {"lower case dtype", file_of(one("a", "f32", "2", "0,8"), zeros(8)), "dtype is unknown"},
      {"empty dtype", file_of(one("a", "", "2", "0,8"), zeros(8)), "dtype is unknown"},
      {"half bytes", file_of(one("a", "F4", "3", "0,2"), zeros(2)), "data_offsets is wrong"},
      {"negative size", file_of(one("a", "F32", "-2", "0,8"), zeros(8)), "shape is wrong; got -2"},
      {"fraction", file_of(one("a", "F32", "2.0", "0,8"), zeros(8)), "shape is wrong; got 2.0"},
      {"negative offset", file_of(one("a", "F32", "2", "-8,0"), zeros(8)), "data_offsets is wrong; got -8"},
      {"text for a size", file_of(one("a", "F32", "\"2\"", "0,8"), zeros(8)), "want whole numbers"},
      {"list for a size", file_of(one("a", "F32", "[2]", "0,8"), zeros(8)), "want whole numbers"},
      {"three offsets", file_of(one("a", "F32", "2", "0,8,8"), zeros(8)), "got 3 numbers"},
      {"no dtype", file_of("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", zeros(8)), "dtype is missing"},
      {"no shape", file_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", zeros(8)), "shape is missing"},
      {"no offsets", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", zeros(8)), "data_offsets is missing"},
      {"number for dtype", file_of("{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", zeros(8)),
       "dtype is wrong"},
      {"null for shape", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,8]}}", zeros(8)),
       "shape is wrong"},
      {"number for an entry", file_of("{\"a\":1}"), "want an object"},
      {"list for an entry", file_of("{\"a\":[1]}"), "want an object"},
      {"field twice",
       file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", zeros(8)),
       "\"dtype\" occurs twice"},
      {"name twice", file_of("{" + entry("a", "U8", "0", "0,0") + "," + entry("a", "U8", "0", "0,0") + "}"),
       "\"a\" occurs twice"},
      {"header a list", file_of("[1,2]"), "want a JSON object"},
      {"header begins with a space", file_of(" " + good, zeros(8)), "want a JSON object"},
      {"bytes after the JSON", file_of(good + "x", zeros(8)), "no valid JSON"},
      {"NUL after the JSON", file_of(good + zeros(1), zeros(8)), "NUL"},
      {"comment", file_of("{/**/}"), "no valid JSON"},
      {"open object", file_of("{\"a\":{"), "no valid JSON"},
      {"no JSON", file_of("{]"), "no valid JSON"},
      {"invalid UTF-8 name", file_of(one("\xff\xfe", "F32", "2", "0,8"), zeros(8)), "no valid JSON"},
      {"lone surrogate", file_of(one("\\ud800", "F32", "2", "0,8"), zeros(8)), "no valid JSON"},
      {"number out of range", file_of("{\"a\":1e999}"), "no valid JSON"},
      {"header length 0", with_length(0, ""), "header's length is 0"},
      {"header beyond the file", with_length(100, "{}"), "cut off"},
      {"header length 2^63", with_length(uint64_t{1} << 63, "{}"), "header's length"},
      {"header length 2^64 - 1", with_length(~uint64_t{0}, "{}"), "header's length"},
      {"header length over the most", with_length(100'000'001, "{}"), "header's length is 100000001"},
      {"empty file", "", "got 0 bytes"},
      {"7 bytes", zeros(7), "got 7 bytes"},
      {"number in metadata", file_of("{\"__metadata__\":{\"k\":1}}"), "\"k\" is wrong; got 1, want a string"},
      {"object in metadata", file_of("{\"__metadata__\":{\"k\":{}}}"), "want a string"},
      {"metadata a string", file_of("{\"__metadata__\":\"k\"}"), "want an object"},
      {"metadata twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "occurs twice"},
      {"deep nesting", file_of("{\"a\":{\"x\":" + nested(1'000'000)), "nested too deeply"},
      {"deep nesting at the top", file_of("{\"a\":" + nested(1'000'000)), "want an object"},
  };
  for (const Case& bad : cases) {
    CAPTURE(bad.label);
    const std::string message = verdict(folder, bad.bytes);
    CAPTURE(message);
    CHECK(contains(message, "f.safetensors: "));
    CHECK(contains(message, bad.message));
    CHECK(!contains(message, "\n"));
  }
  CHECK(contains(error_of([&] { SafetensorsFile::open(folder / "missing"); }), "No such file"));
  CHECK(contains(error_of([&] { SafetensorsFile::open(folder.path()); }), "no regular file"));
}

TEST_CASE("safetensors: bits of BF16 and F16") {
  const test::TempDir folder;
  const std::vector<uint16_t> bf16_bits = {0x3F80, 0xBF00, 0x4049, 0x7F80, 0x0001};
  const std::vector<uint16_t> f16_bits = {0x3C00, 0x0001, 0x03FF, 0xFBFF, 0x3555};
  folder.write("f", file_of("{" + entry("b", "BF16", "5", "0,10") + "," + entry("h", "F16", "5", "10,20") + "}",
                            bytes_of(bf16_bits) + bytes_of(f16_bits)));
  const auto file = SafetensorsFile::open(folder / "f");
  const auto b = file.read("b", Dtype::f32).to_doubles();
  CHECK(b[0] == 1.0);
  CHECK(b[1] == -0.5);
  CHECK(b[2] == 3.140625);
  CHECK(std::isinf(b[3]));
  CHECK(b[4] == doctest::Approx(9.1835e-41).epsilon(1e-4));
  const auto h = file.read("h", Dtype::f64).to_doubles();
  CHECK(h[0] == 1.0);
  CHECK(h[1] == doctest::Approx(5.9604645e-8).epsilon(1e-7));
  CHECK(h[2] == doctest::Approx(6.0975552e-5).epsilon(1e-7));
  CHECK(h[3] == -65504.0);
  CHECK(h[4] == doctest::Approx(0.33325195).epsilon(1e-7));

  // Through the writer: F32 to BF16 rounds to nearest even.
  write_safetensors(folder / "g", {{"x", Tensor::from<float>({1.0039f, 1.004f, 0.1f}, {3})}}, {}, StoredDtype::bf16);
  const auto rounded = SafetensorsFile::open(folder / "g");
  CHECK(rounded.info("x").dtype == "BF16");
  CHECK(rounded.read("x", Dtype::f32).to_doubles() == std::vector<double>{1.0, 1.0078125, 0.10009765625});
}

TEST_CASE("safetensors: F16 decodes and encodes every bit pattern, and rounds to nearest even") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float16_to_float(half);
    const bool is_nan = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0;
    if (std::isnan(value) != is_nan) FAIL("decoding ", bits);
    if (!is_nan && float_to_float16(value) != half) FAIL("encoding ", bits);
    if (is_nan && !std::isnan(float16_to_float(float_to_float16(value)))) FAIL("NaN ", bits);
    // The middle between two neighbours goes to the even one, what is beside it to the nearer one.
    if ((half & 0x7fff) >= 0x7bff) continue;
    const auto next = static_cast<uint16_t>(half + 1);
    const float middle = (value + float16_to_float(next)) / 2;
    if (float_to_float16(middle) != (half & 1 ? next : half)) FAIL("middle above ", bits);
    if (float_to_float16(std::nextafter(middle, value)) != half) FAIL("below the middle above ", bits);
    if (float_to_float16(std::nextafter(middle, float16_to_float(next))) != next) FAIL("beyond the middle of ", bits);
  }
  CHECK(float_to_float16(65519.99f) == 0x7bff);
  CHECK(float_to_float16(65520.0f) == 0x7c00);
  CHECK(float_to_float16(-1e30f) == 0xfc00);
}

TEST_CASE("safetensors: a file written is read, of mixed dtypes, aligned and sorted") {
  const test::TempDir folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {
      {"half", Tensor::from<bf16>({bf16(1.5f), bf16(-2.0f), bf16(0.0f)}, {3})},
      {"z.single", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
      {"double \"quoted\"\n", Tensor::from<double>({0.1}, {})},
      {"a.ids", Tensor::from<int32_t>({7, -8}, {2, 1, 1})},
      {"empty", Tensor::empty({0, 4}, Dtype::f32)}};
  write_safetensors(folder / "f", tensors, {{"made by", "t\xc3\xa9st"}});
  const auto file = SafetensorsFile::open(folder / "f");
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"made by", "t\xc3\xa9st"}});
  CHECK(file.names() == std::vector<std::string>{"double \"quoted\"\n", "a.ids", "empty", "z.single", "half"});
  for (const auto& entry : tensors) {
    CAPTURE(entry.first);
    const Tensor& tensor = entry.second;
    const Tensor got = file.read(entry.first, tensor.dtype());
    CHECK(got.shape() == tensor.shape());
    CHECK(std::memcmp(got.raw(), tensor.raw(), static_cast<size_t>(tensor.bytes())) == 0);
    CHECK(reinterpret_cast<uintptr_t>(file.bytes(entry.first).data()) %
              static_cast<uintptr_t>(size_of(tensor.dtype())) ==
          0);
  }
  const std::string bytes = test::read_file(folder / "f");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK((8 + length) % 8 == 0);
  CHECK(bytes[8] == '{');

  write_safetensors(folder / "again", tensors, {{"made by", "t\xc3\xa9st"}});
  CHECK(test::read_file(folder / "again") == bytes);
  write_safetensors(folder / "f16", tensors, {}, StoredDtype::f16);
  const auto halves = SafetensorsFile::open(folder / "f16");
  CHECK(halves.info("z.single").dtype == "F16");
  CHECK(halves.info("a.ids").dtype == "I32");
  CHECK(halves.read("z.single", Dtype::f32).to_doubles() == std::vector<double>{1, 2, 3, 4, 5, 6});
  write_safetensors(folder / "none", {});
  CHECK(SafetensorsFile::open(folder / "none").names().empty());
}

TEST_CASE("safetensors: wrong uses name the file and the tensor") {
  const test::TempDir folder;
  folder.write("f", file_of("{" + entry("deep", "U8", "1,1,1,1,1", "0,1") + "," + entry("wide", "I64", "2", "1,17") +
                                "," + entry("x", "F32", "2", "17,25") + "}",
                            zeros(1) + bytes_of<int64_t>({-5, int64_t{1} << 40}) + bytes_of<float>({1, 2})));
  const auto file = SafetensorsFile::open(folder / "f");
  CHECK(contains(error_of([&] { file.read("y", Dtype::f32); }), "f: tensor \"y\" is missing; the file has 3"));
  CHECK(contains(error_of([&] { file.read("deep", Dtype::f32); }), "\"deep\" has too many dimensions; got 5"));
  CHECK(contains(error_of([&] { file.read("wide", Dtype::f32); }), "got I64, want F32, BF16, F16 or F64"));
  CHECK(contains(error_of([&] { file.read("x", Dtype::i32); }), "got F32, want I32 or I64"));
  CHECK(contains(error_of([&] { file.read("wide", Dtype::i32); }), "element 1 is 1099511627776"));
  CHECK(contains(error_of([&] { file.read_into("x", Tensor::empty({1, 2}, Dtype::f32)); }), "got [2], want [1, 2]"));
  CHECK(file.read("x", Dtype::f64).to_doubles() == std::vector<double>{1, 2});
  CHECK(file.bytes("deep").size() == 1);

  const Tensor x = Tensor::from<float>({1e5f}, {1});
  CHECK(contains(error_of([&] {
                   write_safetensors(folder / "g", {{"x", x}}, {}, StoredDtype::f16);
                 }),
                 "\"x\": element 0 is 100000"));
  CHECK(contains(error_of([&] { write_safetensors(folder / "g", {{"x", x}, {"x", x}}); }), "\"x\" is there twice"));
  CHECK(contains(error_of([&] { write_safetensors(folder / "g", {{"__metadata__", x}}); }), "keeps for metadata"));
  CHECK(contains(error_of([&] { write_safetensors(folder / "g", {{"\xff", x}}); }), "no valid UTF-8"));
  CHECK(contains(error_of([&] { write_safetensors(folder / "g", {{"x", Tensor()}}); }), "cannot be written"));
  CHECK(!std::filesystem::exists(folder / "g"));
  const Tensor infinite = Tensor::from<float>({INFINITY}, {1});
  write_safetensors(folder / "g", {{"x", infinite}}, {}, StoredDtype::f16);
  CHECK(std::isinf(SafetensorsFile::open(folder / "g").read("x", Dtype::f32).item()));
}

TEST_CASE("safetensors: mutated files are read or refused, never worse") {
  const test::TempDir folder;
  const std::string good = file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "2,3", "0,24") + "," +
                                       entry("b", "BF16", "4", "24,32") + "," + entry("c", "I64", "", "32,40") + "}",
                                   zeros(40));
  const std::string alphabet = "{}[]\",:0123456789-.eEF\\u \xff\x80";
  std::mt19937 random(20240601);
  const auto below = [&](size_t n) { return random() % n; };
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    for (size_t edits = 1 + below(3); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = below(round % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 16));
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = alphabet[below(alphabet.size())];
          break;
        case 2:
          bytes.erase(at, 1 + below(4));
          break;
        case 3:
          bytes.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        default:
          bytes.resize(at);
      }
    }
    const auto path = folder.write("m", bytes);
    try {
      const auto file = SafetensorsFile::open(path);
      ++accepted;
      for (const std::string& name : file.names()) {
        for (const Dtype dtype : {Dtype::f32, Dtype::i32}) error_of([&] { file.read(name, dtype); });
      }
    } catch (const UsageError& error) {
      if (std::string(error.what()).find('\n') != std::string::npos) FAIL("a message of several lines");
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < 4000);
}

TEST_CASE("safetensors: files of the official library") {
  SKIP_WITHOUT_SHARED("hf/gpt2_f16_gelu_untied/model.safetensors");
  const test::TempDir folder;
  for (const char* name : {"hf/gpt2_f16_gelu_untied", "hf/gpt2_bf16_wide", "hf/gpt2_f32", "hf/llama_gqa"}) {
    CAPTURE(name);
    const auto path = test::shared_file(std::string(name) + "/model.safetensors");
    const auto file = SafetensorsFile::open(path);
    CHECK(file.metadata().at("format") == "pt");
    const std::string dtype = file.info(file.names()[0]).dtype;
    const bool is_f16 = dtype == "F16";
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& tensor : file.names()) {
      tensors.emplace_back(tensor, file.read(tensor, dtype == "BF16" ? Dtype::bf16 : Dtype::f32));
    }
    write_safetensors(folder / "copy", tensors, file.metadata(), is_f16 ? StoredDtype::f16 : StoredDtype::as_is);
    CHECK(test::read_file(folder / "copy") == test::read_file(path));
  }
}

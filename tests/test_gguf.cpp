#include <doctest/doctest.h>

#include <cstring>

#include "data/bpe/byte_alphabet.h"
#include "data/gguf_tokenizer.h"
#include "engine/core/error.h"
#include "engine/io/gguf.h"
#include "model/gguf_model.h"
#include "model/hf_export.h"
#include "tests/support/random_models.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using namespace taper::test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Tensor counting(const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, Dtype::f32);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = 0.5f * float(i) - 3;
  return tensor;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string error_of(const std::filesystem::path& path) {
  try {
    const GgufFile file = GgufFile::open(path);
    for (const std::string& name : file.names()) file.read(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("gguf: the bytes of a small file") {
  const TempDir folder;
  write_gguf(folder / "a.gguf", {{"k", uint32_t{7}}}, {{"ab", counting({2, 3}), StoredDtype::f32}});
  const std::string bytes = test::read_file(folder / "a.gguf");
  CHECK(bytes.substr(0, 4) == "GGUF");
  CHECK(number_at<uint32_t>(bytes, 4) == 3);
  CHECK(number_at<uint64_t>(bytes, 8) == 1);
  CHECK(number_at<uint64_t>(bytes, 16) == 1);
  CHECK(number_at<uint64_t>(bytes, 24) == 1);  // the key's length
  CHECK(bytes[32] == 'k');
  CHECK(number_at<uint32_t>(bytes, 33) == 4);  // u32
  CHECK(number_at<uint32_t>(bytes, 37) == 7);
  CHECK(number_at<uint64_t>(bytes, 41) == 2);
  CHECK(bytes.substr(49, 2) == "ab");
  CHECK(number_at<uint32_t>(bytes, 51) == 2);
  CHECK(number_at<uint64_t>(bytes, 55) == 3);  // innermost first
  CHECK(number_at<uint64_t>(bytes, 63) == 2);
  CHECK(number_at<uint32_t>(bytes, 71) == 0);  // F32
  CHECK(number_at<uint64_t>(bytes, 75) == 0);  // offset
  CHECK(bytes.size() == 96 + 32);              // header padded from 83, data from 24
  CHECK(number_at<float>(bytes, 96) == -3);
}

TEST_CASE("gguf: values and tensors of every type come back") {
  const TempDir folder;
  const GgufMetadata metadata{{"a", uint32_t{1}},
                              {"b", int32_t{-2}},
                              {"c", 0x1p40f},
                              {"d", true},
                              {"e", std::string("text")},
                              {"f", std::vector<std::string>{"x", "", "\xC4\xA0y"}},
                              {"g", std::vector<int32_t>{1, 3}}};
  const Tensor values = counting({5, 7});
  write_gguf(folder / "a.gguf", metadata,
             {{"f32", values, StoredDtype::f32},
              {"f16", values, StoredDtype::f16},
              {"bf16", values, StoredDtype::bf16},
              {"v", counting({9}), StoredDtype::f32}});
  const GgufFile file = GgufFile::open(folder / "a.gguf");
  CHECK(file.metadata() == std::map<std::string, GgufValue>(metadata.begin(), metadata.end()));
  for (const char* name : {"f32", "f16", "bf16"}) {
    CHECK(file.read(name).shape() == Shape{5, 7});
    CHECK(file.read(name).to_doubles() == values.to_doubles());
  }
  CHECK(file.dtype("f16") == StoredDtype::f16);
  CHECK(file.read("v").to_doubles() == counting({9}).to_doubles());
  CHECK_THROWS_AS(file.read("w"), UsageError);
  CHECK_THROWS_AS(file.get<float>("a"), UsageError);
  CHECK_THROWS_AS(file.get<float>("z"), UsageError);
  const Tensor large = Tensor::full({2}, 1e6, Dtype::f32);
  CHECK_THROWS_AS(write_gguf(folder / "b.gguf", {}, {{"x", large, StoredDtype::f16}}), Error);
  CHECK_THROWS_AS(write_gguf(folder / "b.gguf", {}, {{"x", large, {}}, {"x", large, {}}}), Error);
  CHECK_THROWS_AS(write_gguf(folder / "b.gguf", {}, {{std::string(64, 'x'), large, {}}}), Error);
  CHECK_FALSE(std::filesystem::exists(folder / "b.gguf"));
}

TEST_CASE("gguf: damage is one line, never a crash") {
  const TempDir folder;
  write_gguf(folder / "a.gguf", {{"k", std::vector<std::string>{"x", "yy"}}, {"n", uint32_t{4}}},
             {{"t", counting({4, 3}), StoredDtype::f16}, {"u", counting({3}), StoredDtype::f32}});
  const std::string good = test::read_file(folder / "a.gguf");
  CHECK(error_of(folder / "a.gguf").empty());
  for (size_t size = 0; size < good.size() - 20; ++size) {
    CHECK_FALSE(error_of(folder.write("b.gguf", good.substr(0, size))).empty());
  }
  uint32_t state = 3;
  for (int round = 0; round < 2000; ++round) {
    std::string spoilt = good;
    state = state * 1664525u + 1013904223u;
    spoilt[(state >> 8) % 190] = static_cast<char>(state >> 2);
    CHECK(error_of(folder.write("b.gguf", spoilt)).find('\n') == std::string::npos);
  }
  CHECK(contains(error_of(folder.write("c.gguf", "PK\3\4" + std::string(60, ' '))), "is no GGUF file"));
  CHECK(contains(error_of(folder / "none"), "cannot be opened"));
  CHECK(contains(error_of(folder.path()), "cannot be opened"));
}

TEST_CASE("gguf: models come back as the same function, in each form") {
  const TempDir folder;
  const auto check = [&folder](const ModelConfig& config, StoredDtype stored, double tolerance) {
    const std::filesystem::path path = folder / "a.gguf";
    std::filesystem::remove(path);
    const Transformer model = random_model(config);
    ExportOptions options;
    options.stored = stored;
    const ExportResult result = export_gguf(model, path, options);
    CAPTURE(result.form);
    CHECK(logit_distance(sample_logits(model), sample_logits(load_gguf_model(path))) <= tolerance);
    return GgufFile::open(path);
  };
  for (const char* arch : {"gpt2", "taper", "llama"}) {
    CAPTURE(arch);
    check(small_config(arch), StoredDtype::f32, 1e-4);
    check(small_config(arch, Variant::all), StoredDtype::f32, 1e-4);
    check(small_config(arch, Variant::all), StoredDtype::bf16, 0.1);
    check(small_config(arch, Variant::all), StoredDtype::f16, 1e-2);
    if (std::string(arch) != "llama") check(small_config(arch, Variant::internal), StoredDtype::f32, 2e-4);
  }
  const GgufFile half = check(small_config("gpt2", Variant::internal), StoredDtype::f16, 1e-2);
  CHECK(half.get<float>("gpt2.attention.layer_norm_epsilon") == 0x1p40f);
  CHECK(half.get<uint32_t>("gpt2.block_count") == 3);
  CHECK(half.dtype("blk.0.ffn_up.weight") == StoredDtype::f16);
  CHECK(half.dtype("blk.2.ffn_up.weight") == StoredDtype::f32);
  CHECK(half.dtype("position_embd.weight") == StoredDtype::f32);
  CHECK(half.dtype("blk.0.attn_norm.weight") == StoredDtype::f32);
  CHECK(half.read("blk.0.ffn_up.weight").shape() == Shape{64, 16});
  ModelConfig biased = small_config("llama");
  biased.has_bias = true;
  biased.is_tied = false;
  biased.rope_scaling = RopeScaling::linear;
  biased.rope_factor = 2;
  check(biased, StoredDtype::f32, 1e-4);
}

TEST_CASE("gguf: rows of q and k are paired, v stays") {
  const TempDir folder;
  ModelConfig config = small_config("llama");
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 8;
  const Transformer model = random_model(config);
  export_gguf(model, folder / "a.gguf", {});
  const GgufFile file = GgufFile::open(folder / "a.gguf");
  const Tensor qkv = model.parameter("h.0.attn.qkv.weight").master;
  const Tensor q = file.read("blk.0.attn_q.weight"), v = file.read("blk.0.attn_v.weight");
  const int64_t order[] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t from = row / 8 * 8 + order[row % 8];
    CHECK(q.rows(row, row + 1).to_doubles() == qkv.rows(from, from + 1).to_doubles());
  }
  CHECK(v.to_doubles() == qkv.rows(24, 32).to_doubles());
}

TEST_CASE("gguf: keys have the types llama.cpp wants, the tokenizer its bytes") {
  const TempDir folder;
  Vocabulary vocabulary;
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.added.push_back({std::string(kEndOfText), 0, true});
  for (const uint8_t byte : bytes_in_alphabet_order()) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.emplace_back(" a");
  const auto id_of = [&](char byte) { return byte_ids(vocabulary, "")[static_cast<unsigned char>(byte)]; };
  vocabulary.merges.push_back({id_of(' '), id_of('a'), 257});
  ModelConfig config = small_config("gpt2");
  config.vocab_size = 260;
  ExportOptions options;
  const Tokenizer tokenizer(vocabulary);
  options.tokenizer = {tokenizer.vocab_size(), {}, [&](int64_t size) { return gguf_tokenizer(tokenizer, size, 0, 0); }};
  export_gguf(random_model(config), folder / "a.gguf", options);
  const GgufFile file = GgufFile::open(folder / "a.gguf");
  CHECK(file.get<std::string>("general.architecture") == "gpt2");
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"}) {
    CHECK(file.get<uint32_t>(std::string("gpt2.") + key) > 0);
  }
  CHECK(file.get<float>("gpt2.attention.layer_norm_epsilon") == 1e-5f);
  CHECK(file.get<std::string>("tokenizer.ggml.model") == "gpt2");
  CHECK(file.get<std::string>("tokenizer.ggml.pre") == "gpt-2");
  const auto& tokens = file.get<std::vector<std::string>>("tokenizer.ggml.tokens");
  REQUIRE(tokens.size() == 260);
  CHECK(tokens[0] == kEndOfText);
  CHECK(tokens[257] ==
        "\xC4\xA0"
        "a");
  CHECK(file.get<std::vector<int32_t>>("tokenizer.ggml.token_type")[0] == 3);
  CHECK(file.get<std::vector<int32_t>>("tokenizer.ggml.token_type")[259] == 5);
  CHECK(file.get<std::vector<std::string>>("tokenizer.ggml.merges") == std::vector<std::string>{"\xC4\xA0 a"});
  CHECK(file.get<uint32_t>("tokenizer.ggml.eos_token_id") == 0);
  CHECK_FALSE(file.get<bool>("tokenizer.ggml.add_bos_token"));
}

TEST_CASE("gguf: what llama.cpp has no graph for is refused") {
  const TempDir folder;
  const auto refusal = [&](ModelConfig config, ExportRoute route = ExportRoute::automatic) {
    ExportOptions options;
    options.route = route;
    try {
      export_gguf(random_model(config), folder / "a.gguf", options);
    } catch (const UsageError& error) {
      CHECK(std::filesystem::is_empty(folder.path()));
      return std::string(error.what());
    }
    return std::string();
  };
  ModelConfig config = small_config("gpt2");
  config.activation = Activation::gelu_erf;
  CHECK(contains(refusal(config), "the tanh form of GELU alone"));
  CHECK(contains(refusal(small_config("llama", Variant::internal)), "a gated MLP cannot make up for that"));
  CHECK(contains(refusal(small_config("taper"), ExportRoute::imagegpt), "no architecture for ImageGPT"));
  CHECK(contains(refusal(small_config("taper"), ExportRoute::custom), "GGUF runs no code of its own"));
}

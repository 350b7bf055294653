#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "data/token_files.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "model/hf_import.h"
#include "model/hf_weights.h"
#include "model/model_folder.h"
#include "tests/support/hf_folder.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "train/evaluate.h"

using namespace taper;
using namespace taper::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json json_of(const fs::path& file) { return json::parse(test::read_file(file)); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The known answers of a folder: its loss over the rows, the logits at their ends.
void check_known_answers(const char* name, double loss_tolerance, double logit_tolerance) {
  const fs::path folder = test::shared_file(fs::path("hf") / name);
  const json expected = json_of(folder / "expected.json");
  const Transformer model = load_model(folder);
  model.set_requires_grad(false);
  const auto rows = expected["ids"].get<std::vector<std::vector<int32_t>>>();
  const RowsEvaluation got = evaluate_rows(model, Gate{}, rows);
  const double want_loss = expected["loss"];
  CHECK(std::abs(got.loss.value() - want_loss) <= loss_tolerance);
  double worst = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto want = expected["last_logits"][row].get<std::vector<double>>();
    REQUIRE(want.size() == got.last_logits[row].size());
    for (size_t v = 0; v < want.size(); ++v) worst = std::max(worst, std::abs(want[v] - got.last_logits[row][v]));
  }
  CHECK(worst <= logit_tolerance);
}

}  // namespace

TEST_CASE("hf import: known answers of gpt2_f32") {
  SKIP_WITHOUT_SHARED("hf/gpt2_f32");
  check_known_answers("gpt2_f32", 1e-5, 1e-4);
}
TEST_CASE("hf import: known answers of gpt2_bf16_wide") {
  SKIP_WITHOUT_SHARED("hf/gpt2_bf16_wide");
  check_known_answers("gpt2_bf16_wide", 1e-5, 1e-4);
}
TEST_CASE("hf import: known answers of gpt2_f16_gelu_untied") {
  SKIP_WITHOUT_SHARED("hf/gpt2_f16_gelu_untied");
  check_known_answers("gpt2_f16_gelu_untied", 1e-5, 1e-4);
}
TEST_CASE("hf import: known answers of llama_gqa") {
  SKIP_WITHOUT_SHARED("hf/llama_gqa");
  check_known_answers("llama_gqa", 1e-5, 1e-4);
}
TEST_CASE("hf import: known answers of llama_tied_bf16") {
  SKIP_WITHOUT_SHARED("hf/llama_tied_bf16");
  check_known_answers("llama_tied_bf16", 1e-5, 1e-4);
}

TEST_CASE("hf import: gpt2_stories, trained elsewhere, has its loss on the stories") {
  SKIP_WITHOUT_SHARED("hf/gpt2_stories");
  SKIP_WITHOUT_SHARED("tinystories/valid.txt");
  const fs::path folder = test::shared_file("hf/gpt2_stories");
  const json expected = json_of(folder / "expected.json");
  const Transformer model = load_model(folder);
  model.set_requires_grad(false);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::string text = test::read_file(test::shared_file("tinystories/valid.txt"));
  const std::vector<int32_t> ids = tokenizer.encode(text, Special::kMarker);
  CHECK(int64_t(ids.size()) == expected["valid"]["tokens"]);
  const auto first = expected["first_valid_ids"].get<std::vector<int32_t>>();
  CHECK(std::vector<int32_t>(ids.begin(), ids.begin() + int64_t(first.size())) == first);
  const auto prompt = expected["prompt_ids"].get<std::vector<int32_t>>();
  CHECK(tokenizer.encode("Once upon a time", Special::kText) == prompt);
  std::vector<int32_t> greedy = prompt;
  const auto want = expected["greedy"].get<std::vector<int32_t>>();
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<double> last = evaluate_rows(model, Gate{}, {greedy}).last_logits[0];
    greedy.push_back(int32_t(std::max_element(last.begin(), last.end()) - last.begin()));
  }
  CHECK(std::vector<int32_t>(greedy.begin() + int64_t(prompt.size()), greedy.end()) == want);
  const Evaluation result = evaluate(model, Gate{}, windows_of(ids, "valid.txt", 256), &tokenizer);
  CHECK(result.tokens == expected["valid"]["predicted_tokens"]);
  CHECK(std::abs(result.loss - expected["valid"]["loss"].get<double>()) <= 1e-4);
}

TEST_CASE("hf import: names with and without prefix, mask buffers left out") {
  SmallHfFolder bare, prefixed;
  bare.add("h.0.attn.bias", {1, 1, 6, 6});
  bare.add("h.0.attn.masked_bias", {});
  for (auto& entry : prefixed.tensors) entry.first = "transformer." + entry.first;
  CHECK(logits_of(load_model(bare.write())) == logits_of(load_model(prefixed.write())));
  prefixed.add("wte.weight", {11, 4});
  const std::string error = prefixed.error();
  CHECK(contains(error, "is there twice"));
  CHECK(contains(error, "\"transformer.wte.weight\""));
}

TEST_CASE("hf import: GPT-2's matrices are stored [in, out], square ones too") {
  SmallHfFolder folder;
  const Transformer model = load_model(folder.write());
  const std::pair<const char*, const char*> matrices[] = {{"h.0.attn.c_attn.weight", "h.0.attn.qkv.weight"},
                                                          {"h.0.attn.c_proj.weight", "h.0.attn.out.weight"},
                                                          {"h.0.mlp.c_fc.weight", "h.0.mlp.up.weight"},
                                                          {"h.0.mlp.c_proj.weight", "h.0.mlp.down.weight"}};
  for (const auto& [theirs, ours] : matrices) {
    const Tensor& stored = folder.at(theirs);
    const Tensor& master = model.parameter(ours).master;
    REQUIRE(master.shape() == Shape{stored.dim(1), stored.dim(0)});
    for (int64_t i = 0; i < stored.dim(0); ++i) {
      for (int64_t o = 0; o < stored.dim(1); ++o) {
        CHECK(master.data<float>()[o * stored.dim(0) + i] == stored.data<float>()[i * stored.dim(1) + o]);
      }
    }
  }
  CHECK(contains(load_error([&] {
                   folder.at("h.0.attn.c_attn.weight") = folder.at("h.0.attn.c_attn.weight").reshaped({12, 4});
                   return folder.write();
                 }()),
                 "transformer.h.0.attn.c_attn.weight has the wrong shape, got [12, 4], want [4, 12]"));
}

TEST_CASE("hf import: the unembedding is tied where it is absent or equal, its own where it differs") {
  std::string said;
  const auto say = [&said](std::string_view text) { said = text; };
  SmallHfFolder absent;
  CHECK(load_model(absent.write(), Precision::f32, say).config().is_tied);
  CHECK(said.empty());
  absent.config["tie_word_embeddings"] = false;
  CHECK(load_model(absent.write(), Precision::f32, say).config().is_tied);
  CHECK(contains(said, "lm_head.weight is absent"));

  SmallHfFolder equal;
  equal.tensors.emplace_back("lm_head.weight", equal.at("wte.weight").clone());
  CHECK(load_model(equal.write()).config().is_tied);

  SmallHfFolder different;
  different.add("lm_head.weight", {11, 4});
  said.clear();
  const Transformer model = load_model(different.write(), Precision::f32, say);
  CHECK_FALSE(model.config().is_tied);
  CHECK(contains(said, "the unembedding is its own, though config.json says tied"));
  CHECK(logits_of(model) != logits_of(load_model(equal.write())));
  different.config["tie_word_embeddings"] = false;
  said.clear();
  CHECK_FALSE(load_model(different.write(), Precision::f32, say).config().is_tied);
  CHECK(said.empty());
}

TEST_CASE("hf import: all that is missing or unknown is listed") {
  SmallHfFolder folder;
  std::erase_if(folder.tensors,
                [](const auto& entry) { return entry.first == "h.0.ln_1.bias" || entry.first == "ln_f.weight"; });
  folder.add("h.1.ln_1.weight", {4});
  folder.add("score.weight", {2, 4});
  const std::string error = folder.error();
  for (const char* part :
       {"model.safetensors", "transformer.h.0.ln_1.bias is missing", "transformer.ln_f.weight is missing",
        "\"transformer.h.1.ln_1.weight\" is unknown", "\"transformer.score.weight\" is unknown"}) {
    CAPTURE(part);
    CHECK(contains(error, part));
  }
  CHECK_THROWS_AS(load_model(folder.write()), UsageError);
}

TEST_CASE("hf import: bits of BF16 and F16") {
  SmallHfFolder folder;
  folder.config["vocab_size"] = 5;
  folder.config["n_embd"] = 1;
  folder.config["n_head"] = 1;
  const auto file_with = [&](const char* dtype, const std::vector<uint16_t>& bits) {
    std::string header = "{";
    int64_t at = 0;
    std::string data;
    for (auto& [name, tensor] : SmallHfFolder().tensors) {
      std::vector<int64_t> shape(tensor.shape().dims, tensor.shape().dims + tensor.shape().rank);
      for (int64_t& size : shape) size = size == 4 ? 1 : size == 16 ? 4 : size == 12 ? 3 : size == 11 ? 5 : size;
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      if (header.size() > 1) header += ",";
      header += json(name).dump() + ":" +
                json({{"dtype", dtype}, {"shape", shape}, {"data_offsets", {at, at + 2 * count}}}).dump();
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t value = name == "wte.weight" ? bits[size_t(i)] : 0;
        data.append(reinterpret_cast<const char*>(&value), 2);
      }
      at += 2 * count;
    }
    header += "}";
    const uint64_t length = header.size();
    folder.temp.write("config.json", folder.config.dump());
    folder.temp.write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
    return load_model(folder.temp.path()).parameter("wte.weight").master.to_doubles();
  };
  const std::vector<double> brain = file_with("BF16", {0x3F80, 0xBF00, 0x4049, 0x7F80, 0x0001});
  CHECK(brain[0] == 1);
  CHECK(brain[1] == -0.5);
  CHECK(brain[2] == 3.140625);
  CHECK(std::isinf(brain[3]));
  CHECK(brain[4] == doctest::Approx(9.1835e-41).epsilon(1e-4));
  const std::vector<double> half = file_with("F16", {0x3C00, 0x0001, 0x03FF, 0xFBFF, 0x3555});
  CHECK(half[0] == 1);
  CHECK(half[1] == 0x1p-24);
  CHECK(half[2] == doctest::Approx(6.0975552e-5).epsilon(1e-7));
  CHECK(half[3] == -65504);
  CHECK(half[4] == doctest::Approx(0.33325195).epsilon(1e-7));
}

TEST_CASE("hf import: several files with an index, which may not lead out of the folder") {
  SmallHfFolder folder;
  const std::vector<double> want = logits_of(load_model(folder.write()));
  fs::remove(folder.temp / "model.safetensors");
  json map;
  const size_t half = folder.tensors.size() / 2;
  const NamedTensors first(folder.tensors.begin(), folder.tensors.begin() + int64_t(half));
  const NamedTensors second(folder.tensors.begin() + int64_t(half), folder.tensors.end());
  for (const auto& entry : first) map[entry.first] = "a.safetensors";
  for (const auto& entry : second) map[entry.first] = "b.safetensors";
  write_safetensors(folder.temp / "a.safetensors", first);
  write_safetensors(folder.temp / "b.safetensors", second);
  const auto with_index = [&](const json& index) {
    folder.temp.write("model.safetensors.index.json", index.dump());
    return load_error(folder.temp.path());
  };
  CHECK(with_index({{"metadata", {{"total_size", 1}}}, {"weight_map", map}}).empty());
  CHECK(logits_of(load_model(folder.temp.path())) == want);
  for (const char* outside : {"../a.safetensors", "/etc/passwd", "..", "", "x/../a.safetensors"}) {
    json bad = map;
    bad["wte.weight"] = outside;
    CHECK(contains(with_index({{"weight_map", bad}}), "its file lies outside the folder"));
  }
  json bad = map;
  bad["wte.weight"] = "b.safetensors";
  CHECK(contains(with_index({{"weight_map", bad}}), "tensor \"wte.weight\" is not in its file, b.safetensors"));
  bad = map;
  bad.erase("wte.weight");
  CHECK(contains(with_index({{"weight_map", bad}}), "tensor \"wte.weight\" of a.safetensors is not listed"));
  bad = map;
  bad["wte.weight"] = "c.safetensors";
  CHECK(contains(with_index({{"weight_map", bad}}), "c.safetensors"));
  bad["wte.weight"] = 3;
  CHECK(contains(with_index({{"weight_map", bad}}), "got number, want the name of a file"));
  CHECK(contains(with_index({{"weight_map", 1}}), "weight_map is missing"));
  CHECK(contains(with_index("x"), "weight_map is missing"));
}

TEST_CASE("hf import: llama biases in attention, in the MLP, or in both") {
  const auto add_biases = [](SmallHfFolder& folder, bool attention, bool mlp) {
    if (attention) {
      for (const char* name : {"q", "k", "v", "o"}) {
        const bool is_wide = *name == 'q' || *name == 'o';
        folder.add("model.layers.0.self_attn." + std::string(name) + "_proj.bias", {is_wide ? 8 : 4});
      }
    }
    if (mlp) {
      for (const char* name : {"gate", "up", "down"}) {
        folder.add("model.layers.0.mlp." + std::string(name) + "_proj.bias", {*name == 'd' ? 8 : 6});
      }
    }
    folder.config["attention_bias"] = attention;
    folder.config["mlp_bias"] = mlp;
  };
  SmallHfFolder none(true), attention(true), both(true), surplus(true);
  add_biases(attention, true, false);
  add_biases(both, true, true);
  add_biases(surplus, true, false);
  surplus.config["attention_bias"] = false;
  const std::vector<double> a = logits_of(load_model(none.write())), b = logits_of(load_model(attention.write())),
                            c = logits_of(load_model(both.write()));
  CHECK(a != b);
  CHECK(b != c);
  CHECK(contains(surplus.error(), "q_proj.bias\" is unknown"));
}

TEST_CASE("hf import: damage is one line, never a crash") {
  SmallHfFolder folder;
  folder.write();
  const std::string file = test::read_file(folder.temp / "model.safetensors");
  for (size_t size = 0; size < file.size(); size += 1 + size / 3) {
    folder.temp.write("model.safetensors", file.substr(0, size));
    CHECK_FALSE(load_error(folder.temp.path()).empty());
  }
  uint32_t state = 7;
  for (int round = 0; round < 300; ++round) {
    std::string spoilt = file;
    for (int change = 0; change < 3; ++change) {
      state = state * 1664525u + 1013904223u;
      spoilt[(state >> 8) % 1200] = static_cast<char>(state >> 3);
    }
    folder.temp.write("model.safetensors", spoilt);
    const std::string error = load_error(folder.temp.path());
    CHECK(error.find('\n') == std::string::npos);
  }
  folder.temp.write("model.safetensors", file);
  const std::string config = folder.config.dump();
  for (int round = 0; round < 300; ++round) {
    std::string spoilt = config;
    state = state * 1664525u + 1013904223u;
    spoilt[(state >> 8) % spoilt.size()] = static_cast<char>(state >> 3);
    folder.temp.write("config.json", spoilt);
    load_error(folder.temp.path());
  }
  folder.temp.write("config.json", "[]");
  CHECK(contains(load_error(folder.temp.path()), "config.json"));
  folder.config["vocab_size"] = 2000000000;
  CHECK(contains(folder.error(), "too small for config.json"));
}

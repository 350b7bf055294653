#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "data/token_files.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "model/attention.h"
#include "model/hf_import.h"
#include "model/hf_weights.h"
#include "model/model_folder.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "train/evaluate.h"

using namespace taper;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Tensors2 = std::vector<std::pair<std::string, Tensor>>;

json json_of(const fs::path& file) { return json::parse(test::read_file(file)); }

std::string error_of(const fs::path& folder) {
  try {
    load_model(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

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
  CHECK(std::abs(got.loss - want_loss) <= loss_tolerance);
  double worst = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto want = expected["last_logits"][row].get<std::vector<double>>();
    REQUIRE(want.size() == got.last_logits[row].size());
    for (size_t v = 0; v < want.size(); ++v) worst = std::max(worst, std::abs(want[v] - got.last_logits[row][v]));
  }
  CHECK(worst <= logit_tolerance);
  MESSAGE(name << ": loss off by " << got.loss - want_loss << ", logits by " << worst);
}

// A small folder whose parts a test may spoil.
struct SmallFolder {
  test::TempDir temp;
  json config;
  Tensors2 tensors;

  explicit SmallFolder(bool is_llama = false) {
    if (is_llama) {
      config = {{"model_type", "llama"},      {"vocab_size", 11},
                {"hidden_size", 8},           {"intermediate_size", 6},
                {"num_hidden_layers", 1},     {"num_attention_heads", 2},
                {"num_key_value_heads", 1},   {"max_position_embeddings", 16},
                {"tie_word_embeddings", true}};
      add("model.embed_tokens.weight", {11, 8});
      add("model.layers.0.input_layernorm.weight", {8});
      for (const char* name : {"q", "k", "v"}) {
        add("model.layers.0.self_attn." + std::string(name) + "_proj.weight", {*name == 'q' ? 8 : 4, 8});
      }
      add("model.layers.0.self_attn.o_proj.weight", {8, 8});
      add("model.layers.0.post_attention_layernorm.weight", {8});
      add("model.layers.0.mlp.gate_proj.weight", {6, 8});
      add("model.layers.0.mlp.up_proj.weight", {6, 8});
      add("model.layers.0.mlp.down_proj.weight", {8, 6});
      add("model.norm.weight", {8});
      return;
    }
    config = {{"model_type", "gpt2"}, {"vocab_size", 11}, {"n_positions", 6},
              {"n_embd", 4},          {"n_layer", 1},     {"n_head", 2}};
    add("wte.weight", {11, 4});
    add("wpe.weight", {6, 4});
    const std::pair<const char*, Shape> block[] = {{"ln_1.weight", {4}},
                                                   {"ln_1.bias", {4}},
                                                   {"attn.c_attn.weight", {4, 12}},
                                                   {"attn.c_attn.bias", {12}},
                                                   {"attn.c_proj.weight", {4, 4}},
                                                   {"attn.c_proj.bias", {4}},
                                                   {"ln_2.weight", {4}},
                                                   {"ln_2.bias", {4}},
                                                   {"mlp.c_fc.weight", {4, 16}},
                                                   {"mlp.c_fc.bias", {16}},
                                                   {"mlp.c_proj.weight", {16, 4}},
                                                   {"mlp.c_proj.bias", {4}}};
    for (const auto& [name, shape] : block) add("h.0." + std::string(name), shape);
    add("ln_f.weight", {4});
    add("ln_f.bias", {4});
  }
  void add(const std::string& name, const Shape& shape) {
    const Tensor tensor = Tensor::empty(shape, Dtype::f32);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      tensor.data<float>()[i] = 0.125f * float((i * 7 + int64_t(tensors.size()) * 3) % 17 - 8);
    }
    tensors.emplace_back(name, tensor);
  }
  Tensor& at(const std::string& name) {
    for (auto& [known, tensor] : tensors) {
      if (known == name) return tensor;
    }
    FAIL("no tensor of that name");
    return tensors[0].second;
  }
  const fs::path& write() {
    temp.write("config.json", config.dump());
    write_safetensors(temp / "model.safetensors", tensors);
    return temp.path();
  }
  std::string error() { return error_of(write()); }
};

std::vector<double> logits_of(const Transformer& model) {
  model.set_requires_grad(false);
  return model.logits(Tensor::from(std::vector<int32_t>{1, 5, 3, 9}, {1, 4}), Gate{}).to_doubles();
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
  SmallFolder bare, prefixed;
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
  SmallFolder folder;
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
  CHECK(contains(error_of([&] {
                   folder.at("h.0.attn.c_attn.weight") = folder.at("h.0.attn.c_attn.weight").reshaped({12, 4});
                   return folder.write();
                 }()),
                 "transformer.h.0.attn.c_attn.weight has the wrong shape, got [12, 4], want [4, 12]"));
}

TEST_CASE("hf import: the unembedding is tied where it is absent or equal, its own where it differs") {
  std::string said;
  const auto say = [&said](std::string_view text) { said = text; };
  SmallFolder absent;
  CHECK(load_model(absent.write(), Precision::f32, say).config().is_tied);
  CHECK(said.empty());
  absent.config["tie_word_embeddings"] = false;
  CHECK(load_model(absent.write(), Precision::f32, say).config().is_tied);
  CHECK(contains(said, "lm_head.weight is absent"));

  SmallFolder equal;
  equal.tensors.emplace_back("lm_head.weight", equal.at("wte.weight").clone());
  CHECK(load_model(equal.write()).config().is_tied);

  SmallFolder different;
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
  SmallFolder folder;
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
  SmallFolder folder;
  folder.config["vocab_size"] = 5;
  folder.config["n_embd"] = 1;
  folder.config["n_head"] = 1;
  const auto file_with = [&](const char* dtype, const std::vector<uint16_t>& bits) {
    std::string header = "{";
    int64_t at = 0;
    std::string data;
    for (auto& [name, tensor] : SmallFolder().tensors) {
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
  SmallFolder folder;
  const std::vector<double> want = logits_of(load_model(folder.write()));
  fs::remove(folder.temp / "model.safetensors");
  json map;
  const size_t half = folder.tensors.size() / 2;
  const Tensors2 first(folder.tensors.begin(), folder.tensors.begin() + int64_t(half));
  const Tensors2 second(folder.tensors.begin() + int64_t(half), folder.tensors.end());
  for (const auto& entry : first) map[entry.first] = "a.safetensors";
  for (const auto& entry : second) map[entry.first] = "b.safetensors";
  write_safetensors(folder.temp / "a.safetensors", first);
  write_safetensors(folder.temp / "b.safetensors", second);
  const auto with_index = [&](const json& index) {
    folder.temp.write("model.safetensors.index.json", index.dump());
    return error_of(folder.temp.path());
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

TEST_CASE("hf import: each key is honoured or refused by name") {
  const auto refused = [](const char* key, const json& value, bool is_llama = false) {
    SmallFolder folder(is_llama);
    folder.config[key] = value;
    const std::string error = folder.error();
    CAPTURE(key);
    CAPTURE(error);
    CHECK(contains(error, "config.json"));
    CHECK(contains(error, key));
  };
  refused("activation_function", "quick_gelu");
  refused("scale_attn_by_inverse_layer_idx", true);
  refused("add_cross_attention", true);
  refused("pruned_heads", {{"0", {1}}});
  refused("n_ctx", 7);
  refused("n_head", 3);
  refused("n_head", 0);
  refused("n_embd", "4");
  refused("n_layer", -1);
  refused("n_layer", 1.5);
  refused("layer_norm_epsilon", "1e-5");
  refused("vocab_size", 1e30);
  refused("tie_word_embeddings", 1);
  refused("architectures", {"GPT2ForSequenceClassification"});
  refused("architectures", "GPT2LMHeadModel");
  refused("model_type", "mamba");
  refused("model_type", 3);
  refused("quantization_config", {{"bits", 4}});
  refused("attn_soft_cap", 30);
  refused("hidden_act", "gelu", true);
  refused("sliding_window", 4096, true);
  refused("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}, true);
  refused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}, true);
  refused("rope_scaling", {{"rope_type", "linear"}}, true);
  refused("rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}, true);
  refused("rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}, true);
  refused("rope_parameters", {{"rope_type", "default"}, {"attn_factor", 2}}, true);
  refused("num_key_value_heads", 3, true);
  refused("num_attention_heads", 0, true);
  refused("max_position_embeddings", 2147483647, true);

  SmallFolder plain;
  const std::vector<double> want = logits_of(load_model(plain.write()));
  plain.config.update({{"n_ctx", 6},
                       {"attn_pdrop", 0.1},
                       {"n_inner", nullptr},
                       {"_name_or_path", "x"},
                       {"architectures", {"GPT2LMHeadModel"}},
                       {"torch_dtype", "float32"},
                       {"use_cache", true}});
  CHECK(logits_of(load_model(plain.write())) == want);
  const std::pair<const char*, json> honoured[] = {{"activation_function", "gelu"},
                                                   {"activation_function", "relu"},
                                                   {"layer_norm_epsilon", 0.5},
                                                   {"scale_attn_weights", false}};
  for (const auto& [key, value] : honoured) {
    SmallFolder folder;
    folder.config[key] = value;
    CAPTURE(key);
    CHECK(logits_of(load_model(folder.write())) != want);
  }
}

TEST_CASE("hf import: rotary base and scaling, as transformers 4 and 5 write them") {
  const auto logits_with = [](const json& keys) {
    SmallFolder folder(true);
    folder.config.update(keys);
    return logits_of(load_model(folder.write()));
  };
  const std::vector<double> plain = logits_with(json::object());
  CHECK(logits_with({{"rope_theta", 10000.0}}) == plain);
  const std::vector<double> other = logits_with({{"rope_theta", 100.0}});
  CHECK(other != plain);
  CHECK(logits_with({{"rope_parameters", {{"rope_theta", 100.0}, {"rope_type", "default"}}}}) == other);
  CHECK_THROWS_AS(logits_with({{"rope_theta", 10.0}, {"rope_parameters", {{"rope_theta", 100.0}}}}), UsageError);
  const std::vector<double> linear = logits_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  CHECK(linear != plain);
  CHECK(logits_with({{"rope_parameters", {{"rope_theta", 10000.0}, {"rope_type", "linear"}, {"factor", 2.0}}}}) ==
        linear);

  // transformers 5.24, _compute_llama3_parameters with theta 10000, head size 16, factor 8, 1, 4, context 64.
  ModelConfig config;
  config.positions = Positions::rotary;
  config.head_size = 16;
  config.rope_scaling = RopeScaling::llama3;
  config.rope_factor = 8;
  config.rope_original_context = 64;
  const std::vector<double> frequencies = rotary_frequencies(config);
  CHECK(frequencies[0] == doctest::Approx(1.0));
  // waves in 64 positions: 64 / 2 pi * 10000^(-1/8) = 3.2211; kept (3.2211 - 1) / 3
  CHECK(frequencies[1] == doctest::Approx(0.316227766 * (0.740358 + 0.259642 / 8)).epsilon(1e-5));
  CHECK(frequencies[2] == doctest::Approx(0.1 * (0.0061970 + 0.9938030 / 8)).epsilon(1e-4));
  CHECK(frequencies[7] == doctest::Approx(std::pow(10000.0, -7.0 / 8) / 8));
}

TEST_CASE("hf import: llama biases in attention, in the MLP, or in both") {
  const auto add_biases = [](SmallFolder& folder, bool attention, bool mlp) {
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
  SmallFolder none(true), attention(true), both(true), surplus(true);
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
  SmallFolder folder;
  folder.write();
  const std::string file = test::read_file(folder.temp / "model.safetensors");
  for (size_t size = 0; size < file.size(); size += 1 + size / 3) {
    folder.temp.write("model.safetensors", file.substr(0, size));
    CHECK_FALSE(error_of(folder.temp.path()).empty());
  }
  uint32_t state = 7;
  for (int round = 0; round < 300; ++round) {
    std::string spoilt = file;
    for (int change = 0; change < 3; ++change) {
      state = state * 1664525u + 1013904223u;
      spoilt[(state >> 8) % 1200] = static_cast<char>(state >> 3);
    }
    folder.temp.write("model.safetensors", spoilt);
    const std::string error = error_of(folder.temp.path());
    CHECK(error.find('\n') == std::string::npos);
  }
  folder.temp.write("model.safetensors", file);
  const std::string config = folder.config.dump();
  for (int round = 0; round < 300; ++round) {
    std::string spoilt = config;
    state = state * 1664525u + 1013904223u;
    spoilt[(state >> 8) % spoilt.size()] = static_cast<char>(state >> 3);
    folder.temp.write("config.json", spoilt);
    error_of(folder.temp.path());
  }
  folder.temp.write("config.json", "[]");
  CHECK(contains(error_of(folder.temp.path()), "config.json"));
  folder.config["vocab_size"] = 2000000000;
  CHECK(contains(folder.error(), "too small for config.json"));
}

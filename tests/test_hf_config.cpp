#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "model/attention.h"
#include "model/hf_config.h"
#include "model/model_folder.h"
#include "tests/support/hf_folder.h"

using namespace taper;
using namespace taper::test;
using nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("hf config: each key is honoured or refused by name") {
  const auto refused = [](const char* key, const json& value, bool is_llama = false) {
    SmallHfFolder folder(is_llama);
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
  json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = json::array({deep});
  SmallHfFolder nested;
  nested.config["notes"] = deep;
  CHECK(contains(nested.error(), "config.json: is nested too deeply"));
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

  SmallHfFolder plain;
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
  for (const auto& entry : honoured) {
    SmallHfFolder folder;
    folder.config[entry.first] = entry.second;
    CAPTURE(entry.first);
    CHECK(logits_of(load_model(folder.write())) != want);
  }
}

TEST_CASE("hf config: rotary base and scaling, as transformers 4 and 5 write them") {
  const auto logits_with = [](const json& keys) {
    SmallHfFolder folder(true);
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

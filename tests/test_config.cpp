#include <doctest/doctest.h>

#include <string>

#include "engine/core/error.h"
#include "model/config.h"
#include "model/transformer.h"

using namespace taper;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

int64_t counted(const ModelConfig& config) {
  int64_t count = 0;
  const Transformer model(config, Precision::f32);
  for (const Parameter& p : model.parameters()) {
    if (p.is_trained && p.name.find("_tilde") == std::string::npos) count += p.master.numel();
  }
  return count;
}

}  // namespace

TEST_CASE("config: named sizes have the published numbers of parameters") {
  CHECK(parameter_count(named_config("1M", "taper")) == 1067072);
  CHECK(parameter_count(named_config("3M", "taper")) == 2920576);
  CHECK(parameter_count(named_config("9M", "taper")) == 8986880);
  CHECK(parameter_count(named_config("30M", "taper")) == 30556672);
  CHECK(parameter_count(named_config("17.7M", "taper")) == 17718784);
  CHECK(parameter_count(named_config("small", "gpt2")) == 124439808);
  CHECK(parameter_count(named_config("medium", "gpt2")) == 354823168);
  CHECK(named_config("1M", "taper").head_size == 32);
  CHECK(named_config("30M", "taper").head_size == 64);
  CHECK_THROWS_WITH_AS(named_config("2M", "taper"), doctest::Contains("17.7M"), UsageError);
  CHECK_THROWS_WITH_AS(named_config("1M", "bert"), doctest::Contains("llama"), UsageError);
}

TEST_CASE("config: the count is that of the model's tensors, tapered or not") {
  for (const std::string& arch : arch_names()) {
    for (const Variant variant : {Variant::baseline, Variant::internal, Variant::all}) {
      CAPTURE(arch);
      ModelConfig config = named_config("1M", arch);
      config.vocab_size = 50;
      config.layers = 2;
      set_variant(config, variant);
      CHECK(config.variant() == variant);
      CHECK(counted(config) == parameter_count(config));
      config.is_tied = false;
      config.has_head_bias = true;
      config.block_norms = NormSite::removed;
      CHECK(counted(config) == parameter_count(config));
    }
  }
}

TEST_CASE("config: what is written reads back") {
  ModelConfig config = named_config("17.7M", "llama");
  set_variant(config, Variant::all);
  config.eps = 1e12;
  config.gate = 0.25;
  config.step = 17;
  config.is_tied = false;
  const std::string json = config_to_json(config);
  CHECK(config_to_json(config_from_json(json, "config.json")) == json);
  CHECK(config_from_json(json, "config.json").eps == 1e12);
}

TEST_CASE("config: errors name the file and the key") {
  const std::string good = config_to_json(named_config("1M", "taper"));
  const auto refuses = [&](const std::string& from, const std::string& to, const char* message) {
    CAPTURE(to);
    CHECK_THROWS_WITH_AS(config_from_json(replaced(good, from, to), "a/config.json"), doctest::Contains(message),
                         Error);
  };
  refuses("\"layers\": 8", "\"layres\": 8", "a/config.json: layers is missing");
  refuses("\"layers\": 8", "\"layers\": 8, \"layres\": 8", "layres is an unknown key");
  refuses("\"layers\": 8", "\"layers\": \"8\"", "layers is of the wrong type; got \"8\", want a whole number");
  refuses("\"layers\": 8", "\"layers\": 8.5", "layers is of the wrong type");
  refuses("\"layers\": 8", "\"layers\": 18446744073709551615", "layers is of the wrong type");
  refuses("\"layers\": 8", "\"layers\": -1", "layers is too small");
  refuses("\"kv_heads\": 2", "\"kv_heads\": 3", "kv_heads must divide heads");
  refuses("\"width\": 64", "\"width\": 9999999999", "width is too large");
  refuses("\"eps\": 1e-05", "\"eps\": 0", "eps is out of range");
  refuses("\"has_bias\": false", "\"has_bias\": 0", "has_bias is of the wrong type");
  refuses("\"norm\": \"rms\"", "\"norm\": \"batch\"", "norm is unknown; got \"batch\", want one of rms, layer");
  refuses("\"activation\": \"gelu_tanh\"", "\"activation\": \"gelu\"", "activation is unknown");
  refuses("\"gate\": 1.0", "\"gate\": 1.5", "gate is out of range");
  refuses("\"model_type\": \"taper\"", "\"model_type\": \"gpt2\"", "model_type is another");
  refuses("\"model_type\": \"taper\",", "", "model_type is missing");
  refuses("{", "", "not valid JSON");
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  refuses("\"layers\": 8", ("\"layers\": " + deep).c_str(), "nested too deeply");
  CHECK_THROWS_AS(config_from_json("[1]", "c"), Error);
  CHECK_THROWS_AS(config_from_json("", "c"), Error);
}

TEST_CASE("config: sizes whose product leaves 64 bits are refused") {
  ModelConfig config;
  config.width = config.heads = config.kv_heads = config.head_size = config.vocab_size = INT32_MAX;
  CHECK_THROWS_AS(check_config(config, "config.json"), Error);
}

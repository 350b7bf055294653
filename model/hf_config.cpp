#include "model/hf_config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "model/hf_config_keys.h"
#include "model/parameter.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, Activation> kActivations[] = {{"gelu_new", Activation::gelu_tanh},
                                                               {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                               {"gelu_fast", Activation::gelu_tanh},
                                                               {"gelu", Activation::gelu_erf},
                                                               {"relu", Activation::relu}};

Activation read_activation(HfConfigKeys& keys) {
  const std::string name = keys.text("activation_function", "gelu_new");
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
  }
  keys.refuse("activation_function", "\"" + name + "\"", "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu");
}

void read_architecture(HfConfigKeys& keys, HfClass hf_class) {
  const Json* names = keys.find("architectures");
  if (!names) return;
  const char* want = to_string(hf_class);
  const bool is_list =
      names->is_array() && std::all_of(names->begin(), names->end(), [](const Json& name) { return name.is_string(); });
  require_usage(is_list, "{}: architectures is of the wrong type; got {}, want [\"{}\"]", keys.source(),
                HfConfigKeys::shown(*names), want);
  // The body without a head, as OpenAI's first uploads call it, has the same tensors.
  const std::string body = hf_class == HfClass::gpt2    ? "GPT2Model"
                           : hf_class == HfClass::llama ? "LlamaModel"
                                                        : "ImageGPTModel";
  for (const Json& name : *names) {
    if (name != want && name != body)
      keys.refuse("architectures", HfConfigKeys::shown(name), std::string("\"") + want + "\"");
  }
}

HfConfig read_gpt2(HfConfigKeys& keys, HfClass hf_class) {
  HfConfig config;
  config.hf_class = hf_class;
  ModelConfig& model = config.model;
  const bool is_image = hf_class == HfClass::imagegpt;
  model.arch = is_image ? "taper" : "gpt2";
  model.norm = is_image ? NormKind::rms : NormKind::layer;
  model.has_bias = true;
  // The embedding of ImageGPT has one row more than the unembedding.
  model.vocab_size = keys.whole("vocab_size", 50257) - (is_image ? 1 : 0);
  model.context = keys.whole("n_positions", 1024);
  model.width = keys.whole("n_embd", 768);
  model.layers = keys.whole("n_layer", 12);
  model.heads = model.kv_heads = keys.whole("n_head", 12);
  require_usage(model.heads > 0 && model.width > 0 && model.width % model.heads == 0,
                "{}: n_head must divide n_embd; got {} and {}", keys.source(), model.heads, model.width);
  model.head_size = model.width / model.heads;
  model.mlp_hidden = keys.whole("n_inner", 4 * model.width);
  if (const Json* context = keys.find("n_ctx"); context && *context != model.context) {
    keys.refuse("n_ctx", HfConfigKeys::shown(*context), fmt::format("{}, as n_positions", model.context));
  }
  model.eps = keys.number("layer_norm_epsilon", 1e-5);
  model.activation = read_activation(keys);
  model.attention_scale = keys.flag("scale_attn_weights", true) ? 0 : 1;
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  keys.only("is_encoder_decoder", false);
  model.is_tied = keys.flag("tie_word_embeddings", !is_image);
  return config;
}

void read_scaling(const Json& json, const std::string& source, ModelConfig& model, std::optional<double>& theta) {
  HfConfigKeys keys(json, source);
  const std::string type = keys.text("rope_type", keys.text("type", "default"));
  if (keys.find("rope_theta")) theta = keys.number("rope_theta");
  keys.only("partial_rotary_factor", 1.0);
  if (type == "linear" || type == "llama3") {
    model.rope_scaling = type == "linear" ? RopeScaling::linear : RopeScaling::llama3;
    model.rope_factor = keys.number("factor");
    require_usage(model.rope_factor >= 1, "{}: factor is out of range; got {}, want at least 1", source,
                  model.rope_factor);
  } else if (type != "default") {
    keys.refuse("rope_type", "\"" + type + "\"", "default, linear or llama3");
  }
  if (type == "llama3") {
    model.rope_low_frequency_factor = keys.number("low_freq_factor");
    model.rope_high_frequency_factor = keys.number("high_freq_factor");
    model.rope_original_context = keys.whole("original_max_position_embeddings");
  }
  keys.refuse_rest(false);
}

// transformers 4 writes rope_theta and rope_scaling, 5 rope_parameters with both in it.
void read_rotary(HfConfigKeys& keys, ModelConfig& model) {
  std::optional<double> inner, outer;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* scaling = keys.find(key)) {
      std::optional<double>& theta = inner;
      read_scaling(*scaling, keys.source() + ": " + key, model, theta);
    }
  }
  if (keys.find("rope_theta")) outer = keys.number("rope_theta");
  require_usage(!inner || !outer || *inner == *outer, "{}: rope_theta has two values; got {} and {}", keys.source(),
                outer.value_or(0), inner.value_or(0));
  model.rope_theta = inner ? *inner : outer.value_or(10000.0);
  keys.only("rope_interleaved", false);
}

HfConfig read_llama(HfConfigKeys& keys) {
  HfConfig config;
  config.hf_class = HfClass::llama;
  ModelConfig& model = config.model;
  model.arch = "llama";
  model.norm = NormKind::rms;
  model.positions = Positions::rotary;
  model.is_gated_mlp = true;
  model.vocab_size = keys.whole("vocab_size", 32000);
  model.context = keys.whole("max_position_embeddings", 2048);
  model.width = keys.whole("hidden_size", 4096);
  model.layers = keys.whole("num_hidden_layers", 32);
  model.heads = keys.whole("num_attention_heads", 32);
  model.kv_heads = keys.whole("num_key_value_heads", model.heads);
  require_usage(model.heads > 0, "{}: num_attention_heads is too small; got {}, want at least 1", keys.source(),
                model.heads);
  model.head_size = keys.whole("head_dim", model.width / model.heads);
  require_usage(keys.find("head_dim") || model.width % model.heads == 0,
                "{}: num_attention_heads must divide hidden_size where there is no head_dim; got {} and {}",
                keys.source(), model.heads, model.width);
  require_usage(model.kv_heads > 0 && model.heads % model.kv_heads == 0,
                "{}: num_key_value_heads must divide num_attention_heads; got {} and {}", keys.source(), model.kv_heads,
                model.heads);
  require_usage(model.context <= kMaxRotaryAngles / std::max<int64_t>(model.head_size, 1),
                "{}: max_position_embeddings is too large for a table of rotary positions; got {}, want at most {}",
                keys.source(), model.context, kMaxRotaryAngles / std::max<int64_t>(model.head_size, 1));
  model.mlp_hidden = keys.whole("intermediate_size", 11008);
  model.eps = keys.number("rms_norm_eps", 1e-6);
  keys.only("hidden_act", "silu");
  keys.only("sliding_window", false);
  keys.only("use_sliding_window", false);
  keys.only("is_encoder_decoder", false);
  keys.only("add_cross_attention", false);
  config.has_attention_bias = keys.flag("attention_bias", false);
  config.has_mlp_bias = keys.flag("mlp_bias", false);
  model.has_bias = config.has_attention_bias || config.has_mlp_bias;
  model.is_tied = keys.flag("tie_word_embeddings", false);
  read_rotary(keys, model);
  return config;
}

std::optional<int64_t> read_token_id(const Json& json, const char* key, int64_t vocab_size) {
  const auto found = json.find(key);
  if (found == json.end()) return {};
  // Some list several ends: the first is the main one.
  const Json& value = found->is_array() && !found->empty() ? (*found)[0] : *found;
  if (!value.is_number_integer() || value < 0 || value >= vocab_size) return {};
  return value.get<int64_t>();
}

Json parse(std::string_view text, std::string_view source) {
  Json json = parse_json<Json>(text, source);
  require_usage(json.is_object(), "{}: got {}, want a JSON object", source, json.type_name());
  return json;
}

const char* dtype_name(StoredDtype dtype) {
  return dtype == StoredDtype::bf16 ? "bfloat16" : dtype == StoredDtype::f16 ? "float16" : "float32";
}

Json id_or_null(std::optional<int64_t> id) { return id ? Json(*id) : Json(nullptr); }

void write_gpt2(Json& json, const HfConfig& config) {
  const ModelConfig& model = config.model;
  const bool is_image = config.hf_class == HfClass::imagegpt;
  json["model_type"] = is_image ? "imagegpt" : "gpt2";
  json["vocab_size"] = model.vocab_size + (is_image ? 1 : 0);
  json["n_positions"] = model.context;
  json["n_ctx"] = model.context;
  json["n_embd"] = model.width;
  json["n_layer"] = model.layers;
  json["n_head"] = model.heads;
  json["n_inner"] = model.mlp_hidden == 4 * model.width ? Json(nullptr) : Json(model.mlp_hidden);
  for (const auto& [name, activation] : kActivations) {
    if (activation != model.activation) continue;
    json["activation_function"] = name;
    break;
  }
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[dropout] = 0.0;
  json["layer_norm_epsilon"] = model.eps;
  json["initializer_range"] = kInitialDeviation;
  json["scale_attn_weights"] = model.attention_scale == 0;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
}

void write_rotary(Json& json, const ModelConfig& model) {
  const char* type = model.rope_scaling == RopeScaling::none     ? "default"
                     : model.rope_scaling == RopeScaling::linear ? "linear"
                                                                 : "llama3";
  Json scaling = {{"rope_type", type}};
  if (model.rope_scaling != RopeScaling::none) scaling["factor"] = model.rope_factor;
  if (model.rope_scaling == RopeScaling::llama3) {
    scaling["low_freq_factor"] = model.rope_low_frequency_factor;
    scaling["high_freq_factor"] = model.rope_high_frequency_factor;
    scaling["original_max_position_embeddings"] = model.rope_original_context;
  }
  // For transformers 4 and 5 both.
  json["rope_theta"] = model.rope_theta;
  json["rope_scaling"] = model.rope_scaling == RopeScaling::none ? Json(nullptr) : scaling;
  scaling["rope_theta"] = model.rope_theta;
  json["rope_parameters"] = scaling;
}

void write_llama(Json& json, const HfConfig& config) {
  const ModelConfig& model = config.model;
  json["model_type"] = "llama";
  json["vocab_size"] = model.vocab_size;
  json["max_position_embeddings"] = model.context;
  json["hidden_size"] = model.width;
  json["intermediate_size"] = model.mlp_hidden;
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.kv_heads;
  json["head_dim"] = model.head_size;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = model.eps;
  json["initializer_range"] = kInitialDeviation;
  json["attention_bias"] = config.has_attention_bias;
  json["mlp_bias"] = config.has_mlp_bias;
  json["attention_dropout"] = 0.0;
  json["pretraining_tp"] = 1;
  write_rotary(json, model);
}

}  // namespace

const char* to_string(HfClass hf_class) {
  return hf_class == HfClass::gpt2       ? "GPT2LMHeadModel"
         : hf_class == HfClass::imagegpt ? "ImageGPTForCausalImageModeling"
                                         : "LlamaForCausalLM";
}

std::string model_type_of(std::string_view text, std::string_view source) {
  const Json json = parse(text, source);
  const auto type = json.find("model_type");
  return type != json.end() && type->is_string() ? type->get<std::string>() : "";
}

HfConfig hf_config_from_json(std::string_view text, std::string_view source) {
  const Json json = parse(text, source);
  HfConfigKeys keys(json, std::string(source));
  const std::string type = keys.text("model_type");
  HfConfig config;
  if (type == "gpt2") {
    config = read_gpt2(keys, HfClass::gpt2);
  } else if (type == "imagegpt") {
    config = read_gpt2(keys, HfClass::imagegpt);
  } else if (type == "llama") {
    config = read_llama(keys);
  } else {
    keys.refuse("model_type", "\"" + type + "\"", "taper, gpt2, llama or imagegpt");
  }
  read_architecture(keys, config.hf_class);
  keys.only("pruned_heads", Json::object());
  keys.refuse_rest(true);
  try {
    check_config(config.model, source);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  config.bos_id = read_token_id(json, "bos_token_id", config.model.vocab_size);
  config.eos_id = read_token_id(json, "eos_token_id", config.model.vocab_size);
  return config;
}

std::string hf_config_to_json(const HfConfig& config, StoredDtype dtype) {
  Json json;
  json["architectures"] = {to_string(config.hf_class)};
  if (config.hf_class == HfClass::llama) {
    write_llama(json, config);
  } else {
    write_gpt2(json, config);
  }
  json["tie_word_embeddings"] = config.model.is_tied;
  json["bos_token_id"] = id_or_null(config.bos_id);
  json["eos_token_id"] = id_or_null(config.eos_id);
  json["pad_token_id"] = nullptr;
  json["use_cache"] = true;
  json["dtype"] = dtype_name(dtype);
  json["torch_dtype"] = dtype_name(dtype);
  return json.dump(2) + "\n";
}

std::string generation_config_to_json(const HfConfig& config) {
  const Json json = {{"bos_token_id", id_or_null(config.bos_id)}, {"eos_token_id", id_or_null(config.eos_id)}};
  return json.dump(2) + "\n";
}

}  // namespace taper

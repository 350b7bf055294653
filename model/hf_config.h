// config.json of a Hugging Face model: read into the options of this project's one Transformer, and written from them.
// Each key is honoured, known to change nothing, or refused by name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/io/safetensors.h"
#include "model/config.h"
#include "model/hf_class.h"

namespace taper {

struct HfConfig {
  HfClass hf_class = HfClass::gpt2;
  ModelConfig model;  // is_tied as the file says; the weights decide (model/hf_import.h)
  bool has_attention_bias = true, has_mlp_bias = true;  // llama has them apart; model.has_bias: either
  std::optional<int64_t> bos_id, eos_id;                // where they lie in the vocabulary
};

// model_type of a config.json, "" where it has none. UsageError where the file is not JSON.
std::string model_type_of(std::string_view json, std::string_view source);

// UsageError with the file and the key for what is missing, of the wrong type, out of range, or asks for something that
// the Transformer does not do.
HfConfig hf_config_from_json(std::string_view json, std::string_view source);

// REQUIRES hf_class_of(model) == config.hf_class and no norm but plain ones. Dropout is 0, as it is here.
std::string hf_config_to_json(const HfConfig& config, StoredDtype dtype);
std::string generation_config_to_json(const HfConfig& config);

}  // namespace taper

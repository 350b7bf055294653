#include "model/hf_config_keys.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace taper {
namespace {

// Keys of transformers' PretrainedConfig, GPT2Config and LlamaConfig that do not change what a model computes:
// training, generation, classification heads, bookkeeping. A key that begins with an underscore is its writer's own.
constexpr std::string_view kIndifferent[] = {"architectures",
                                             "attention_dropout",
                                             "attn_pdrop",
                                             "auto_map",
                                             "bad_words_ids",
                                             "begin_suppress_tokens",
                                             "bos_token_id",
                                             "chunk_size_feed_forward",
                                             "cross_attention_hidden_size",
                                             "decoder_start_token_id",
                                             "diversity_penalty",
                                             "do_sample",
                                             "dtype",
                                             "early_stopping",
                                             "embd_pdrop",
                                             "encoder_no_repeat_ngram_size",
                                             "eos_token_id",
                                             "exponential_decay_length_penalty",
                                             "finetuning_task",
                                             "forced_bos_token_id",
                                             "forced_eos_token_id",
                                             "gradient_checkpointing",
                                             "id2label",
                                             "initializer_range",
                                             "is_decoder",
                                             "is_llama_config",
                                             "keys_to_ignore_at_inference",
                                             "label2id",
                                             "length_penalty",
                                             "max_length",
                                             "min_length",
                                             "model_type",
                                             "no_repeat_ngram_size",
                                             "num_beam_groups",
                                             "num_beams",
                                             "num_return_sequences",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_past",
                                             "output_scores",
                                             "pad_token_id",
                                             "prefix",
                                             "pretraining_tp",
                                             "problem_type",
                                             "remove_invalid_values",
                                             "reorder_and_upcast_attn",
                                             "repetition_penalty",
                                             "resid_pdrop",
                                             "return_dict",
                                             "return_dict_in_generate",
                                             "sep_token_id",
                                             "summary_activation",
                                             "summary_first_dropout",
                                             "summary_proj_to_labels",
                                             "summary_type",
                                             "summary_use_proj",
                                             "suppress_tokens",
                                             "task_specific_params",
                                             "temperature",
                                             "tf_legacy_loss",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torch_dtype",
                                             "torchscript",
                                             "transformers.js_config",
                                             "transformers_version",
                                             "typical_p",
                                             "unk_token_id",
                                             "use_bfloat16",
                                             "use_cache"};

}  // namespace

HfConfigKeys::HfConfigKeys(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
  require_usage(json.is_object(), "{}: got {}, want an object", source_, json.type_name());
}

const HfConfigKeys::Json* HfConfigKeys::find(const char* key) {
  used_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

template <class T>
T HfConfigKeys::absent(const char* key, const std::optional<T>& otherwise) const {
  require_usage(otherwise.has_value(), "{}: {} is missing", source_, key);
  return *otherwise;
}

int64_t HfConfigKeys::whole(const char* key, std::optional<int64_t> otherwise) {
  const Json* value = find(key);
  if (!value) return absent(key, otherwise);
  const bool fits = value->is_number_integer() && *value >= 0 && *value <= INT32_MAX;
  if (!fits) fail_type(key, *value, "a whole number from 0 to 2147483647");
  return value->get<int64_t>();
}

double HfConfigKeys::number(const char* key, std::optional<double> otherwise) {
  const Json* value = find(key);
  if (!value) return absent(key, otherwise);
  if (!value->is_number()) fail_type(key, *value, "a number");
  return value->get<double>();
}

bool HfConfigKeys::flag(const char* key, bool otherwise) {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) fail_type(key, *value, "true or false");
  return value->get<bool>();
}

std::string HfConfigKeys::text(const char* key, const std::optional<std::string>& otherwise) {
  const Json* value = find(key);
  if (!value) return absent(key, otherwise);
  if (!value->is_string()) fail_type(key, *value, "a string");
  return value->get<std::string>();
}

void HfConfigKeys::only(const char* key, const Json& allowed) {
  const Json* value = find(key);
  if (value && *value != allowed) refuse(key, shown(*value), shown(allowed) + " or none");
}

void HfConfigKeys::refuse_rest(bool passes_indifferent) const {
  for (const auto& [key, value] : json_.items()) {
    const bool is_indifferent =
        passes_indifferent &&
        (key.starts_with('_') || std::count(std::begin(kIndifferent), std::end(kIndifferent), key) > 0);
    if (used_.count(key) > 0 || is_indifferent || value.is_null()) continue;
    refuse(key, shown(value), "no such key: what it asks for is not known here");
  }
}

void HfConfigKeys::refuse(std::string_view key, std::string_view got, std::string_view want) const {
  fail_usage("{}: {} is not supported; got {}, want {}", source_, key, got, want);
}

std::string HfConfigKeys::shown(const Json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

void HfConfigKeys::fail_type(const char* key, const Json& value, const char* want) const {
  fail_usage("{}: {} is of the wrong type; got {}, want {}", source_, key, shown(value), want);
}

}  // namespace taper

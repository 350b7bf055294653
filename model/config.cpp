#include "model/config.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;
// For reading: an ordered one copies its values as it grows, and a copy descends as deep as they are nested.
using ReadJson = nlohmann::json;

constexpr const char* kModelType = "taper";

template <class T>
using Names = std::vector<std::pair<const char*, T>>;

const Names<NormKind>& names_of(NormKind) {
  static const Names<NormKind> names{{"rms", NormKind::rms}, {"layer", NormKind::layer}};
  return names;
}
const Names<NormSite>& names_of(NormSite) {
  static const Names<NormSite> names{
      {"plain", NormSite::plain}, {"tapered", NormSite::tapered}, {"removed", NormSite::removed}};
  return names;
}
const Names<Positions>& names_of(Positions) {
  static const Names<Positions> names{{"learned", Positions::learned}, {"rotary", Positions::rotary}};
  return names;
}
const Names<RopeScaling>& names_of(RopeScaling) {
  static const Names<RopeScaling> names{
      {"none", RopeScaling::none}, {"linear", RopeScaling::linear}, {"llama3", RopeScaling::llama3}};
  return names;
}
const Names<Activation>& names_of(Activation) {
  static const Names<Activation> names{
      {"gelu_tanh", Activation::gelu_tanh}, {"gelu_erf", Activation::gelu_erf}, {"relu", Activation::relu}};
  return names;
}
const Names<Variant>& names_of(Variant) {
  static const Names<Variant> names{
      {"baseline", Variant::baseline}, {"internal", Variant::internal}, {"all", Variant::all}};
  return names;
}

template <class T>
const char* name_of(T value) {
  for (const auto& [name, named] : names_of(value)) {
    if (named == value) return name;
  }
  return "?";
}

template <class T>
std::string list_names(const Names<T>& names) {
  std::string list;
  for (const auto& entry : names) list += (list.empty() ? "" : ", ") + std::string(entry.first);
  return list;
}

// Every key of config.json besides model_type, in the order of the file.
template <class Config, class Visit>
void visit_members(Config& config, Visit&& visit) {
  visit("arch", config.arch);
  visit("vocab_size", config.vocab_size);
  visit("context", config.context);
  visit("width", config.width);
  visit("layers", config.layers);
  visit("heads", config.heads);
  visit("kv_heads", config.kv_heads);
  visit("head_size", config.head_size);
  visit("mlp_hidden", config.mlp_hidden);
  visit("norm", config.norm);
  visit("eps", config.eps);
  visit("block_norms", config.block_norms);
  visit("final_norm", config.final_norm);
  visit("positions", config.positions);
  visit("rope_theta", config.rope_theta);
  visit("activation", config.activation);
  visit("is_gated_mlp", config.is_gated_mlp);
  visit("has_bias", config.has_bias);
  visit("has_head_bias", config.has_head_bias);
  visit("is_tied", config.is_tied);
  visit("attention_scale", config.attention_scale);
  visit("gate", config.gate);
  visit("step", config.step);
}

// Those that stand in the file only where rotary frequencies are scaled.
template <class Config, class Visit>
void visit_scaling(Config& config, Visit&& visit) {
  visit("rope_scaling", config.rope_scaling);
  visit("rope_factor", config.rope_factor);
  visit("rope_low_frequency_factor", config.rope_low_frequency_factor);
  visit("rope_high_frequency_factor", config.rope_high_frequency_factor);
  visit("rope_original_context", config.rope_original_context);
}

// What a folder that transformers opens as well tells it (model/hf_custom.h).
constexpr std::array<std::string_view, 10> kForeignKeys{
    "architectures", "auto_map",     "dtype",        "torch_dtype",         "transformers_version",
    "bos_token_id",  "eos_token_id", "pad_token_id", "tie_word_embeddings", "use_cache"};

// Those that stand in the file only while norms are replaced one after another.
template <class Config, class Visit>
void visit_replacement(Config& config, Visit&& visit) {
  visit("is_replaced_in_turn", config.is_replaced_in_turn);
  visit("end_of_text", config.end_of_text);
}

struct Writer {
  Json& json;

  template <class T>
  void operator()(const char* key, const T& value) const {
    if constexpr (std::is_enum_v<T>) {
      json[key] = name_of(value);
    } else {
      json[key] = value;
    }
  }
};

struct Reader {
  const ReadJson& json;
  std::string_view source;

  const ReadJson& value_of(const char* key) const {
    const auto found = json.find(key);
    require(found != json.end(), "{}: {} is missing", source, key);
    return *found;
  }
  [[noreturn]] void fail_type(const char* key, const char* want) const {
    fail("{}: {} is of the wrong type; got {}, want {}", source, key, shown(value_of(key)), want);
  }
  void operator()(const char* key, std::string& value) const {
    if (!value_of(key).is_string()) fail_type(key, "a string");
    value = value_of(key).get<std::string>();
  }
  void operator()(const char* key, int64_t& value) const {
    const ReadJson& number = value_of(key);
    const bool fits =
        number.is_number_integer() && (!number.is_number_unsigned() || number.get<uint64_t>() <= uint64_t{INT64_MAX});
    if (!fits) fail_type(key, "a whole number");
    value = number.get<int64_t>();
  }
  void operator()(const char* key, double& value) const {
    if (!value_of(key).is_number()) fail_type(key, "a number");
    value = value_of(key).get<double>();
  }
  void operator()(const char* key, bool& value) const {
    if (!value_of(key).is_boolean()) fail_type(key, "true or false");
    value = value_of(key).get<bool>();
  }
  template <class T>
  std::enable_if_t<std::is_enum_v<T>> operator()(const char* key, T& value) const {
    const ReadJson& name = value_of(key);
    for (const auto& [known, named] : names_of(value)) {
      if (name == known) {
        value = named;
        return;
      }
    }
    fail("{}: {} is unknown; got {}, want one of {}", source, key, shown(name), list_names(names_of(value)));
  }
};

struct NamedSize {
  const char* name;
  int64_t vocab_size, context, width, layers, heads;
};

// The paper's sizes, the public replication's, and GPT-2's (spec, section 5).
constexpr std::array<NamedSize, 9> kSizes{{{"1M", 10000, 512, 64, 8, 2},
                                           {"3M", 10000, 512, 128, 8, 2},
                                           {"9M", 10000, 512, 256, 8, 4},
                                           {"30M", 10000, 512, 512, 8, 8},
                                           {"17.7M", 50257, 512, 256, 6, 4},
                                           {"small", 50257, 1024, 768, 12, 12},
                                           {"medium", 50257, 1024, 1024, 24, 16},
                                           {"large", 50257, 1024, 1280, 36, 20},
                                           {"xl", 50257, 1024, 1600, 48, 25}}};

template <class T>
void require_at_least(std::string_view what, const char* key, T got, T least) {
  require(got >= least, "{}: {} is too small; got {}, want at least {}", what, key, got, least);
}

}  // namespace

Variant ModelConfig::variant() const {
  if (final_norm != NormSite::plain) return Variant::all;
  return block_norms != NormSite::plain ? Variant::internal : Variant::baseline;
}

void set_variant(ModelConfig& config, Variant variant) {
  config.block_norms = variant == Variant::baseline ? NormSite::plain : NormSite::tapered;
  config.final_norm = variant == Variant::all ? NormSite::tapered : NormSite::plain;
}

std::vector<std::string> size_names() {
  std::vector<std::string> names;
  for (const NamedSize& size : kSizes) names.emplace_back(size.name);
  return names;
}

std::vector<std::string> arch_names() { return {"taper", "gpt2", "llama"}; }

ModelConfig named_config(const std::string& size, const std::string& arch) {
  ModelConfig config;
  bool is_known = false;
  for (const NamedSize& named : kSizes) {
    if (size != named.name) continue;
    is_known = true;
    config.vocab_size = named.vocab_size;
    config.context = named.context;
    config.width = named.width;
    config.layers = named.layers;
    config.heads = named.heads;
  }
  require_usage(is_known, "size: is unknown; got {}, want one of {}", size, fmt::join(size_names(), ", "));
  set_arch(config, arch);
  return config;
}

void set_arch(ModelConfig& config, const std::string& arch) {
  config.arch = arch;
  config.kv_heads = config.heads;
  config.head_size = config.width / config.heads;
  config.mlp_hidden = 4 * config.width;
  if (arch == "taper") return;
  if (arch == "gpt2") {
    config.norm = NormKind::layer;
    config.has_bias = true;
  } else if (arch == "llama") {
    config.positions = Positions::rotary;
    config.is_gated_mlp = true;
    // Two thirds of 4 C, in whole groups of 32: three matrices then hold what two of 4 C do.
    config.mlp_hidden = (8 * config.width / 3 + 31) / 32 * 32;
    if (config.heads % 2 == 0) config.kv_heads = config.heads / 2;
  } else {
    fail_usage("arch: is unknown; got {}, want one of {}", arch, fmt::join(arch_names(), ", "));
  }
}

void check_config(const ModelConfig& config, std::string_view what) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", config.vocab_size}, {"context", config.context},
                                                   {"width", config.width},           {"heads", config.heads},
                                                   {"kv_heads", config.kv_heads},     {"head_size", config.head_size},
                                                   {"mlp_hidden", config.mlp_hidden}};
  for (const auto& [key, value] : sizes) {
    require_at_least<int64_t>(what, key, value, 1);
    require(value <= INT32_MAX, "{}: {} is too large; got {}, want at most {}", what, key, value, INT32_MAX);
  }
  require_at_least<int64_t>(what, "layers", config.layers, 0);
  require(config.layers <= 100000, "{}: layers is too large; got {}, want at most 100000", what, config.layers);
  require(config.heads % config.kv_heads == 0, "{}: kv_heads must divide heads; got {} and {}", what, config.kv_heads,
          config.heads);
  require(config.positions != Positions::rotary || config.head_size % 2 == 0,
          "{}: head_size must be even for rotary positions; got {}", what, config.head_size);
  require(config.eps > 0 && std::isfinite(config.eps), "{}: eps is out of range; got {}, want a positive number", what,
          config.eps);
  require(config.rope_theta > 0 && std::isfinite(config.rope_theta),
          "{}: rope_theta is out of range; got {}, want a positive number", what, config.rope_theta);
  require(config.attention_scale >= 0 && std::isfinite(config.attention_scale),
          "{}: attention_scale is out of range; got {}, want 0 (1 / sqrt(head_size)) or a positive number", what,
          config.attention_scale);
  require(config.gate >= 0 && config.gate <= 1, "{}: gate is out of range; got {}, want 0 to 1", what, config.gate);
  require_at_least<int64_t>(what, "step", config.step, 0);
  if (config.rope_scaling != RopeScaling::none) {
    require(config.rope_factor >= 1 && std::isfinite(config.rope_factor),
            "{}: rope_factor is out of range; got {}, want at least 1", what, config.rope_factor);
  }
  if (config.rope_scaling == RopeScaling::llama3) {
    const double low = config.rope_low_frequency_factor, high = config.rope_high_frequency_factor;
    require(low > 0 && high > low && std::isfinite(high),
            "{}: rope_low_frequency_factor and rope_high_frequency_factor are out of range; got {} and {}, want two "
            "positive numbers, the second greater",
            what, low, high);
    require_at_least<int64_t>(what, "rope_original_context", config.rope_original_context, 1);
  }
  require(config.positions != Positions::rotary || config.context <= kMaxRotaryAngles / config.head_size,
          "{}: context is too large for a table of rotary positions; got {}, want at most {} for heads of {}", what,
          config.context, kMaxRotaryAngles / config.head_size, config.head_size);
  if (config.is_replaced_in_turn) {
    require(config.block_norms == NormSite::tapered && config.final_norm == NormSite::tapered,
            "{}: is_replaced_in_turn wants block_norms and final_norm tapered", what);
    require(config.norm == NormKind::rms || config.has_bias,
            "{}: is_replaced_in_turn wants has_bias beside LayerNorm, for the shift of v's norm", what);
    require(config.end_of_text >= -1 && config.end_of_text < config.vocab_size,
            "{}: end_of_text is out of range; got {}, want -1 (none) to {}", what, config.end_of_text,
            config.vocab_size - 1);
  }
  parameter_count(config);
}

int64_t parameter_count(const ModelConfig& config) {
  const char* what = "parameters of the model";
  const auto product = [what](int64_t a, int64_t b) { return checked_product(a, b, what); };
  const int64_t inner = product(config.heads, config.head_size);
  const int64_t kv = product(config.kv_heads, config.head_size);
  const int64_t bias = config.has_bias ? 1 : 0;
  const int64_t up_rows = (config.is_gated_mlp ? 2 : 1) * config.mlp_hidden;
  const auto norm = [&](NormSite site) {
    return site == NormSite::removed ? 0 : config.width * (config.norm == NormKind::layer ? 2 : 1);
  };
  // Rows of matrices that are C wide; attn.out and mlp.down count their columns.
  const int64_t block = product(inner + 2 * kv + inner + up_rows + config.mlp_hidden, config.width) +
                        bias * (inner + 2 * kv + up_rows + 2 * config.width) + 2 * norm(config.block_norms);
  const int64_t tables =
      config.vocab_size * (config.is_tied ? 1 : 2) + (config.positions == Positions::learned ? config.context : 0);
  return product(config.layers, block) + product(tables, config.width) + norm(config.final_norm) +
         (config.has_head_bias ? config.vocab_size : 0);
}

double writer_deviation(const ModelConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
}

std::string config_to_json(const ModelConfig& config) {
  Json json;
  json["model_type"] = kModelType;
  visit_members(config, Writer{json});
  if (config.rope_scaling != RopeScaling::none) visit_scaling(config, Writer{json});
  if (config.is_replaced_in_turn) visit_replacement(config, Writer{json});
  return json.dump(2) + "\n";
}

ModelConfig config_from_json(std::string_view text, std::string_view source) {
  const auto json = parse_json(text, source);
  require(json.is_object(), "{}: got {}, want a JSON object", source, json.type_name());
  const auto type = json.find("model_type");
  require(type != json.end(), "{}: model_type is missing; want \"{}\"", source, kModelType);
  require(*type == kModelType, "{}: model_type is another; got {}, want \"{}\"", source, shown(*type), kModelType);
  ModelConfig config;
  visit_members(config, Reader{json, source});
  const bool has_scaling = json.contains("rope_scaling"), has_replacement = json.contains("is_replaced_in_turn");
  if (has_scaling) visit_scaling(config, Reader{json, source});
  if (has_replacement) visit_replacement(config, Reader{json, source});
  for (const auto& [key, value] : json.items()) {
    bool is_known = key == "model_type" || std::count(kForeignKeys.begin(), kForeignKeys.end(), key) > 0;
    const auto compare = [&is_known, &name = key](const char* known, const auto&) { is_known |= name == known; };
    visit_members(config, compare);
    if (has_scaling) visit_scaling(config, compare);
    if (has_replacement) visit_replacement(config, compare);
    require(is_known, "{}: {} is an unknown key", source, key);
  }
  check_config(config, source);
  return config;
}

ModelConfig read_config(const std::filesystem::path& file) {
  return config_from_json(read_file(file, kMaxConfigBytes), file.string());
}

const char* to_string(Variant variant) { return name_of(variant); }

Variant parse_variant(std::string_view name) {
  for (const auto& [known, variant] : names_of(Variant{})) {
    if (name == known) return variant;
  }
  fail_usage("variant: is unknown; got {}, want one of {}", name, list_names(names_of(Variant{})));
}

}  // namespace taper

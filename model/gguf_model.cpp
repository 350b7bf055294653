#include "model/gguf_model.h"

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "model/attention.h"

namespace taper {
namespace {

const char* arch_of(HfClass hf_class) { return hf_class == HfClass::llama ? "llama" : "gpt2"; }

// Rows of each head: [first halves; second halves] <-> pairs.
Tensor with_paired_rows(const Tensor& halves, int64_t heads, bool is_inverse = false) {
  const Tensor pairs = halves.clone();
  const int64_t columns = halves.shape().rank == 1 ? 1 : halves.dim(1);
  const int64_t size = halves.dim(0) / heads;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < size; ++i) {
      const int64_t half_row = head * size + i % 2 * (size / 2) + i / 2, pair_row = head * size + i;
      const int64_t from = is_inverse ? pair_row : half_row, to = is_inverse ? half_row : pair_row;
      std::copy_n(halves.data<float>() + from * columns, columns, pairs.data<float>() + to * columns);
    }
  }
  return pairs;
}

void add_tokenizer(GgufMetadata& metadata, int64_t vocab_size, const GgufOptions& options, const std::string& arch) {
  metadata.emplace_back(arch + ".vocab_size", static_cast<uint32_t>(vocab_size));
  if (options.tokenizer.empty()) metadata.emplace_back("tokenizer.ggml.model", std::string("none"));
  metadata.insert(metadata.end(), options.tokenizer.begin(), options.tokenizer.end());
}

void add_rotary(GgufMetadata& metadata, const ModelConfig& config) {
  metadata.emplace_back("llama.attention.head_count_kv", static_cast<uint32_t>(config.kv_heads));
  metadata.emplace_back("llama.attention.key_length", static_cast<uint32_t>(config.head_size));
  metadata.emplace_back("llama.attention.value_length", static_cast<uint32_t>(config.head_size));
  metadata.emplace_back("llama.rope.dimension_count", static_cast<uint32_t>(config.head_size));
  metadata.emplace_back("llama.rope.freq_base", static_cast<float>(config.rope_theta));
  if (config.rope_scaling == RopeScaling::linear) {
    metadata.emplace_back("llama.rope.scaling.type", std::string("linear"));
    metadata.emplace_back("llama.rope.scaling.factor", static_cast<float>(config.rope_factor));
  }
}

// llama3: what each frequency is divided by.
Tensor rotary_divisors(const ModelConfig& config) {
  ModelConfig unscaled = config;
  unscaled.rope_scaling = RopeScaling::none;
  const std::vector<double> plain = rotary_frequencies(unscaled), scaled = rotary_frequencies(config);
  std::vector<float> divisors;
  for (size_t i = 0; i < plain.size(); ++i) divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return Tensor::from(divisors, {std::ssize(divisors)});
}

}  // namespace

std::string gguf_refusal(const ModelConfig& config, HfClass hf_class) {
  if (hf_class == HfClass::imagegpt) return "GGUF has no architecture for ImageGPT";
  if (config.attention_scale != 0) return "llama.cpp scales attention by 1 / sqrt(head size) alone";
  if (hf_class == HfClass::gpt2 && config.activation != Activation::gelu_tanh)
    return "llama.cpp's gpt2 has the tanh form of GELU alone";
  return "";
}

GgufMetadata gguf_metadata(const ModelConfig& config, HfClass hf_class, const GgufOptions& options) {
  const std::string arch = arch_of(hf_class);
  const auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
  GgufMetadata metadata;
  metadata.emplace_back("general.architecture", arch);
  metadata.emplace_back("general.name", options.name);
  // llama_ftype: all F32, mostly F16, mostly BF16
  metadata.emplace_back("general.file_type", options.stored == StoredDtype::f16    ? 1u
                                             : options.stored == StoredDtype::bf16 ? 32u
                                                                                   : 0u);
  metadata.emplace_back(arch + ".context_length", count(config.context));
  metadata.emplace_back(arch + ".embedding_length", count(config.width));
  metadata.emplace_back(arch + ".block_count", count(config.layers));
  metadata.emplace_back(arch + ".feed_forward_length", count(config.mlp_hidden));
  metadata.emplace_back(arch + ".attention.head_count", count(config.heads));
  const char* eps = hf_class == HfClass::llama ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon";
  metadata.emplace_back(arch + eps, static_cast<float>(config.eps));
  if (hf_class == HfClass::llama) add_rotary(metadata, config);
  add_tokenizer(metadata, config.vocab_size, options, arch);
  return metadata;
}

std::vector<GgufTensor> gguf_tensors(const Transformer& model, HfClass hf_class, const GgufOptions& options) {
  const ModelConfig& config = model.config();
  const std::string extra = "blk." + std::to_string(config.layers - 1) + ".ffn_";
  std::vector<GgufTensor> tensors;
  for (const HfTensor& tensor : hf_tensors(model, hf_class)) {
    const bool is_matrix = tensor.part.shape().rank == 2 && tensor.gguf_name != "position_embd.weight" &&
                           !(options.has_extra_block && tensor.gguf_name.starts_with(extra));
    tensors.push_back({tensor.gguf_name,
                       tensor.rotary_heads > 0 ? with_paired_rows(tensor.part, tensor.rotary_heads) : tensor.part,
                       is_matrix ? options.stored : StoredDtype::f32});
  }
  if (config.rope_scaling == RopeScaling::llama3) {
    tensors.push_back({"rope_freqs.weight", rotary_divisors(config), StoredDtype::f32});
  }
  return tensors;
}

Transformer load_gguf_model(const std::filesystem::path& path) {
  const GgufFile file = GgufFile::open(path);
  const auto& arch = file.get<std::string>("general.architecture");
  require_usage(arch == "gpt2" || arch == "llama", "{}: the architecture {} is not supported; want gpt2 or llama",
                path.string(), arch);
  const bool is_llama = arch == "llama";
  const auto whole = [&](const std::string& key) { return int64_t{file.get<uint32_t>(arch + "." + key)}; };
  require_usage(file.has("token_embd.weight"), "{}: tensor token_embd.weight is missing", path.string());
  ModelConfig config;
  config.vocab_size = file.read("token_embd.weight").dim(0);
  config.context = whole("context_length");
  config.width = whole("embedding_length");
  config.layers = whole("block_count");
  config.heads = config.kv_heads = whole("attention.head_count");
  config.mlp_hidden = whole("feed_forward_length");
  require_usage(config.heads > 0, "{}: {}.attention.head_count is 0", path.string(), arch);
  config.head_size = config.width / config.heads;
  if (is_llama) {
    set_arch(config, "llama");
    config.mlp_hidden = whole("feed_forward_length");
    config.kv_heads = whole("attention.head_count_kv");
    config.head_size = whole("attention.key_length");
    config.rope_theta = file.get<float>("llama.rope.freq_base");
    config.has_bias = file.has("blk.0.attn_q.bias");
    if (file.metadata().count("llama.rope.scaling.type") > 0) {
      config.rope_scaling = RopeScaling::linear;
      config.rope_factor = file.get<float>("llama.rope.scaling.factor");
    }
  } else {
    config.arch = "gpt2";
    config.norm = NormKind::layer;
    config.has_bias = true;
  }
  config.eps =
      file.get<float>(arch + (is_llama ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon"));
  config.is_tied = !file.has("output.weight");
  check_config(config, path.string());
  require_usage(parameter_count(config) <= static_cast<int64_t>(std::filesystem::file_size(path)),
                "{}: too small for its {} parameters", path.string(), parameter_count(config));
  Transformer model(config, Precision::f32);
  std::set<std::string> known{"rope_freqs.weight"};
  for (const HfTensor& tensor : hf_tensors(model, is_llama ? HfClass::llama : HfClass::gpt2)) {
    known.insert(tensor.gguf_name);
    const Tensor stored = file.read(tensor.gguf_name);
    require_usage(stored.shape() == tensor.part.shape(), "{}: tensor {} has the wrong shape; got {}, want {}",
                  path.string(), tensor.gguf_name, to_string(stored.shape()), to_string(tensor.part.shape()));
    tensor.part.copy_from(tensor.rotary_heads > 0 ? with_paired_rows(stored, tensor.rotary_heads, true) : stored);
  }
  for (const std::string& name : file.names()) {
    require_usage(known.count(name) > 0, "{}: tensor {} is unknown", path.string(), name);
  }
  return model;
}

}  // namespace taper

#include "model/hf_import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/read_file.h"
#include "engine/io/safetensors_header.h"
#include "engine/kernels/kernels.h"
#include "model/hf_weights.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "lm_head.weight";

const char* embedding_name(HfClass hf_class) {
  return hf_class == HfClass::llama ? "model.embed_tokens.weight" : "transformer.wte.weight";
}

bool are_equal(const HfWeights& weights, const std::string& a, const std::string& b) {
  if (!weights.has(a) || !weights.has(b) || weights.info(a).shape != weights.info(b).shape) return false;
  if (weights.info(a).dtype == weights.info(b).dtype) {
    const auto left = weights.bytes(a), right = weights.bytes(b);
    return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0;
  }
  return weights.read(a).to_doubles() == weights.read(b).to_doubles();
}

void decide_tie(HfConfig& config, const HfWeights& weights, const Say& say) {
  const bool claims_tied = config.model.is_tied;
  const bool has_head = weights.has(kHead);
  // ImageGPT's tables differ in size: it is never tied.
  config.model.is_tied =
      config.hf_class != HfClass::imagegpt && (!has_head || are_equal(weights, kHead, embedding_name(config.hf_class)));
  if (!say || claims_tied == config.model.is_tied) return;
  const std::string file = weights.place().string();
  if (claims_tied) {
    say(fmt::format("{}: {} differs from {}: the unembedding is its own, though config.json says tied", file, kHead,
                    embedding_name(config.hf_class)));
  } else {
    say(fmt::format("{}: {} {}: the unembedding is the embedding, though config.json says otherwise", file, kHead,
                    has_head ? "equals the embedding" : "is absent"));
  }
}

HfConfig read_config_file(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  return hf_config_from_json(read_file(file, kMaxConfigBytes), file.string());
}

// Llama may have biases in attention or in the MLP alone: the others are zero.
bool is_zero_bias(const HfTensor& tensor, const HfConfig& config) {
  if (!tensor.name.ends_with(".bias") || config.hf_class != HfClass::llama) return false;
  return tensor.name.find(".mlp.") != std::string::npos ? !config.has_mlp_bias : !config.has_attention_bias;
}

void check_tensors(const std::vector<HfTensor>& wanted, const HfConfig& config, const HfWeights& weights) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (const HfTensor& tensor : wanted) {
    if (is_zero_bias(tensor, config)) continue;
    known.insert(tensor.name);
    if (!weights.has(tensor.name)) {
      problems.push_back(tensor.name + " is missing");
      continue;
    }
    const SafetensorsEntry& info = weights.info(tensor.name);
    if (info.shape != tensor.hf_shape()) {
      problems.push_back(fmt::format("{} has the wrong shape, got [{}], want [{}]", tensor.name,
                                     fmt::join(info.shape, ", "), fmt::join(tensor.hf_shape(), ", ")));
    } else if (info.dtype != "F32" && info.dtype != "BF16" && info.dtype != "F16" && info.dtype != "F64") {
      problems.push_back(
          fmt::format("{} has the wrong dtype, got {}, want F32, BF16, F16 or F64", tensor.name, info.dtype));
    }
  }
  for (const std::string& name : weights.names()) {
    if (known.count(name) > 0 || (config.model.is_tied && name == kHead)) continue;
    problems.push_back(quoted_name(name) + " is unknown");
  }
  require_usage(problems.empty(), "{}: does not fit config.json: {}", weights.place().string(),
                fmt::join(problems, "; "));
}

}  // namespace

HfConfig read_hf_config(const fs::path& folder, const Say& say) {
  HfConfig config = read_config_file(folder);
  decide_tie(config, HfWeights::open(folder, config.hf_class), say);
  return config;
}

Transformer load_hf_model(const fs::path& folder, Precision precision, const Say& say) {
  HfConfig config = read_config_file(folder);
  const HfWeights weights = HfWeights::open(folder, config.hf_class);
  decide_tie(config, weights, say);
  // The weights' size bounds what a configuration may make us allocate.
  const int64_t wanted = parameter_count(config.model);
  require_usage(wanted <= weights.total_bytes(), "{}: too small for config.json; got {} bytes for {} parameters",
                weights.place().string(), weights.total_bytes(), wanted);
  Transformer model(config.model, precision);
  const std::vector<HfTensor> tensors = hf_tensors(model, config.hf_class);
  check_tensors(tensors, config, weights);
  for (const HfTensor& tensor : tensors) {
    if (is_zero_bias(tensor, config)) {
      kernels::fill(tensor.part, 0.0);
    } else {
      weights.read_into(tensor);
    }
  }
  for (const Parameter& p : model.parameters()) p.refresh_copy();
  return model;
}

StoredDtype stored_dtype_of(const fs::path& folder) {
  // Prefixes of names do not matter for this.
  return HfWeights::open(folder, HfClass::gpt2).dtype();
}

}  // namespace taper

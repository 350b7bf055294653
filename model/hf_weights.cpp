#include "model/hf_weights.h"

#include <cstring>
#include <set>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/safetensors_header.h"
#include "model/weights_index.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeFile = "model.safetensors";

// With the prefix of its class, which uploads of the body alone lack.
std::string full_name(const std::string& name, HfClass hf_class) {
  const std::string prefix = hf_class == HfClass::llama ? "model." : "transformer.";
  return name.starts_with(prefix) || name.starts_with("lm_head.") ? name : prefix + name;
}

// The causal mask of old GPT-2 uploads, the rotary frequencies of old Llama ones.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

bool HfWeights::is_in(const fs::path& folder) {
  return fs::exists(folder / kWholeFile) || fs::exists(folder / kWeightsIndexFile);
}

HfWeights HfWeights::open(const fs::path& folder, HfClass hf_class) {
  HfWeights weights;
  if (fs::exists(folder / kWholeFile)) {
    weights.place_ = folder / kWholeFile;
    weights.add_file(weights.place_, hf_class);
    return weights;
  }
  weights.place_ = folder / kWeightsIndexFile;
  require_usage(fs::exists(weights.place_), "{}: has no weights; want {} or {}", folder.string(), kWholeFile,
                kWeightsIndexFile);
  const std::map<std::string, std::string> map = read_weights_index(weights.place_);
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) shards.insert(shard);
  std::map<std::string, size_t> file_of_shard;
  for (const std::string& shard : shards) {
    file_of_shard[shard] = weights.files_.size();
    weights.add_file(folder / shard, hf_class);
  }
  for (const auto& [name, shard] : map) {
    require_usage(weights.files_[file_of_shard[shard]].has(name), "{}: tensor {} is not in its file, {}",
                  weights.place_.string(), quoted_name(name), shard);
  }
  for (const SafetensorsFile& file : weights.files_) {
    for (const std::string& name : file.names()) {
      require_usage(map.count(name) > 0, "{}: tensor {} of {} is not listed", weights.place_.string(),
                    quoted_name(name), file.path().filename().string());
    }
  }
  return weights;
}

void HfWeights::add_file(const fs::path& path, HfClass hf_class) {
  files_.push_back(SafetensorsFile::open(path));
  for (const std::string& name : files_.back().names()) {
    const SafetensorsEntry& entry = files_.back().info(name);
    total_bytes_ += entry.end - entry.begin;
    if (is_buffer(name)) continue;
    const auto [at, is_new] = places_.emplace(full_name(name, hf_class), Place{files_.size() - 1, name});
    require_usage(is_new, "{}: tensor {} is there twice, also as {}", path.string(), quoted_name(name),
                  quoted_name(at->second.name));
  }
}

std::vector<std::string> HfWeights::names() const {
  std::vector<std::string> names;
  for (const auto& entry : places_) names.push_back(entry.first);
  return names;
}

const SafetensorsEntry& HfWeights::info(const std::string& name) const {
  const Place& place = places_.at(name);
  return files_[place.file].info(place.name);
}

std::span<const std::byte> HfWeights::bytes(const std::string& name) const {
  const Place& place = places_.at(name);
  return files_[place.file].bytes(place.name);
}

Tensor HfWeights::read(const std::string& name) const {
  const Place& place = places_.at(name);
  return files_[place.file].read(place.name, Dtype::f32);
}

void HfWeights::read_into(const HfTensor& tensor) const {
  const Place& place = places_.at(tensor.name);
  const bool is_straight = !tensor.is_transposed && tensor.padding_rows == 0;
  if (is_straight) return files_[place.file].read_into(place.name, tensor.part);
  const Tensor stored = read(tensor.name);
  if (tensor.padding_rows > 0) return tensor.part.copy_from(stored.rows(0, tensor.part.dim(0)));
  if (tensor.part.dtype() == Dtype::f32) {
    return transpose_into(stored.data<float>(), stored.dim(0), stored.dim(1), tensor.part.data<float>());
  }
  const Tensor turned = Tensor::empty(tensor.part.shape(), Dtype::f32);
  transpose_into(stored.data<float>(), stored.dim(0), stored.dim(1), turned.data<float>());
  tensor.part.copy_from(turned);
}

StoredDtype HfWeights::dtype() const {
  int64_t most = -1;
  std::string_view dtype = "F32";
  for (const auto& [name, place] : places_) {
    const SafetensorsEntry& entry = files_[place.file].info(place.name);
    if (entry.end - entry.begin <= most) continue;
    most = entry.end - entry.begin;
    dtype = entry.dtype;
  }
  return dtype == "BF16" ? StoredDtype::bf16 : dtype == "F16" ? StoredDtype::f16 : StoredDtype::f32;
}

}  // namespace taper

#include "model/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/read_file.h"
#include "engine/io/safetensors.h"
#include "model/hf_weights.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";

bool is_model_folder(const fs::path& folder) { return fs::exists(folder / kConfigFile) && HfWeights::is_in(folder); }

// The masters under the names and in the shapes of the file, sharing memory with the model.
std::vector<std::pair<std::string, Tensor>> stored_tensors(const Transformer& model) {
  constexpr std::string_view fused = ".gate_up.";
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : model.parameters()) {
    const size_t at = p.name.find(fused);
    if (at != std::string::npos) {
      const std::string stem = p.name.substr(0, at);
      const std::string leaf = p.name.substr(at + fused.size());
      const int64_t half = p.master.dim(0) / 2;
      tensors.emplace_back(stem + ".gate." + leaf, p.master.rows(0, half));
      tensors.emplace_back(stem + ".up." + leaf, p.master.rows(half, 2 * half));
    } else {
      tensors.emplace_back(p.name,
                           p.master.numel() == 1 && !p.is_trained ? p.master.reshaped(Shape{}) : p.master.detached());
    }
  }
  return tensors;
}

template <class T>
bool is_finite(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  const T* values = host.data<T>();
  return std::all_of(values, values + tensor.numel(), [](T value) { return std::isfinite(value); });
}

// Whatever is not known as native goes the other way, which names the kinds there are.
bool is_hf_folder(const fs::path& folder) {
  const fs::path file = folder / kConfigFile;
  return model_type_of(read_file(file, kMaxConfigBytes), file.string()) != "taper";
}

Transformer load_native_model(const fs::path& place, Precision precision, const CheckpointFiles& saved) {
  const ModelConfig config = read_config(place / kConfigFile);
  const fs::path weights = place / kWeightsFile;
  const SafetensorsFile file = SafetensorsFile::open(weights);
  // The file's size bounds what a configuration may make us allocate.
  const int64_t wanted = parameter_count(config);
  require(wanted <= static_cast<int64_t>(fs::file_size(weights)),
          "{}: too small for {}; got {} bytes for {} parameters", weights.string(), kConfigFile, fs::file_size(weights),
          wanted);
  Transformer model(config, precision);
  std::set<std::string> known;
  for (const auto& [name, tensor] : stored_tensors(model)) {
    known.insert(name);
    require(file.has(name), "{}: tensor {} is missing", weights.string(), name);
    const std::vector<int64_t>& shape = file.info(name).shape;
    const Shape& want = tensor.shape();
    require(shape.size() == static_cast<size_t>(want.rank) && std::equal(shape.begin(), shape.end(), want.dims),
            "{}: tensor {} has another shape; got [{}], want {}", weights.string(), name, fmt::join(shape, ", "),
            to_string(want));
    // Right before the same bytes are converted: a tensor is brought into memory once.
    saved.check_tensor(file, name);
    file.read_into(name, tensor);
  }
  for (const std::string& name : file.names()) {
    require(known.count(name) != 0, "{}: tensor {} is unknown to this model", weights.string(), name);
  }
  for (const Parameter& p : model.parameters()) p.refresh_copy();
  return model;
}

}  // namespace

std::optional<int64_t> checkpoint_step(const fs::path& folder) {
  const std::string name = folder.filename().string();
  constexpr std::string_view prefix = "step-";
  if (name.compare(0, prefix.size(), prefix) != 0) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return {};
  return step;
}

std::vector<fs::path> complete_checkpoints(const fs::path& run) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const auto step = checkpoint_step(entry.path());
    if (step && is_model_folder(entry.path()) && fs::exists(entry.path() / kCheckpointManifest)) {
      found.emplace_back(*step, entry.path());
    }
  }
  // A folder that cannot be read is not one without checkpoints.
  const bool is_absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  require(!error || is_absent, "{}: cannot be read: {}", run.string(), error.message());
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> folders;
  for (auto& entry : found) folders.push_back(std::move(entry.second));
  return folders;
}

fs::path find_model_folder(const fs::path& folder) {
  std::error_code error;
  require_usage(fs::is_directory(folder, error), "model: {} is no folder", fs::absolute(folder).string());
  if (is_model_folder(folder)) return folder;
  const std::vector<fs::path> checkpoints = complete_checkpoints(folder);
  require_usage(!checkpoints.empty(), "model: nothing in {}; want {} and {}, or a run with a complete checkpoint",
                fs::absolute(folder).string(), kConfigFile, kWeightsFile);
  return checkpoints.front();
}

ModelConfig read_model_config(const fs::path& folder) {
  const fs::path place = find_model_folder(folder);
  return is_hf_folder(place) ? read_hf_config(place).model : read_config(place / kConfigFile);
}

Transformer load_model(const fs::path& folder, Precision precision, const Say& say) {
  const fs::path place = find_model_folder(folder);
  const CheckpointFiles saved = CheckpointFiles::of_checkpoint(place);
  saved.check_without_tensors();
  return is_hf_folder(place) ? load_hf_model(place, precision, say) : load_native_model(place, precision, saved);
}

void save_model(const Transformer& model, const fs::path& folder, StoredDtype stored) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "{}: cannot make this folder: {}", folder.string(), error.message());
  write_safetensors(folder / kWeightsFile, stored_tensors(model), {}, stored);
  write_file(folder / kConfigFile, config_to_json(model.config()));
}

std::optional<std::string> first_non_finite(const Transformer& model) {
  for (const Parameter& p : model.parameters()) {
    const bool holds = p.master.dtype() == Dtype::f64 ? is_finite<double>(p.master) : is_finite<float>(p.master);
    if (!holds) return p.name;
  }
  return {};
}

}  // namespace taper

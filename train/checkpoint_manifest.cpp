#include "train/checkpoint_manifest.h"

#include <limits>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/io/json_text.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

template <class T>
T read_entry(const Json& json, const fs::path& file, const char* key) {
  const auto found = json.find(key);
  require(found != json.end(), "{}: {} is missing", file.string(), key);
  if constexpr (std::is_integral_v<T>) {
    const bool is_fit =
        found->is_number_unsigned() && found->get<uint64_t>() <= uint64_t{std::numeric_limits<T>::max()};
    require(is_fit, "{}: {} is damaged; got {}, want a whole number up to {}", file.string(), key, shown(*found),
            std::numeric_limits<T>::max());
  } else {
    require(found->is_number(), "{}: {} is damaged; got {}, want a number", file.string(), key, shown(*found));
  }
  return found->get<T>();
}

}  // namespace

CheckpointManifest CheckpointManifest::read(const fs::path& checkpoint) {
  const Json json = read_checkpoint_manifest(checkpoint);
  const fs::path file = checkpoint / kCheckpointManifest;
  CheckpointManifest manifest;
  manifest.state.step = read_entry<int64_t>(json, file, "step");
  manifest.state.updates = read_entry<int64_t>(json, file, "updates");
  manifest.data.seed = read_entry<uint64_t>(json, file, "data_seed");
  manifest.data.windows = read_entry<uint64_t>(json, file, "data_windows");
  manifest.data.train_data = read_entry<uint64_t>(json, file, "train_data");
  manifest.data.valid_data = read_entry<uint64_t>(json, file, "valid_data");
  CalibrationState& calibration = manifest.state.calibration;
  calibration.scale_mean = read_entry<double>(json, file, "scale_mean");
  calibration.observed_steps = read_entry<int64_t>(json, file, "observed_steps");
  if (json.contains("scale_target") && !json["scale_target"].is_null()) {
    calibration.scale_target = read_entry<double>(json, file, "scale_target");
  }
  manifest.files = CheckpointFiles::of_manifest(json, checkpoint);
  return manifest;
}

std::string CheckpointManifest::to_json() const {
  const CalibrationState& calibration = state.calibration;
  Json json;
  json["step"] = state.step;
  json["updates"] = state.updates;
  json["data_seed"] = data.seed;
  json["data_windows"] = data.windows;
  json["train_data"] = data.train_data;
  json["valid_data"] = data.valid_data;
  json["scale_mean"] = calibration.scale_mean;
  json["observed_steps"] = calibration.observed_steps;
  json["scale_target"] = calibration.scale_target ? Json(*calibration.scale_target) : Json();
  files.add_to(json);
  return json.dump(2) + "\n";
}

}  // namespace taper

#include "train/checkpoint.h"

#include <nlohmann/json.hpp>

#include <span>
#include <system_error>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "engine/io/safetensors.h"
#include "model/model_folder.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStateFile = "training.safetensors";
constexpr const char* kPartial = ".partial";
constexpr uint64_t kMaxManifestBytes = 1 << 24;
constexpr uint64_t kMaxOtherBytes = uint64_t{1} << 30;  // of a file without tensors

Tensor to_tensor(const std::vector<KindMeans>& norms) {
  std::vector<double> values;
  for (const KindMeans& kinds : norms) {
    for (const RunningMean& mean : kinds) values.insert(values.end(), {mean.sum, mean.weight});
  }
  return Tensor::from(values, {static_cast<int64_t>(norms.size()), kTokenKinds, 2});
}

std::vector<KindMeans> to_means(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_doubles();
  const size_t per_norm = 2 * kTokenKinds;
  std::vector<KindMeans> norms(values.size() / per_norm);
  for (size_t i = 0; i < norms.size() * per_norm; i += 2) {
    norms[i / per_norm][i % per_norm / 2] = {values[i], values[i + 1]};
  }
  return norms;
}

void write_state(const fs::path& file, const Trainer& trainer) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Adamw::State& state : trainer.optimizer().states()) {
    tensors.emplace_back("m." + state.parameter.name, state.m);
    tensors.emplace_back("v." + state.parameter.name, state.v);
  }
  std::vector<double> means;
  const TrainerState state = trainer.state();
  const std::vector<NormCalibration>& norms = state.calibration.norms;
  for (const NormCalibration& norm : norms) means.insert(means.end(), {norm.a, norm.b});
  tensors.emplace_back("calibration", Tensor::from(means, {static_cast<int64_t>(norms.size()), 2}));
  if (!state.fakeln.empty()) tensors.emplace_back("fakeln", to_tensor(state.fakeln));
  write_safetensors(file, tensors);
}

std::string checksum_of(const void* data, size_t bytes) {
  Checksum checksum;
  checksum.add(data, bytes);
  return fmt::format("{:016x}", checksum.value());
}

bool holds_tensors(const std::string& file) { return fs::path(file).extension() == ".safetensors"; }

// Of a file that is read as it was written: of each tensor, or of the whole.
Json checksums_of(const fs::path& file) {
  if (!holds_tensors(file.filename().string())) {
    const std::string content = read_file(file, kMaxOtherBytes);
    return checksum_of(content.data(), content.size());
  }
  Json checksums = Json::object();
  const SafetensorsFile tensors = SafetensorsFile::open(file);
  for (const std::string& name : tensors.names()) {
    const std::span<const std::byte> bytes = tensors.bytes(name);
    checksums[name] = checksum_of(bytes.data(), bytes.size());
  }
  return checksums;
}

// Sizes and checksums of every file in the folder.
void describe_files(const fs::path& folder, Json& manifest) {
  manifest["files"] = Json::object();
  manifest["checksums"] = Json::object();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    manifest["files"][name] = fs::file_size(entry.path());
    manifest["checksums"][name] = checksums_of(entry.path());
  }
}

std::string manifest_of(const fs::path& folder, const TrainerState& state, const DataPosition& data) {
  const CalibrationState& calibration = state.calibration;
  Json json;
  json["step"] = state.step;
  json["updates"] = state.updates;
  json["data_seed"] = data.seed;
  json["data_windows"] = data.windows;
  json["scale_mean"] = calibration.scale_mean;
  json["observed_steps"] = calibration.observed_steps;
  json["scale_target"] = calibration.scale_target ? Json(*calibration.scale_target) : Json();
  describe_files(folder, json);
  return json.dump(2) + "\n";
}

Json read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kCheckpointManifest;
  Json json = parse_json<Json>(read_file(file, kMaxManifestBytes), file.string());
  require(json.is_object(), "{}: is damaged; want a JSON object", file.string());
  return json;
}

template <class T>
T read_entry(const Json& json, const fs::path& file, const char* key) {
  const auto found = json.find(key);
  require(found != json.end(), "{}: {} is missing", file.string(), key);
  const bool is_fit = std::is_integral_v<T> ? found->is_number_unsigned() : found->is_number();
  require(is_fit, "{}: {} is damaged; got {}, want a {}number", file.string(), key, shown(*found),
          std::is_integral_v<T> ? "whole " : "");
  return found->get<T>();
}

void read_moment(const SafetensorsFile& file, const std::string& name, const Tensor& to) {
  require(file.has(name), "{}: tensor {} is missing", file.path().string(), name);
  file.read_into(name, to);
}

std::string damage_of_file(const fs::path& checkpoint, const std::string& name, const Json& bytes, const Json& want) {
  if (!is_plain_name(name)) return fmt::format("training.json lists {}, which lies outside", shown(name));
  std::error_code error;
  const auto size = fs::file_size(checkpoint / name, error);
  if (error == std::errc::no_such_file_or_directory) return name + " is missing";
  require(!error, "{}: cannot be read: {}", (checkpoint / name).string(), error.message());
  if (bytes != size) return fmt::format("{} has {} bytes, want {}", name, size, shown(bytes));
  if (want.is_null()) return "";
  const Json got = checksums_of(checkpoint / name);
  if (got == want) return "";
  for (const auto& [tensor, checksum] : got.items()) {
    const bool is_tensor = got.is_object() && want.is_object();
    if (is_tensor && (!want.contains(tensor) || want[tensor] != checksum)) {
      return fmt::format("{}: tensor {} is not what was saved: its checksum differs", name, shown(tensor));
    }
  }
  return name + " is not what was saved: its checksum differs";
}

// What is wrong with a checkpoint; empty where all its files are as they were written. Manifests of before there were
// checksums state sizes alone.
std::string damage_of(const fs::path& checkpoint) {
  try {
    const Json manifest = read_manifest(checkpoint);
    const auto files = manifest.find("files");
    if (files == manifest.end() || !files->is_object()) return "training.json lists no files";
    const Json checksums = manifest.value("checksums", Json());
    for (const auto& [name, bytes] : files->items()) {
      const Json want = checksums.is_object() && checksums.contains(name) ? checksums[name] : Json();
      const std::string damage = damage_of_file(checkpoint, name, bytes, want);
      if (!damage.empty()) return damage;
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void write_folder(const fs::path& folder, const Transformer& model, const Trainer& trainer, const DataPosition& data,
                  const Tokenizer* tokenizer) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "{}: cannot make this folder: {}", folder.string(), error.message());
  save_model(model, folder);
  if (tokenizer) tokenizer->save(folder, model.config().context);
  write_state(folder / kStateFile, trainer);
  write_file(folder / kCheckpointManifest, manifest_of(folder, trainer.state(), data));
  sync_folder(folder);
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const Transformer& model, const Trainer& trainer,
                         const DataPosition& data, const Tokenizer* tokenizer) {
  const int64_t step = trainer.next_step();
  const auto bad = first_non_finite(model);
  require(!bad, "checkpoint: not saved at step {}, because {} is not finite", step, bad.value_or(""));
  const fs::path place = run / fmt::format("step-{}", step);
  // A run is the same whenever it comes by, so a whole checkpoint of this step is this one: replacing it would only
  // open a moment in which there is none.
  if (fs::exists(place) && damage_of(place).empty()) return place;
  fs::path partial = place;
  partial += kPartial;
  std::error_code ignored;
  try {
    fs::remove_all(partial);
    write_folder(partial, model, trainer, data, tokenizer);
    fs::remove_all(place);  // damaged, where there is one
    fs::rename(partial, place);
    sync_folder(run);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(partial, ignored);
    fail("checkpoint: {} cannot be written: {}", place.string(), error.code().message());
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
  return place;
}

namespace {

void remove_checkpoint(const fs::path& checkpoint) {
  std::error_code ignored;
  // The manifest first: a removal that is cut off must not leave something that looks complete.
  fs::remove(checkpoint / kCheckpointManifest, ignored);
  fs::remove_all(checkpoint, ignored);
}

}  // namespace

void remove_old_checkpoints(const fs::path& run, const CheckpointKeeping& keeping) {
  const std::vector<fs::path> all = complete_checkpoints(run);
  for (size_t i = static_cast<size_t>(keeping.last); i < all.size(); ++i) {
    const int64_t step = checkpoint_step(all[i]).value_or(0);
    if (keeping.every == 0 || step % keeping.every != 0) remove_checkpoint(all[i]);
  }
}

void remove_all_checkpoints(const fs::path& run) {
  for (const fs::path& checkpoint : complete_checkpoints(run)) remove_checkpoint(checkpoint);
}

void remove_partial_checkpoints(const fs::path& run) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.compare(0, 5, "step-") == 0 && entry.path().extension() == kPartial) stale.push_back(entry.path());
  }
  for (const fs::path& folder : stale) fs::remove_all(folder, ignored);
  remove_stale_temporaries(run);
}

std::optional<fs::path> newest_checkpoint(const fs::path& run, const std::function<void(const std::string&)>& message) {
  for (const fs::path& folder : complete_checkpoints(run)) {
    const std::string damage = damage_of(folder);
    if (damage.empty()) return folder;
    message(fmt::format("{}: is damaged and passed over: {}", folder.string(), damage));
  }
  return {};
}

DataPosition load_training_state(const fs::path& checkpoint, Trainer& trainer) {
  const Json manifest = read_manifest(checkpoint);
  const fs::path name = checkpoint / kCheckpointManifest;
  TrainerState state;
  state.step = read_entry<int64_t>(manifest, name, "step");
  state.updates = read_entry<int64_t>(manifest, name, "updates");
  state.calibration.scale_mean = read_entry<double>(manifest, name, "scale_mean");
  state.calibration.observed_steps = read_entry<int64_t>(manifest, name, "observed_steps");
  if (manifest.contains("scale_target") && !manifest["scale_target"].is_null()) {
    state.calibration.scale_target = read_entry<double>(manifest, name, "scale_target");
  }
  const SafetensorsFile file = SafetensorsFile::open(checkpoint / kStateFile);
  for (const Adamw::State& moments : trainer.optimizer().states()) {
    read_moment(file, "m." + moments.parameter.name, moments.m);
    read_moment(file, "v." + moments.parameter.name, moments.v);
  }
  require(file.has("calibration"), "{}: tensor calibration is missing", file.path().string());
  const std::vector<double> means = file.read("calibration", Dtype::f64).to_doubles();
  const bool is_fakeln = trainer.options().fakeln.has_value();
  require(file.has("fakeln") == is_fakeln, "{}: is of another variant; got {} tensor fakeln, want {}",
          file.path().string(), file.has("fakeln") ? "a" : "no", is_fakeln ? "one" : "none");
  if (is_fakeln) state.fakeln = to_means(file.read("fakeln", Dtype::f64));
  for (size_t i = 0; i + 1 < means.size(); i += 2) state.calibration.norms.push_back({means[i], means[i + 1]});
  trainer.restore(state);
  return {read_entry<uint64_t>(manifest, name, "data_seed"), read_entry<uint64_t>(manifest, name, "data_windows")};
}

}  // namespace taper

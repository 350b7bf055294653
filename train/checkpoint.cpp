#include "train/checkpoint.h"

#include <system_error>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "model/model_folder.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "training.safetensors";
constexpr const char* kPartial = ".partial";

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

void read_moment(const SafetensorsFile& file, const std::string& name, const Tensor& to) {
  require(file.has(name), "{}: tensor {} is missing", file.path().string(), name);
  file.read_into(name, to);
}

// What is wrong with a checkpoint; empty where all its files are as they were written.
std::string damage_of(const fs::path& checkpoint) {
  try {
    const CheckpointFiles files = CheckpointManifest::read(checkpoint).files;
    if (files.is_empty()) return "training.json lists no files";
    files.check_all();
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
  const CheckpointManifest manifest{trainer.state(), data, CheckpointFiles::of_folder(folder)};
  write_file(folder / kCheckpointManifest, manifest.to_json());
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
  const CheckpointManifest manifest = CheckpointManifest::read(checkpoint);
  TrainerState state = manifest.state;
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
  return manifest.data;
}

}  // namespace taper

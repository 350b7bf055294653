// A model on disk. Native form: a folder with config.json (model/config.h) and model.safetensors, whose tensors carry
// the names of the parameters ([out, in]; c is a scalar; a gated MLP as mlp.gate and mlp.up). A run folder holds such
// folders as checkpoints, step-N. Folders of Hugging Face models are read as well (model/hf_import.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint_files.h"
#include "model/hf_import.h"
#include "model/transformer.h"

namespace taper {

// The folder itself where it holds a model, native or Hugging Face's; for a run folder its newest complete checkpoint.
// UsageError where there is neither.
std::filesystem::path find_model_folder(const std::filesystem::path& folder);

// N of a folder named step-N; none for other names.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);
// step-N with a manifest, greatest N first. Error where the run's folder is there but cannot be read.
std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& run);

// Any model: takes what find_model_folder takes. Error that names the file and the tensor where one is missing,
// unknown, of another shape, or of a checkpoint and not as it was saved. Values may be anything, non-finite ones
// included: see first_non_finite. `say` hears what a user should know about a file of Hugging Face's.
Transformer load_model(const std::filesystem::path& folder, Precision precision = Precision::f32, const Say& say = {});

// The config.json alone, of either kind, as load_model would set it.
ModelConfig read_model_config(const std::filesystem::path& folder);

// Writes config.json and model.safetensors into the folder, made if missing; masters in f32 (f64 models too) or as
// `stored` says.
void save_model(const Transformer& model, const std::filesystem::path& folder, StoredDtype stored = StoredDtype::f32);

// The name of the first parameter with a NaN or an infinity.
std::optional<std::string> first_non_finite(const Transformer& model);

}  // namespace taper

// A model on disk, native form: a folder with config.json (model/config.h) and model.safetensors, whose tensors carry
// the names of the parameters ([out, in]; c is a scalar; a gated MLP as mlp.gate and mlp.up). A run folder holds such
// folders as checkpoints, step-N.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/transformer.h"

namespace taper {

// The folder itself where it holds a model; for a run folder its newest complete checkpoint. UsageError where there is
// neither.
std::filesystem::path find_model_folder(const std::filesystem::path& folder);

// A checkpoint's folder counts once this file, written last, is there.
inline constexpr const char* kCheckpointManifest = "training.json";
// step-N with a manifest, greatest N first.
std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& run);

// Error that names the file and the tensor where one is missing, unknown, or of another shape. Values may be anything,
// non-finite ones included: see first_non_finite. Takes what find_model_folder takes.
Transformer load_model(const std::filesystem::path& folder, Precision precision = Precision::f32);

// Writes config.json and model.safetensors into the folder, made if missing; masters in f32 (f64 models too).
void save_model(const Transformer& model, const std::filesystem::path& folder);

// The name of the first parameter with a NaN or an infinity.
std::optional<std::string> first_non_finite(const Transformer& model);

}  // namespace taper

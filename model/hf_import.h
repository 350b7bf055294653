// Models of Hugging Face folders: GPT2LMHeadModel, LlamaForCausalLM and ImageGPTForCausalImageModeling of any size, in
// F32, BF16 or F16.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "engine/io/safetensors.h"
#include "model/hf_config.h"
#include "model/transformer.h"

namespace taper {

// Hears what a user should know about a file that was read, or is being written.
using Say = std::function<void(std::string_view)>;

// The config.json of the folder, is_tied decided by the weights: no lm_head, or one equal to the embedding, is tied; a
// different one is not, and `say` hears where the file claims otherwise.
HfConfig read_hf_config(const std::filesystem::path& folder, const Say& say = {});

// UsageError that names the file and lists all tensors that are missing, unknown or of another shape. Memory: the
// parameters and at most one tensor besides.
Transformer load_hf_model(const std::filesystem::path& folder, Precision precision, const Say& say = {});

// How the folder holds its weights, native or Hugging Face.
StoredDtype stored_dtype_of(const std::filesystem::path& folder);

}  // namespace taper

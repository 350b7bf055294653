// A model folder that transformers opens through a modelling file of its own (auto_map, trust_remote_code=True), for
// what no stock class represents, and for running without norms: a removed norm is the identity there. The folder is
// the native one; config.json says besides which classes read it.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/io/safetensors.h"
#include "model/transformer.h"

namespace taper {

// REQUIRES no norm that tapers.
void save_custom_model(const Transformer& model, const std::filesystem::path& folder, StoredDtype stored,
                       std::optional<int64_t> bos_id, std::optional<int64_t> eos_id);

}  // namespace taper

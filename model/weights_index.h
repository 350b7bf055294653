// model.safetensors.index.json: which file beside it holds each tensor.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace taper {

inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

// {tensor: file}. UsageError, naming the file and the tensor, where it is damaged or a tensor's file lies outside the
// folder.
std::map<std::string, std::string> read_weights_index(const std::filesystem::path& path);

}  // namespace taper

// A small Hugging Face folder whose parts a test may spoil, and what comes of opening one.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "model/transformer.h"
#include "tests/support/temp_dir.h"

namespace taper::test {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct SmallHfFolder {
  TempDir temp;
  nlohmann::json config;
  NamedTensors tensors;  // GPT-2's without prefix

  explicit SmallHfFolder(bool is_llama = false);
  void add(const std::string& name, const Shape& shape);  // with values of its own
  Tensor& at(const std::string& name);
  const std::filesystem::path& write() const;  // the folder
  std::string error() const;                   // of opening it; empty where it opens
};

// What load_model throws for a folder; empty where it opens.
std::string load_error(const std::filesystem::path& folder);
// Of a few ids, at gate 1.
std::vector<double> logits_of(const Transformer& model);

}  // namespace taper::test

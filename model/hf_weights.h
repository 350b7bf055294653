// The tensors of a Hugging Face folder: model.safetensors, or several files that model.safetensors.index.json lists.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "model/hf_tensors.h"

namespace taper {

class HfWeights {
 public:
  // UsageError, naming the file, where there is none, a file is damaged, the index points outside its folder or
  // contradicts the files. Prefixes "transformer." and "model." may be absent from the names in the files.
  static HfWeights open(const std::filesystem::path& folder, HfClass hf_class);
  static bool is_in(const std::filesystem::path& folder);

  bool has(const std::string& name) const { return places_.count(name) > 0; }
  // Names as HfTensor has them, buffers that are no weights (causal masks, rotary frequencies) left out.
  std::vector<std::string> names() const;
  const SafetensorsEntry& info(const std::string& name) const;
  std::span<const std::byte> bytes(const std::string& name) const;
  Tensor read(const std::string& name) const;  // f32
  // Into the part of the parameter, transposed where the file is. REQUIRES equal shapes.
  void read_into(const HfTensor& tensor) const;

  int64_t total_bytes() const { return total_bytes_; }
  const std::filesystem::path& place() const { return place_; }  // for messages: the file or the index
  StoredDtype dtype() const;                                     // of the largest tensor

 private:
  struct Place {
    size_t file;
    std::string name;
  };
  void add_file(const std::filesystem::path& path, HfClass hf_class);

  std::filesystem::path place_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
  int64_t total_bytes_ = 0;
};

}  // namespace taper

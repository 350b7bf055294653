// What the manifest of a checkpoint (train/checkpoint.h) says of the files beside it:
//   "files"      {name: size in bytes}
//   "checksums"  {name: checksum of the whole, or of a .safetensors file {tensor: checksum}} (engine/io/checksum.h)
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "engine/io/safetensors.h"

namespace taper {

// A checkpoint's folder counts once this file, written last, is there.
inline constexpr const char* kCheckpointManifest = "training.json";

// Error where it is no JSON object.
nlohmann::ordered_json read_checkpoint_manifest(const std::filesystem::path& checkpoint);

class CheckpointFiles {
 public:
  // The files that are in this folder now.
  static CheckpointFiles of_folder(const std::filesystem::path& folder);
  // Those that a manifest lists; none where it has no "files". Error where one lies outside the folder.
  static CheckpointFiles of_manifest(const nlohmann::ordered_json& manifest, const std::filesystem::path& folder);
  // The same of a folder's manifest; none where the folder has none, as it is no checkpoint.
  static CheckpointFiles of_checkpoint(const std::filesystem::path& folder);

  void add_to(nlohmann::ordered_json& manifest) const;
  bool is_empty() const { return files_.empty(); }

  // Error that names the file or the tensor, with what is there and what was saved, where they differ or a file is
  // missing. Manifests of before there were checksums state sizes alone, and of files not listed nothing is known.
  void check_all() const;
  // The same of the files without tensors that are there: whoever takes a model along may leave the rest behind.
  void check_without_tensors() const;
  void check_tensor(const SafetensorsFile& file, const std::string& tensor) const;

 private:
  struct Saved {
    uint64_t bytes = 0;
    std::string checksum;                        // of the whole; empty: not known
    std::map<std::string, std::string> tensors;  // their checksums
  };
  static Saved describe(const std::filesystem::path& file);

  std::filesystem::path folder_;
  std::map<std::string, Saved> files_;
};

}  // namespace taper

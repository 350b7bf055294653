// The GGUF container, version 3 (ggml, docs/gguf.md): typed metadata, then tensors at aligned offsets.
//
//   "GGUF"  u32 version  u64 tensors  u64 entries
//   entries: string key, u32 type, value          strings: u64 length, bytes; arrays: u32 type, u64 count, elements
//   tensors: string name, u32 dimensions, u64 sizes (innermost first), u32 type, u64 offset into the data
//   padding to the alignment, the data
//
// Little-endian throughout. Readers want each key in exactly its type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/io/safetensors.h"

namespace taper {

using GgufValue =
    std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>, std::vector<int32_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  Tensor values;  // f32 of rank 1 or 2, [out, in]
  StoredDtype stored = StoredDtype::f32;
};

// Appears whole or not at all. Error where a name repeats or is too long, or a finite value leaves the range of its
// type.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors);

// Reads what write_gguf writes: metadata of the types above, tensors of F32, F16 and BF16. UsageError, naming the file,
// for anything damaged or of another kind.
class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  std::vector<std::string> names() const;
  Tensor read(const std::string& name) const;  // f32, [out, in]
  StoredDtype dtype(const std::string& name) const;
  // The value of a key that must be there, in this type.
  template <class T>
  const T& get(const std::string& key) const;

 private:
  struct Place {
    Shape shape;
    StoredDtype stored = StoredDtype::f32;
    int64_t offset = 0;  // in the file
  };
  friend class GgufParser;
  const Place& place_of(const std::string& name) const;

  std::filesystem::path path_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, Place> tensors_;
};

}  // namespace taper

// The safetensors format (huggingface/safetensors: README, safetensors/src/tensor.rs):
//
//   u64, little-endian    N, the header's length, at most 100,000,000
//   N bytes               JSON object {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}
//   the rest              the tensors, row-major, little-endian; offsets count from here
//
// The tensors cover the rest without holes and without overlap. Reading believes nothing: whatever breaks a rule of the
// format is a UsageError that names the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/tensor.h"

namespace taper {

struct SafetensorsEntry {
  std::string dtype;           // as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> shape;  // of any rank
  int64_t begin = 0;           // offsets into the data
  int64_t end = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// A file mapped into memory for as long as the object or a copy of it lives.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  const SafetensorsMetadata& metadata() const;
  const std::vector<std::string>& names() const;  // in the order of the data
  bool has(const std::string& name) const;
  const SafetensorsEntry& info(const std::string& name) const;
  std::span<const std::byte> bytes(const std::string& name) const;  // of any dtype; at any alignment

  // A copy in the dtype wanted: f64, f32 and bf16 from F64, F32, BF16 and F16; i32 from I32, and from I64 where the
  // values fit.
  Tensor read(const std::string& name, Dtype want) const;
  // The same into memory that is there; the shapes must agree. What was read does not stay in memory a second time.
  void read_into(const std::string& name, const Tensor& to) const;

 private:
  struct Content;
  explicit SafetensorsFile(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
  std::shared_ptr<const Content> content_;
};

// How floating-point tensors are stored; i32 stays I32.
enum class StoredDtype { as_is, f32, bf16, f16 };

// Writes a file whose data is sorted by element size, greatest first, then by name, so that every tensor is aligned.
// Metadata has {"format": "pt"} unless the caller says otherwise. The file appears whole or not at all
// (engine/io/atomic_file.h). Error where names repeat or a finite value leaves the range of F16.
void write_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const SafetensorsMetadata& metadata = {}, StoredDtype stored = StoredDtype::as_is);

}  // namespace taper

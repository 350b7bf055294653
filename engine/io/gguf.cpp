#include "engine/io/gguf.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/io/atomic_file.h"
#include "engine/io/float16.h"
#include "engine/io/safetensors_header.h"

namespace taper {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is all code here");

constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};
constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr size_t kMaxNameBytes = 63;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxEntries = 1 << 16;
constexpr uint64_t kMaxElements = 1 << 26;

enum class ValueType : uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

template <class T>
constexpr ValueType type_of() {
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::u32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::i32;
  if constexpr (std::is_same_v<T, float>) return ValueType::f32;
  if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
  return ValueType::string;
}

// ggml_type
uint32_t tensor_type(StoredDtype stored) {
  return stored == StoredDtype::f16 ? 1 : stored == StoredDtype::bf16 ? 30 : 0;
}
int64_t element_bytes(StoredDtype stored) { return stored == StoredDtype::f32 || stored == StoredDtype::as_is ? 4 : 2; }
int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

class HeaderWriter {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    bytes_ += value;
  }
  template <class T>
  void element(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      text(value);
    } else {
      number(value);
    }
  }
  void value(const GgufValue& any) {
    std::visit([this](const auto& value) { typed(value); }, any);
  }
  void bytes(const char* data, size_t size) { bytes_.append(data, size); }
  void pad() { bytes_.resize(static_cast<size_t>(aligned(static_cast<int64_t>(bytes_.size()))), '\0'); }
  const std::string& all() const { return bytes_; }

 private:
  template <class T>
  void typed(const T& value) {
    number(static_cast<uint32_t>(type_of<T>()));
    element(value);
  }
  template <class T>
  void typed(const std::vector<T>& values) {
    number(static_cast<uint32_t>(ValueType::array));
    number(static_cast<uint32_t>(type_of<T>()));
    number(static_cast<uint64_t>(values.size()));
    for (const T& value : values) element(value);
  }

  std::string bytes_;
};

void write_values(AtomicFile& file, const GgufTensor& tensor) {
  const float* values = tensor.values.data<float>();
  const int64_t count = tensor.values.numel();
  if (element_bytes(tensor.stored) == 4) return file.write(values, static_cast<size_t>(count) * 4);
  std::vector<uint16_t> piece;
  constexpr int64_t kPiece = 1 << 18;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = std::min(kPiece, count - begin);
    piece.resize(static_cast<size_t>(size));
    const bool is_half = tensor.stored == StoredDtype::f16;
    for (int64_t i = 0; i < size; ++i) {
      const float value = values[begin + i];
      const uint16_t bits = is_half ? float_to_float16(value) : bf16(value).bits;
      const bool has_overflowed = is_half ? (bits & 0x7fff) == 0x7c00 : (bits & 0x7fff) == 0x7f80;
      require(!has_overflowed || std::isinf(value), "tensor {}: element {} is {}, which {} cannot hold; want f32",
              tensor.name, begin + i, value, is_half ? "F16" : "BF16");
      piece[static_cast<size_t>(i)] = bits;
    }
    file.write(piece.data(), piece.size() * 2);
  }
}

}  // namespace

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors) {
  HeaderWriter header;
  header.bytes(kMagic, 4);
  header.number(kVersion);
  header.number(static_cast<uint64_t>(tensors.size()));
  header.number(static_cast<uint64_t>(metadata.size()));
  std::set<std::string> names;
  for (const auto& [key, value] : metadata) {
    require(names.insert(key).second, "{}: the key {} is there twice", path.string(), key);
    header.text(key);
    header.value(value);
  }
  names.clear();
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    const Shape& shape = tensor.values.shape();
    require(names.insert(tensor.name).second, "{}: tensor {} is there twice", path.string(), tensor.name);
    require(tensor.name.size() <= kMaxNameBytes, "{}: the name of tensor {} is too long; got {} bytes, want at most {}",
            path.string(), tensor.name, tensor.name.size(), kMaxNameBytes);
    header.text(tensor.name);
    header.number(static_cast<uint32_t>(shape.rank));
    for (int i = shape.rank - 1; i >= 0; --i) header.number(static_cast<uint64_t>(shape[i]));
    header.number(tensor_type(tensor.stored));
    header.number(static_cast<uint64_t>(offset));
    offset = aligned(offset + tensor.values.numel() * element_bytes(tensor.stored));
  }
  header.pad();
  AtomicFile file(path);
  file.write(header.all().data(), header.all().size());
  constexpr char kZeros[kAlignment] = {};
  for (const GgufTensor& tensor : tensors) {
    write_values(file, tensor);
    const int64_t bytes = tensor.values.numel() * element_bytes(tensor.stored);
    file.write(kZeros, static_cast<size_t>(aligned(bytes) - bytes));
  }
  file.commit();
}

// Believes nothing: every length is held against what is left of the file.
class GgufParser {
 public:
  explicit GgufParser(const std::filesystem::path& path) : path_(path.string()), stream_(path, std::ios::binary) {
    std::error_code error;
    require_usage(std::filesystem::is_regular_file(path, error) && stream_.good(),
                  "{}: cannot be opened; want a GGUF file", path_);
    size_ = static_cast<int64_t>(std::filesystem::file_size(path));
  }

  GgufFile parse() {
    GgufFile file;
    char magic[4];
    read(magic, 4);
    require_usage(std::memcmp(magic, kMagic, 4) == 0, "{}: is no GGUF file", path_);
    const auto version = number<uint32_t>();
    require_usage(version == kVersion, "{}: version {} is not supported; want {}", path_, version, kVersion);
    const uint64_t tensors = count(kMaxTensors, "tensors"), entries = count(kMaxEntries, "entries");
    for (uint64_t i = 0; i < entries; ++i) {
      std::string key = text();
      const bool is_new = file.metadata_.emplace(key, value(key)).second;
      require_usage(is_new, "{}: the key {} is there twice", path_, quoted_name(key));
    }
    for (uint64_t i = 0; i < tensors; ++i) tensor(file);
    const int64_t data = aligned(at_);
    for (auto& [name, place] : file.tensors_) {
      place.offset += data;
      const int64_t bytes = place.shape.numel() * element_bytes(place.stored);
      require_usage(place.offset <= size_ && bytes <= size_ - place.offset, "{}: tensor {} lies outside the file",
                    path_, quoted_name(name));
    }
    return file;
  }

 private:
  void read(void* to, int64_t bytes) {
    require_usage(bytes <= size_ - at_, "{}: is cut off at byte {}", path_, size_);
    stream_.read(static_cast<char*>(to), bytes);
    require_usage(stream_.good() || bytes == 0, "{}: cannot be read at byte {}", path_, at_);
    at_ += bytes;
  }
  template <class T>
  T number() {
    T value;
    read(&value, sizeof(T));
    return value;
  }
  uint64_t count(uint64_t most, const char* what) {
    const auto n = number<uint64_t>();
    require_usage(n <= most, "{}: too many {}; got {}, want at most {}", path_, what, n, most);
    return n;
  }
  std::string text() {
    const auto length = number<uint64_t>();
    require_usage(length <= static_cast<uint64_t>(size_ - at_), "{}: a text of {} bytes at byte {} is cut off", path_,
                  length, at_);
    std::string value(static_cast<size_t>(length), '\0');
    read(value.data(), static_cast<int64_t>(length));
    return value;
  }
  template <class T>
  std::vector<T> array() {
    const uint64_t n = count(std::min(kMaxElements, static_cast<uint64_t>(size_ - at_)), "elements of an array");
    std::vector<T> values;
    for (uint64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, std::string>) {
        values.push_back(text());
      } else {
        values.push_back(number<T>());
      }
    }
    return values;
  }
  GgufValue value(const std::string& key) {
    const auto type = number<uint32_t>();
    if (type == uint32_t(ValueType::u32)) return number<uint32_t>();
    if (type == uint32_t(ValueType::i32)) return number<int32_t>();
    if (type == uint32_t(ValueType::f32)) return number<float>();
    if (type == uint32_t(ValueType::boolean)) return number<uint8_t>() != 0;
    if (type == uint32_t(ValueType::string)) return text();
    uint32_t element = 0;
    if (type == uint32_t(ValueType::array)) {
      element = number<uint32_t>();
      if (element == uint32_t(ValueType::string)) return array<std::string>();
      if (element == uint32_t(ValueType::i32)) return array<int32_t>();
    }
    fail_usage("{}: the type {} of the key {} is not supported", path_,
               type == uint32_t(ValueType::array) ? element : type, quoted_name(key));
  }
  void tensor(GgufFile& file) {
    const std::string name = text();
    const auto rank = number<uint32_t>();
    require_usage(rank >= 1 && rank <= kMaxRank, "{}: tensor {} has {} dimensions; want 1 to {}", path_,
                  quoted_name(name), rank, kMaxRank);
    GgufFile::Place place;
    place.shape.rank = static_cast<int>(rank);
    int64_t product = 1;
    for (int i = static_cast<int>(rank) - 1; i >= 0; --i) {
      const auto size = number<uint64_t>();
      require_usage(size >= 1 && size <= static_cast<uint64_t>(size_ / product),
                    "{}: tensor {} is larger than the file", path_, quoted_name(name));
      place.shape.dims[i] = static_cast<int64_t>(size);
      product *= static_cast<int64_t>(size);
    }
    const auto type = number<uint32_t>();
    require_usage(type == 0 || type == 1 || type == 30, "{}: tensor {} is of the type {}; want F32, F16 or BF16", path_,
                  quoted_name(name), type);
    place.stored = type == 0 ? StoredDtype::f32 : type == 1 ? StoredDtype::f16 : StoredDtype::bf16;
    const auto offset = number<uint64_t>();
    require_usage(offset % kAlignment == 0 && offset <= static_cast<uint64_t>(size_),
                  "{}: tensor {} has a wrong offset; got {}", path_, quoted_name(name), offset);
    place.offset = static_cast<int64_t>(offset);
    require_usage(file.tensors_.emplace(name, place).second, "{}: tensor {} is there twice", path_, quoted_name(name));
  }

  std::string path_;
  std::ifstream stream_;
  int64_t size_ = 0, at_ = 0;
};

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile file = GgufParser(path).parse();
  file.path_ = path;
  return file;
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  return names;
}

const GgufFile::Place& GgufFile::place_of(const std::string& name) const {
  const auto found = tensors_.find(name);
  require_usage(found != tensors_.end(), "{}: tensor {} is missing", path_.string(), quoted_name(name));
  return found->second;
}

StoredDtype GgufFile::dtype(const std::string& name) const { return place_of(name).stored; }

Tensor GgufFile::read(const std::string& name) const {
  const Place& place = place_of(name);
  const int64_t count = place.shape.numel();
  const Tensor tensor = Tensor::empty(place.shape, Dtype::f32, Device::cpu, name.c_str());
  std::ifstream stream(path_, std::ios::binary);
  stream.seekg(place.offset);
  if (place.stored == StoredDtype::f32) {
    stream.read(reinterpret_cast<char*>(tensor.raw()), count * 4);
  } else {
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    stream.read(reinterpret_cast<char*>(bits.data()), count * 2);
    const bool is_half = place.stored == StoredDtype::f16;
    for (int64_t i = 0; i < count; ++i) {
      bf16 brain;
      brain.bits = bits[static_cast<size_t>(i)];
      tensor.data<float>()[i] = is_half ? float16_to_float(brain.bits) : static_cast<float>(brain);
    }
  }
  require(stream.good(), "{}: tensor {} cannot be read", path_.string(), quoted_name(name));
  return tensor;
}

template <class T>
const T& GgufFile::get(const std::string& key) const {
  const auto found = metadata_.find(key);
  require_usage(found != metadata_.end(), "{}: the key {} is missing", path_.string(), key);
  const T* value = std::get_if<T>(&found->second);
  require_usage(value != nullptr, "{}: the key {} has the wrong type", path_.string(), key);
  return *value;
}

template const uint32_t& GgufFile::get<uint32_t>(const std::string&) const;
template const float& GgufFile::get<float>(const std::string&) const;
template const bool& GgufFile::get<bool>(const std::string&) const;
template const std::string& GgufFile::get<std::string>(const std::string&) const;
template const std::vector<std::string>& GgufFile::get<std::vector<std::string>>(const std::string&) const;
template const std::vector<int32_t>& GgufFile::get<std::vector<int32_t>>(const std::string&) const;

}  // namespace taper

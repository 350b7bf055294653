#include "engine/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/io/atomic_file.h"
#include "engine/io/float16.h"
#include "engine/io/mapped_file.h"
#include "engine/io/safetensors_header.h"

namespace taper {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is all code here");

constexpr int64_t kPrefix = 8;  // the header's length

struct float16 {
  uint16_t bits;
};

template <class T>
double widened(T value) {
  if constexpr (std::is_same_v<T, float16>) {
    return float16_to_float(value.bits);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, float16>) {
    return {float_to_float16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// The source lies at any alignment.
template <class From, class To>
void convert(const std::byte* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
    return;
  }
  parallel_for(count, 1 << 16, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      From value;
      std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
      to[i] = narrowed<To>(widened(value));
    }
  });
}

// False where the file's dtype is none of floating point.
template <class To>
bool convert_floats(const std::string& dtype, const std::byte* from, To* to, int64_t count) {
  if (dtype == "F32") {
    convert<float>(from, to, count);
  } else if (dtype == "BF16") {
    convert<bf16>(from, to, count);
  } else if (dtype == "F16") {
    convert<float16>(from, to, count);
  } else if (dtype == "F64") {
    convert<double>(from, to, count);
  } else {
    return false;
  }
  return true;
}

bool convert_integers(const std::string& dtype, const std::byte* from, int32_t* to, int64_t count,
                      const std::string& where) {
  if (dtype == "I32") {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return true;
  }
  if (dtype != "I64") return false;
  for (int64_t i = 0; i < count; ++i) {
    int64_t value;
    std::memcpy(&value, from + i * 8, 8);
    to[i] = static_cast<int32_t>(value);
    require_usage(to[i] == value, "{}: element {} is {}, which does not fit i32", where, i, value);
  }
  return true;
}

}  // namespace

// --- reading ---

struct SafetensorsFile::Content {
  std::filesystem::path path;
  MappedFile file;
  int64_t data_begin = 0;
  SafetensorsHeader header;
  std::vector<std::string> names;

  void release(const SafetensorsEntry& entry) const {
    file.release(static_cast<size_t>(data_begin + entry.begin), static_cast<size_t>(data_begin + entry.end));
  }

  void parse() {
    const std::string name = path.string();
    const auto file_bytes = static_cast<int64_t>(file.size());
    require_usage(file_bytes >= kPrefix, "{}: is no safetensors file; got {} bytes, want at least 8", name, file_bytes);
    const char* bytes = reinterpret_cast<const char*>(file.data());
    uint64_t length;
    std::memcpy(&length, bytes, kPrefix);
    require_usage(length >= 2 && length <= static_cast<uint64_t>(kSafetensorsHeaderMost),
                  "{}: is no safetensors file: the header's length is {}, want 2 to {}", name, length,
                  kSafetensorsHeaderMost);
    data_begin = kPrefix + static_cast<int64_t>(length);
    require_usage(data_begin <= file_bytes, "{}: is cut off: the header has {} bytes, the file {}", name, length,
                  file_bytes);
    header = parse_safetensors_header({bytes + kPrefix, length}, file_bytes - data_begin, name);
    for (const auto& item : header.entries) names.push_back(item.first);
    std::stable_sort(names.begin(), names.end(), [this](const std::string& a, const std::string& b) {
      return header.entries.at(a).begin < header.entries.at(b).begin;
    });
  }
};

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto content = std::make_shared<Content>();
  content->path = path;
  content->file = MappedFile(path);
  content->parse();
  return SafetensorsFile(std::move(content));
}

const std::filesystem::path& SafetensorsFile::path() const { return content_->path; }
const SafetensorsMetadata& SafetensorsFile::metadata() const { return content_->header.metadata; }
const std::vector<std::string>& SafetensorsFile::names() const { return content_->names; }
bool SafetensorsFile::has(const std::string& name) const { return content_->header.entries.count(name) > 0; }

const SafetensorsEntry& SafetensorsFile::info(const std::string& name) const {
  const auto& entries = content_->header.entries;
  const auto it = entries.find(name);
  require_usage(it != entries.end(), "{}: tensor {} is missing; the file has {} tensors", path().string(),
                quoted_name(name), entries.size());
  return it->second;
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const SafetensorsEntry& entry = info(name);
  const std::byte* data = content_->file.data() + content_->data_begin;
  return {data + entry.begin, static_cast<size_t>(entry.end - entry.begin)};
}

Tensor SafetensorsFile::read(const std::string& name, Dtype want) const {
  const SafetensorsEntry& entry = info(name);
  require_usage(entry.shape.size() <= kMaxRank, "{}: tensor {} has too many dimensions; got {}, want at most {}",
                path().string(), quoted_name(name), entry.shape.size(), kMaxRank);
  Shape shape;
  for (const int64_t size : entry.shape) shape.dims[shape.rank++] = size;
  Tensor result = Tensor::empty(shape, want, Device::cpu, name.c_str());
  read_into(name, result);
  return result;
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& to) const {
  const SafetensorsEntry& entry = info(name);
  const std::string where = path().string() + ": tensor " + quoted_name(name);
  if (to.device() != Device::cpu) {
    const Tensor host = Tensor::empty(to.shape(), to.dtype(), Device::cpu, name.c_str());
    read_into(name, host);
    return to.copy_from(host);
  }
  const Shape& shape = to.shape();
  require_usage(std::equal(entry.shape.begin(), entry.shape.end(), shape.dims, shape.dims + shape.rank),
                "{} has the wrong shape; got [{}], want {}", where, fmt::join(entry.shape, ", "), to_string(shape));
  const std::byte* from = bytes(name).data();
  const int64_t count = to.numel();
  bool is_known = false;
  switch (to.dtype()) {
    case Dtype::f64:
      is_known = convert_floats(entry.dtype, from, to.data<double>(), count);
      break;
    case Dtype::f32:
      is_known = convert_floats(entry.dtype, from, to.data<float>(), count);
      break;
    case Dtype::bf16:
      is_known = convert_floats(entry.dtype, from, to.data<bf16>(), count);
      break;
    case Dtype::i32:
      is_known = convert_integers(entry.dtype, from, to.data<int32_t>(), count, where);
      break;
  }
  require_usage(is_known, "{} has the wrong dtype; got {}, want {}", where, entry.dtype,
                to.dtype() == Dtype::i32 ? "I32 or I64" : "F32, BF16, F16 or F64");
  content_->release(entry);
}

// --- writing ---

namespace {

struct Item {
  const std::string* name;
  const Tensor* tensor;
  const char* dtype;
  int64_t element_bytes;
};

Item item_of(const std::string& name, const Tensor& tensor, StoredDtype stored) {
  Dtype dtype = tensor.dtype();
  if (dtype != Dtype::i32) {
    if (stored == StoredDtype::f16) return {&name, &tensor, "F16", 2};
    if (stored == StoredDtype::f32) dtype = Dtype::f32;
    if (stored == StoredDtype::bf16) dtype = Dtype::bf16;
  }
  const char* text = dtype == Dtype::f64 ? "F64" : dtype == Dtype::f32 ? "F32" : dtype == Dtype::bf16 ? "BF16" : "I32";
  return {&name, &tensor, text, size_of(dtype)};
}

std::string header_of(const std::vector<Item>& items, SafetensorsMetadata metadata, const std::string& file) {
  metadata.emplace("format", "pt");
  std::string text = "{\"__metadata__\":{";
  const char* comma = "";
  for (const auto& [key, value] : metadata) {
    text += fmt::format("{}{}:{}", comma, json_string(key, file), json_string(value, file));
    comma = ",";
  }
  text += "}";
  int64_t begin = 0;
  for (const Item& item : items) {
    const Shape& shape = item.tensor->shape();
    const int64_t end = begin + item.tensor->numel() * item.element_bytes;
    text +=
        fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_string(*item.name, file),
                    item.dtype, fmt::join(shape.dims, shape.dims + shape.rank, ","), begin, end);
    begin = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Converts and writes a piece at a time.
template <class From, class To>
void write_converted(AtomicFile& file, const Item& item, const std::string& path) {
  constexpr int64_t kPiece = 1 << 18;
  const From* from = item.tensor->data<From>();
  const int64_t count = item.tensor->numel();
  std::vector<To> piece(static_cast<size_t>(std::min(count, kPiece)));
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    for (int64_t i = begin; i < end; ++i) piece[static_cast<size_t>(i - begin)] = narrowed<To>(widened(from[i]));
    if constexpr (std::is_same_v<To, float16>) {
      for (int64_t i = begin; i < end; ++i) {
        const bool has_overflowed = (piece[static_cast<size_t>(i - begin)].bits & 0x7fff) == 0x7c00;
        require(!has_overflowed || std::abs(widened(from[i])) == std::numeric_limits<double>::infinity(),
                "{}: tensor {}: element {} is {}, which F16 cannot hold; want BF16 or F32", path,
                quoted_name(*item.name), i, widened(from[i]));
      }
    }
    file.write(piece.data(), static_cast<size_t>(end - begin) * sizeof(To));
  }
}

template <class From>
void write_from(AtomicFile& file, const Item& item, const std::string& path) {
  if (item.dtype == std::string("F16")) return write_converted<From, float16>(file, item, path);
  if (item.dtype == std::string("BF16")) return write_converted<From, bf16>(file, item, path);
  return write_converted<From, float>(file, item, path);
}

void write_item(AtomicFile& file, const Item& item, const std::string& path) {
  const Tensor& tensor = *item.tensor;
  if (tensor.device() != Device::cpu) {
    const Tensor host = tensor.to(Device::cpu);
    Item on_host = item;
    on_host.tensor = &host;
    return write_item(file, on_host, path);
  }
  const Item as_is = item_of(*item.name, tensor, StoredDtype::as_is);
  if (as_is.dtype == std::string(item.dtype)) return file.write(tensor.raw(), static_cast<size_t>(tensor.bytes()));
  if (tensor.dtype() == Dtype::f64) return write_from<double>(file, item, path);
  if (tensor.dtype() == Dtype::f32) return write_from<float>(file, item, path);
  write_from<bf16>(file, item, path);
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const SafetensorsMetadata& metadata, StoredDtype stored) {
  const std::string file_name = path.string();
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.is_defined(), "{}: tensor {} cannot be written; it is undefined", file_name, quoted_name(name));
    require(name != "__metadata__", "{}: tensor {} has the name that the format keeps for metadata", file_name,
            quoted_name(name));
    items.push_back(item_of(name, tensor, stored));
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.element_bytes != b.element_bytes ? a.element_bytes > b.element_bytes : *a.name < *b.name;
  });
  std::vector<std::string> names;
  for (const Item& item : items) names.push_back(*item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "{}: tensor {} is there twice", file_name,
          twice == names.end() ? std::string() : quoted_name(*twice));

  const std::string header = header_of(items, metadata, file_name);
  require(static_cast<int64_t>(header.size()) <= kSafetensorsHeaderMost,
          "{}: the header has {} bytes; the format allows {}", file_name, header.size(), kSafetensorsHeaderMost);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(&length, kPrefix);
  file.write(header.data(), header.size());
  for (const Item& item : items) write_item(file, item, file_name);
  file.commit();
}

}  // namespace taper

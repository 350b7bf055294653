#include "engine/io/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "engine/core/error.h"

namespace taper {
namespace {

using Json = nlohmann::json;

struct DtypeBits {
  const char* name;
  int bits;
};

constexpr DtypeBits kDtypes[] = {
    {"F64", 64},        {"F32", 32},    {"BF16", 16},   {"F16", 16},    {"I64", 64},    {"I32", 32},
    {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},
    {"BOOL", 8},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

int bits_of(const std::string& dtype) {
  for (const auto& known : kDtypes) {
    if (dtype == known.name) return known.bits;
  }
  return 0;
}

// Receives the header's events in turn. The parser keeps no tree and calls nothing recursively, so no nesting can
// exhaust the stack.
class HeaderReader : public Json::json_sax_t {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t value) override { return other(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return other(text.substr(0, 40)); }
  bool binary(binary_t&) override { return other("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::in_list) {
      require_usage(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "{}: {} is too large; got {}",
                    where(), key_, value);
      list_->push_back(static_cast<int64_t>(value));
      return true;
    }
    return other(std::to_string(value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::in_metadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::in_entry && key_ == "dtype") {
      entry_->dtype = value;
    } else {
      return other("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::before) {
      place_ = Place::at_top;
    } else if (place_ == Place::at_top) {
      const bool is_metadata = key_ == "__metadata__";
      place_ = is_metadata ? Place::in_metadata : Place::in_entry;
      if (!is_metadata) entry_ = &header_.entries[name_ = key_];
      fields_.clear();
    } else {
      return open_other("an object");
    }
    return true;
  }

  bool end_object() override {
    if (extra_depth_ > 0) return close_other();
    if (place_ == Place::at_top) {
      place_ = Place::after;
    } else {
      if (place_ == Place::in_entry) {
        for (const char* field : {"dtype", "shape", "data_offsets"}) {
          require_usage(fields_.count(field) > 0, "{}: {} is missing", where(), field);
        }
      }
      place_ = Place::at_top;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::in_entry && (key_ == "shape" || key_ == "data_offsets")) {
      list_ = key_ == "shape" ? &entry_->shape : &offsets_;
      list_->clear();
      place_ = Place::in_list;
      return true;
    }
    return open_other("an array");
  }

  bool end_array() override {
    if (extra_depth_ > 0) return close_other();
    place_ = Place::in_entry;
    if (key_ == "data_offsets") {
      require_usage(offsets_.size() == 2, "{}: data_offsets is wrong; got {} numbers, want 2", where(),
                    offsets_.size());
      entry_->begin = offsets_[0];
      entry_->end = offsets_[1];
    }
    return true;
  }

  bool key(string_t& value) override {
    if (extra_depth_ > 0) return true;
    const bool is_new = place_ == Place::at_top ? names_.insert(value).second : fields_.insert(value).second;
    key_ = value;
    require_usage(is_new, "{}: {} occurs twice", place_ == Place::at_top ? file_ + ": header" : where(),
                  quoted_name(value));
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    // "[id] parse error at line 1, column 3: REASON; last read: BYTES": the bytes may be no text at all.
    std::string reason = error.what();
    if (const size_t column = reason.find("column"); column != std::string::npos) {
      reason = reason.substr(std::min(reason.size(), reason.find(": ", column) + 2));
    }
    reason = reason.substr(0, reason.find("; last read"));
    fail_usage("{}: the header is no valid JSON at byte {}: {}", file_, position, reason);
  }

 private:
  enum class Place { before, at_top, in_metadata, in_entry, in_list, in_extra, after };
  static constexpr int kDeepest = 64;

  std::string where() const {
    return place_ == Place::in_metadata ? file_ + ": __metadata__" : file_ + ": tensor " + quoted_name(name_);
  }

  // A value that is not what the format asks for: an error, unless it belongs to a field the format does not know.
  bool other(const std::string& got) const {
    if (is_extra()) return true;
    switch (place_) {
      case Place::in_metadata:
        fail_usage("{}: {} is wrong; got {}, want a string", where(), quoted_name(key_), got);
      case Place::in_list:
        fail_usage("{}: {} is wrong; got {}, want whole numbers from 0", where(), key_, got);
      case Place::in_entry:
        fail_usage("{}: {} is wrong; got {}, want {}", where(), key_, got,
                   key_ == "dtype" ? "a string" : "a list of numbers");
      default:
        fail_usage("{}: header entry {} is wrong; got {}, want an object", file_, quoted_name(key_), got);
    }
  }

  bool is_extra() const {
    const bool is_known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    return extra_depth_ > 0 || (place_ == Place::in_entry && !is_known);
  }

  bool open_other(const char* got) {
    other(got);
    require_usage(++extra_depth_ <= kDeepest, "{}: a field is nested too deeply; want at most {} levels", where(),
                  kDeepest);
    place_ = Place::in_extra;
    return true;
  }

  bool close_other() {
    if (--extra_depth_ == 0) place_ = Place::in_entry;
    return true;
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  Place place_ = Place::before;
  int extra_depth_ = 0;
  std::string key_, name_;
  std::set<std::string> names_, fields_;
  SafetensorsEntry* entry_ = nullptr;
  std::vector<int64_t>* list_ = nullptr;
  std::vector<int64_t> offsets_;
};

void check_size(const SafetensorsEntry& entry, int64_t data_bytes, const std::string& where) {
  require_usage(entry.begin <= entry.end, "{}: data_offsets is wrong; begin {} lies behind end {}", where, entry.begin,
                entry.end);
  require_usage(entry.end <= data_bytes, "{}: the data ends at byte {}, the file has {}: it is cut off", where,
                entry.end, data_bytes);
  const int bits_each = bits_of(entry.dtype);
  if (bits_each == 0) {
    std::string known;
    for (const auto& dtype : kDtypes) known += (known.empty() ? "" : " ") + std::string(dtype.name);
    fail_usage("{}: dtype is unknown; got {}, want one of {}", where, quoted_name(entry.dtype), known);
  }
  int64_t bits = bits_each;
  for (const int64_t size : entry.shape) {
    require_usage(!__builtin_mul_overflow(bits, size, &bits), "{}: shape is too large for 64 bits", where);
  }
  require_usage(bits % 8 == 0 && bits / 8 == entry.end - entry.begin,
                "{}: data_offsets is wrong; got {} bytes, want {} for {} and its shape", where, entry.end - entry.begin,
                bits / 8, entry.dtype);
}

void check_cover(const SafetensorsHeader& header, int64_t data_bytes, const std::string& file) {
  using Item = const std::pair<const std::string, SafetensorsEntry>*;
  std::vector<Item> items;
  for (const auto& item : header.entries) items.push_back(&item);
  std::sort(items.begin(), items.end(), [](Item a, Item b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t end = 0;
  for (const Item item : items) {
    require_usage(item->second.begin == end, "{}: tensor {}: its data {}; it begins at byte {}, want {}", file,
                  quoted_name(item->first), item->second.begin < end ? "overlaps another's" : "comes after a hole",
                  item->second.begin, end);
    end = item->second.end;
  }
  require_usage(end == data_bytes, "{}: {} bytes lie behind the last tensor; want none", file, data_bytes - end);
}

}  // namespace

std::string quoted_name(const std::string& name) {
  constexpr size_t kMost = 120;
  const bool is_long = name.size() > kMost;
  return Json(is_long ? name.substr(0, kMost) + "..." : name).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_string(const std::string& text, const std::string& file) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail("{}: {} cannot be written: it is no valid UTF-8", file, quoted_name(text));
  }
}

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& file) {
  require_usage(!json.empty() && json[0] == '{', "{}: the header is wrong; want a JSON object that begins at byte 8",
                file);
  // The parser would take a NUL byte for the end; JSON has none anywhere.
  require_usage(json.find('\0') == std::string_view::npos, "{}: the header is no valid JSON: it has a NUL byte", file);
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  Json::sax_parse(json.begin(), json.end(), &reader);
  for (const auto& [name, entry] : header.entries)
    check_size(entry, data_bytes, file + ": tensor " + quoted_name(name));
  check_cover(header, data_bytes, file);
  return header;
}

}  // namespace taper

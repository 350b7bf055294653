#include "tools/common/config_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <system_error>

#include "data/byte_stream.h"
#include "engine/core/error.h"

namespace taper {
namespace {

using nlohmann::json;

// Hands the text to the parser and knows how far it has read: the library's events carry no positions.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(std::string name, const std::string& text) : name_(std::move(name)), text_(text), read_(text.data()) {}

  std::vector<ConfigEntry> read() {
    const char* end = text_.data() + text_.size();
    json::sax_parse(CountingIterator(text_.data(), &read_), CountingIterator(end, &read_), this);
    return std::move(entries_);
  }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { return add(ConfigEntry::Kind::kBool, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return add(ConfigEntry::Kind::kNumber, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add(ConfigEntry::Kind::kNumber, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& digits) override { return add(ConfigEntry::Kind::kNumber, digits); }
  bool string(string_t& value) override { return add(ConfigEntry::Kind::kString, value); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool start_object(std::size_t) override {
    if (is_inside_) refuse("an object inside the object");
    is_inside_ = true;
    return true;
  }
  bool end_object() override { return true; }

  bool key(string_t& name) override {
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string where = place(key_start());
    for (const ConfigEntry& entry : entries_) {
      require_usage(entry.key != name, "{}: '{}' is given twice", where, name);
    }
    entries_.push_back({name, ConfigEntry::Kind::kString, false, {}, where});
    return true;
  }

  bool start_array(std::size_t) override {
    if (!is_inside_ || is_in_list_) refuse("a list");
    is_in_list_ = true;
    entries_.back().is_list = true;
    return true;
  }
  bool end_array() override {
    is_in_list_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The library's text repeats the position before the colon; what follows it is the reason.
    const std::string text = error.what();
    const size_t reason = text.find(": ");
    const size_t offset = std::min(position > 0 ? position - 1 : 0, text_.size());
    fail_usage("{}: not valid JSON: {}", place(offset), reason == std::string::npos ? text : text.substr(reason + 2));
  }

 private:
  bool add(ConfigEntry::Kind kind, std::string value) {
    if (!is_inside_) refuse("a single value");
    ConfigEntry& entry = entries_.back();
    const bool is_mixed = !entry.values.empty() && entry.kind != kind;
    if (is_mixed) refuse("a list of several types");
    entry.kind = kind;
    entry.values.push_back(std::move(value));
    return true;
  }

  [[noreturn]] void refuse(const std::string& got) const {
    const std::string want = "a number, a string, true or false, or a list of numbers or strings";
    if (!is_inside_) fail_usage("{}: not a configuration; got {}, want one JSON object", place(0), got);
    fail_usage("{}: '{}' cannot be set so; got {}, want {}", entries_.empty() ? place(0) : entries_.back().place,
               entries_.empty() ? "" : entries_.back().key, got, want);
  }

  // The parser has read exactly up to the quote that closes the key; the one that opens it is the last unescaped
  // before.
  size_t key_start() const {
    size_t at = static_cast<size_t>(read_ - text_.data()) - 1;
    do {
      --at;
    } while (at > 0 && !(text_[at] == '"' && text_[at - 1] != '\\'));
    return at;
  }

  std::string place(size_t offset) const {
    const auto begin = text_.begin(), here = begin + static_cast<std::ptrdiff_t>(offset);
    const auto line = 1 + std::count(begin, here, '\n');
    const size_t line_start = offset == 0 ? std::string::npos : text_.rfind('\n', offset - 1);
    const size_t column = line_start == std::string::npos ? offset + 1 : offset - line_start;
    return fmt::format("{}:{}:{}", name_, line, column);
  }

  std::string name_;
  const std::string& text_;
  const char* read_;
  std::vector<ConfigEntry> entries_;
  bool is_inside_ = false;
  bool is_in_list_ = false;
};

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  std::error_code error;
  const bool is_readable = std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error);
  require_usage(is_readable, "--config: {} cannot be read", std::filesystem::absolute(path, error).string());
  const std::string text = read_all(path.string(), kMaxBytes);
  return Reader(path.string(), text).read();
}

}  // namespace taper

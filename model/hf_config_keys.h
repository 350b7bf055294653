// The keys of one JSON object of a Hugging Face config.json, each read in its type. UsageError with the file and the
// key for what is missing, of the wrong type, or not supported.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace taper {

class HfConfigKeys {
 public:
  using Json = nlohmann::ordered_json;

  // The JSON must outlive the object.
  HfConfigKeys(const Json& json, std::string source);

  // Null where the key is absent or null, which are the same in these files.
  const Json* find(const char* key);
  // With `otherwise` the key may be absent.
  int64_t whole(const char* key, std::optional<int64_t> otherwise = {});
  double number(const char* key, std::optional<double> otherwise = {});
  bool flag(const char* key, bool otherwise);
  std::string text(const char* key, const std::optional<std::string>& otherwise = {});
  // The key may be there with this value alone.
  void only(const char* key, const Json& allowed);
  // Refuses every key that was not asked for; with `passes_indifferent` those that change nothing may stay.
  void refuse_rest(bool passes_indifferent) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view got, std::string_view want) const;

  const std::string& source() const { return source_; }
  static std::string shown(const Json& value);

 private:
  [[noreturn]] void fail_type(const char* key, const Json& value, const char* want) const;
  template <class T>
  T absent(const char* key, const std::optional<T>& otherwise) const;

  const Json& json_;
  std::string source_;
  std::set<std::string> used_;
};

}  // namespace taper

// What a declared option knows and how it turns text into values; the inside of CliOption.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class Option;
}

namespace taper {

struct OptionState {
  enum class Kind { kText, kNumber, kFlag };

  std::string name;
  std::string help;
  Kind kind = Kind::kText;
  bool is_list = false;       // several values, one after the other
  bool takes_commas = false;  // several numbers in one value
  std::string want;           // what a right value is
  std::string unit;
  std::string default_text;
  bool is_required = false;
  bool may_be_empty = false;
  bool may_be_nonfinite = false;
  bool is_given = false;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
  bool excludes_high = false;
  std::function<void(const std::vector<std::string>&)> assign;
  std::function<std::string()> current;  // the value as text; numbers and flags as JSON has them
  CLI::Option* parsed = nullptr;

  // What a right value is, with its limits.
  std::string want_text() const;

  // Throws UsageError naming the option, the problem, the text and what is wanted.
  [[noreturn]] void refuse(std::string_view problem, std::string_view got) const;

  // The whole text as a number within the limits; throws UsageError. For int, int64_t, uint64_t and double.
  template <class Number>
  Number number(std::string_view text) const;

  // Accepts the values given, once they are known to be there.
  void take(const std::vector<std::string>& values);

  // Help, default, unit and limits, as --help shows them.
  std::string description() const;

 private:
  std::string range_text() const;
  void check_range(double value, std::string_view text) const;
};

}  // namespace taper

#include "tools/common/option_state.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>
#include <type_traits>

#include "engine/core/error.h"
#include "tools/common/cli.h"

namespace taper {
namespace {

enum class Parsed { kYes, kNot, kTooLarge };

template <class Number>
Parsed parse_whole(std::string_view text, Number& value) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  if (has_plus) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stopped_at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stopped_at != end) return Parsed::kNot;
  return error == std::errc() ? Parsed::kYes : Parsed::kTooLarge;
}

}  // namespace

std::string OptionState::range_text() const {
  std::vector<std::string> limits;
  if (std::isfinite(low)) limits.push_back(fmt::format("{} {}", excludes_low ? ">" : ">=", low));
  if (std::isfinite(high)) limits.push_back(fmt::format("{} {}", excludes_high ? "<" : "<=", high));
  return fmt::format("{}", fmt::join(limits, " and "));
}

std::string OptionState::want_text() const {
  const std::string limits = range_text();
  return limits.empty() ? want : want + " " + limits;
}

void OptionState::refuse(std::string_view problem, std::string_view got) const {
  fail_usage("{}: {}; got '{}', want {}", name, problem, got, want_text());
}

void OptionState::check_range(double value, std::string_view text) const {
  if (std::isnan(value)) return;
  const bool is_low = excludes_low ? value <= low : value < low;
  const bool is_high = excludes_high ? value >= high : value > high;
  if (is_low || is_high) refuse("out of range", text);
}

template <class Number>
Number OptionState::number(std::string_view text) const {
  Number value = 0;
  if constexpr (std::is_integral_v<Number>) {
    const Parsed parsed = parse_whole(text, value);
    if (parsed == Parsed::kTooLarge) refuse("too large a number", text);
    if (parsed == Parsed::kNot) refuse("not a whole number", text);
  } else {
    const Parsed parsed = parse_whole(text, value);
    if (parsed == Parsed::kTooLarge) refuse("not a number that a double holds", text);
    if (parsed == Parsed::kNot) refuse("not a number", text);
    if (!std::isfinite(value) && !may_be_nonfinite) refuse("not a finite number", text);
  }
  check_range(static_cast<double>(value), text);
  return value;
}
template int OptionState::number<int>(std::string_view) const;
template int64_t OptionState::number<int64_t>(std::string_view) const;
template uint64_t OptionState::number<uint64_t>(std::string_view) const;
template double OptionState::number<double>(std::string_view) const;

void OptionState::take(const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    require_usage(may_be_empty || !value.empty(), "{}: the value is empty; want {}", name, want_text());
  }
  is_given = true;
  assign(values);
}

std::string OptionState::description() const {
  std::vector<std::string> notes;
  if (is_required) notes.push_back("required");
  if (!default_text.empty()) notes.push_back("default " + default_text + (unit.empty() ? "" : " " + unit));
  if (default_text.empty() && !unit.empty()) notes.push_back("in " + unit);
  if (const std::string limits = range_text(); !limits.empty()) notes.push_back(limits);
  return notes.empty() ? help : fmt::format("{} [{}]", help, fmt::join(notes, "; "));
}

CliOption::CliOption(std::unique_ptr<OptionState> state) : state_(std::move(state)) {}
CliOption::~CliOption() = default;

CliOption& CliOption::required() {
  state_->is_required = true;
  state_->default_text.clear();
  return *this;
}
CliOption& CliOption::unit(std::string unit) {
  state_->unit = std::move(unit);
  return *this;
}
CliOption& CliOption::value_name(std::string value_name) {
  state_->parsed->type_name(std::move(value_name));
  return *this;
}
CliOption& CliOption::default_text(std::string text) {
  state_->default_text = std::move(text);
  return *this;
}
CliOption& CliOption::may_be_empty() {
  state_->may_be_empty = true;
  return *this;
}
CliOption& CliOption::may_be_infinite_or_nan() {
  state_->may_be_nonfinite = true;
  return *this;
}
CliOption& CliOption::at_least(double low) {
  state_->low = low;
  state_->excludes_low = false;
  return *this;
}
CliOption& CliOption::above(double low) {
  at_least(low);
  state_->excludes_low = true;
  return *this;
}
CliOption& CliOption::at_most(double high) {
  state_->high = high;
  state_->excludes_high = false;
  return *this;
}
CliOption& CliOption::below(double high) {
  at_most(high);
  state_->excludes_high = true;
  return *this;
}
bool CliOption::is_given() const { return state_->is_given; }
const std::string& CliOption::name() const { return state_->name; }

}  // namespace taper

// Errors a user can cause. Text: `what: what is wrong; got X, want Y`, with file and offset where there is one, and a
// cure where one is known. Libraries throw; only the programs in tools/ print and exit.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace taper {

// Something failed while working: programs exit with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Wrong use, or an input known to be unusable before any work was done: programs exit with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// The condition is the claim that holds when all is well; the text says what is wrong.
template <class... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(format, std::forward<Args>(args)...);
}

template <class... Args>
void require_usage(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail_usage(format, std::forward<Args>(args)...);
}

}  // namespace taper

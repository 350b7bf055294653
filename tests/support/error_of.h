// What a call throws, as a text to compare.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace taper::test {

// The message of the taper::Error that call() throws; "nothing was thrown" where it returns.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace taper::test

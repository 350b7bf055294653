// What every program does around its work: errors as one line and an exit code, and signals.
#pragma once

#include <cstdint>
#include <functional>

#include "tools/common/messages.h"

namespace taper {

// Runs a program's body and turns what it throws into one line on stderr, "NAME: text", and an exit code: 2 for
// UsageError, 1 for any other failure, 130 where SIGINT or SIGTERM ended the work early (the body returns 0 then), else
// what the body returns. Results that cannot be written to stdout are a failure.
int run_tool(int argc, char** argv, const std::function<int()>& body);

// For a program that reads so many bytes over and over, as a decoder its weights: --profile measures the limit of
// reading on as many, where it else does so far beyond the caches.
void limit_profile_by_reading(int64_t bytes);

}  // namespace taper

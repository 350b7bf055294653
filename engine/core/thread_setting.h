// The number of threads that a user asks for.
#pragma once

namespace taper {

inline constexpr int kMaxThreads = 1024;

// What the environment variable TAPER_THREADS says, 0 where it is not set. UsageError where it is no whole number from
// 1 to kMaxThreads.
int threads_asked_for();

}  // namespace taper

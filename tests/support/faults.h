// Calls into the system that fail on purpose. This file's .cpp defines open, write, fsync, rename and the like for the
// whole test program, the standard library's own calls included; they go on to the system unless a fault is due. Only
// the thread that planted the fault sees it.
#pragma once

#include <cstdint>

#ifndef __has_feature
#define __has_feature(name) 0
#endif

namespace taper::test {

// Sanitizers watch memory and files by the very calls that are replaced here: in their builds no fault strikes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
#define TAPER_NO_FAULTS 1
#else
#define TAPER_NO_FAULTS 0
#endif
inline constexpr bool kFaultsStrike = !TAPER_NO_FAULTS;

enum class Call : uint8_t { open, read, write, sync, rename, make_folder, memory };
inline constexpr int kCalls = 7;
const char* to_string(Call call);

struct Fault {
  Call call = Call::write;
  int error = 0;       // errno
  bool lasts = false;  // every later call of the kind fails too; a write takes a part of its bytes first
};

// While it lives, the n-th call of the kind, from 1, fails on this thread. For memory that is what operator
// new is asked for in pieces of 16 KiB or more, the engine's own allocations, and files mapped.
class PlantedFault {
 public:
  PlantedFault(const Fault& fault, int64_t n);
  ~PlantedFault();
  PlantedFault(const PlantedFault&) = delete;
  PlantedFault& operator=(const PlantedFault&) = delete;

  bool has_struck() const;
  // Of the kind, on this thread, while it lived so far.
  int64_t calls() const;
};

}  // namespace taper::test

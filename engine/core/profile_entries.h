// A profile by its numbers: for those who time by their own means and hand over sums, and for those who read them.
#pragma once

#include <map>
#include <string>

#include "engine/core/profile.h"

namespace taper {

struct ProfileEntry {
  double seconds = 0;
  int64_t calls = 0;
  KernelWork work;  // of all calls
};

void add_to_profile(const std::string& name, const ProfileEntry& entry);
std::map<std::string, ProfileEntry> profile_entries();

}  // namespace taper

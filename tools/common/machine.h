// The machine a program runs on, in words.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace taper {

// Name and value: processor, its cores and instruction set, threads, memory, system, compiler, version.
std::vector<std::pair<std::string, std::string>> describe_machine();

}  // namespace taper

// The known name a misspelt one most likely meant, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace taper {

// Fewest insertions, deletions, substitutions and swaps of neighbours that turn one word into the other
// (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate at the smallest distance, the first of equals; an abbreviation of it is at distance 1. Empty where
// there is no candidate.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace taper

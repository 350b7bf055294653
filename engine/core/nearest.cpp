#include "engine/core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace taper {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  // A very long word is nobody's slip of the keyboard; the bound keeps the table small.
  word = word.substr(0, 200);
  // An abbreviation counts as one slip, however much it leaves out.
  const auto distance = [&](const std::string& name) {
    const bool is_abbreviated = !word.empty() && name.compare(0, word.size(), word) == 0;
    return is_abbreviated ? size_t{name == word ? 0U : 1U} : edit_distance(word, name);
  };
  const auto nearest = std::min_element(
      candidates.begin(), candidates.end(),
      [&](const std::string& left, const std::string& right) { return distance(left) < distance(right); });
  return nearest == candidates.end() ? std::string() : *nearest;
}

}  // namespace taper

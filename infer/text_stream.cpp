#include "infer/text_stream.h"

#include <algorithm>

namespace taper {
namespace {

// Bytes of the character that a first byte announces; 1 for a byte that announces none.
size_t character_length(unsigned char first) {
  if (first >= 0xf0 && first <= 0xf4) return 4;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  return 1;
}

// The longest end of `text` that begins `stop`.
size_t beginning_of(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size()); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

size_t incomplete_suffix(std::string_view bytes) {
  for (size_t n = 1; n <= std::min<size_t>(3, bytes.size()); ++n) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - n]);
    if ((byte & 0xc0) == 0x80) continue;
    return character_length(byte) > n ? n : 0;
  }
  return 0;
}

bool TextStream::push(std::string_view bytes) {
  held_ += bytes;
  size_t stop_at = std::string::npos;
  for (const std::string& stop : stops_) stop_at = std::min(stop_at, held_.find(stop));
  if (stop_at != std::string::npos) {
    if (stop_at > 0) write_(std::string_view(held_).substr(0, stop_at));
    held_.clear();
    return true;
  }
  size_t waiting = incomplete_suffix(held_);
  for (const std::string& stop : stops_) waiting = std::max(waiting, beginning_of(held_, stop));
  // The cut must not split a character either.
  const size_t ready = held_.size() - waiting;
  const size_t whole = ready - incomplete_suffix(std::string_view(held_).substr(0, ready));
  if (whole > 0) write_(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return false;
}

void TextStream::finish() {
  if (!held_.empty()) write_(held_);
  held_.clear();
}

}  // namespace taper

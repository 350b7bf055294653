#include "data/bpe/splitter.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace taper {
namespace {

constexpr CharClass kSign = CharClass::kSign;
constexpr CharClass kLetter = CharClass::kLetter;
constexpr CharClass kNumber = CharClass::kNumber;
constexpr CharClass kSpace = CharClass::kSpace;

struct Range {
  std::uint32_t first, last;
  CharClass kind;
};

constexpr Range kRanges[] = {
#include "data/bpe/unicode_ranges.inc"
};

constexpr bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_number = c >= '0' && c <= '9';
    classes[c] = is_letter ? kLetter : is_number ? kNumber : is_white_space(c) ? kSpace : kSign;
  }
  return classes;
}

constexpr std::array<CharClass, 128> kAsciiClasses = make_ascii_classes();

struct Char {
  CharClass kind;
  int length;  // bytes
};

// Well-formed sequences after The Unicode Standard, table 3-7: no overlong form, no surrogate, nothing above 10FFFF.
Char read_multibyte(const char* at, const char* end) {
  const auto byte = [at](int i) { return static_cast<unsigned char>(at[i]); };
  const auto continues = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  const std::ptrdiff_t left = end - at;
  if (lead >= 0xC2 && lead <= 0xDF && left >= 2 && continues(1)) {
    return {char_class((lead & 0x1F) << 6 | (byte(1) & 0x3Fu)), 2};
  }
  if (lead >= 0xE0 && lead <= 0xEF && left >= 3 && continues(1) && continues(2)) {
    const char32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {char_class(c), 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && left >= 4 && continues(1) && continues(2) && continues(3)) {
    const char32_t c = (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (c >= 0x10000 && c <= 0x10FFFF) return {char_class(c), 4};
  }
  return {kSign, 1};
}

inline Char read_char(const char* at, const char* end) {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 128) return {kAsciiClasses[byte], 1};
  return read_multibyte(at, end);
}

inline const char* skip_run(const char* at, const char* end, CharClass kind) {
  while (at < end) {
    const Char c = read_char(at, end);
    if (c.kind != kind) break;
    at += c.length;
  }
  return at;
}

// Bytes of 's 't 're 've 'm 'll or 'd at an apostrophe; 0 where none stands there.
inline int contraction_length(const char* at, const char* end) {
  if (end - at < 2) return 0;
  const char a = at[1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (end - at < 3) return 0;
  const char b = at[2];
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

}  // namespace

CharClass char_class(char32_t code_point) {
  if (code_point < 128) return kAsciiClasses[code_point];
  if (is_white_space(code_point)) return kSpace;
  const Range* range = std::lower_bound(std::begin(kRanges), std::end(kRanges), code_point,
                                        [](const Range& r, char32_t c) { return r.last < c; });
  return range != std::end(kRanges) && range->first <= code_point ? range->kind : kSign;
}

std::string_view Splitter::next() {
  if (at_ == end_) return {};
  const std::string_view word = next_of_piece();
  if (splits_digits_ && at_ == piece_end_) find_piece();
  return word;
}

void Splitter::find_piece() {
  piece_end_ = at_;
  while (piece_end_ < end_) {
    const Char c = read_char(piece_end_, end_);
    if (c.kind == kNumber && piece_end_ > at_) return;
    piece_end_ += c.length;
    if (c.kind == kNumber) return;
  }
}

std::string_view Splitter::next_of_piece() {
  const char* const end = piece_end_;
  const char* const start = at_;
  Char first = read_char(start, end);
  const char* at = start + first.length;
  if (*start == ' ' && at < end) {
    const Char second = read_char(at, end);
    if (second.kind != kSpace) {
      at_ = skip_run(at + second.length, end, second.kind);
      return {start, static_cast<std::size_t>(at_ - start)};
    }
  }
  if (first.kind != kSpace) {
    const int contraction = *start == '\'' ? contraction_length(start, end) : 0;
    at_ = contraction > 0 ? start + contraction : skip_run(at, end, first.kind);
    return {start, static_cast<std::size_t>(at_ - start)};
  }
  const char* last = start;
  while (at < end) {
    const Char c = read_char(at, end);
    if (c.kind != kSpace) break;
    last = at;
    at += c.length;
  }
  // What follows the run is a word: its last character is left for it, unless it is the only one.
  at_ = at < end && last > start ? last : at;
  return {start, static_cast<std::size_t>(at_ - start)};
}

}  // namespace taper

// How byte-level BPE files spell bytes: each of the 256 is one printable character, so that tokens are ordinary text
// without white space. Printable Latin-1 bytes stand for themselves; the other 68, in ascending order, are U+0100 to
// U+0143 (openai/gpt-2, src/encoder.py: bytes_to_unicode). A space, for one, is spelt U+0120.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace taper {

// The 256 bytes in the order of their characters: a trained vocabulary numbers them so.
const std::array<std::uint8_t, 256>& bytes_in_alphabet_order();

// UTF-8 text of one alphabet character a byte.
std::string spell_bytes(std::string_view bytes);

// The bytes that such a text spells; none where it holds anything but the alphabet's characters.
std::optional<std::string> unspell_bytes(std::string_view text);

}  // namespace taper

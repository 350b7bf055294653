#include "data/bpe/byte_alphabet.h"

namespace taper {
namespace {

constexpr int kFirstStandIn = 0x100;
constexpr int kStandIns = 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint16_t, 256> character_of{};
  std::array<std::int16_t, kFirstStandIn + kStandIns> byte_of{};  // -1: no character of the alphabet
  std::array<std::uint8_t, 256> order{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (std::int16_t& byte : alphabet.byte_of) byte = -1;
  int stand_in = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = stands_for_itself(byte) ? byte : stand_in++;
    alphabet.character_of[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(character);
    alphabet.byte_of[static_cast<std::size_t>(character)] = static_cast<std::int16_t>(byte);
  }
  std::size_t n = 0;
  for (const std::int16_t byte : alphabet.byte_of) {
    if (byte >= 0) alphabet.order[n++] = static_cast<std::uint8_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

const std::array<std::uint8_t, 256>& bytes_in_alphabet_order() { return kAlphabet.order; }

std::string spell_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    const unsigned character = kAlphabet.character_of[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | character >> 6);
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> unspell_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    unsigned character = static_cast<unsigned char>(text[i++]);
    if (character >= 0x80) {
      // All of the alphabet beyond ASCII is below U+0800: two bytes each.
      if (character < 0xC2 || character > 0xDF || i == text.size()) return std::nullopt;
      const unsigned next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      character = (character & 0x1F) << 6 | (next & 0x3F);
    }
    if (character >= kAlphabet.byte_of.size() || kAlphabet.byte_of[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[character]);
  }
  return bytes;
}

}  // namespace taper

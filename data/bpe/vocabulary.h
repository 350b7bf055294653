// The tables of a byte-level BPE tokenizer, as plain data: what each id stands for and which pairs merge, in order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace taper {

// Where `left` stands directly before `right` in a word, both become `result`. Merges are applied in the order of the
// list: the pair that stands earliest in it goes first, and of equal pairs the leftmost.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
  bool operator==(const Merge&) const = default;
};

// A text that is one id and is found before the text is split into words.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  // A control token such as <|endoftext|>: recognised only where the caller asks for it. The others always are.
  bool is_special = true;
  bool operator==(const AddedToken&) const = default;
};

struct Vocabulary {
  std::vector<std::string> tokens;  // bytes of each id
  std::vector<Merge> merges;        // by rank
  std::vector<AddedToken> added;    // by id
  bool splits_digits = false;       // every number character is a word of its own, as in Llama's and SmolLM's rules
  bool operator==(const Vocabulary&) const = default;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
// Ids are held in 32 bits and tables in memory: what no real vocabulary comes near is refused as damage.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;

// The id of each single byte; -1 for one that has none. A vocabulary trained elsewhere may lack bytes that its text
// never held; such a byte is left out of what is encoded, as Hugging Face's tokenizers do without an unknown token.
// Throws Error, naming `source`, where a printable ASCII character or a space has none: that is damage.
std::array<std::int32_t, 256> byte_ids(const Vocabulary& vocabulary, std::string_view source);

// Throws Error, naming `source`, unless every printable ASCII byte has an id, every merge joins two tokens to the token
// of their concatenated bytes, no pair merges twice, and every added token has an id of its own and a text.
void check(const Vocabulary& vocabulary, std::string_view source);

}  // namespace taper

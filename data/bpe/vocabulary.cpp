#include "data/bpe/vocabulary.h"

#include <utility>

#include "data/bpe/byte_alphabet.h"
#include "data/bpe/pair_map.h"
#include "engine/core/error.h"

namespace taper {
namespace {

// Of a merge known to be wrong; apart from the loop, so that right ones cost no texts.
[[noreturn]] void refuse_merge(const Vocabulary& v, std::size_t rank, std::string_view source) {
  const auto [left, right, result] = v.merges[rank];
  const auto size = static_cast<std::int64_t>(v.tokens.size());
  for (const std::int32_t id : {left, right, result}) {
    require(id >= 0 && id < size, "{}: merge {}: no such id; got {}, want 0 to {}", source, rank + 1, id, size - 1);
  }
  const auto spelt = [&v](std::int32_t id) { return spell_bytes(v.tokens[static_cast<std::size_t>(id)]); };
  require(spelt(left) + spelt(right) != spelt(result), "{}: merge {}: the pair '{}' '{}' merges a second time", source,
          rank + 1, spelt(left), spelt(right));
  fail("{}: merge {}: '{}' and '{}' do not join to the token of id {}, '{}'", source, rank + 1, spelt(left),
       spelt(right), result, spelt(result));
}

void check_merges(const Vocabulary& v, std::string_view source) {
  PairMap<bool> seen;
  const auto is_id = [&v](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < v.tokens.size(); };
  for (std::size_t rank = 0; rank < v.merges.size(); ++rank) {
    const auto [left, right, result] = v.merges[rank];
    if (!is_id(left) || !is_id(right) || !is_id(result)) refuse_merge(v, rank, source);
    const std::string_view a = v.tokens[static_cast<std::size_t>(left)];
    const std::string_view b = v.tokens[static_cast<std::size_t>(right)];
    const std::string_view ab = v.tokens[static_cast<std::size_t>(result)];
    const bool joins = ab.size() == a.size() + b.size() && ab.starts_with(a) && ab.ends_with(b);
    if (!joins || std::exchange(seen[pair_key(left, right)], true)) refuse_merge(v, rank, source);
  }
}

void check_added(const Vocabulary& v, std::string_view source) {
  const auto size = static_cast<std::int64_t>(v.tokens.size());
  std::int64_t previous = -1;
  for (const AddedToken& added : v.added) {
    require(!added.text.empty(), "{}: the added token of id {} is empty", source, added.id);
    require(added.id >= 0 && added.id < size, "{}: added token '{}': no such id; got {}, want 0 to {}", source,
            added.text, added.id, size - 1);
    require(added.id > previous, "{}: added tokens: ids must ascend; got {} after {}", source, added.id, previous);
    require(v.tokens[static_cast<std::size_t>(added.id)] == added.text,
            "{}: added token '{}': its id {} stands for something else, '{}'", source, added.text, added.id,
            spell_bytes(v.tokens[static_cast<std::size_t>(added.id)]));
    previous = added.id;
  }
}

}  // namespace

std::array<std::int32_t, 256> byte_ids(const Vocabulary& v, std::string_view source) {
  std::array<std::int32_t, 256> ids;
  ids.fill(-1);
  const auto take = [&](std::size_t id) {
    if (v.tokens[id].size() != 1) return;
    std::int32_t& of_byte = ids[static_cast<unsigned char>(v.tokens[id][0])];
    if (of_byte < 0) of_byte = static_cast<std::int32_t>(id);
  };
  // An added token of one character may stand beside the byte it is spelt with: the byte goes first.
  auto added = v.added.begin();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    if (added != v.added.end() && static_cast<std::size_t>(added->id) == id) {
      ++added;
    } else {
      take(id);
    }
  }
  for (const AddedToken& token : v.added) take(static_cast<std::size_t>(token.id));
  for (int byte = ' '; byte <= '~'; ++byte) {
    if (ids[static_cast<std::size_t>(byte)] >= 0) continue;
    fail("{}: the byte 0x{:02X}, spelt '{}', is not in the vocabulary; want at least those of printable ASCII", source,
         byte, spell_bytes(std::string(1, static_cast<char>(byte))));
  }
  return ids;
}

void check(const Vocabulary& v, std::string_view source) {
  require(static_cast<std::int64_t>(v.tokens.size()) <= kMaxVocabulary, "{}: too many tokens; got {}, want at most {}",
          source, v.tokens.size(), kMaxVocabulary);
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    require(!v.tokens[id].empty(), "{}: the token of id {} is empty", source, id);
  }
  check_added(v, source);
  byte_ids(v, source);
  check_merges(v, source);
}

}  // namespace taper

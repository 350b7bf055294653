#include "data/bpe/vocabulary.h"

#include "data/bpe/byte_alphabet.h"
#include "data/bpe/pair_map.h"
#include "engine/core/error.h"

namespace taper {
namespace {

void check_merges(const Vocabulary& v, std::string_view source) {
  const auto size = static_cast<std::int64_t>(v.tokens.size());
  PairMap<bool> seen;
  std::int64_t rank = 0;
  for (const Merge& merge : v.merges) {
    ++rank;
    for (const std::int32_t id : {merge.left, merge.right, merge.result}) {
      require(id >= 0 && id < size, "{}: merge {}: no such id; got {}, want 0 to {}", source, rank, id, size - 1);
    }
    const auto bytes = [&v](std::int32_t id) -> const std::string& { return v.tokens[static_cast<std::size_t>(id)]; };
    require(bytes(merge.left) + bytes(merge.right) == bytes(merge.result),
            "{}: merge {}: '{}' and '{}' do not join to the token of id {}, '{}'", source, rank,
            spell_bytes(bytes(merge.left)), spell_bytes(bytes(merge.right)), merge.result,
            spell_bytes(bytes(merge.result)));
    bool& is_known = seen[pair_key(merge.left, merge.right)];
    require(!is_known, "{}: merge {}: the pair '{}' '{}' merges a second time", source, rank,
            spell_bytes(bytes(merge.left)), spell_bytes(bytes(merge.right)));
    is_known = true;
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
  auto added = v.added.begin();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    if (added != v.added.end() && static_cast<std::size_t>(added->id) == id) {
      ++added;
    } else if (v.tokens[id].size() == 1) {
      ids[static_cast<unsigned char>(v.tokens[id][0])] = static_cast<std::int32_t>(id);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    require(ids[static_cast<std::size_t>(byte)] >= 0,
            "{}: the byte 0x{:02X}, spelt '{}', is not in the vocabulary; want all 256, so that any text has ids",
            source, byte, spell_bytes(std::string(1, static_cast<char>(byte))));
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

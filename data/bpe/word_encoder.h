// Merges the bytes of one word into ids, and remembers the words it met: most of a text is a few thousand words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/pair_map.h"
#include "data/bpe/vocabulary.h"

namespace taper {

// What encoding a word looks up. Read-only, shared by all encoders of a tokenizer.
class MergeTable {
 public:
  struct Entry {
    std::int32_t rank = 0, result = 0;
  };

  // The vocabulary must have passed check().
  explicit MergeTable(const Vocabulary& vocabulary);

  // -1: the byte has none and is left out.
  std::int32_t byte_id(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }
  // Null where the pair does not merge.
  const Entry* find(std::int32_t left, std::int32_t right) const { return entries_.find(pair_key(left, right)); }

 private:
  std::array<std::int32_t, 256> byte_ids_;
  PairMap<Entry> entries_;
};

// For one thread at a time. Memory is bounded whatever the text: the caches are direct-mapped tables of fixed size, in
// which a word displaces the one before it in its slot. A word of n bytes costs O(n log n), short ones less.
class WordEncoder {
 public:
  // The table must outlive the encoder.
  explicit WordEncoder(const MergeTable& table);

  // Appends the ids of the word, which must not be empty.
  void encode(std::string_view word, std::vector<std::int32_t>& ids);

 private:
  // A word of up to 15 bytes, zero-padded, its length in the last byte: compared as two numbers.
  struct ShortKey {
    std::uint64_t low = 0, high = 0;  // high is 0 in an empty slot alone
    bool operator==(const ShortKey&) const = default;
  };
  struct ShortEntry {
    ShortKey key;
    std::int32_t count = 0;
    std::array<std::int32_t, 3> ids{};
  };
  struct LongEntry {
    std::string word;
    std::vector<std::int32_t> ids;
  };
  struct Node {
    std::int32_t id = 0;
    std::uint32_t before = 0, after = 0;
  };

  static ShortKey short_key(std::string_view word);
  void encode_cached(std::string_view word, std::vector<std::int32_t>& ids);
  void merge(std::string_view word, std::vector<std::int32_t>& ids);
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids);
  void offer(std::uint32_t left);

  const MergeTable* table_;
  std::vector<ShortEntry> short_words_;
  std::vector<LongEntry> long_words_;
  std::vector<Node> nodes_;          // scratch of merge_long: the word's ids as a doubly linked list
  std::vector<std::uint64_t> heap_;  // scratch of merge_long: rank << 32 | index of the left node, smallest first
};

}  // namespace taper

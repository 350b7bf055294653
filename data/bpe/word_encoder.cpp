#include "data/bpe/word_encoder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "engine/core/error.h"

namespace taper {
namespace {

constexpr std::size_t kShortSlots = std::size_t{1} << 15;
constexpr std::size_t kLongSlots = std::size_t{1} << 12;
constexpr std::size_t kShortBytes = 15;
// Longer words seldom come twice; they are not kept.
constexpr std::size_t kLongBytes = 256;
// Up to here rescanning a handful of ids beats a heap.
constexpr std::size_t kScannedBytes = 32;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

inline std::uint64_t mix(std::uint64_t low, std::uint64_t high) {
  const std::uint64_t x = (low ^ (high * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary) : byte_ids_(byte_ids(vocabulary, "vocabulary")) {
  std::int32_t rank = 0;
  for (const Merge& merge : vocabulary.merges) entries_[pair_key(merge.left, merge.right)] = {rank++, merge.result};
}

WordEncoder::WordEncoder(const MergeTable& table)
    : table_(&table), short_words_(kShortSlots), long_words_(kLongSlots) {}

WordEncoder::ShortKey WordEncoder::short_key(std::string_view word) {
  std::array<std::uint64_t, 2> halves{};
  std::memcpy(halves.data(), word.data(), word.size());
  return {halves[0], halves[1] | std::uint64_t{word.size()} << 56};
}

void WordEncoder::encode(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > kShortBytes) return encode_cached(word, ids);
  const ShortKey key = short_key(word);
  ShortEntry& entry = short_words_[mix(key.low, key.high) & (kShortSlots - 1)];
  if (entry.key == key) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const std::size_t start = ids.size();
  merge(word, ids);
  const std::size_t count = ids.size() - start;
  if (count > entry.ids.size()) return;
  entry.key = key;
  entry.count = static_cast<std::int32_t>(count);
  std::copy(ids.end() - entry.count, ids.end(), entry.ids.begin());
}

void WordEncoder::encode_cached(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > kLongBytes) return merge(word, ids);
  LongEntry& entry = long_words_[std::hash<std::string_view>{}(word) & (kLongSlots - 1)];
  if (entry.word != word) {
    entry.ids.clear();
    merge(word, entry.ids);
    entry.word = word;
  }
  ids.insert(ids.end(), entry.ids.begin(), entry.ids.end());
}

void WordEncoder::merge(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() <= kScannedBytes) return merge_short(word, ids);
  merge_long(word, ids);
}

void WordEncoder::merge_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
  struct Part {
    std::int32_t id, rank, result;  // rank and result of the merge with the part behind it
  };
  std::array<Part, kScannedBytes> parts;
  std::size_t n = word.size();
  const auto look_up = [&](std::size_t i) {
    const MergeTable::Entry* entry = i + 1 < n ? table_->find(parts[i].id, parts[i + 1].id) : nullptr;
    parts[i].rank = entry ? entry->rank : kNoRank;
    parts[i].result = entry ? entry->result : 0;
  };
  n = 0;
  for (const char byte : word) {
    const std::int32_t id = table_->byte_id(byte);
    if (id >= 0) parts[n++].id = id;
  }
  for (std::size_t i = 0; i < n; ++i) look_up(i);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (parts[i].rank < parts[best].rank) best = i;
    }
    if (parts[best].rank == kNoRank) break;
    parts[best].id = parts[best].result;
    std::copy(parts.begin() + best + 2, parts.begin() + n, parts.begin() + best + 1);
    --n;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  for (std::size_t i = 0; i < n; ++i) ids.push_back(parts[i].id);
}

void WordEncoder::offer(std::uint32_t left) {
  const std::uint32_t right = left == kNone ? kNone : nodes_[left].after;
  if (right == kNone) return;
  const MergeTable::Entry* entry = table_->find(nodes_[left].id, nodes_[right].id);
  if (entry) heap_.push_back(std::uint64_t{static_cast<std::uint32_t>(entry->rank)} << 32 | left);
}

void WordEncoder::merge_long(std::string_view word, std::vector<std::int32_t>& ids) {
  require(word.size() < kNone,
          "encode: one word without a place to split is too long; got {} bytes, want fewer than {}", word.size(),
          kNone);
  std::uint32_t n = 0;
  nodes_.resize(word.size());
  heap_.clear();
  for (const char byte : word) {
    const std::int32_t id = table_->byte_id(byte);
    if (id < 0) continue;
    nodes_[n] = {id, n == 0 ? kNone : n - 1, n + 1};
    ++n;
  }
  if (n == 0) return;
  nodes_[n - 1].after = kNone;
  for (std::uint32_t i = 0; i < n; ++i) offer(i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    const std::uint64_t top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    const auto left = static_cast<std::uint32_t>(top & kNone);
    Node& node = nodes_[left];
    // Offers are not withdrawn when a neighbour merges: one that no longer describes its pair is passed over.
    if (node.id < 0 || node.after == kNone) continue;
    const std::uint32_t right = node.after;
    const MergeTable::Entry* entry = table_->find(node.id, nodes_[right].id);
    if (!entry || static_cast<std::uint32_t>(entry->rank) != top >> 32) continue;
    node.id = entry->result;
    node.after = nodes_[right].after;
    nodes_[right].id = -1;
    if (node.after != kNone) nodes_[node.after].before = left;
    for (const std::uint32_t candidate : {node.before, left}) {
      const std::size_t size = heap_.size();
      offer(candidate);
      if (heap_.size() > size) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  for (std::uint32_t i = 0; i != kNone; i = nodes_[i].after) ids.push_back(nodes_[i].id);
  // A text that held one enormous word should not hold its memory ever after.
  if (n > kShortSlots) {
    nodes_ = {};
    heap_ = {};
  }
}

}  // namespace taper

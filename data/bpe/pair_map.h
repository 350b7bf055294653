// A hash map from a pair of ids to a value, for the two places where BPE spends its time: finding the merge of a pair
// and counting pairs. Open addressing with linear probing; keys are never removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace taper {

// Orders as (left, right) does.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
inline std::int32_t left_of(std::uint64_t key) { return static_cast<std::int32_t>(key >> 32); }
inline std::int32_t right_of(std::uint64_t key) { return static_cast<std::int32_t>(key & 0xFFFFFFFF); }

template <class Value>
class PairMap {
 public:
  PairMap() : slots_(kMinSlots) {}

  std::size_t size() const { return size_; }

  // Null where the key is absent.
  const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  // Added, with a default value, where it is absent. Valid until the next call.
  Value& operator[](std::uint64_t key) {
    std::size_t at = slot_of(key);
    if (slots_[at].key != key) {
      if (2 * (size_ + 1) > slots_.size()) {
        grow();
        at = slot_of(key);
      }
      slots_[at].key = key;
      ++size_;
    }
    return slots_[at].value;
  }

 private:
  // No pair of ids, which are not negative, has this key.
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::size_t kMinSlots = 16;

  struct Slot {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  // Where the key is, or the empty slot where it would go.
  std::size_t slot_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    // Fibonacci hashing: the upper half of the product depends on every bit of the key.
    std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.key != kEmpty) slots_[slot_of(slot.key)] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace taper

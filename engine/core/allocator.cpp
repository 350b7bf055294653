#include "engine/core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "engine/core/error.h"

namespace taper {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kGuardBytes = 64;
constexpr unsigned char kGuardByte = 0xA5;

// Eight classes to a power of two: at most an eighth of a block is unused.
int64_t size_class(int64_t bytes) {
  const int64_t n = std::max(bytes, kAlign);
  const int64_t step = std::max<int64_t>(kAlign, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))) / 8);
  return (n + step - 1) / step * step;
}

int64_t physical_memory() {
  static const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return bytes;
}

struct Block {
  int64_t capacity;
  int64_t requested;
  bool is_guarded;
};

class Allocator {
 public:
  void* allocate(int64_t bytes, const char* what) {
    const std::lock_guard lock(mutex_);
    const int64_t capacity = size_class(bytes + (is_guarded_ ? kGuardBytes : 0));
    void* block = take_cached(capacity);
    if (!block) block = take_from_system(capacity, bytes, what);
    live_[block] = {capacity, bytes, is_guarded_};
    use_.live_bytes += capacity;
    use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
    if (is_guarded_) {
      std::memset(block, 0xFF, static_cast<size_t>(capacity));
      std::memset(static_cast<char*>(block) + bytes, kGuardByte, kGuardBytes);
    }
    return block;
  }

  void release(void* block) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(block);
    if (it == live_.end()) return;
    damaged_ += is_damaged(block, it->second);
    use_.live_bytes -= it->second.capacity;
    use_.cached_bytes += it->second.capacity;
    cache_[it->second.capacity].push_back(block);
    live_.erase(it);
  }

  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    use_.peak_bytes = use_.live_bytes;
  }

  void drop_cache() {
    const std::lock_guard lock(mutex_);
    drop_cache_locked();
  }

  void set_guard(bool is_guarded) {
    const std::lock_guard lock(mutex_);
    is_guarded_ = is_guarded;
  }

  int64_t damaged() {
    const std::lock_guard lock(mutex_);
    int64_t count = damaged_;
    for (const auto& [block, info] : live_) count += is_damaged(block, info);
    return count;
  }

 private:
  static bool is_damaged(const void* block, const Block& info) {
    if (!info.is_guarded) return false;
    const auto* guard = static_cast<const unsigned char*>(block) + info.requested;
    return std::any_of(guard, guard + kGuardBytes, [](unsigned char byte) { return byte != kGuardByte; });
  }

  void* take_cached(int64_t capacity) {
    const auto it = cache_.find(capacity);
    if (it == cache_.end() || it->second.empty()) return nullptr;
    void* block = it->second.back();
    it->second.pop_back();
    use_.cached_bytes -= capacity;
    return block;
  }

  void* take_from_system(int64_t capacity, int64_t bytes, const char* what) {
    // The system grants more than it has and kills the process later: refuse what cannot fit while it can be said.
    if (use_.live_bytes + use_.cached_bytes + capacity > physical_memory()) drop_cache_locked();
    void* block = nullptr;
    if (use_.live_bytes + capacity <= physical_memory()) {
      const int64_t align = capacity >= kHugePage ? kHugePage : kAlign;
      block =
          std::aligned_alloc(static_cast<size_t>(align), static_cast<size_t>((capacity + align - 1) / align * align));
      if (block && capacity >= kHugePage) madvise(block, static_cast<size_t>(capacity), MADV_HUGEPAGE);
    }
    require(block != nullptr,
            "out of memory: {} wants {} MB; {} MB are in use, the machine has {} MB: lower the batch, the context or "
            "the model's size",
            what, bytes >> 20, use_.live_bytes >> 20, physical_memory() >> 20);
    return block;
  }

  void drop_cache_locked() {
    for (auto& [capacity, blocks] : cache_) {
      for (void* block : blocks) std::free(block);
    }
    cache_.clear();
    use_.cached_bytes = 0;
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> live_;
  std::unordered_map<int64_t, std::vector<void*>> cache_;
  MemoryUse use_;
  bool is_guarded_ = false;
  int64_t damaged_ = 0;
};

// Never destroyed: tensors in static storage may be released after any static allocator would be gone.
Allocator& host_allocator() {
  static Allocator& allocator = *new Allocator;
  return allocator;
}

}  // namespace

void* allocate(int64_t bytes, const char* what) { return host_allocator().allocate(bytes, what); }
void release(void* block) { host_allocator().release(block); }
MemoryUse memory_use() { return host_allocator().use(); }
void reset_peak_memory() { host_allocator().reset_peak(); }
void release_cached_memory() { host_allocator().drop_cache(); }
void set_memory_guard(bool is_guarded) { host_allocator().set_guard(is_guarded); }
int64_t damaged_guards() { return host_allocator().damaged(); }

}  // namespace taper

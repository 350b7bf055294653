#include "engine/core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/core/cuda_runtime.h"
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

// Where blocks come from.
class Source {
 public:
  virtual ~Source() = default;
  virtual void* take(int64_t bytes) = 0;  // null where there is not as much
  virtual void give_back(void* block) = 0;
  virtual int64_t size() = 0;  // in all
  virtual void fill(void* block, unsigned char value, int64_t bytes) = 0;
  virtual void read(void* to, const void* block, int64_t bytes) = 0;
  virtual const char* owner() = 0;
};

// The control group's limit on memory, beyond which the kernel ends the process; INT64_MAX where there is none.
int64_t control_group_limit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  int64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : INT64_MAX;
}

class HostSource final : public Source {
 public:
  void* take(int64_t bytes) override {
    const int64_t align = bytes >= kHugePage ? kHugePage : kAlign;
    void* block =
        std::aligned_alloc(static_cast<size_t>(align), static_cast<size_t>((bytes + align - 1) / align * align));
    if (block && bytes >= kHugePage) madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return block;
  }
  void give_back(void* block) override { std::free(block); }
  int64_t size() override {
    static const int64_t bytes =
        std::min(int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE), control_group_limit());
    return bytes;
  }
  void fill(void* block, unsigned char value, int64_t bytes) override {
    std::memset(block, value, static_cast<size_t>(bytes));
  }
  void read(void* to, const void* block, int64_t bytes) override { std::memcpy(to, block, static_cast<size_t>(bytes)); }
  const char* owner() override { return "the machine"; }
};

class CudaSource final : public Source {
 public:
  void* take(int64_t bytes) override { return cuda_runtime().take_memory(bytes); }
  void give_back(void* block) override { cuda_runtime().return_memory(block); }
  int64_t size() override {
    static const int64_t bytes = cuda_runtime().device().memory_bytes;
    return bytes;
  }
  void fill(void* block, unsigned char value, int64_t bytes) override {
    cuda_runtime().fill_bytes(block, value, bytes);
  }
  void read(void* to, const void* block, int64_t bytes) override { cuda_runtime().copy_to_host(to, block, bytes); }
  const char* owner() override { return "the GPU"; }
};

constexpr int kCommon = 0;  // blocks of no pool

struct Block {
  int pool;
  int64_t capacity;
  int64_t requested;
  bool is_guarded;
};

class Allocator {
 public:
  explicit Allocator(Source& source) : source_(source) {}

  void* allocate(int64_t bytes, const char* what) {
    const std::lock_guard lock(mutex_);
    const int64_t capacity = size_class(bytes + (is_guarded_ ? kGuardBytes : 0));
    void* block = take_cached(open_pool_, capacity);
    if (!block && open_pool_ != kCommon) block = take_cached(kCommon, capacity);
    if (!block) block = take_from_system(capacity, bytes, what);
    live_[block] = {open_pool_, capacity, bytes, is_guarded_};
    use_.live_bytes += capacity;
    use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
    if (is_guarded_) {
      source_.fill(block, 0xFF, capacity);
      source_.fill(static_cast<char*>(block) + bytes, kGuardByte, kGuardBytes);
    }
    return block;
  }

  void release(void* block) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(block);
    if (it == live_.end()) return;
    damaged_ += is_damaged(block, it->second);
    // What was released is as unknown as what is fresh, its canary too.
    if (it->second.is_guarded) source_.fill(block, 0xFF, it->second.capacity);
    use_.live_bytes -= it->second.capacity;
    use_.cached_bytes += it->second.capacity;
    if (open_pool_ != kCommon && it->second.pool != open_pool_) released_others_ = true;
    cache_[{it->second.pool, it->second.capacity}].push_back(block);
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

  int open_pool() {
    const std::lock_guard lock(mutex_);
    require(open_pool_ == kCommon, "memory: a pool is open already");
    released_others_ = false;
    return open_pool_ = ++last_pool_;
  }

  bool close_pool() {
    const std::lock_guard lock(mutex_);
    return std::exchange(open_pool_, kCommon) != kCommon && released_others_;
  }

  void drop_pool(int pool) {
    const std::lock_guard lock(mutex_);
    for (auto& [block, info] : live_) {
      if (info.pool == pool) info.pool = kCommon;
    }
    for (auto it = cache_.lower_bound({pool, 0}); it != cache_.end() && it->first.first == pool;
         it = cache_.erase(it)) {
      std::vector<void*>& common = cache_[{kCommon, it->first.second}];
      common.insert(common.end(), it->second.begin(), it->second.end());
    }
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
  bool is_damaged(const void* block, const Block& info) {
    if (!info.is_guarded || open_pool_ != kCommon) return false;  // nothing can be read while work is recorded
    unsigned char guard[kGuardBytes];
    source_.read(guard, static_cast<const char*>(block) + info.requested, kGuardBytes);
    return std::any_of(guard, guard + kGuardBytes, [](unsigned char byte) { return byte != kGuardByte; });
  }

  void* take_cached(int pool, int64_t capacity) {
    const auto it = cache_.find({pool, capacity});
    if (it == cache_.end() || it->second.empty()) return nullptr;
    void* block = it->second.back();
    it->second.pop_back();
    use_.cached_bytes -= capacity;
    return block;
  }

  void* take_from_system(int64_t capacity, int64_t bytes, const char* what) {
    require(open_pool_ == kCommon,
            "cuda: {} wants {} KB of new memory while work is recorded; want the work done once before", what,
            bytes >> 10);
    // The system grants more than it has and kills the process later: refuse what cannot fit while it can be said.
    if (use_.live_bytes + use_.cached_bytes + capacity > source_.size()) drop_cache_locked();
    void* block = nullptr;
    if (use_.live_bytes + capacity <= source_.size()) {
      block = source_.take(capacity);
      if (!block && use_.cached_bytes > 0) {
        drop_cache_locked();
        block = source_.take(capacity);
      }
    }
    require(block != nullptr,
            "out of memory: {} wants {} MB; {} MB are in use, {} has {} MB: lower the batch, the context or "
            "the model's size",
            what, bytes >> 20, use_.live_bytes >> 20, source_.owner(), source_.size() >> 20);
    return block;
  }

  void drop_cache_locked() {
    while (!cache_.empty() && cache_.begin()->first.first == kCommon) {
      const auto& [key, blocks] = *cache_.begin();
      for (void* block : blocks) source_.give_back(block);
      use_.cached_bytes -= key.second * static_cast<int64_t>(blocks.size());
      cache_.erase(cache_.begin());
    }
  }

  Source& source_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> live_;
  std::map<std::pair<int, int64_t>, std::vector<void*>> cache_;  // by pool and capacity
  int open_pool_ = kCommon, last_pool_ = kCommon;
  bool released_others_ = false;  // while the pool is open
  MemoryUse use_;
  bool is_guarded_ = false;
  int64_t damaged_ = 0;
};

// Never destroyed: tensors in static storage may be released after any static allocator would be gone.
Allocator& allocator_of(Device device) {
  static Allocator& host = *new Allocator(*new HostSource);
  static Allocator& cuda = *new Allocator(*new CudaSource);
  return device == Device::cpu ? host : cuda;
}

}  // namespace

void* allocate(int64_t bytes, const char* what, Device device) { return allocator_of(device).allocate(bytes, what); }
void release(void* block, Device device) { allocator_of(device).release(block); }
MemoryUse memory_use(Device device) { return allocator_of(device).use(); }
void reset_peak_memory(Device device) { allocator_of(device).reset_peak(); }
void release_cached_memory(Device device) { allocator_of(device).drop_cache(); }
int open_memory_pool(Device device) { return allocator_of(device).open_pool(); }
bool close_memory_pool(Device device) { return allocator_of(device).close_pool(); }
void drop_memory_pool(int pool, Device device) { allocator_of(device).drop_pool(pool); }
void set_memory_guard(bool is_guarded) {
  for (const Device device : {Device::cpu, Device::cuda}) allocator_of(device).set_guard(is_guarded);
}
int64_t damaged_guards() { return allocator_of(Device::cpu).damaged() + allocator_of(Device::cuda).damaged(); }

}  // namespace taper

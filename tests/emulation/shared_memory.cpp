#include "tests/emulation/shared_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/core/error.h"
#include "tests/emulation/access_checker.h"

namespace taper::emulation {
namespace {

constexpr size_t kAlign = 128;
constexpr size_t kCanaryBytes = 128;
constexpr unsigned char kCanary = 0xA5;
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": static arrays, and in all on 8.0; the
// larger 227 KB of 9.0 would not run there.
constexpr size_t kMostStatic = 48 << 10;
constexpr size_t kMostShared = 163 << 10;
// Canaries included.
constexpr size_t kCapacity = 2 * (kMostShared + kMostStatic);

size_t round_to_align(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

void SharedMemory::reset(size_t dynamic_bytes, Site launched_at) {
  require(dynamic_bytes <= kMostShared, "{}:{}: a block asks for too much shared memory; got {}, want at most {} bytes",
          launched_at.file, launched_at.line, dynamic_bytes, kMostShared);
  if (!bytes_) {
    bytes_ = static_cast<char*>(std::aligned_alloc(kAlign, kCapacity));
    watch_memory(Memory::shared, bytes_, kCapacity);
  }
  mark_memory(bytes_, used_, Bytes::forbidden);
  arrays_.clear();
  used_ = 0;
  dynamic_begin_ = place(dynamic_bytes);
  arrays_.push_back({nullptr, "dynamic shared memory", dynamic_begin_, dynamic_bytes, launched_at});
}

// Room for an array and its canary, full of 0xFF.
size_t SharedMemory::place(size_t bytes) {
  const size_t begin = used_;
  used_ = begin + round_to_align(bytes + kCanaryBytes);
  std::memset(bytes_ + begin, 0xFF, bytes);
  std::memset(bytes_ + begin + bytes, kCanary, used_ - begin - bytes);
  mark_memory(bytes_ + begin, bytes, Bytes::unset);
  return begin;
}

void* SharedMemory::array(const void* tag, const char* name, size_t bytes, Site site) {
  size_t total = bytes;
  for (const Array& array : arrays_) {
    if (array.tag == tag) return bytes_ + array.begin;
    if (array.tag) total += array.bytes;
  }
  if (total > kMostStatic) fail_in_kernel(site, "shared arrays of more than 48 KB");
  arrays_.push_back({tag, name, place(bytes), bytes, site});
  return bytes_ + arrays_.back().begin;
}

void SharedMemory::check_canaries() const {
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    const auto* begin = reinterpret_cast<const unsigned char*>(bytes_) + array.begin + array.bytes;
    const bool is_whole = std::all_of(begin, begin + kCanaryBytes, [](unsigned char byte) { return byte == kCanary; });
    require(is_whole, "{}:{}: {} of {} bytes was written beyond its end", array.site.file, array.site.line, array.name,
            array.bytes);
  }
}

}  // namespace taper::emulation

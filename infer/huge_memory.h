// Memory for what decoding streams through: zeroed, aligned to cache lines, on large pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace taper {

class HugeMemory {
 public:
  HugeMemory() = default;
  // Error that names `what` and the bytes where there are not that many.
  HugeMemory(int64_t bytes, const char* what);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Unmap {
    int64_t bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
  int64_t bytes_ = 0;
};

inline constexpr int64_t kCacheLine = 64;

}  // namespace taper

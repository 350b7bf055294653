// Working memory of a kernel, from the caching allocator: nothing is asked of the system in a steady state. To be taken
// outside parallel regions, since running out throws.
#pragma once

#include "engine/core/allocator.h"

namespace taper::cpu {

template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : data_(count > 0 ? static_cast<T*>(allocate(count * static_cast<int64_t>(sizeof(T)), "working memory"))
                        : nullptr) {}
  ~Scratch() {
    if (data_) release(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() const { return data_; }

 private:
  T* data_;
};

}  // namespace taper::cpu

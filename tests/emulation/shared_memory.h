// The shared memory of the block that runs: static arrays and the dynamic part, full of 0xFF at the start of each
// block, with canaries behind every array.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/emulation/device.h"

namespace taper::emulation {

class SharedMemory {
 public:
  // At the start of a block. Throws where a device has not so much.
  void reset(size_t dynamic_bytes, Site launched_at);
  void* dynamic() { return bytes_ + dynamic_begin_; }
  void* array(const void* tag, const char* name, size_t bytes, Site site);
  // At the end of a block: throws where something was written behind an array.
  void check_canaries() const;

 private:
  struct Array {
    const void* tag;
    const char* name;
    size_t begin, bytes;
    Site site;
  };
  size_t place(size_t bytes);

  char* bytes_ = nullptr;
  std::vector<Array> arrays_;
  size_t used_ = 0;
  size_t dynamic_begin_ = 0;
};

}  // namespace taper::emulation

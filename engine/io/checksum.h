// A checksum that finds damage, not malice: FNV-1a with 64-bit words in place of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace taper {

class Checksum {
 public:
  // Pieces may be added one after another; all but the last have a multiple of 8 bytes. Missing bytes count as zeros.
  void add(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; p += 8, bytes -= 8) add_word(p, 8);
    if (bytes > 0) add_word(p, bytes);
  }
  uint64_t value() const { return hash_; }

 private:
  void add_word(const unsigned char* p, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    hash_ = (hash_ ^ word) * 0x100000001B3u;
  }
  uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace taper

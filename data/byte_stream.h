// Sequential bytes of a file, of a zstd-compressed file (`.zst`) or of standard input (`-`). A stop that is requested
// ends a read, also one that waits for bytes: Stopped (engine/core/interrupt.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace taper {

class ByteStream {
 public:
  // UsageError where the file cannot be opened.
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `size` bytes; 0 only at the end. Errors: reading fails, compressed data damaged or cut off.
  size_t read(char* out, size_t size);
  // Bytes taken from storage so far (compressed bytes for .zst).
  uint64_t bytes_consumed() const { return consumed_; }
  const std::string& name() const { return name_; }

 private:
  struct Decoder;
  void wait_for_bytes() const;
  size_t read_raw(char* out, size_t size);

  std::string name_;
  int file_ = -1;
  bool is_at_end_ = false;
  std::unique_ptr<Decoder> decoder_;
  uint64_t consumed_ = 0;
};

// All of it, uncompressed. UsageError where it cannot be opened or is larger than `max_bytes`.
std::string read_all(const std::string& path, uint64_t max_bytes);
// Limits for callers: a text that becomes ids, and a prompt or a JSON text, which take many times their size.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 32;
inline constexpr uint64_t kMaxSmallTextBytes = uint64_t{1} << 28;

bool has_suffix(const std::string& name, const std::string& suffix);
// The absolute form of a path, for messages.
std::string full_path(const std::string& path);

}  // namespace taper

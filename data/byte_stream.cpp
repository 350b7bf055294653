#include "data/byte_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"

namespace taper {

struct ByteStream::Decoder {
  ZSTD_DStream* stream = ZSTD_createDStream();
  std::vector<char> input = std::vector<char>(ZSTD_DStreamInSize());
  ZSTD_inBuffer pending{nullptr, 0, 0};
  bool frame_is_complete = true;
  bool saw_frame = false;
  ~Decoder() { ZSTD_freeDStream(stream); }
};

bool has_suffix(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

std::string full_path(const std::string& path) {
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path, ignored);
  return ignored ? path : absolute.lexically_normal().string();
}

ByteStream::ByteStream(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  std::error_code ignored;
  require_usage(path == "-" || !std::filesystem::is_directory(path, ignored), "{}: is a folder, want a file",
                full_path(path));
  // Not blocking: of a named pipe without a writer, opening would wait.
  file_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require_usage(file_ >= 0, "{}: cannot be opened: {}", full_path(path), std::strerror(errno));
  if (has_suffix(path, ".zst")) decoder_ = std::make_unique<Decoder>();
}

ByteStream::~ByteStream() {
  if (file_ > STDIN_FILENO) close(file_);
}

// A signal between the look at the flag and the wait would be missed by a wait without an end.
void ByteStream::wait_for_bytes() const {
  constexpr int kMilliseconds = 100;
  for (pollfd ready{file_, POLLIN, 0};;) {
    throw_if_stop_requested();
    if (poll(&ready, 1, kMilliseconds) > 0) return;
  }
}

size_t ByteStream::read_raw(char* out, size_t size) {
  size_t got = 0;
  while (got < size && !is_at_end_) {
    wait_for_bytes();
    const ssize_t count = ::read(file_, out + got, size - got);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require(count >= 0, "{}: reading failed at byte {}: {}", name_, consumed_ + got, std::strerror(errno));
    is_at_end_ = count == 0;
    got += static_cast<size_t>(count);
  }
  consumed_ += got;
  return got;
}

size_t ByteStream::read(char* out, size_t size) {
  if (decoder_ == nullptr) return read_raw(out, size);
  Decoder& d = *decoder_;
  ZSTD_outBuffer output{out, size, 0};
  while (output.pos < size) {
    if (d.pending.pos == d.pending.size) {
      const size_t got = read_raw(d.input.data(), d.input.size());
      // Output may still wait inside the decoder after the last input byte, so an open frame is asked once more.
      if (got == 0 && d.frame_is_complete) break;
      d.pending = {d.input.data(), got, 0};
    }
    const size_t before = output.pos;
    const bool input_is_at_end = d.pending.size == 0;
    const size_t hint = ZSTD_decompressStream(d.stream, &output, &d.pending);
    require(ZSTD_isError(hint) == 0, "{}: not valid zstd data near byte {}: {}", name_, consumed_,
            ZSTD_getErrorName(hint));
    d.frame_is_complete = hint == 0;
    d.saw_frame = true;
    require(!(input_is_at_end && !d.frame_is_complete && output.pos == before),
            "{}: the compressed data is cut off; {} bytes present, want more", name_, consumed_);
  }
  require(output.pos > 0 || d.saw_frame, "{}: an empty file is not zstd data", name_);
  return output.pos;
}

std::string read_all(const std::string& path, uint64_t max_bytes) {
  ByteStream stream(path);
  std::string text;
  constexpr size_t kBlock = size_t{1} << 14;
  for (size_t size = 0;;) {
    // Room that grows with what was there, not with what a file may hold.
    const size_t room = std::max(kBlock, size);
    text.resize(size + room);
    const size_t read = stream.read(text.data() + size, room);
    text.resize(size += read);
    require_usage(size <= max_bytes, "{}: too large; got more than {} bytes", stream.name(), max_bytes);
    if (read == 0) return text;
  }
}

}  // namespace taper

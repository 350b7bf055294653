// Compressed corpora: the bytes are a .zst file as they are, or where the first byte is odd what a frame of them holds.
#include <zstd.h>

#include <vector>

#include "data/byte_stream.h"
#include "data/corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace taper;

namespace {

std::string compressed(std::string_view text) {
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 1));
  return frame;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::as_text(data + 1, size - 1);
  if (data[0] % 2 == 1) {
    const std::string path = fuzz::write_input("held.zst", compressed(text)).string();
    fuzz::expect(read_all(path, size) == text, "what was compressed comes back");
    return 0;
  }
  const std::string path = fuzz::write_input("input.jsonl.zst", text).string();
  constexpr uint64_t kMost = uint64_t{1} << 22;
  fuzz::takes_or_refuses([&] { fuzz::expect(read_all(path, kMost).size() <= kMost, "the limit holds"); });
  CorpusOptions options;
  options.max_record_bytes = kMost;
  fuzz::takes_or_refuses([&] { read_corpus({path}, options, [](std::string_view, bool) {}); });
  return 0;
}

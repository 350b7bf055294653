#include "data/token_files.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/byte_stream.h"
#include "engine/core/error.h"

namespace taper {
namespace {

constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr size_t kBlockBytes = size_t{1} << 16;

struct Layout {
  size_t header_bytes;
  size_t token_bytes;
  std::optional<uint64_t> count;  // as the header states it
};

// What a file of another kind is, by its first word; null where it may be tokens.
const char* other_kind(int32_t magic) {
  switch (magic) {
    case 20240326:
      return "an llm.c model";
    case 20240327:
      return "an llm.c debug state";
    case 20240328:
      return "an llm.c tokenizer";
    case 20240522:
      return "an llm.c evaluation set";
    case 20240527:
      return "an llm.c training state";
    case 0x45504154:
      return "a token shard of this program, which is prepared already";  // "TAPE"
    default:
      return nullptr;
  }
}

Layout read_layout(const std::string& path, const char* head, size_t size) {
  int32_t words[3] = {};
  std::memcpy(words, head, std::min(size, sizeof(words)));
  const char* other = size >= sizeof(int32_t) ? other_kind(words[0]) : nullptr;
  require_usage(other == nullptr, "{}: not a token file: it is {}", path, other);
  const bool is_gpt2 = words[0] == 20240520;
  const bool is_llama = words[0] == 20240801;
  if (!is_gpt2 && !is_llama) return {0, sizeof(uint16_t), std::nullopt};
  require(size >= kHeaderBytes, "{}: the llm.c header is cut off; got {} bytes, want {}", path, size, kHeaderBytes);
  const int32_t version = is_gpt2 ? 1 : 7;
  require(words[1] == version, "{}: unknown version of llm.c token files; got {}, want {}", path, words[1], version);
  require(words[2] >= 0, "{}: the llm.c header has a negative token count: {}", path, words[2]);
  return {kHeaderBytes, is_gpt2 ? sizeof(uint16_t) : sizeof(uint32_t), static_cast<uint64_t>(words[2])};
}

// Token `index` of a block; 64 bits, so that no id of a damaged file turns negative.
uint64_t token_at(const char* bytes, size_t token_bytes, size_t index) {
  uint32_t wide = 0;
  // Little-endian: the narrow form is the low half.
  std::memcpy(&wide, bytes + index * token_bytes, token_bytes);
  return wide;
}

}  // namespace

bool is_token_file(const std::string& path) { return has_suffix(path, ".bin"); }

uint64_t read_token_file(const std::string& path, uint64_t vocabulary_size,
                         const std::function<void(const int32_t* tokens, size_t count)>& sink) {
  ByteStream stream(path);
  std::vector<char> block(kBlockBytes);
  size_t filled = stream.read(block.data(), block.size());
  const Layout layout = read_layout(path, block.data(), filled);
  const uint64_t file_bytes = std::filesystem::file_size(path);
  require((file_bytes - layout.header_bytes) % layout.token_bytes == 0,
          "{}: the size is not a whole number of {}-byte tokens; got {} bytes", path, layout.token_bytes, file_bytes);
  const uint64_t present = (file_bytes - layout.header_bytes) / layout.token_bytes;
  require(layout.count.value_or(present) == present, "{}: the header states {} tokens, the file holds {}", path,
          layout.count.value_or(0), present);

  uint64_t done = 0;
  size_t begin = layout.header_bytes;
  std::vector<int32_t> tokens;
  while (filled > begin) {
    tokens.resize((filled - begin) / layout.token_bytes);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const uint64_t id = token_at(block.data() + begin, layout.token_bytes, i);
      require(id < vocabulary_size, "{}: token {} is outside the tokenizer's vocabulary; got id {}, want below {}",
              path, done + i, id, vocabulary_size);
      tokens[i] = static_cast<int32_t>(id);
    }
    if (!tokens.empty()) sink(tokens.data(), tokens.size());
    done += tokens.size();
    begin = 0;
    filled = stream.read(block.data(), block.size());
  }
  require(done == present, "{}: the file changed while it was read; got {} tokens, want {}", path, done, present);
  return done;
}

}  // namespace taper

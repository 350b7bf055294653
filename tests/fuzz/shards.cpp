// Token shards, their checksum made right where the first byte is odd, else no input would get past it; and the token
// files of other programs.
#include <cstring>
#include <vector>

#include "data/token_files.h"
#include "data/token_shards.h"
#include "engine/io/checksum.h"
#include "tests/fuzz/fuzz.h"

using namespace taper;

namespace {

constexpr size_t kHeaderBytes = 48;

void repair(std::string& shard) {
  if (shard.size() < kHeaderBytes) return;
  Checksum checksum;
  checksum.add(shard.data() + kHeaderBytes, shard.size() - kHeaderBytes);
  checksum.add(shard.data() + 8, 32);
  const uint64_t value = checksum.value();
  std::memcpy(shard.data() + 40, &value, 8);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(fuzz::as_text(data + 1, size - 1));
  if (data[0] % 2 == 1) repair(bytes);
  const std::string path = fuzz::write_input("input.bin", bytes).string();
  fuzz::takes_or_refuses([&] {
    const TokenDataset tokens("input", {path});
    std::vector<int32_t> all(tokens.size());
    tokens.copy(0, tokens.size(), all.data());
    for (const int32_t token : all) {
      fuzz::expect(token >= 0 && static_cast<uint64_t>(token) < tokens.info().vocabulary_size,
                   "ids are in the vocabulary");
    }
  });
  fuzz::takes_or_refuses([&] {
    uint64_t seen = 0;
    const uint64_t count = read_token_file(path, 60000, [&](const int32_t* ids, size_t n) {
      for (size_t i = 0; i < n; ++i) fuzz::expect(ids[i] >= 0 && ids[i] < 60000, "ids are in the vocabulary");
      seen += n;
    });
    fuzz::expect(seen == count, "all tokens arrive");
  });
  return 0;
}

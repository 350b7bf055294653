// The index of a model in several files: whatever it says, the files it names lie beside it.
#include "model/weights_index.h"

#include "tests/fuzz/fuzz.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto path = fuzz::write_input(kWeightsIndexFile, fuzz::as_text(data, size));
  fuzz::takes_or_refuses([&] {
    for (const auto& [tensor, shard] : read_weights_index(path)) {
      fuzz::expect((path.parent_path() / shard).lexically_normal().parent_path() == path.parent_path(),
                   "shards lie inside the folder");
      fuzz::expect(shard.find('\0') == std::string::npos, "a name ends where the system ends it");
    }
  });
  return 0;
}

#include "engine/io/gguf.h"

#include "tests/fuzz/fuzz.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto path = fuzz::write_input("input.gguf", fuzz::as_text(data, size));
  fuzz::takes_or_refuses([&] {
    const GgufFile file = GgufFile::open(path);
    for (const std::string& name : file.names()) {
      const Tensor tensor = file.read(name);
      fuzz::expect(tensor.numel() <= static_cast<int64_t>(size), "a tensor lies inside the file");
    }
    for (const auto& entry : file.metadata()) {
      fuzz::takes_or_refuses([&] { file.get<std::string>(entry.first); });
    }
  });
  return 0;
}

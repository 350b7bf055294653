#include "engine/io/safetensors.h"

#include "tests/fuzz/fuzz.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto path = fuzz::write_input("input.safetensors", fuzz::as_text(data, size));
  fuzz::takes_or_refuses([&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    int64_t last = 0;
    for (const std::string& name : file.names()) {
      const SafetensorsEntry& entry = file.info(name);
      fuzz::expect(entry.begin == last && entry.end >= entry.begin, "tensors cover the data without holes");
      last = entry.end;
      fuzz::expect(file.bytes(name).size() == static_cast<size_t>(entry.end - entry.begin), "bytes are the entry's");
      for (const Dtype dtype : {Dtype::f32, Dtype::i32}) fuzz::takes_or_refuses([&] { file.read(name, dtype); });
    }
    fuzz::expect(last <= static_cast<int64_t>(size), "the data lies inside the file");
  });
  return 0;
}

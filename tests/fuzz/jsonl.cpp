// A .jsonl corpus, and the same bytes as text.
#include "data/corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const char* name : {"input.jsonl", "input.txt"}) {
    const std::string path = fuzz::write_input(name, fuzz::as_text(data, size)).string();
    fuzz::takes_or_refuses([&] {
      uint64_t bytes = 0;
      const CorpusCounts counts = read_corpus({path}, {}, [&](std::string_view text, bool) { bytes += text.size(); });
      fuzz::expect(bytes == counts.bytes, "the counts are those of what arrived");
    });
  }
  return 0;
}

// tokenizer.json, or vocab.json and merges.txt with a zero byte between. What is taken must encode printable text
// without loss.
#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text = fuzz::as_text(data + 1, size - 1);
  const bool is_whole = data[0] % 2 == 0;
  std::filesystem::path path;
  if (is_whole) {
    path = fuzz::write_input("tokenizer.json", text);
  } else {
    path = fuzz::write_input("vocab.json", fuzz::cut_at_zero(text));
    fuzz::write_input("merges.txt", text);
  }
  fuzz::takes_or_refuses([&] {
    const Tokenizer tokenizer = Tokenizer::load(path);
    const std::string sample = "a bc 12<|endoftext|>  (x)";
    for (const Special special : {Special::kText, Special::kMarker}) {
      fuzz::takes_or_refuses([&] {
        fuzz::expect(tokenizer.decode(tokenizer.encode(sample, special)) == sample,
                     "decode gives back what was encoded");
      });
    }
  });
  return 0;
}

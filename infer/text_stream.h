// Text from a stream of tokens: characters that span tokens come out whole, and what might become a stop text waits.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace taper {

// How many bytes at the end begin a UTF-8 character and do not finish it: 0 to 3.
size_t incomplete_suffix(std::string_view bytes);

class TextStream {
 public:
  using Write = std::function<void(std::string_view)>;
  TextStream(std::vector<std::string> stops, Write write) : stops_(std::move(stops)), write_(std::move(write)) {}

  // The bytes of one more token. True where a stop text is complete: what stands before it was written, the stop text
  // and the rest never are.
  bool push(std::string_view bytes);
  // The end: writes what was held back, an incomplete character as its bytes.
  void finish();

 private:
  std::vector<std::string> stops_;
  Write write_;
  std::string held_;
};

}  // namespace taper

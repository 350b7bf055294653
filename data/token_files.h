// Token files of other programs (`.bin`), read as a stream. Both kinds are little-endian:
//   llm.c    256 int32 of header: magic 20240520 (GPT-2, uint16 tokens) with version 1, or 20240801 (Llama 3, uint32)
//            with version 7, then the token count; exactly that many tokens follow. A document is its end-of-text
//            token, then its tokens.
//   nanoGPT  uint16 tokens without a header; a document is its tokens, then its end-of-text token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace taper {

// By its name: token files end in `.bin`.
bool is_token_file(const std::string& path);

// Calls `sink(tokens, count)` block by block and returns the number of tokens. Errors: other kinds of .bin files, a
// size that contradicts the header, an odd number of bytes, an id not below `vocabulary_size` (its position is named).
uint64_t read_token_file(const std::string& path, uint64_t vocabulary_size,
                         const std::function<void(const int32_t* tokens, size_t count)>& sink);

}  // namespace taper

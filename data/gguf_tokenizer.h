// A tokenizer as the metadata of a GGUF file: llama.cpp's byte-level BPE, "gpt2" (llama.cpp, src/llama-vocab.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "data/tokenizer.h"
#include "engine/io/gguf.h"

namespace taper {

// Tokens in the byte alphabet, their types and the merges. A model may have more rows than there are tokens: they are
// called [PADn]. Error where it has fewer.
GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, std::int64_t vocab_size, std::optional<std::int64_t> bos_id,
                            std::optional<std::int64_t> eos_id);

}  // namespace taper

// The classes of Hugging Face's transformers that models are read from and written for.
#pragma once

#include <cstdint>

namespace taper {

enum class HfClass : uint8_t {
  gpt2,      // LayerNorm, biases, learned positions, plain MLP
  imagegpt,  // the same with RMSNorm and an unembedding of its own
  llama,     // RMSNorm, rotary positions, gated MLP, grouped queries
};

const char* to_string(HfClass hf_class);  // "GPT2LMHeadModel", ...

}  // namespace taper

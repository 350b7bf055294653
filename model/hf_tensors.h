// What the parameters of a model are called, and how they lie, in files that other programs read: Hugging Face's
// classes GPT2LMHeadModel, ImageGPTForCausalImageModeling and LlamaForCausalLM, and GGUF. One table serves import and
// export.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/hf_class.h"
#include "model/transformer.h"

namespace taper {

// The class whose function is this model's, removed norms aside; none where no class has it, with the reason in
// `why_not`.
std::optional<HfClass> hf_class_of(const ModelConfig& config, std::string* why_not = nullptr);

// One tensor of a file and the part of a parameter that it holds, [out, in]; `part` shares the model's memory.
struct HfTensor {
  std::string name;       // as Hugging Face writes it, with the prefix "transformer." or "model."
  std::string gguf_name;  // empty: GGUF has none
  Tensor part;
  bool is_transposed = false;  // Hugging Face holds [in, out] (GPT-2's Conv1D)
  int64_t padding_rows = 0;    // ImageGPT: rows of zeros behind the embedding's
  int64_t rotary_heads = 0;    // rows of q or k of so many heads: GGUF pairs them otherwise
  std::vector<int64_t> hf_shape() const;
};

// All tensors of the model in the order of the network; a tied unembedding is none of them.
std::vector<HfTensor> hf_tensors(const Transformer& model, HfClass hf_class);

// out [columns, rows] = in [rows, columns], both f32.
void transpose_into(const float* in, int64_t rows, int64_t columns, float* out);

}  // namespace taper

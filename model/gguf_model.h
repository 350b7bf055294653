// Models as GGUF files of llama.cpp's architectures "gpt2" and "llama", for export_gguf (model/hf_export.h). Keys and
// tensors: ggml, docs/gguf.md; llama.cpp, src/llama-arch.cpp, src/models/{gpt2,llama}.cpp.
//
// llama.cpp rotates pairs of neighbours where Hugging Face rotates halves: rows of q and k are reordered. Vectors and
// positions stay F32. All norms share one eps, as in Hugging Face's classes, so models without norms take the same
// forms (model/stock_form.h).
#pragma once

#include <filesystem>
#include <string>

#include "engine/io/gguf.h"
#include "model/stock_form.h"

namespace taper {

struct GgufOptions {
  std::string name;
  StoredDtype stored = StoredDtype::f32;  // of matrices
  GgufMetadata tokenizer;                 // data/gguf_tokenizer.h; empty: the file has none
  // The extra block's matrices hold what f16 and its products would lose: they stay F32.
  bool has_extra_block = false;
};

// Why llama.cpp has no graph for this model of that class; empty where it has.
std::string gguf_refusal(const ModelConfig& config, HfClass hf_class);

// REQUIRES gguf_refusal is empty.
GgufMetadata gguf_metadata(const ModelConfig& config, HfClass hf_class, const GgufOptions& options);
std::vector<GgufTensor> gguf_tensors(const Transformer& model, HfClass hf_class, const GgufOptions& options);

// The model of a file that this project wrote: for checking it. UsageError where something is missing or unknown.
Transformer load_gguf_model(const std::filesystem::path& path);

}  // namespace taper

// Hands a model to other programs: as a Hugging Face folder, as a GGUF file, or as a native folder in another dtype.
// Each export is written beside its place, read back and compared, tensor by tensor and by its logits, and only then
// put there: what fails leaves nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/io/gguf.h"
#include "model/hf_import.h"
#include "model/stock_form.h"

namespace taper {

// The tokenizer that goes along, as the export sees it (data/ knows how, model/ may not ask it).
struct ExportedTokenizer {
  int64_t size = 0;                                                                // tokens
  std::function<void(const std::filesystem::path& folder, int64_t context)> save;  // its files
  std::function<GgufMetadata(int64_t vocab_size)> gguf;
};

struct ExportOptions {
  StoredDtype stored = StoredDtype::f32;
  ExportRoute route = ExportRoute::automatic;
  std::optional<ExportedTokenizer> tokenizer;
  std::optional<int64_t> bos_id, eos_id;
  std::string name = "model";
  Say say;
};

struct ExportResult {
  std::string form;  // the class, and what was done to fit it
  int64_t tensors = 0;
  double max_logit_difference = 0;  // of what was read back, against the model, on built-in ids
  double allowed = 0;
};

// A model ready to be exported: norms that tapered to gate 0 are folded, a gate that never left 1 leaves plain norms.
// UsageError for an unfinished gate. None where the model is ready as it is.
std::optional<Transformer> without_taper(const Transformer& model, const Say& say);

// UsageError where something is at `output` already, where the route asked for cannot hold the model (it says why),
// and where a tensor leaves the range of the dtype (it names tensor and value). Error where the check fails.
// REQUIRES an f32 model.
ExportResult export_hf(const Transformer& model, const std::filesystem::path& output, const ExportOptions& options);
ExportResult export_gguf(const Transformer& model, const std::filesystem::path& output, const ExportOptions& options);
ExportResult export_native(const Transformer& model, const std::filesystem::path& output, const ExportOptions& options);

}  // namespace taper

#include "model/hf_custom.h"

#include <nlohmann/json.hpp>

#include "engine/io/atomic_file.h"
#include "model/hf_config.h"
#include "model/model_folder.h"

namespace taper {
namespace {

constexpr const char* kModellingFile =
#include "model/modeling_taper.py.inc"
    ;

}  // namespace

void save_custom_model(const Transformer& model, const std::filesystem::path& folder, StoredDtype stored,
                       std::optional<int64_t> bos_id, std::optional<int64_t> eos_id) {
  save_model(model, folder, stored);
  auto json = nlohmann::ordered_json::parse(config_to_json(model.config()));
  const auto id_or_null = [](std::optional<int64_t> id) {
    return id ? nlohmann::ordered_json(*id) : nlohmann::ordered_json(nullptr);
  };
  json["architectures"] = {"TaperForCausalLM"};
  json["auto_map"] = {{"AutoConfig", "modeling_taper.TaperConfig"},
                      {"AutoModelForCausalLM", "modeling_taper.TaperForCausalLM"}};
  json["dtype"] = json["torch_dtype"] = stored == StoredDtype::bf16  ? "bfloat16"
                                        : stored == StoredDtype::f16 ? "float16"
                                                                     : "float32";
  json["bos_token_id"] = id_or_null(bos_id);
  json["eos_token_id"] = id_or_null(eos_id);
  // The unembedding that is_tied means is worked out by the modelling file.
  json["tie_word_embeddings"] = false;
  write_file(folder / "config.json", json.dump(2) + "\n");
  write_file(folder / "modeling_taper.py", kModellingFile);
}

}  // namespace taper

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <set>

#include "data/bpe/byte_alphabet.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "model/fold.h"
#include "model/hf_export.h"
#include "model/model_folder.h"
#include "tests/support/random_models.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using namespace taper::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json json_of(const fs::path& file) { return json::parse(test::read_file(file)); }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string refusal(const Transformer& model, const fs::path& output, const ExportOptions& options) {
  try {
    export_hf(model, output, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool is_empty(const TempDir& folder) { return fs::is_empty(folder.path()); }

// Exports, opens again, compares the functions; returns config.json.
json check_export(const Transformer& model, const std::string& form, ExportRoute route = ExportRoute::automatic,
                  StoredDtype stored = StoredDtype::f32, double tolerance = 1e-4) {
  const TempDir folder;
  ExportOptions options;
  options.route = route;
  options.stored = stored;
  const ExportResult result = export_hf(model, folder / "out", options);
  CAPTURE(result.form);
  CHECK(contains(result.form, form));
  const Transformer opened = load_model(folder / "out");
  CHECK(logit_distance(sample_logits(model), sample_logits(opened)) <= tolerance);
  // Nothing but what was asked for.
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  return json_of(folder / "out/config.json");
}

Vocabulary small_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.added.push_back({std::string(kEndOfText), 0, true});
  for (const uint8_t byte : bytes_in_alphabet_order()) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  return vocabulary;
}

}  // namespace

TEST_CASE("hf export: import, export and import again give the same bytes of every tensor") {
  for (const char* name :
       {"gpt2_f32", "gpt2_bf16_wide", "gpt2_f16_gelu_untied", "llama_gqa", "llama_tied_bf16", "gpt2_stories"}) {
    SKIP_WITHOUT_SHARED(fs::path("hf") / name);
    CAPTURE(name);
    const fs::path source = shared_file(fs::path("hf") / name);
    const TempDir folder;
    ExportOptions options;
    options.stored = stored_dtype_of(source);
    const Transformer model = load_model(source);
    const ExportResult result = export_hf(model, folder / "out", options);
    CHECK(result.max_logit_difference == 0);
    const SafetensorsFile before = SafetensorsFile::open(source / "model.safetensors");
    const SafetensorsFile after = SafetensorsFile::open(folder / "out/model.safetensors");
    CHECK(std::set(before.names().begin(), before.names().end()) ==
          std::set(after.names().begin(), after.names().end()));
    for (const std::string& tensor : before.names()) {
      CAPTURE(tensor);
      CHECK(before.info(tensor).dtype == after.info(tensor).dtype);
      CHECK(before.info(tensor).shape == after.info(tensor).shape);
      const auto a = before.bytes(tensor), b = after.bytes(tensor);
      CHECK((a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0));
    }
    // The model's keys are as they were.
    const json old_config = json_of(source / "config.json"), config = json_of(folder / "out/config.json");
    for (const char* key : {"model_type",
                            "architectures",
                            "vocab_size",
                            "n_positions",
                            "n_embd",
                            "n_layer",
                            "n_head",
                            "n_inner",
                            "activation_function",
                            "layer_norm_epsilon",
                            "tie_word_embeddings",
                            "dtype",
                            "hidden_size",
                            "intermediate_size",
                            "num_key_value_heads",
                            "head_dim",
                            "rms_norm_eps",
                            "rope_parameters",
                            "attention_bias",
                            "mlp_bias",
                            "max_position_embeddings"}) {
      CAPTURE(key);
      if (old_config.contains(key)) CHECK(config.value(key, json()) == old_config[key]);
    }
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
      if (old_config.contains(key)) CHECK(config[key] == 0);
    }
    if (old_config.contains("n_positions")) CHECK(config["n_ctx"] == old_config["n_positions"]);
  }
}

TEST_CASE("hf export: gpt2 baseline, internal and all") {
  json config = check_export(random_model(small_config("gpt2")), "GPT2LMHeadModel");
  CHECK(config["layer_norm_epsilon"] == 1e-5);
  CHECK(config["tie_word_embeddings"] == true);
  config =
      check_export(random_model(small_config("gpt2", Variant::all)), "GPT2LMHeadModel, norms linear by a large eps");
  CHECK(config["layer_norm_epsilon"].is_number_float());
  CHECK(config["layer_norm_epsilon"] == 0x1p40);
  CHECK(config["tie_word_embeddings"] == false);
  config = check_export(random_model(small_config("gpt2", Variant::internal)), "an extra block for the last",
                        ExportRoute::automatic, StoredDtype::f32, 2e-4);
  CHECK(config["n_layer"] == 3);
  CHECK(config["tie_word_embeddings"] == true);
  for (const Variant variant : {Variant::internal, Variant::all}) {
    config = check_export(random_model(small_config("gpt2", variant)), "TaperForCausalLM", ExportRoute::custom);
    CHECK(config["block_norms"] == "removed");
  }
}

TEST_CASE("hf export: taper models by the doubled stream, in their own size, with the extra block, by their own file") {
  json config = check_export(random_model(small_config("taper")), "GPT2LMHeadModel, doubled stream");
  CHECK(config["n_embd"] == 32);
  CHECK(config["n_head"] == 4);
  CHECK(config["n_inner"] == 64);
  CHECK(config["layer_norm_epsilon"] == 1e-5);
  config =
      check_export(random_model(small_config("taper", Variant::all)), "doubled stream, norms linear by a large eps");
  CHECK(config["layer_norm_epsilon"] == 0x1p40);
  config = check_export(random_model(small_config("taper", Variant::internal)),
                        "doubled stream, norms linear by a large eps, an extra block", ExportRoute::automatic,
                        StoredDtype::f32, 2e-4);
  CHECK(config["n_layer"] == 3);
  for (const Variant variant : {Variant::baseline, Variant::all}) {
    config = check_export(random_model(small_config("taper", variant)), "ImageGPTForCausalImageModeling",
                          ExportRoute::imagegpt);
    CHECK(config["vocab_size"] == 62);
    CHECK(config["n_embd"] == 16);
    CHECK(config["model_type"] == "imagegpt");
  }
  check_export(random_model(small_config("taper", Variant::internal)), "TaperForCausalLM", ExportRoute::custom);
}

TEST_CASE("hf export: llama baseline and all as LlamaForCausalLM, internal by its own file") {
  json config = check_export(random_model(small_config("llama")), "LlamaForCausalLM");
  CHECK(config["num_key_value_heads"] == 2);
  CHECK(config["rope_theta"] == 10000.0);
  CHECK(config["rope_parameters"]["rope_theta"] == 10000.0);
  config =
      check_export(random_model(small_config("llama", Variant::all)), "LlamaForCausalLM, norms linear by a large eps");
  CHECK(config["rms_norm_eps"] == 0x1p40);
  config = check_export(random_model(small_config("llama", Variant::internal)), "TaperForCausalLM");
  CHECK(config["auto_map"]["AutoModelForCausalLM"] == "modeling_taper.TaperForCausalLM");
  CHECK(config["final_norm"] == "plain");
}

TEST_CASE(
    "hf export: unusual models: untied, scaled rotary positions, biases, narrow MLPs, grouped queries, other "
    "activations") {
  ModelConfig config = small_config("llama", Variant::all);
  config.is_tied = false;
  config.has_bias = true;
  config.rope_scaling = RopeScaling::llama3;
  config.rope_factor = 8;
  config.rope_original_context = 12;
  const json written = check_export(random_model(config), "LlamaForCausalLM");
  CHECK(written["rope_scaling"]["rope_type"] == "llama3");
  CHECK(written["attention_bias"] == true);
  config = small_config("gpt2", Variant::internal);
  config.mlp_hidden = 20;  // below the 2 C of the extra block
  config.activation = Activation::gelu_erf;
  config.is_tied = false;
  check_export(random_model(config), "extra block", ExportRoute::extra_block, StoredDtype::f32, 2e-4);
  config.activation = Activation::relu;
  check_export(random_model(config), "extra block", ExportRoute::extra_block, StoredDtype::f32, 2e-4);
  config = small_config("taper", Variant::all);
  config.kv_heads = 2;
  config.attention_scale = 0.4;
  config.has_bias = true;
  check_export(random_model(config), "doubled stream", ExportRoute::gpt2);
  config = small_config("taper");
  config.is_tied = false;
  config.head_size = 3;
  check_export(random_model(config), "doubled stream", ExportRoute::gpt2);
  config = small_config("gpt2");
  config.attention_scale = 1;
  CHECK(check_export(random_model(config), "GPT2LMHeadModel")["scale_attn_weights"] == false);
}

TEST_CASE("hf export: bf16 and f16, with the large eps each can hold") {
  for (const char* arch : {"taper", "gpt2", "llama"}) {
    CAPTURE(arch);
    const Transformer model = random_model(small_config(arch, Variant::all));
    const json brain = check_export(model, "large eps", ExportRoute::automatic, StoredDtype::bf16, 0.1);
    CHECK(brain["dtype"] == "bfloat16");
    CHECK(brain.value("layer_norm_epsilon", brain.value("rms_norm_eps", 0.0)) == 0x1p40);
    const json half = check_export(model, "large eps", ExportRoute::automatic, StoredDtype::f16, 1e-2);
    CHECK(half.value("layer_norm_epsilon", half.value("rms_norm_eps", 0.0)) == 0x1p28);
  }
  // The extra block's stream leaves f16.
  check_export(random_model(small_config("gpt2", Variant::internal)), "TaperForCausalLM", ExportRoute::automatic,
               StoredDtype::f16, 1e-2);
}

TEST_CASE("hf export: a tied model has no unembedding in its file, a folded one has its own, and E stays") {
  const TempDir folder;
  const Transformer tied = random_model(small_config("gpt2"));
  export_hf(tied, folder / "tied", {});
  CHECK_FALSE(SafetensorsFile::open(folder / "tied/model.safetensors").has("lm_head.weight"));
  const Transformer all = random_model(small_config("gpt2", Variant::all));
  export_hf(all, folder / "all", {});
  const SafetensorsFile file = SafetensorsFile::open(folder / "all/model.safetensors");
  CHECK(file.has("lm_head.weight"));
  CHECK(file.read("transformer.wte.weight", Dtype::f32).to_doubles() ==
        all.parameter("wte.weight").master.to_doubles());
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.info("transformer.h.0.attn.c_attn.weight").shape == std::vector<int64_t>{16, 48});
  CHECK(file.info("transformer.h.0.mlp.c_proj.weight").shape == std::vector<int64_t>{64, 16});
}

TEST_CASE("hf export: the tokenizer and its marker go along") {
  const TempDir folder;
  ModelConfig config = small_config("taper");
  config.vocab_size = 257;
  ExportOptions options;
  const Tokenizer tokenizer(small_vocabulary());
  options.tokenizer = {tokenizer.vocab_size(),
                       [&](const fs::path& to, int64_t context) { tokenizer.save(to, context); },
                       [](int64_t) { return GgufMetadata(); }};
  options.bos_id = options.eos_id = 0;
  export_hf(random_model(config), folder / "out", options);
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "vocab.json", "merges.txt",
                           "tokenizer.json", "tokenizer_config.json"}) {
    CHECK(fs::exists(folder / "out" / name));
  }
  CHECK(json_of(folder / "out/config.json")["eos_token_id"] == 0);
  CHECK(json_of(folder / "out/generation_config.json")["eos_token_id"] == 0);
  CHECK(json_of(folder / "out/tokenizer_config.json")["model_max_length"] == 24);
  config.vocab_size = 100;
  CHECK(contains(refusal(random_model(config), folder / "small", options), "got 257 tokens, want at most 100"));
  CHECK_FALSE(fs::exists(folder / "small"));
}

TEST_CASE("hf export: what cannot be is refused with the reason, and nothing is written") {
  const TempDir folder;
  const auto check = [&](const Transformer& model, ExportRoute route, const std::string& part,
                         StoredDtype stored = StoredDtype::f32) {
    ExportOptions options;
    options.route = route;
    options.stored = stored;
    const std::string error = refusal(model, folder / "out", options);
    CAPTURE(error);
    CHECK(contains(error, part));
    CHECK(is_empty(folder));
  };
  check(random_model(small_config("llama")), ExportRoute::gpt2, "LlamaForCausalLM");
  check(random_model(small_config("llama", Variant::internal)), ExportRoute::extra_block,
        "a gated MLP cannot make up for that");
  check(random_model(small_config("gpt2")), ExportRoute::imagegpt, "it is a model for GPT2LMHeadModel");
  check(random_model(small_config("gpt2")), ExportRoute::extra_block, "whose last norm alone is left");
  check(random_model(small_config("gpt2", Variant::internal)), ExportRoute::gpt2,
        "the routes extra-block and custom keep it");
  check(random_model(small_config("gpt2", Variant::internal)), ExportRoute::extra_block, "range of f16",
        StoredDtype::f16);

  ModelConfig unfinished = small_config("gpt2", Variant::all);
  unfinished.gate = 0.37;
  check(random_model(unfinished), ExportRoute::automatic, "the gate was 0.37 at step 100");

  Transformer big = random_model(small_config("gpt2"));
  big.parameter("h.1.mlp.down.weight").master.data<float>()[3] = 70000;
  check(big, ExportRoute::automatic,
        "tensor transformer.h.1.mlp.c_proj.weight: element 3 is 70000, which f16 cannot hold", StoredDtype::f16);
  big.parameter("h.1.mlp.down.weight").master.data<float>()[3] = 3.4e38f;
  check(big, ExportRoute::automatic, "which bf16 cannot hold", StoredDtype::bf16);
  big.parameter("h.1.mlp.down.weight").master.data<float>()[3] = std::nanf("");
  check(big, ExportRoute::automatic, "tensor h.1.mlp.down.weight: has values that are not finite");

  const Transformer model = random_model(small_config("gpt2"));
  folder.write("out/file", "");
  CHECK(contains(refusal(model, folder / "out", {}), "is there already"));
  fs::remove(folder / "out/file");
  CHECK(refusal(model, folder / "out", {}).empty());
}

TEST_CASE("hf export: a gate that is 1 still leaves plain norms") {
  ModelConfig config = small_config("gpt2", Variant::all);
  config.gate = 1;
  CHECK(check_export(random_model(config), "GPT2LMHeadModel")["layer_norm_epsilon"] == 1e-5);
}

TEST_CASE("hf export: swapped constants, a wrong axis or a norm too many are another function") {
  const Transformer model = random_model(small_config("gpt2", Variant::all));
  const Tensor want = sample_logits(model);
  Transformer swapped = random_model(small_config("gpt2", Variant::all));
  std::swap(*swapped.parameter("h.0.norm1.c").master.data<float>(),
            *swapped.parameter("h.1.norm1.c").master.data<float>());
  CHECK(logit_distance(want, sample_logits(swapped)) > 1e-3);
  ModelConfig one_more = fold(model).config();
  one_more.final_norm = NormSite::plain;
  one_more.has_head_bias = false;
  CHECK(logit_distance(want, sample_logits(rebuilt(fold(model), one_more))) > 1e-2);
}

TEST_CASE("hf export: the native form keeps tapered norms, in any dtype") {
  const TempDir folder;
  ModelConfig config = small_config("llama", Variant::all);
  config.gate = 0.25;
  const Transformer model = random_model(config);
  ExportOptions options;
  CHECK(export_native(model, folder / "f32", options).max_logit_difference == 0);
  options.stored = StoredDtype::bf16;
  export_native(model, folder / "bf16", options);
  CHECK(load_model(folder / "bf16").config().gate == 0.25);
  CHECK(stored_dtype_of(folder / "bf16") == StoredDtype::bf16);
}

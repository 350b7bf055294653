#include "tests/support/hf_folder.h"

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "model/model_folder.h"

namespace taper::test {

SmallHfFolder::SmallHfFolder(bool is_llama) {
  if (is_llama) {
    config = {{"model_type", "llama"},      {"vocab_size", 11},
              {"hidden_size", 8},           {"intermediate_size", 6},
              {"num_hidden_layers", 1},     {"num_attention_heads", 2},
              {"num_key_value_heads", 1},   {"max_position_embeddings", 16},
              {"tie_word_embeddings", true}};
    add("model.embed_tokens.weight", {11, 8});
    add("model.layers.0.input_layernorm.weight", {8});
    for (const char* name : {"q", "k", "v"}) {
      add("model.layers.0.self_attn." + std::string(name) + "_proj.weight", {*name == 'q' ? 8 : 4, 8});
    }
    add("model.layers.0.self_attn.o_proj.weight", {8, 8});
    add("model.layers.0.post_attention_layernorm.weight", {8});
    add("model.layers.0.mlp.gate_proj.weight", {6, 8});
    add("model.layers.0.mlp.up_proj.weight", {6, 8});
    add("model.layers.0.mlp.down_proj.weight", {8, 6});
    add("model.norm.weight", {8});
    return;
  }
  config = {{"model_type", "gpt2"}, {"vocab_size", 11}, {"n_positions", 6},
            {"n_embd", 4},          {"n_layer", 1},     {"n_head", 2}};
  add("wte.weight", {11, 4});
  add("wpe.weight", {6, 4});
  const std::pair<const char*, Shape> block[] = {{"ln_1.weight", {4}},
                                                 {"ln_1.bias", {4}},
                                                 {"attn.c_attn.weight", {4, 12}},
                                                 {"attn.c_attn.bias", {12}},
                                                 {"attn.c_proj.weight", {4, 4}},
                                                 {"attn.c_proj.bias", {4}},
                                                 {"ln_2.weight", {4}},
                                                 {"ln_2.bias", {4}},
                                                 {"mlp.c_fc.weight", {4, 16}},
                                                 {"mlp.c_fc.bias", {16}},
                                                 {"mlp.c_proj.weight", {16, 4}},
                                                 {"mlp.c_proj.bias", {4}}};
  for (const auto& [name, shape] : block) add("h.0." + std::string(name), shape);
  add("ln_f.weight", {4});
  add("ln_f.bias", {4});
}

void SmallHfFolder::add(const std::string& name, const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, Dtype::f32);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data<float>()[i] = 0.125f * float((i * 7 + int64_t(tensors.size()) * 3) % 17 - 8);
  }
  tensors.emplace_back(name, tensor);
}

Tensor& SmallHfFolder::at(const std::string& name) {
  for (auto& [known, tensor] : tensors) {
    if (known == name) return tensor;
  }
  fail("no tensor {}", name);
}

const std::filesystem::path& SmallHfFolder::write() const {
  temp.write("config.json", config.dump());
  write_safetensors(temp / "model.safetensors", tensors);
  return temp.path();
}

std::string SmallHfFolder::error() const { return load_error(write()); }

std::string load_error(const std::filesystem::path& folder) {
  try {
    load_model(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<double> logits_of(const Transformer& model) {
  model.set_requires_grad(false);
  return model.logits(Tensor::from(std::vector<int32_t>{1, 5, 3, 9}, {1, 4}), Gate{}).to_doubles();
}

}  // namespace taper::test

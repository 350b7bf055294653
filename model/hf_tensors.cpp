#include "model/hf_tensors.h"

#include <algorithm>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/parallel.h"

namespace taper {
namespace {

// Rows of a parameter that files hold apart.
enum class Rows : uint8_t { all, q, k, v, first_half, second_half };

struct Naming {
  const char* ours;  // within a block for the blocks' tables; without .weight and .bias where both exist
  const char* hf;
  const char* gguf;
  bool is_transposed = false;
  Rows rows = Rows::all;
};

// OpenAI's GPT-2 in transformers (modeling_gpt2.py) and in llama.cpp (src/models/gpt2.cpp).
constexpr Naming kGpt2Outside[] = {{"wte.weight", "transformer.wte.weight", "token_embd.weight"},
                                   {"wpe.weight", "transformer.wpe.weight", "position_embd.weight"},
                                   {"norm_f.gamma", "transformer.ln_f.weight", "output_norm.weight"},
                                   {"norm_f.beta", "transformer.ln_f.bias", "output_norm.bias"},
                                   {"lm_head.weight", "lm_head.weight", "output.weight"}};
constexpr Naming kGpt2Block[] = {{"norm1.gamma", "ln_1.weight", "attn_norm.weight"},
                                 {"norm1.beta", "ln_1.bias", "attn_norm.bias"},
                                 {"attn.qkv.weight", "attn.c_attn.weight", "attn_qkv.weight", true},
                                 {"attn.qkv.bias", "attn.c_attn.bias", "attn_qkv.bias"},
                                 {"attn.out.weight", "attn.c_proj.weight", "attn_output.weight", true},
                                 {"attn.out.bias", "attn.c_proj.bias", "attn_output.bias"},
                                 {"norm2.gamma", "ln_2.weight", "ffn_norm.weight"},
                                 {"norm2.beta", "ln_2.bias", "ffn_norm.bias"},
                                 {"mlp.up.weight", "mlp.c_fc.weight", "ffn_up.weight", true},
                                 {"mlp.up.bias", "mlp.c_fc.bias", "ffn_up.bias"},
                                 {"mlp.down.weight", "mlp.c_proj.weight", "ffn_down.weight", true},
                                 {"mlp.down.bias", "mlp.c_proj.bias", "ffn_down.bias"}};

// transformers, modeling_llama.py; llama.cpp, src/models/llama.cpp.
constexpr Naming kLlamaOutside[] = {{"wte.weight", "model.embed_tokens.weight", "token_embd.weight"},
                                    {"norm_f.gamma", "model.norm.weight", "output_norm.weight"},
                                    {"lm_head.weight", "lm_head.weight", "output.weight"}};
constexpr Naming kLlamaBlock[] = {
    {"norm1.gamma", "input_layernorm.weight", "attn_norm.weight"},
    {"attn.qkv.weight", "self_attn.q_proj.weight", "attn_q.weight", false, Rows::q},
    {"attn.qkv.weight", "self_attn.k_proj.weight", "attn_k.weight", false, Rows::k},
    {"attn.qkv.weight", "self_attn.v_proj.weight", "attn_v.weight", false, Rows::v},
    {"attn.qkv.bias", "self_attn.q_proj.bias", "attn_q.bias", false, Rows::q},
    {"attn.qkv.bias", "self_attn.k_proj.bias", "attn_k.bias", false, Rows::k},
    {"attn.qkv.bias", "self_attn.v_proj.bias", "attn_v.bias", false, Rows::v},
    {"attn.out.weight", "self_attn.o_proj.weight", "attn_output.weight"},
    {"attn.out.bias", "self_attn.o_proj.bias", "attn_output.bias"},
    {"norm2.gamma", "post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_up.weight", "mlp.gate_proj.weight", "ffn_gate.weight", false, Rows::first_half},
    {"mlp.gate_up.weight", "mlp.up_proj.weight", "ffn_up.weight", false, Rows::second_half},
    {"mlp.gate_up.bias", "mlp.gate_proj.bias", "ffn_gate.bias", false, Rows::first_half},
    {"mlp.gate_up.bias", "mlp.up_proj.bias", "ffn_up.bias", false, Rows::second_half},
    {"mlp.down.weight", "mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.down.bias", "mlp.down_proj.bias", "ffn_down.bias"}};

Tensor part_of(const Tensor& whole, Rows rows, const ModelConfig& config) {
  const int64_t q = config.heads * config.head_size;
  const int64_t kv = config.kv_heads * config.head_size;
  switch (rows) {
    case Rows::q:
      return whole.rows(0, q);
    case Rows::k:
      return whole.rows(q, q + kv);
    case Rows::v:
      return whole.rows(q + kv, q + 2 * kv);
    case Rows::first_half:
      return whole.rows(0, config.mlp_hidden);
    case Rows::second_half:
      return whole.rows(config.mlp_hidden, 2 * config.mlp_hidden);
    case Rows::all:
      break;
  }
  return whole.detached();
}

HfTensor make_tensor(const Naming& naming, const Tensor& whole, const ModelConfig& config) {
  HfTensor tensor;
  tensor.name = naming.hf;
  tensor.gguf_name = naming.gguf;
  tensor.part = part_of(whole, naming.rows, config);
  tensor.is_transposed = naming.is_transposed;
  if (naming.rows == Rows::q) tensor.rotary_heads = config.heads;
  if (naming.rows == Rows::k) tensor.rotary_heads = config.kv_heads;
  return tensor;
}

// "h.12.attn.out.weight" -> "12", "attn.out.weight".
bool split_block_name(std::string_view name, std::string_view& index, std::string_view& rest) {
  if (name.substr(0, 2) != "h.") return false;
  const size_t dot = name.find('.', 2);
  index = name.substr(2, dot - 2);
  rest = name.substr(dot + 1);
  return true;
}

}  // namespace

std::vector<int64_t> HfTensor::hf_shape() const {
  const Shape& shape = part.shape();
  std::vector<int64_t> sizes(shape.dims, shape.dims + shape.rank);
  sizes[0] += padding_rows;
  if (is_transposed) std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::optional<HfClass> hf_class_of(const ModelConfig& config, std::string* why_not) {
  const auto refuse = [why_not](std::string reason) {
    if (why_not) *why_not = std::move(reason);
    return std::nullopt;
  };
  if (config.has_head_bias) return refuse("none has a bias of the unembedding");
  if (config.positions == Positions::rotary) {
    if (config.norm != NormKind::rms) return refuse("none has rotary positions and LayerNorm");
    if (!config.is_gated_mlp) return refuse("none has rotary positions and a plain MLP");
    if (config.attention_scale != 0) return refuse("LlamaForCausalLM scales attention by 1 / sqrt(head size) alone");
    return HfClass::llama;
  }
  if (config.is_gated_mlp) return refuse("none has learned positions and a gated MLP");
  if (!config.has_bias) return refuse("none has learned positions and no biases");
  if (config.kv_heads != config.heads) return refuse("none has learned positions and grouped queries");
  if (config.heads * config.head_size != config.width)
    return refuse("none has learned positions and heads that are not width / heads wide");
  if (config.attention_scale != 0 && config.attention_scale != 1)
    return refuse("GPT2LMHeadModel scales attention by 1 / sqrt(head size) or 1 alone");
  if (config.norm == NormKind::layer) return HfClass::gpt2;
  if (config.is_tied) return refuse("the one with RMSNorm and learned positions has an unembedding of its own");
  return HfClass::imagegpt;
}

std::vector<HfTensor> hf_tensors(const Transformer& model, HfClass hf_class) {
  const ModelConfig& config = model.config();
  std::vector<HfTensor> tensors;
  const auto add = [&](const Parameter& p, const auto& table, std::string_view own_name, const std::string& hf_prefix,
                       const std::string& gguf_prefix) {
    bool is_known = false;
    for (const Naming& naming : table) {
      if (own_name != naming.ours) continue;
      HfTensor tensor = make_tensor(naming, p.master, config);
      tensor.name = hf_prefix + tensor.name;
      tensor.gguf_name = gguf_prefix + tensor.gguf_name;
      tensors.push_back(std::move(tensor));
      is_known = true;
    }
    require(is_known, "model: {} has no place for the parameter {}", to_string(hf_class), p.name);
  };
  const bool is_llama = hf_class == HfClass::llama;
  for (const Parameter& p : model.parameters()) {
    std::string_view index, rest;
    if (split_block_name(p.name, index, rest)) {
      const std::string number(index);
      const std::string gguf = "blk." + number + ".";
      if (is_llama) {
        add(p, kLlamaBlock, rest, "model.layers." + number + ".", gguf);
      } else {
        add(p, kGpt2Block, rest, "transformer.h." + number + ".", gguf);
      }
    } else if (is_llama) {
      add(p, kLlamaOutside, p.name, "", "");
    } else {
      add(p, kGpt2Outside, p.name, "", "");
      // Its embedding has one id more than its unembedding, the start of an image.
      if (hf_class == HfClass::imagegpt && p.name == "wte.weight") tensors.back().padding_rows = 1;
    }
  }
  return tensors;
}

void transpose_into(const float* in, int64_t rows, int64_t columns, float* out) {
  constexpr int64_t kTile = 32;
  const int64_t tiles = (columns + kTile - 1) / kTile;
  parallel_for(tiles, 1, [=](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTile, last = std::min(first + kTile, columns);
      for (int64_t row = 0; row < rows; row += kTile) {
        const int64_t row_end = std::min(row + kTile, rows);
        for (int64_t c = first; c < last; ++c) {
          for (int64_t r = row; r < row_end; ++r) out[c * rows + r] = in[r * columns + c];
        }
      }
    }
  });
}

}  // namespace taper

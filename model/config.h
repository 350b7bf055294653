// What a decoder is made of. Every architecture (taper, gpt2, llama, ...) is a choice of these options in the one
// Transformer of transformer.h; there is no second Block. Read from and written to the config.json of a model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/kernels.h"

namespace taper {

enum class Positions : uint8_t { learned, rotary };

// How rotary frequencies are lowered for a context longer than the one trained on first (rotary_frequencies in
// model/attention.h).
enum class RopeScaling : uint8_t { none, linear, llama3 };

// The state of a place where a pre-norm transformer normalises.
enum class NormSite : uint8_t {
  plain,    // the usual norm, for ever
  tapered,  // gated away in training: g * norm + (1 - g) * linear branch
  removed,  // folded into its readers: nothing is left
};

// Which norms taper (spec: the schedule, variants).
enum class Variant : uint8_t { baseline, internal, all };

struct ModelConfig {
  std::string arch = "taper";  // taper, gpt2, llama: says which defaults were taken, decides nothing
  int64_t vocab_size = 10000;
  int64_t context = 512;  // positions
  int64_t width = 64;     // C
  int64_t layers = 8;
  int64_t heads = 2;
  int64_t kv_heads = 2;    // < heads: grouped-query attention
  int64_t head_size = 32;  // heads * head_size need not be width
  int64_t mlp_hidden = 256;

  NormKind norm = NormKind::rms;
  double eps = 1e-5;
  NormSite block_norms = NormSite::plain;  // norm1 and norm2 of every block
  NormSite final_norm = NormSite::plain;

  Positions positions = Positions::learned;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;                 // linear, llama3: frequencies are divided by it,
  double rope_low_frequency_factor = 1;   // llama3: wholly where a wave is longer than the original context over this,
  double rope_high_frequency_factor = 4;  // not at all where it is shorter than the original context over this
  int64_t rope_original_context = 8192;
  Activation activation = Activation::gelu_tanh;
  bool is_gated_mlp = false;   // SwiGLU: down(silu(gate(x)) * up(x)); activation is then unused
  bool has_bias = false;       // of the linear layers inside blocks
  bool has_head_bias = false;  // of the unembedding: folding a LayerNorm makes one
  bool is_tied = true;         // the unembedding is wte
  double attention_scale = 0;  // 0: 1 / sqrt(head_size)

  // FakeLN: tapered norms go one after another, not by a gate (model/fixed_scales.h); only until the last has gone.
  bool is_replaced_in_turn = false;
  int64_t end_of_text = -1;  // then: the id of the token with averages of its own; -1: none

  double gate = 1.0;  // g at which the parameters were saved
  int64_t step = 0;   // and the number of steps taken until then

  Variant variant() const;  // baseline where nothing tapers
  bool has_taper() const { return block_norms == NormSite::tapered || final_norm == NormSite::tapered; }
};

// The models of the paper and of GPT-2 by name (1M 3M 9M 30M 17.7M small medium large xl), in the way of `arch` (taper,
// gpt2, llama). UsageError names what is known.
ModelConfig named_config(const std::string& size, const std::string& arch);
// Sets what makes an architecture: norm, positions, biases, the MLP and the heads' sizes, from width and heads.
void set_arch(ModelConfig& config, const std::string& arch);
std::vector<std::string> size_names();
std::vector<std::string> arch_names();

void set_variant(ModelConfig& config, Variant variant);

// Most positions * head_size of a model with rotary positions: their table is in memory.
inline constexpr int64_t kMaxRotaryAngles = int64_t{1} << 28;

// Error, beginning with `what`, where a value is out of range or two contradict each other.
void check_config(const ModelConfig& config, std::string_view what);

// Elements of all trained parameters, the tied matrix once; gamma_tilde and beta_tilde are not counted: they take over
// from gamma and beta, so a model has the same size before, during and after the taper.
int64_t parameter_count(const ModelConfig& config);

// Of the start values of the two matrices of a block that write into the residual stream: 0.02 / sqrt(2 layers), so
// that the stream's variance does not grow with depth.
double writer_deviation(const ModelConfig& config);

// config.json: model_type "taper" and every member of ModelConfig under its own name, those of rope_scaling only where
// there is one. Reading throws Error with the file and the key for anything unknown, missing, of the wrong type or out
// of range; keys that tell other programs how to open the folder (architectures, auto_map, ...) are passed over.
inline constexpr uint64_t kMaxConfigBytes = 1 << 20;  // that a config.json, ours or another's, is read up to
std::string config_to_json(const ModelConfig& config);
ModelConfig config_from_json(std::string_view json, std::string_view source);
ModelConfig read_config(const std::filesystem::path& file);

const char* to_string(Variant variant);
Variant parse_variant(std::string_view name);  // UsageError names the known ones

}  // namespace taper

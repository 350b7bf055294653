#include "model/transformer.h"

#include "engine/autograd/tape.h"
#include "engine/core/error.h"

namespace taper {
namespace {

ModelConfig checked(const ModelConfig& config) {
  check_config(config, "model");
  return config;
}

}  // namespace

Block::Block(ParameterList& parameters, const std::string& name, const ModelConfig& config, const RotaryTables& rotary)
    : norm1_(parameters, name + ".norm1", config.block_norms, config, 2),
      attention_(parameters, name + ".attn", config, rotary),
      norm2_(parameters, name + ".norm2", config.block_norms, config),
      mlp_(parameters, name + ".mlp", config) {}

Stream Block::forward(const Stream& in, const NormPass& pass) const {
  const NormResult first = norm1_.forward(in.h, in.branch, pass);
  const NormResult second = norm2_.forward(first.h, attention_.forward(first.y, first.y_of_v), pass);
  return {second.h, mlp_.forward(second.y)};
}

void Block::move_to(Device device) {
  norm1_.move_to(device);
  norm2_.move_to(device);
}

Transformer::Transformer(const ModelConfig& config, Precision precision)
    : config_(checked(config)), parameters_(precision), rotary_(make_rotary_tables(config, precision)) {
  wte_ = parameters_.add_matrix("wte.weight", {config.vocab_size, config.width}, kInitialDeviation);
  if (config.positions == Positions::learned) {
    wpe_ = parameters_.add_matrix("wpe.weight", {config.context, config.width}, kInitialDeviation);
  }
  for (int64_t i = 0; i < config.layers; ++i)
    blocks_.emplace_back(parameters_, fmt::format("h.{}", i), config, rotary_);
  final_norm_.emplace_back(parameters_, "norm_f", config.final_norm, config);
  unembedding_ = config.is_tied
                     ? wte_
                     : parameters_.add_matrix("lm_head.weight", {config.vocab_size, config.width}, kInitialDeviation);
  if (config.has_head_bias) unembedding_bias_ = parameters_.add_vector("lm_head.bias", config.vocab_size, 0.0);
}

// Ids on another device were checked before they went there.
void Transformer::check_ids(const Tensor& ids, const char* what) const {
  if (ids.device() != Device::cpu) return;
  require(ids.dtype() == Dtype::i32, "{}: got {}, want i32", what, describe(ids));
  const int32_t* values = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    require(values[i] >= 0 && values[i] < config_.vocab_size,
            "{}: id out of range; got {} at position {}, want 0 to {}", what, values[i], i, config_.vocab_size - 1);
  }
}

HiddenStates Transformer::hidden(const Tensor& tokens, Gate gate, bool wants_calibration) const {
  check_ids(tokens, "tokens");
  require(tokens.shape().rank == 2, "tokens: got {}, want [B, T]", describe(tokens));
  require(tokens.dim(1) <= config_.context, "tokens: too long for the model; got {} positions, want at most {}",
          tokens.dim(1), config_.context);
  HiddenStates states;
  NormPass pass{gate, {}, wants_calibration ? &states.calibration : nullptr};
  if (config_.is_replaced_in_turn) pass.kinds = token_kinds(tokens, config_.end_of_text);
  Stream stream{embedding(tokens.to(device()), wte_, wpe_, master_dtype(precision())), {}};
  for (const Block& block : blocks_) stream = block.forward(stream, pass);
  const NormResult last = final_norm_[0].forward(stream.h, stream.branch, pass);
  states.h = last.h;
  states.normed = last.y;
  states.h_input = stream.h;
  return states;
}

CrossEntropyResult Transformer::cross_entropy(const Tensor& normed, const Tensor& targets, double factor) const {
  check_ids(targets, "targets");
  return unembed_cross_entropy(normed, unembedding_, unembedding_bias_, targets.to(device()), factor);
}

Tensor Transformer::unembed(const Tensor& normed) const { return linear(normed, unembedding_, unembedding_bias_); }

void Transformer::set_saved_state(double gate, int64_t step) {
  config_.gate = gate;
  config_.step = step;
}

const Parameter& Transformer::parameter(const std::string& name) const {
  const Parameter* found = parameters_.find(name);
  require(found != nullptr, "model: has no parameter {}", name);
  return *found;
}

std::vector<TaperNorm*> Transformer::tapered_norms() {
  std::vector<TaperNorm*> norms;
  for (Block& block : blocks_) {
    norms.push_back(&block.norm1());
    norms.push_back(&block.norm2());
  }
  norms.push_back(&final_norm_[0]);
  std::erase_if(norms, [](const TaperNorm* norm) { return !norm->is_tapered(); });
  return norms;
}

void Transformer::end_replacement() {
  require(config_.is_replaced_in_turn, "model: its norms are not replaced one after another");
  const int64_t first_row_of_v = (config_.heads + config_.kv_heads) * config_.head_size;
  for (int64_t i = 0; i < config_.layers; ++i) {
    const std::string name = fmt::format("h.{}", i);
    const FixedScales& scales = blocks_[static_cast<size_t>(i)].norm1().scales();
    const double ratio = scales.get(1, TokenKind::ordinary) / scales.get(0, TokenKind::ordinary);
    rescale_reader(parameter(name + ".attn.qkv.weight"), parameters_.find(name + ".attn.qkv.bias"),
                   parameters_.find(name + ".norm1.beta"), first_row_of_v, ratio);
  }
  for (TaperNorm* norm : tapered_norms()) {
    norm->end_replacement();
    parameters_.remove(norm->name() + ".scales");
  }
  config_.is_replaced_in_turn = false;
}

void Transformer::move_to(Device device) {
  for (const Parameter& p : parameters()) p.move_to(device);
  for (Block& block : blocks_) block.move_to(device);
  final_norm_[0].move_to(device);
  for (const Tensor* table : {&rotary_.cos, &rotary_.sin}) {
    if (*table) table->take_memory_of(table->to(device));
  }
}

void Transformer::zero_grad() const {
  for (const Parameter& p : parameters()) p.compute.zero_grad();
}

void Transformer::set_requires_grad(bool requires_grad) const {
  for (const Parameter& p : parameters()) {
    Tensor leaf = p.compute;
    if (p.is_trained) leaf.set_requires_grad(requires_grad);
  }
}

}  // namespace taper

#include "infer/cuda_weights.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/core/error.h"
#include "infer/decode_norm.h"

namespace taper {
namespace {

const float* values_of(const Transformer& model, const std::string& name) {
  return model.parameter(name).master.data<float>();
}

template <class T>
Tensor filled_up(const float* values, int64_t rows, int64_t k, int64_t stride) {
  Tensor result = Tensor::zeros({rows, stride}, DtypeOf<T>::value, Device::cpu, "decode: a matrix");
  T* to = result.data<T>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < k; ++c) to[r * stride + c] = T(values[r * k + c]);
  }
  return result;
}

}  // namespace

const float* CudaWeights::keep(const std::vector<float>& values) {
  kept_.push_back(Tensor::from(values, {std::ssize(values)}).to(Device::cuda));
  return View(kept_.back()).as<float>();
}

DeviceMatrix CudaWeights::matrix(const float* values, int64_t rows, int64_t k, const float* bias) {
  DeviceMatrix m;
  m.dtype = dtype_;
  m.rows = rows;
  m.k = k;
  m.stride = device_stride(k, dtype_);
  const Tensor host =
      dtype_ == Dtype::bf16 ? filled_up<bf16>(values, rows, k, m.stride) : filled_up<float>(values, rows, k, m.stride);
  kept_.push_back(host.to(Device::cuda));
  m.data = View(kept_.back()).data;
  if (bias) m.bias = keep(std::vector<float>(bias, bias + rows));
  return m;
}

DeviceMatrix CudaWeights::linear(const Transformer& model, const std::string& name, int64_t rows, int64_t k) {
  const float* bias = model.config().has_bias ? values_of(model, name + ".bias") : nullptr;
  matrix_bytes_ += rows * device_stride(k, dtype_) * size_of(dtype_);
  return matrix(values_of(model, name + ".weight"), rows, k, bias);
}

CudaWeights::CudaWeights(const Transformer& model, Plan plan, WeightType weights)
    : dtype_(weights == WeightType::bf16 ? Dtype::bf16 : Dtype::f32) {
  check_decodable(model, plan);
  require_usage(weights != WeightType::int8,
                "decode: int8 weights are read by the processor alone; want f32 or bf16 "
                "on the device");
  const ModelConfig& config = model.config();
  require(config.head_size <= kMaxDeviceHeadSize, "decode: heads of {} on the device; want at most {}",
          config.head_size, kMaxDeviceHeadSize);
  const int64_t width = config.width, inner = config.heads * config.head_size;
  const auto norm = [&](const std::string& name, NormSite site) {
    return decode_norm(model, name, site, plan, [&](const std::vector<float>& values) { return keep(values); });
  };
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("h.{}", i);
    CudaLayer layer;
    layer.norm1 = norm(name + ".norm1", config.block_norms);
    layer.norm2 = norm(name + ".norm2", config.block_norms);
    layer.qkv = linear(model, name + ".attn.qkv", inner + 2 * config.kv_heads * config.head_size, width);
    layer.out = linear(model, name + ".attn.out", width, inner);
    layer.up = config.is_gated_mlp ? linear(model, name + ".mlp.gate_up", 2 * config.mlp_hidden, width)
                                   : linear(model, name + ".mlp.up", config.mlp_hidden, width);
    layer.down = linear(model, name + ".mlp.down", width, config.mlp_hidden);
    layers.push_back(layer);
  }
  final_norm = norm("norm_f", config.final_norm);
  const float* head_bias = config.has_head_bias ? values_of(model, "lm_head.bias") : nullptr;
  wte = matrix(values_of(model, "wte.weight"), config.vocab_size, width, config.is_tied ? head_bias : nullptr);
  unembedding = config.is_tied ? wte : matrix(values_of(model, "lm_head.weight"), config.vocab_size, width, head_bias);
  matrix_bytes_ += config.vocab_size * unembedding.stride * size_of(dtype_);
  if (config.positions == Positions::learned) {
    wpe = matrix(values_of(model, "wpe.weight"), config.context, width);
  } else {
    const RotaryTables rotary = make_rotary_tables(config, Precision::f32);
    kept_.push_back(rotary.cos.to(Device::cuda));
    cos = View(kept_.back()).as<float>();
    kept_.push_back(rotary.sin.to(Device::cuda));
    sin = View(kept_.back()).as<float>();
  }
}

}  // namespace taper

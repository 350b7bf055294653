// A model's parameters as the device decodes with them: matrices row after row, filled up to whole pieces of 16 bytes
// (engine/kernels/decode_cuda.h), norms as the plan has them.
#pragma once

#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/kernels/decode_cuda.h"
#include "infer/plan.h"
#include "model/transformer.h"

namespace taper {

struct CudaLayer {
  DecodeNorm norm1, norm2;
  DeviceMatrix qkv, out, up, down;  // up: gates above, where the MLP has them
};

class CudaWeights {
 public:
  // Matrices are f32 or bf16: UsageError for int8. Error as check_decodable() (infer/decode_norm.h).
  CudaWeights(const Transformer& model, Plan plan, WeightType weights);

  std::vector<CudaLayer> layers;
  DecodeNorm final_norm;
  DeviceMatrix unembedding, wte, wpe;  // wte is the unembedding where these are tied; wpe absent with rotary positions
  const float* cos = nullptr;          // [context, D/2]; absent without
  const float* sin = nullptr;
  Dtype dtype() const { return dtype_; }
  int64_t matrix_bytes() const { return matrix_bytes_; }  // of those a step reads whole

 private:
  const float* keep(const std::vector<float>& values);
  DeviceMatrix matrix(const float* values, int64_t rows, int64_t k, const float* bias = nullptr);
  DeviceMatrix linear(const Transformer& model, const std::string& name, int64_t rows, int64_t k);

  Dtype dtype_;
  std::vector<Tensor> kept_;
  int64_t matrix_bytes_ = 0;
};

}  // namespace taper

// Products by cuBLASLt. It thinks in columns: our row-major c = a b is its c^T = b^T a^T, and a bias for each of our
// columns is its bias for each row.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "engine/kernels/cuda/gemm.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

// Of what the library advises for its fastest kernels on the newest cards.
constexpr size_t kMostWorkspace = size_t{32} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  gpu::fail_on_device(std::string("cuBLASLt: ") + what + " failed; got " + cublasLtGetStatusString(status));
}

cublasLtHandle_t handle() {
  static const cublasLtHandle_t instance = [] {
    cublasLtHandle_t created = nullptr;
    check(cublasLtCreate(&created), "starting");
    return created;
  }();
  return instance;
}

cudaDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::f64 ? CUDA_R_64F : dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Nothing where the library has no epilogue for it. Its GELU is the tanh form, and only that one can leave its argument
// as well.
bool find_epilogue(const Gemm& g, cublasLtEpilogue_t& epilogue) {
  const bool has_bias = g.bias != nullptr, keeps_argument = g.activated && g.activated != g.c;
  epilogue = has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (!g.activated || g.act == Activation::none) return true;
  if (g.act == Activation::gelu_tanh) {
    if (keeps_argument) {
      epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    } else {
      epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    }
    return true;
  }
  epilogue = has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return g.act == Activation::relu && !keeps_argument;
}

int64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return address ? static_cast<int64_t>(std::min<uintptr_t>(bits & (~bits + 1), 256)) : 256;
}

void* result_of(const Gemm& g) { return g.activated ? g.activated : g.c; }

// How one shape is multiplied. Plans live as long as the process: shapes are few.
class Plan {
 public:
  Plan(const Gemm& g, cublasLtEpilogue_t epilogue) {
    const bool is_double = g.dtype == Dtype::f64;
    check(cublasLtMatmulDescCreate(&operation_, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   is_double ? CUDA_R_64F : CUDA_R_32F),
          "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, g.a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.c_stride);
    }
    first_ = layout(g.dtype, g.k, g.n, g.b);
    second_ = layout(g.dtype, g.m, g.k, g.a);
    result_ = layout(g.c_dtype, g.m, g.n, {nullptr, g.c_stride, false});
    choose(g);
  }

  bool is_possible() const { return is_possible_; }

  void run(const Gemm& g, const void* bias) {
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (g.activated && g.activated != g.c) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.c);
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const bool is_double = g.dtype == Dtype::f64;
    const void* alpha = is_double ? static_cast<const void*>(&one) : &one_f;
    const void* nothing = is_double ? static_cast<const void*>(&zero) : &zero_f;
    const gpu::Scratch<char> workspace(static_cast<int64_t>(algorithm_.workspaceSize));
    void* result = result_of(g);
    check(cublasLtMatmul(handle(), operation_, alpha, g.b.data, first_, g.a.data, second_, g.adds ? alpha : nothing,
                         result, result_, result, result_, &algorithm_.algo, workspace.data(), algorithm_.workspaceSize,
                         gpu::stream()),
          "a product");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "describing a product");
  }

  // Of a row-major matrix that the product reads as [rows, cols].
  static cublasLtMatrixLayout_t layout(Dtype dtype, int64_t rows, int64_t cols, const Operand& operand) {
    if (operand.is_transposed) std::swap(rows, cols);
    cublasLtMatrixLayout_t result = nullptr;
    check(cublasLtMatrixLayoutCreate(&result, data_type(dtype), static_cast<uint64_t>(cols),
                                     static_cast<uint64_t>(rows), std::max(operand.stride, cols)),
          "describing a matrix");
    return result;
  }

  void choose(const Gemm& g) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "describing a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "setting a preference");
    };
    const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* address) {
      prefer(attribute, static_cast<uint32_t>(alignment_of(address)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, g.b.data);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, g.a.data);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_of(g));
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_of(g));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(), operation_, first_, second_, result_,
                                                                 result_, preference, 1, &algorithm_, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "the choice of an algorithm");
    is_possible_ = status == CUBLAS_STATUS_SUCCESS && found > 0 && algorithm_.state == CUBLAS_STATUS_SUCCESS;
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm_{};
  bool is_possible_ = false;
};

// All that a plan depends on.
using Key = std::array<int64_t, 15>;

Key key_of(const Gemm& g, cublasLtEpilogue_t epilogue) {
  return {g.m,
          g.n,
          g.k,
          static_cast<int64_t>(g.dtype),
          static_cast<int64_t>(g.c_dtype),
          g.a.stride,
          g.b.stride,
          g.c_stride,
          g.a.is_transposed * 2 + g.b.is_transposed,
          g.adds,
          epilogue,
          alignment_of(g.a.data),
          alignment_of(g.b.data),
          alignment_of(result_of(g)),
          g.activated && g.activated != g.c ? alignment_of(g.c) : 0};
}

}  // namespace

bool gemm_library(const Gemm& g) {
  static std::mutex mutex;
  static std::map<Key, Plan> plans;
  cublasLtEpilogue_t epilogue;
  if (!find_epilogue(g, epilogue)) return false;
  const std::lock_guard<std::mutex> lock(mutex);
  Plan& plan = plans.try_emplace(key_of(g, epilogue), g, epilogue).first->second;
  if (!plan.is_possible()) {
    if (g.bias || g.activated) return false;
    gpu::fail_on_device("cuBLASLt: no algorithm for a product; got " + std::to_string(g.m) + " x " +
                        std::to_string(g.n) + " x " + std::to_string(g.k));
  }
  // A bias must be of the result's type.
  const bool narrows = g.bias && g.c_dtype == Dtype::bf16;
  const gpu::Scratch<bf16> narrow(narrows ? g.n : 0);
  if (narrows) {
    ConstView from;
    from.data = g.bias;
    from.shape = {g.n};
    from.device = Device::cuda;
    View to;
    to.data = narrow.data();
    to.shape = {g.n};
    to.dtype = Dtype::bf16;
    to.device = Device::cuda;
    convert(to, from);
  }
  plan.run(g, narrows ? narrow.data() : g.bias);
  return true;
}

}  // namespace taper::cuda

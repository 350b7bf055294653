#include "engine/kernels/cuda/gemm.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

struct Identity {
  template <class T>
  TAPER_HD static T value(T x) {
    return x;
  }
};

// What follows the product: c += bias, y = act(c). has_product: c holds one; else it counts as zeros.
template <class T>
struct Epilogue {
  T* c;
  T* activated;  // or null
  const Compute<T>* bias;
  int64_t rows, cols, stride;
  bool has_product;
};

template <class T, class Function, int kWidth>
__global__ void __launch_bounds__(kThreads) finish(Epilogue<T> e) {
  using C = Compute<T>;
  const int64_t packs = e.cols / kWidth, total = e.rows * packs;
  for (int64_t i = gpu::global_thread(); i < total; i += gpu::thread_total()) {
    const int64_t row = i / packs, column = (i - row * packs) * kWidth, at = row * e.stride + column;
    gpu::Pack<T, kWidth> c{};
    if (e.has_product) c = gpu::load_pack<kWidth>(e.c + at);
    if (e.bias) {
      const auto bias = gpu::load_pack<kWidth>(e.bias + column);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) c[j] = convert_to<T>(convert_to<C>(c[j]) + bias[j]);
    }
    if (e.c != e.activated && (e.bias || !e.has_product)) gpu::store_pack(e.c + at, c);
    if (!e.activated) continue;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) c[j] = convert_to<T>(Function::value(convert_to<C>(c[j])));
    gpu::store_pack(e.activated + at, c);
  }
}

template <class T>
void run_epilogue(const Gemm& g, bool has_product) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  const Epilogue<T> e{
      static_cast<T*>(g.c), static_cast<T*>(g.activated), static_cast<const Compute<T>*>(g.bias), g.m, g.n, g.c_stride,
      has_product};
  const bool has_packs = gpu::fits_packs(e.cols, kWidth, e.c, e.activated) && gpu::fits_packs(e.cols, kWidth, e.bias) &&
                         e.stride % kWidth == 0;
  const auto launch = [&](auto function) {
    using F = decltype(function);
    const auto kernel = has_packs ? finish<T, F, kWidth> : finish<T, F, 1>;
    const int64_t threads = e.rows * e.cols / (has_packs ? kWidth : 1);
    gpu::launch(kernel, gpu::Grid(gpu::blocks_for(threads, kThreads, kMostBlocks)), kThreads, 0, gpu::stream(), e);
  };
  if (!g.activated || g.act == Activation::none) return launch(Identity());
  math::with_function(g.act, launch);
}

}  // namespace

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  Gemm rest = g;  // what is left to do when the product stands
  if (g.k > 0) {
    if (gemm_library(g)) return;
    Gemm product = g;
    product.activated = nullptr;
    product.act = Activation::none;
    // The bias in one pass with the product if at all possible: the sum is rounded once.
    if (g.bias && g.activated && gemm_library(product)) {
      rest.bias = nullptr;
    } else {
      product.bias = nullptr;
      gemm_library(product);
    }
  } else if (g.adds) {
    return;
  }
  with_float_type(g.c_dtype, [&](auto type) { run_epilogue<typename decltype(type)::type>(rest, g.k > 0); });
}

}  // namespace taper::cuda

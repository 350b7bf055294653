// Our own products, of every instruction set that this machine has, against sums in f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/core/cpu_features.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/cpu/gemm.h"

namespace taper::test {
namespace {

struct Backend {
  const char* name;
  void (*run)(const Gemm&);
};

std::vector<Backend> backends() {
  std::vector<Backend> all = {{"base", cpu::base::gemm_packed}};
#if defined(__x86_64__)
  if (cpu_isa() >= Isa::avx2) all.push_back({"avx2", cpu::avx2::gemm_packed});
  if (cpu_isa() >= Isa::avx512) all.push_back({"avx512", cpu::avx512::gemm_packed});
#endif
  return all;
}

struct Case {
  int64_t m, n, k;
  bool a_is_transposed, b_is_transposed, adds, has_bias;
};

struct Types {
  Dtype operands, c;
};

// Rows with a gap behind them.
constexpr int64_t kGap = 3;

Tensor noise(int64_t rows, int64_t columns, Dtype dtype, uint64_t seed) {
  Random random(seed, RandomStream::test);
  std::vector<double> values(static_cast<size_t>(rows * (columns + kGap)));
  for (double& v : values) v = random.next_normal();
  return Tensor::from(values, {rows, columns + kGap}).cast(dtype);
}

class Product {
 public:
  Product(const Case& c, Dtype dtype, Dtype c_dtype)
      : case_(c),
        a_(noise(c.a_is_transposed ? c.k : c.m, c.a_is_transposed ? c.m : c.k, dtype, 1)),
        b_(noise(c.b_is_transposed ? c.n : c.k, c.b_is_transposed ? c.k : c.n, dtype, 2)),
        start_(noise(c.m, c.n, c_dtype, 3)),
        bias_(noise(1, c.n, Dtype::f32, 4)) {}

  // activated, where it is defined: relu(c)
  Tensor of(const Backend& backend, const Tensor& activated = {}) const {
    const Tensor c = start_.clone();
    Gemm g;
    g.m = case_.m, g.n = case_.n, g.k = case_.k;
    g.dtype = a_.dtype();
    g.a = {a_.raw(), a_.shape().last(), case_.a_is_transposed};
    g.b = {b_.raw(), b_.shape().last(), case_.b_is_transposed};
    g.c = c.raw();
    g.c_dtype = c.dtype();
    g.c_stride = c.shape().last();
    g.adds = case_.adds;
    if (case_.has_bias) g.bias = bias_.raw();
    if (activated) {
      g.activated = activated.raw();
      g.act = Activation::relu;
    }
    backend.run(g);
    return c;
  }

  // In units of what rounding the operands' products and the result may bring; the gaps hold what they held.
  double error(const Tensor& c) const {
    const auto a = a_.to_doubles(), b = b_.to_doubles(), before = start_.to_doubles(), after = c.to_doubles();
    const auto bias = bias_.to_doubles();
    const int64_t stride = case_.n + kGap;
    double worst = 0;
    for (int64_t i = 0; i < case_.m; ++i) {
      for (int64_t j = 0; j < stride; ++j) {
        const auto at = static_cast<size_t>(i * stride + j);
        double want = before[at], size = std::abs(want);
        if (j < case_.n) {
          want = case_.adds ? want : case_.has_bias ? bias[static_cast<size_t>(j)] : 0;
          for (int64_t p = 0; p < case_.k; ++p) {
            const double x =
                a[static_cast<size_t>(case_.a_is_transposed ? p * (case_.m + kGap) + i : i * (case_.k + kGap) + p)];
            const double y =
                b[static_cast<size_t>(case_.b_is_transposed ? j * (case_.k + kGap) + p : p * (case_.n + kGap) + j)];
            want += x * y;
            size += std::abs(x * y);
          }
        }
        worst = std::max(worst, std::abs(after[at] - want) /
                                    (c.dtype() == Dtype::bf16 ? std::abs(want) + 1e-3 * size : size + 1e-30));
      }
    }
    return worst;
  }

 private:
  Case case_;
  Tensor a_, b_, start_, bias_;
};

// Sizes around tiles (6 or 12 rows, 8, 16 or 32 columns), blocks (192 rows, 2048 columns) and depths (256).
std::vector<Case> cases() {
  std::vector<Case> all;
  const int64_t sizes[][3] = {{1, 1, 1},     {6, 16, 256},  {5, 15, 3},     {13, 33, 257}, {12, 32, 512},
                              {193, 31, 70}, {3, 2049, 20}, {200, 65, 300}, {7, 9, 0}};
  int variant = 0;
  for (const auto& size : sizes) {
    for (int i = 0; i < 4; ++i, ++variant) {
      all.push_back({size[0], size[1], size[2], (i & 1) != 0, (i & 2) != 0, variant % 3 == 1, variant % 3 == 2});
    }
  }
  return all;
}

TEST_CASE("gemm packed: products of every form and size agree with sums in f64") {
  for (const Backend& backend : backends()) {
    for (const Case& c : cases()) {
      for (const Types& types :
           {Types{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::f32}, {Dtype::bf16, Dtype::bf16}}) {
        CAPTURE(backend.name);
        CAPTURE(c.m);
        CAPTURE(c.n);
        CAPTURE(c.k);
        CAPTURE(c.a_is_transposed);
        CAPTURE(c.b_is_transposed);
        CAPTURE(c.adds);
        CAPTURE(c.has_bias);
        CAPTURE(to_string(types.c));
        const Product product(c, types.operands, types.c);
        CHECK(product.error(product.of(backend)) < (types.c == Dtype::bf16 ? 5e-3 : 1e-6));
      }
    }
  }
}

// By columns and by rows, over several blocks and depths.
TEST_CASE("gemm packed: the activation of every entry, after the last of its sums") {
  for (const Backend& backend : backends()) {
    for (const auto& size : {std::array<int64_t, 3>{70, 2100, 300}, {400, 40, 513}, {4, 5, 0}}) {
      const Case c{size[0], size[1], size[2], false, true, false, true};
      for (const Types& types : {Types{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}}) {
        CAPTURE(backend.name);
        CAPTURE(c.n);
        CAPTURE(to_string(types.c));
        const Product product(c, types.operands, types.c);
        Tensor activated = Tensor::zeros({c.m, c.n + kGap}, types.c);
        const std::vector<double> sums = product.of(backend, activated).to_doubles(), got = activated.to_doubles();
        double worst = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const bool is_gap = static_cast<int64_t>(i) % (c.n + kGap) >= c.n;
          const double want = is_gap ? 0 : std::max(sums[i], 0.0);
          worst = std::max(worst, std::abs(got[i] - want));
        }
        CHECK(worst == 0);
      }
    }
  }
}

TEST_CASE("gemm packed: the same bits for any number of threads") {
  const int threads = thread_count();
  for (const Backend& backend : backends()) {
    for (const Case& c : {Case{301, 70, 300, false, true, true, false}, Case{50, 333, 600, true, false, false, true}}) {
      const Product product(c, Dtype::f32, Dtype::f32);
      set_thread_count(1);
      const std::vector<double> one = product.of(backend).to_doubles();
      for (const int count : {2, 3, 5}) {
        set_thread_count(count);
        CAPTURE(backend.name);
        CAPTURE(count);
        CHECK(product.of(backend).to_doubles() == one);
      }
      set_thread_count(threads);
    }
  }
}

}  // namespace
}  // namespace taper::test

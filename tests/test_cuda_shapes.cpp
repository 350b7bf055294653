// Kernels of the CUDA device at sizes that no sample of an op has: where a row outgrows the registers, a batch the
// block of rows or a head the tile. Against the processor's kernels in the same types, in every order with the same
// bits.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "engine/autograd/gradcheck.h"
#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/kernels/kernels.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/shared.h"

namespace taper::test {
namespace {

double tolerance_of(Dtype dtype) { return dtype == Dtype::f64 ? 1e-11 : dtype == Dtype::f32 ? 1e-4 : 3e-2; }

// run(device) gives results on that device, from the same inputs.
void check_on_cuda(Dtype dtype, const std::function<Tensors(Device)>& run) {
  const MemoryGuard guard;
  const int64_t damaged = damaged_guards();
  const Tensors want = run(Device::cpu);
  Tensors first;
  for (const emulation::Schedule& schedule : schedules()) {
    const ScheduleForTest chosen(schedule);
    const Tensors got = to_device(run(Device::cuda), Device::cpu);
    if (first.empty()) {
      first = got;
      CHECK(difference(got, want, tolerance_of(dtype)) == "");
    } else {
      CHECK_MESSAGE(are_same_bits(got, first), "other bits in another order");
    }
  }
  CHECK(damaged_guards() == damaged);
}

Dtype statistics_of(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

struct Inputs {
  Device device;
  Dtype dtype;
  uint64_t seed = 1;

  Tensor values(const Shape& shape) { return random_normal(shape, Dtype::f64, seed++).cast(dtype).to(device); }
  Tensor parameters(const Shape& shape) {
    return random_normal(shape, Dtype::f64, seed++).cast(statistics_of(dtype)).to(device);
  }
  Tensor empty(const Shape& shape, Dtype of) const { return Tensor::empty(shape, of, device); }
};

// ---- norm ----
Tensors run_norm(Device device, Dtype dtype, Dtype out, int64_t rows, int64_t cols, const NormOptions& options) {
  Inputs in{device, dtype};
  const Dtype wide = statistics_of(dtype);
  const bool centres = options.kind == NormKind::layer;
  const Tensor x = in.values({rows, cols}), branch = in.values({rows, cols}).cast(out), gamma = in.parameters({cols});
  const Tensor beta = in.parameters({cols}), gamma_tilde = in.parameters({cols}), beta_tilde = in.parameters({cols});
  const Tensor c = in.parameters({1}), dy = in.values({rows, cols}).cast(out), dsum = in.values({rows, cols});
  const Tensor y = in.empty({rows, cols}, out), sum = in.empty({rows, cols}, dtype), none;
  const Tensor mean = centres ? in.empty({rows}, wide) : none, rstd = options.gate > 0 ? in.empty({rows}, wide) : none;
  const Tensor calibration = in.empty({2}, Dtype::f64);
  kernels::taper_norm_fwd(y, sum, mean, rstd, calibration, x, branch, gamma, beta, gamma_tilde, beta_tilde, c, options);
  const Tensor dh = in.values({rows, cols}), dbranch = in.empty({rows, cols}, out), dgamma = in.parameters({cols});
  const Tensor dbeta = centres ? in.empty({cols}, wide) : none, dgamma_tilde = in.empty({cols}, wide);
  const Tensor dbeta_tilde = centres ? in.parameters({cols}) : none;
  const auto written = [](const Tensor& t) { return Accumulator(t, false); };
  const auto added = [](const Tensor& t) { return Accumulator(t, true); };
  kernels::taper_norm_bwd(added(dh), written(dbranch), added(dgamma), written(dbeta), written(dgamma_tilde),
                          added(dbeta_tilde), dy, dsum, sum, mean, rstd, gamma, gamma_tilde, c, options);
  Tensors results = {y, sum, dh, dbranch, dgamma, dgamma_tilde};
  // Sums over all rows, on the scale of one.
  Tensor scaled_sums = calibration.to(Device::cpu).clone();
  for (int i = 0; i < 2; ++i) scaled_sums.data<double>()[i] /= static_cast<double>(rows * cols + 1);
  results.push_back(scaled_sums.to(device));
  for (const Tensor& t : {mean, rstd, dbeta, dbeta_tilde}) {
    if (t) results.push_back(t);
  }
  return results;
}

void check_norm(Dtype dtype, int64_t rows, int64_t cols, const NormOptions& options) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(options.gate);
  const Dtype out = dtype == Dtype::f32 ? Dtype::bf16 : dtype;
  check_on_cuda(out, [&](Device d) { return run_norm(d, dtype, out, rows, cols, options); });
}

TEST_CASE("norm on cuda: rows from one entry to more than registers hold, batches from none to many blocks") {
  SKIP_WITHOUT_CUDA();
  struct Case {
    int64_t rows, cols;
  };
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      for (const double gate : {0.0, 0.37, 1.0}) {
        for (const Case& size : {Case{0, 8}, Case{3, 1}, Case{20, 40}, Case{3, 520}}) {
          check_norm(dtype, size.rows, size.cols, {kind, 1e-5, gate});
        }
      }
    }
    for (const Case& size : {Case{3, 1030}, Case{1, 8200}, Case{1, 8201}}) {
      check_norm(Dtype::f32, size.rows, size.cols, {kind, 1e-5, 0.37});
      check_norm(Dtype::bf16, size.rows, size.cols, {kind, 1e-5, 0.37});
    }
  }
  // Blocks that take several rows each, short ones and such as leave sums in memory between them.
  check_norm(Dtype::f32, 2100, 3, {NormKind::layer, 1e-5, 0.37});
  check_norm(Dtype::f64, 258, 2050, {NormKind::layer, 1e-5, 0.37});
}

// ---- cross-entropy ----
Tensors run_cross_entropy(Device device, Dtype dtype, int64_t rows, int64_t width, int64_t vocabulary) {
  Inputs in{device, dtype};
  const Dtype wide = statistics_of(dtype);
  const Tensor x = in.values({rows, width}), w = in.values({vocabulary, width}), bias = in.parameters({vocabulary});
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row)
    ids.push_back(static_cast<int32_t>((row * 7919 + vocabulary - 1) % vocabulary));
  const Tensor targets = Tensor::from(ids, {rows}).to(device);
  const Tensor loss = in.empty({1}, Dtype::f64), squares = in.empty({1}, Dtype::f64),
               dx = in.empty({rows, width}, dtype);
  const Tensor dw = in.empty({vocabulary, width}, wide), dbias = in.empty({vocabulary}, wide);
  kernels::unembed_cross_entropy(loss, squares, dx, dw, dbias, x, w, bias, targets,
                                 1.0 / static_cast<double>(rows + 1));
  Tensor scaled_squares = squares.to(Device::cpu).clone();
  scaled_squares.data<double>()[0] /= static_cast<double>(rows * vocabulary + 1);
  return {loss, scaled_squares.to(device), dx, dw, dbias};
}

TEST_CASE("cross-entropy on cuda: no rows, several blocks of rows, rows of logits longer than registers hold") {
  SKIP_WITHOUT_CUDA();
  struct Case {
    Dtype dtype;
    int64_t rows, width, vocabulary;
  };
  const Dtype f64 = Dtype::f64, f32 = Dtype::f32, bf16 = Dtype::bf16;
  for (const Case& c :
       {Case{f32, 0, 3, 5}, Case{bf16, 4100, 2, 3}, Case{f64, 3, 8, 1}, Case{f32, 2, 4, 5003}, Case{bf16, 1, 8, 16384},
        Case{bf16, 1, 3, 20001}, Case{bf16, 1, 1, 33001}, Case{f64, 1, 2, 8200}}) {
    CAPTURE(c.rows);
    CAPTURE(c.vocabulary);
    check_on_cuda(c.dtype, [&](Device d) { return run_cross_entropy(d, c.dtype, c.rows, c.width, c.vocabulary); });
  }
}

TEST_CASE("cross-entropy on cuda: a target outside the vocabulary makes the loss NaN and touches nothing else") {
  SKIP_WITHOUT_CUDA();
  for (const int32_t target : {-1, 5, 2000000000}) {
    const Tensor targets = Tensor::from(std::vector<int32_t>{target}, {1}).to(Device::cuda);
    Inputs in{Device::cuda, Dtype::f32};
    const Tensor loss = in.empty({1}, Dtype::f64), squares = in.empty({1}, Dtype::f64), none;
    kernels::unembed_cross_entropy(loss, squares, none, none, none, in.values({1, 2}), in.values({5, 2}), none, targets,
                                   1.0);
    const double got = loss.to(Device::cpu).item();
    CHECK(got != got);
  }
}

// ---- attention ----
Tensors run_attention(Device device, Dtype dtype, Dtype grad, bool adds, int64_t batch, int64_t tokens,
                      const AttentionOptions& o) {
  Inputs in{device, dtype};
  const Shape qkv_shape{batch, tokens, (o.heads + 2 * o.kv_heads) * o.head_size};
  const Shape y_shape{batch, tokens, o.heads * o.head_size};
  const Tensor qkv = in.values(qkv_shape), dy = in.values(y_shape), y = in.empty(y_shape, dtype);
  const Tensor lse = in.empty({batch, o.heads, tokens}, statistics_of(dtype));
  kernels::attention_fwd(y, lse, qkv, o);
  const Tensor dqkv = in.values(qkv_shape).cast(grad);
  kernels::attention_bwd(Accumulator(dqkv, adds), dy, y, lse, qkv, o);
  return {y, lse, dqkv};
}

TEST_CASE("attention on cuda: heads up to and beyond a tile, grouped or not, with and without tensor cores") {
  SKIP_WITHOUT_CUDA();
  struct Case {
    int64_t batch, tokens, heads, kv_heads, size;
  };
  for (const Case& c :
       {Case{0, 5, 2, 1, 8}, Case{2, 0, 2, 1, 8}, Case{2, 1, 2, 1, 16}, Case{1, 64, 1, 1, 24}, Case{1, 65, 2, 1, 40},
        Case{1, 129, 1, 1, 64}, Case{1, 65, 1, 1, 128}, Case{1, 33, 1, 1, 130}, Case{1, 40, 1, 1, 3}}) {
    const AttentionOptions options{c.heads, c.kv_heads, c.size, 0.3};
    CAPTURE(c.tokens);
    CAPTURE(c.size);
    const auto check = [&](Dtype dtype, Dtype grad, bool adds) {
      check_on_cuda(dtype, [&](Device d) { return run_attention(d, dtype, grad, adds, c.batch, c.tokens, options); });
    };
    if (c.size >= 64) check(Dtype::f64, Dtype::f64, true);
    if (c.size != 24) check(Dtype::f32, Dtype::f32, false);
    check(Dtype::bf16, Dtype::f32, true);
    check(Dtype::bf16, Dtype::bf16, c.size > 40);
  }
}

// ---- products ----
Tensors run_linear(Device device, Dtype dtype, int64_t rows, int64_t width, int64_t outputs, Activation act) {
  Inputs in{device, dtype};
  const Tensor x = in.values({rows, width}), w = in.values({outputs, width}), bias = in.parameters({outputs});
  const Tensor y = in.empty({rows, outputs}, dtype), pre = in.empty({rows, outputs}, dtype), none;
  kernels::linear_fwd(y, act == Activation::none ? none : pre, x, w, bias, act);
  const Tensor dpre = in.empty({rows, outputs}, dtype), dbias = in.parameters({outputs}),
               dw = in.parameters({outputs, width});
  // The slope of relu jumps where roundings differ: both devices see the same argument.
  const Tensor dy = in.values({rows, outputs}), argument = in.values({rows, outputs});
  kernels::linear_act_bwd(dpre, Accumulator(dbias, true), dy, argument, act);
  kernels::matmul(Accumulator(dw, true), dpre, x, MatmulOptions{true, false});
  return {y, dpre, dbias, dw};
}

TEST_CASE("linear on cuda: empty sides, odd sizes, many rows") {
  SKIP_WITHOUT_CUDA();
  struct Case {
    int64_t rows, width, outputs;
  };
  for (const Case& size :
       {Case{0, 4, 3}, Case{3, 0, 5}, Case{4, 3, 0}, Case{1, 1, 1}, Case{700, 5, 9}, Case{17, 16, 264}}) {
    for (const Activation act : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
      for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        CAPTURE(size.rows);
        CAPTURE(size.width);
        CAPTURE(size.outputs);
        check_on_cuda(dtype, [&](Device d) { return run_linear(d, dtype, size.rows, size.width, size.outputs, act); });
      }
    }
  }
}

}  // namespace
// ---- elements ----
TEST_CASE("elements on cuda: more of them than threads") {
  SKIP_WITHOUT_CUDA();
  constexpr int64_t kSquares = 65536 + 77,
                    kElements = (1 << 20) + 77;  // fill.cu: kSumBlocks; elementwise.h: kMostBlocks
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    check_on_cuda(dtype, [&](Device d) {
      Inputs in{d, dtype};
      const Tensor x = in.values({kSquares}), result = in.empty({1}, Dtype::f64);
      kernels::sum_squares(result, x);
      return Tensors{result};
    });
  }
  check_on_cuda(Dtype::f32, [&](Device d) {
    const Tensor x = Inputs{d, Dtype::f32}.values({kElements});
    kernels::scale_by(x, 0.5);
    return Tensors{x};
  });
}

}  // namespace taper::test

#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct CausalAttention : Op {
  AttentionOptions options;

  explicit CausalAttention(const AttentionOptions& options_) : options(options_) {}

  const char* name() const override { return "causal_attention"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor& qkv = in[0];
    require_float(*this, qkv, "qkv");
    require_rank(*this, qkv, "qkv", 3, 3);
    const int64_t h = options.heads, h_kv = options.kv_heads, size = options.head_size;
    require(h >= 1 && h_kv >= 1 && size >= 1,
            "{}: heads, kv_heads and head_size are wrong; got {}, {}, {}, want 1 or more", name(), h, h_kv, size);
    require(h % h_kv == 0, "{}: kv_heads does not divide heads; got {} and {}", name(), h_kv, h);
    const int64_t b = qkv.dim(0), t = qkv.dim(1);
    require_shape(*this, qkv, "qkv", {b, t, (h + 2 * h_kv) * size});
    return {{{b, t, h * size}, qkv.dtype()}, {{b, h, t}, accumulation_dtype(qkv.dtype())}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::attention_fwd(out[0], out[1], in[0], options);
    if (!saved.needs_backward()) return;
    saved.keep(in[0]);
    saved.keep(out[0]);
    saved.keep(out[1]);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    if (dy[0]) kernels::attention_bwd(dx.buffer(0), dy[0], saved[1], saved[2], saved[0], options);
  }
};

// --- samples ---

// [rows, columns] with ones at (i, column + i), i < count: products with it cut columns out, or put them in.
Tensor selection(int64_t rows, int64_t columns, int64_t row, int64_t column, int64_t count, Dtype dtype) {
  std::vector<double> ones(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < count; ++i) ones[static_cast<size_t>((row + i) * columns + column + i)] = 1;
  return Tensor::from<double>(ones, {rows, columns}).cast(dtype);
}

Tensor causal_mask(int64_t tokens, Dtype dtype) {
  std::vector<double> mask(static_cast<size_t>(tokens * tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t u = t + 1; u < tokens; ++u) mask[static_cast<size_t>(t * tokens + u)] = -1e9;
  }
  return Tensor::from<double>(mask, {tokens, tokens}).cast(dtype);
}

// softmax(scale q k^T + mask) v, a sequence and a head at a time.
Tensor composite(const Tensor& qkv, const AttentionOptions& o) {
  const int64_t b = qkv.dim(0), t = qkv.dim(1), width = qkv.dim(2), size = o.head_size;
  const Dtype dtype = qkv.dtype();
  const Tensor rows = reshape(qkv, {b * t, width});
  const Tensor mask = causal_mask(t, dtype);
  const MatmulOptions with_transposed_a{true, false}, with_transposed_b{false, true};
  Tensor y;
  for (int64_t i = 0; i < b; ++i) {
    const Tensor sequence = selection(t, b * t, 0, i * t, t, dtype);
    const Tensor own = matmul(sequence, rows);
    for (int64_t h = 0; h < o.heads; ++h) {
      const auto cut = [&](int64_t head) { return matmul(own, selection(width, size, head * size, 0, size, dtype)); };
      const int64_t kv_head = h / (o.heads / o.kv_heads);
      const Tensor q = cut(h), k = cut(o.heads + kv_head), v = cut(o.heads + o.kv_heads + kv_head);
      const Tensor p = softmax(add(scaled(matmul(q, k, with_transposed_b), o.scale), mask));
      const Tensor placed = matmul(matmul(p, v), selection(size, o.heads * size, 0, h * size, size, dtype));
      const Tensor part = matmul(sequence, placed, with_transposed_a);
      y = y ? add(y, part) : part;
    }
  }
  return reshape(y, {b, t, o.heads * size});
}

Sample sample(const char* label, int64_t b, int64_t t, int64_t heads, int64_t kv_heads, int64_t size) {
  AttentionOptions options{heads, kv_heads, size, 1 / std::sqrt(static_cast<double>(size))};
  Sample s;
  s.label = label;
  s.op = [options](Dtype) { return std::make_shared<CausalAttention>(options); };
  s.inputs = {{{b, t, (heads + 2 * kv_heads) * size}}};
  s.reference = [options](const Tensors& in) { return Tensors{composite(in[0], options)}; };
  s.outputs_without_grad = {1};
  return s;
}

std::vector<Sample> samples() {
  return {sample("one token", 2, 1, 2, 2, 8),
          sample("odd length", 2, 7, 2, 2, 8),
          sample("one more than a block", 1, 65, 2, 2, 8),
          sample("three blocks, grouped queries", 1, 130, 4, 2, 8),
          sample("heads of 32, all sharing keys", 1, 66, 3, 1, 32),
          sample("heads of 64", 1, 70, 1, 1, 64),
          sample("heads of odd size", 2, 9, 2, 1, 5)};
}

BadSample bad(const char* message, const Shape& shape, const AttentionOptions& options, Dtype dtype = Dtype::f32) {
  return {message, [=] { causal_attention(Tensor::zeros(shape, dtype), options); }};
}

std::vector<BadSample> bad_samples() {
  return {bad("qkv has the wrong rank", {6, 24}, {1, 1, 8, 1.0}),
          bad("qkv has the wrong shape; got [1, 2, 25], want [1, 2, 24]", {1, 2, 25}, {1, 1, 8, 1.0}),
          bad("kv_heads does not divide heads; got 2 and 3", {1, 2, 56}, {3, 2, 8, 1.0}),
          bad("want 1 or more", {1, 2, 24}, {0, 1, 8, 1.0}),
          bad("want 1 or more", {1, 2, 24}, {1, 1, 0, 1.0}),
          bad("qkv has the wrong dtype; got i32", {1, 2, 24}, {1, 1, 8, 1.0}, Dtype::i32),
          {"qkv is missing", [] {
             causal_attention({}, {1, 1, 8, 1.0});
           }}};
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, const AttentionOptions& options) {
  return apply(std::make_shared<CausalAttention>(options), {qkv})[0];
}

std::vector<OpInfo> attention_ops() { return {{"causal_attention", samples, bad_samples}}; }

}  // namespace taper

// Rotary positions (Su et al., arXiv 2104.09864) with the pairs (i, i + D/2) that Hugging Face's Llama turns together.
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct Rotary : Op {
  AttentionOptions options;

  explicit Rotary(const AttentionOptions& options_) : options(options_) {}

  const char* name() const override { return "rotary"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor& qkv = in[0];
    require_float(*this, qkv, "qkv");
    require_rank(*this, qkv, "qkv", 3, 3);
    const int64_t h = options.heads, h_kv = options.kv_heads, size = options.head_size;
    require(h >= 1 && h_kv >= 1, "{}: heads and kv_heads are wrong; got {} and {}, want 1 or more", name(), h, h_kv);
    require(size >= 2 && size % 2 == 0, "{}: head_size is wrong; got {}, want an even number", name(), size);
    const int64_t tokens = qkv.dim(1);
    require_shape(*this, qkv, "qkv", {qkv.dim(0), tokens, (h + 2 * h_kv) * size});
    require_angles(in[1], "cos", tokens, accumulation_dtype(qkv.dtype()));
    require_angles(in[2], "sin", tokens, accumulation_dtype(qkv.dtype()));
    return {{qkv.shape(), qkv.dtype()}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::rotary(Accumulator(out[0], false), in[0], in[1], in[2], options, false);
    if (!saved.needs_backward()) return;
    saved.keep(in[1]);
    saved.keep(in[2]);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    require(!dx.needs(1) && !dx.needs(2), "{}: cos and sin are constants, and a gradient is asked for", name());
    if (dx.needs(0)) kernels::rotary(dx.buffer(0), dy[0], saved[0], saved[1], options, true);
  }

 private:
  void require_angles(const Tensor& angles, const char* what, int64_t tokens, Dtype dtype) const {
    require_dtype(*this, angles, what, dtype);
    require_rank(*this, angles, what, 2, 2);
    const int64_t half = options.head_size / 2;
    require(angles.dim(0) >= tokens && angles.dim(1) == half,
            "{}: {} has the wrong shape; got {}, want [{} or more, {}]", name(), what, to_string(angles.shape()),
            tokens, half);
  }
};

// --- samples ---

// Angles of Llama's frequencies, theta^(-2i/D), at each position; `function` is cos or sin.
SampleInput angles(int64_t tokens, int64_t size, double (*function)(double)) {
  SampleInput input{{tokens, size / 2}, false, false};
  input.make = [=](Dtype dtype) {
    std::vector<double> values;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < size / 2; ++i) {
        const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        values.push_back(function(static_cast<double>(t) * frequency));
      }
    }
    return Tensor::from<double>(values, {tokens, size / 2}).cast(accumulation_dtype(dtype));
  };
  return input;
}

// x cos + swapped(x) sin over the whole width: v has cos 1 and sin 0, and the swap of a pair changes one sign.
Tensor composite(const Tensors& in, const AttentionOptions& o) {
  const Tensor& x = in[0];
  const int64_t b = x.dim(0), t = x.dim(1), width = x.dim(2), half = o.head_size / 2;
  const int64_t turned = (o.heads + o.kv_heads) * o.head_size;
  const std::vector<double> cos = in[1].to_doubles(), sin = in[2].to_doubles();
  std::vector<double> cosines(static_cast<size_t>(t * width), 1.0), sines(static_cast<size_t>(t * width));
  std::vector<double> swap(static_cast<size_t>(width * width));
  for (int64_t column = 0; column < turned; ++column) {
    const int64_t i = column % o.head_size;
    const bool is_first = i < half;
    const int64_t partner = is_first ? column + half : column - half;
    swap[static_cast<size_t>(partner * width + column)] = is_first ? -1 : 1;
    for (int64_t row = 0; row < t; ++row) {
      cosines[static_cast<size_t>(row * width + column)] = cos[static_cast<size_t>(row * half + i % half)];
      sines[static_cast<size_t>(row * width + column)] = sin[static_cast<size_t>(row * half + i % half)];
    }
  }
  const auto constant = [&](const std::vector<double>& values, const Shape& shape) {
    return Tensor::from<double>(values, shape).cast(x.dtype());
  };
  const Tensor swapped = matmul(reshape(x, {b * t, width}), constant(swap, {width, width}));
  return add(multiply(x, constant(cosines, {1, t, width})),
             multiply(reshape(swapped, {b, t, width}), constant(sines, {1, t, width})));
}

Sample sample(const char* label, int64_t b, int64_t t, int64_t positions, const AttentionOptions& options) {
  Sample s;
  s.label = label;
  s.op = [options](Dtype) { return std::make_shared<Rotary>(options); };
  s.inputs = {{{b, t, (options.heads + 2 * options.kv_heads) * options.head_size}},
              angles(positions, options.head_size, [](double x) { return std::cos(x); }),
              angles(positions, options.head_size, [](double x) { return std::sin(x); })};
  s.reference = [options](const Tensors& in) { return Tensors{composite(in, options)}; };
  return s;
}

std::vector<Sample> samples() {
  return {sample("one token", 2, 1, 1, {2, 2, 8, 1.0}),
          sample("grouped queries, more angles", 2, 7, 12, {4, 2, 6, 1.0}),
          sample("pairs alone", 1, 5, 5, {1, 1, 2, 1.0}), sample("heads of 64", 1, 3, 3, {2, 1, 64, 1.0})};
}

BadSample bad(const char* message, const Shape& qkv, const Shape& cos, const Shape& sin,
              const AttentionOptions& options) {
  return {message, [=] {
            rotary(Tensor::zeros(qkv, Dtype::f32), Tensor::zeros(cos, Dtype::f32), Tensor::zeros(sin, Dtype::f32),
                   options);
          }};
}

std::vector<BadSample> bad_samples() {
  return {bad("qkv has the wrong rank", {2, 24}, {2, 4}, {2, 4}, {1, 1, 8, 1.0}),
          bad("qkv has the wrong shape", {1, 2, 25}, {2, 4}, {2, 4}, {1, 1, 8, 1.0}),
          bad("head_size is wrong; got 7", {1, 2, 21}, {2, 3}, {2, 3}, {1, 1, 7, 1.0}),
          bad("heads and kv_heads are wrong", {1, 2, 24}, {2, 4}, {2, 4}, {0, 1, 8, 1.0}),
          bad("cos has the wrong shape; got [1, 4], want [2 or more, 4]", {1, 2, 24}, {1, 4}, {2, 4}, {1, 1, 8, 1.0}),
          bad("sin has the wrong shape; got [2, 8]", {1, 2, 24}, {2, 4}, {2, 8}, {1, 1, 8, 1.0}),
          {"cos has the wrong dtype; got bf16, want f32",
           [] {
             const Tensor angle = Tensor::zeros({2, 4}, Dtype::bf16);
             rotary(Tensor::zeros({1, 2, 24}, Dtype::f32), angle, angle, {1, 1, 8, 1.0});
           }},
          {"sin is missing", [] {
             rotary(Tensor::zeros({1, 2, 24}, Dtype::f32), Tensor::zeros({2, 4}, Dtype::f32), {}, {1, 1, 8, 1.0});
           }}};
}

}  // namespace

Tensor rotary(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const AttentionOptions& options) {
  return apply(std::make_shared<Rotary>(options), {qkv, cos, sin})[0];
}

std::vector<OpInfo> rotary_ops() { return {{"rotary", samples, bad_samples}}; }

}  // namespace taper

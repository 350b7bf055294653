// y[b, t] = wte[tokens[b, t]] + wpe[t]. Backward: dwte[token] is the sum of dy over the places of the token, dwpe[t]
// over the batch. Only the rows of tokens that occur are touched where the gradient is added to.
#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct Embedding : Op {
  Dtype out_dtype;

  explicit Embedding(Dtype dtype) : out_dtype(dtype) {}
  const char* name() const override { return "embedding"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &tokens = in[0], &wte = in[1], &wpe = in[2];
    require_dtype(*this, tokens, "tokens", Dtype::i32);
    require_rank(*this, tokens, "tokens", 2, 2);
    require_float(*this, wte, "wte");
    require_rank(*this, wte, "wte", 2, 2);
    if (wpe) {
      require_dtype(*this, wpe, "wpe", wte.dtype());
      require_rank(*this, wpe, "wpe", 2, 2);
      require(wpe.dim(0) >= tokens.dim(1) && wpe.dim(1) == wte.dim(1),
              "embedding: wpe has the wrong shape; got {}, want [{} or more, {}]", to_string(wpe.shape()),
              tokens.dim(1), wte.dim(1));
    }
    const bool fits = out_dtype != Dtype::i32 && (out_dtype == Dtype::f64) == (wte.dtype() == Dtype::f64);
    require(fits, "embedding: the result has the wrong dtype; got {}, want one that goes with wte {}",
            to_string(out_dtype), to_string(wte.dtype()));
    if (tokens.device() == Device::cpu) require_in_vocabulary(tokens, wte.dim(0));
    return {{{tokens.dim(0), tokens.dim(1), wte.dim(1)}, out_dtype}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::embedding_fwd(out[0], in[0], in[1], in[2]);
    if (saved.needs_backward()) saved.keep(in[0]);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    const Destination dwte(dx, 1), dwpe(dx, 2);
    kernels::embedding_bwd(dwte.buffer, dwpe.buffer, dy[0], saved[0]);
    dwte.finish(dx);
    dwpe.finish(dx);
  }

 private:
  // Many rows meet in one sum: bf16 would lose them, so it is summed in f32 first.
  struct Destination {
    size_t input;
    Tensor sum;
    Accumulator buffer;

    Destination(Grads& dx, size_t i) : input(i) {
      const auto& target = dx.targets()[i];
      if (dx.needs(i) && target.spec.dtype == Dtype::bf16) {
        sum = Tensor::empty(target.spec.shape, Dtype::f32, target.device, "a gradient of embeddings");
        buffer = Accumulator(sum, false);
      } else {
        buffer = dx.buffer(i);
      }
    }
    void finish(Grads& dx) const {
      if (sum) dx.pass(input, sum);
    }
  };

  static void require_in_vocabulary(const Tensor& tokens, int64_t vocabulary) {
    const int32_t* ids = tokens.data<int32_t>();
    for (int64_t i = 0; i < tokens.numel(); ++i) {
      require(ids[i] >= 0 && ids[i] < vocabulary,
              "embedding: token {} at place {} is outside the vocabulary, want 0 to {}", ids[i], i, vocabulary - 1);
    }
  }
};

}  // namespace

Tensor embedding(const Tensor& tokens, const Tensor& wte, const Tensor& wpe, Dtype out_dtype) {
  return apply(std::make_shared<Embedding>(out_dtype), {tokens, wte, wpe})[0];
}

// --- samples ---
namespace {

constexpr int64_t kVocabulary = 11;

// Tokens that repeat, with gaps.
Tensor some_tokens(const Shape& shape) {
  std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i * 5 % 17 % kVocabulary);
  return Tensor::from(ids, shape);
}

// As products with matrices of zeros and ones.
Tensors reference(const Tensors& in) {
  const std::vector<double> ids = in[0].to_doubles();
  const int64_t rows = in[0].numel(), window = in[0].dim(1);
  const auto picks = [&](int64_t count, auto pick) {
    std::vector<double> matrix(static_cast<size_t>(rows * count));
    for (int64_t i = 0; i < rows; ++i) matrix[static_cast<size_t>(i * count + pick(i))] = 1;
    return Tensor::from(matrix, {rows, count}).cast(in[1].dtype());
  };
  const auto token = [&](int64_t i) { return static_cast<int64_t>(ids[static_cast<size_t>(i)]); };
  Tensor y = matmul(picks(in[1].dim(0), token), in[1]);
  if (in[2]) y = add(y, matmul(picks(in[2].dim(0), [&](int64_t i) { return i % window; }), in[2]));
  return {reshape(y, {in[0].dim(0), window, in[1].dim(1)})};
}

Sample sample(const char* label, const Shape& tokens, int64_t channels, int64_t positions, bool is_result_f32 = false) {
  Sample s;
  s.label = label;
  s.op = [=](Dtype dtype) { return std::make_shared<Embedding>(is_result_f32 ? accumulation_dtype(dtype) : dtype); };
  SampleInput ids{tokens}, wpe{{positions, channels}};
  ids.is_differentiated = false;
  ids.make = [tokens](Dtype) { return some_tokens(tokens); };
  if (positions == 0) {
    wpe.is_differentiated = false;
    wpe.make = [](Dtype) { return Tensor(); };
  }
  s.inputs = {ids, SampleInput{{kVocabulary, channels}}, wpe};
  s.reference = reference;
  return s;
}

std::vector<Sample> samples() {
  return {sample("with positions", {2, 5}, 8, 5),     sample("more positions than tokens", {3, 4}, 37, 9),
          sample("without positions", {2, 7}, 20, 0), sample("f32 result", {2, 7}, 17, 7, true),
          sample("one token", {1, 1}, 1, 1),          sample("several threads", {40, 30}, 70, 30),
          sample("no tokens", {0, 4}, 8, 4)};
}

std::vector<BadSample> bad_samples() {
  const auto call = [](const Tensor& tokens, const Tensor& wte, const Tensor& wpe, Dtype out = Dtype::f32) {
    return [=] { embedding(tokens, wte, wpe, out); };
  };
  const auto zeros = [](const Shape& shape, Dtype dtype = Dtype::f32) { return Tensor::zeros(shape, dtype); };
  const Tensor tokens = some_tokens({2, 3}), wte = zeros({kVocabulary, 4}), none;
  return {
      {"tokens is missing", call(none, wte, none)},
      {"tokens has the wrong dtype", call(zeros({2, 3}), wte, none)},
      {"tokens has the wrong rank", call(some_tokens({6}), wte, none)},
      {"wte is missing", call(tokens, none, none)},
      {"wte has the wrong rank", call(tokens, zeros({kVocabulary}), none)},
      {"wte has the wrong dtype", call(tokens, zeros({kVocabulary, 4}, Dtype::i32), none)},
      {"wpe has the wrong dtype", call(tokens, wte, zeros({3, 4}, Dtype::bf16))},
      {"want [3 or more, 4]", call(tokens, wte, zeros({2, 4}))},
      {"want [3 or more, 4]", call(tokens, wte, zeros({3, 5}))},
      {"the result has the wrong dtype", call(tokens, wte, none, Dtype::f64)},
      {"token 11 at place 2 is outside the vocabulary",
       call(Tensor::from(std::vector<int32_t>{0, 10, 11}, {1, 3}), wte, none)},
      {"token -1 at place 0", call(Tensor::from(std::vector<int32_t>{-1}, {1, 1}), wte, none)},
  };
}

}  // namespace

std::vector<OpInfo> embedding_ops() { return {{"embedding", samples, bad_samples}}; }

}  // namespace taper

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "tests/support/tiny_model.h"

using namespace taper;
using namespace taper::test;

namespace {

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

double greatest_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  double greatest = 0;
  for (size_t i = 0; i < x.size(); ++i) greatest = std::max(greatest, std::abs(x[i] - y[i]));
  return greatest;
}

}  // namespace

TEST_CASE("transformer: parameters carry their names, and matrices alone decay") {
  const Transformer model(tiny_config("gpt2", Variant::internal), Precision::f32);
  for (const char* name :
       {"wte.weight", "wpe.weight", "h.0.norm1.gamma", "h.0.norm1.beta_tilde", "h.1.norm2.c", "h.0.attn.qkv.weight",
        "h.0.attn.out.bias", "h.1.mlp.up.weight", "h.1.mlp.down.bias", "norm_f.beta"}) {
    CAPTURE(name);
    CHECK(model.parameter(name).is_decayed == (model.parameter(name).master.shape().rank == 2));
  }
  CHECK_FALSE(model.parameter("h.0.norm1.c").is_trained);
  CHECK_THROWS_AS(model.parameter("lm_head.weight"), Error);
  CHECK_THROWS_AS(model.parameter("norm_f.gamma_tilde"), Error);
}

TEST_CASE("transformer: the start depends on the seed alone") {
  const int threads = thread_count();
  Transformer one(tiny_config(), Precision::f32), other(tiny_config(), Precision::f32);
  set_thread_count(1);
  one.initialise(7);
  set_thread_count(3);
  other.initialise(7);
  set_thread_count(threads);
  for (const Parameter& p : one.parameters()) {
    CAPTURE(p.name);
    CHECK(equal_bits(p.master, other.parameter(p.name).master));
  }
  other.initialise(8);
  CHECK_FALSE(equal_bits(one.parameter("wte.weight").master, other.parameter("wte.weight").master));
}

TEST_CASE("transformer: deviations of the start") {
  ModelConfig config = tiny_config();
  config.width = 128;
  config.vocab_size = 300;
  set_arch(config, "taper");
  Transformer model(config, Precision::f64);
  model.initialise(1);
  const auto deviation = [&](const char* name) {
    double sum = 0;
    const auto values = model.parameter(name).master.to_doubles();
    for (const double value : values) sum += value * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
  };
  CHECK(deviation("wte.weight") == doctest::Approx(0.02).epsilon(0.02));
  CHECK(deviation("h.1.attn.qkv.weight") == doctest::Approx(0.02).epsilon(0.02));
  CHECK(deviation("h.0.attn.out.weight") == doctest::Approx(0.01).epsilon(0.02));
  CHECK(deviation("h.1.mlp.down.weight") == doctest::Approx(0.01).epsilon(0.02));
  CHECK(deviation("h.0.norm1.gamma") == 1.0);
  CHECK(deviation("h.0.norm1.gamma_tilde") == 0.0);
}

TEST_CASE("transformer: a fresh model's loss is near the logarithm of the vocabulary") {
  for (const std::string& arch : arch_names()) {
    ModelConfig config = tiny_config(arch, Variant::baseline);
    config.vocab_size = 10000;
    Transformer model(config, Precision::f32);
    model.initialise(3);
    const NoGrad no_grad;
    const Tensor ids = random_ids({2, 8}, config.vocab_size, 4);
    const HiddenStates states = model.hidden(ids, Gate{1.0});
    const Tensor targets = random_ids({2, 8}, config.vocab_size, 5);
    CHECK(model.cross_entropy(states.normed, targets, 1.0 / 16).loss.item() ==
          doctest::Approx(std::log(10000.0)).epsilon(0.02));
  }
}

TEST_CASE("transformer: no position sees a later one") {
  const NoGrad no_grad;
  for (const std::string& arch : arch_names()) {
    CAPTURE(arch);
    Transformer model(tiny_config(arch), Precision::f64);
    scramble(model, 5);
    const Tensor ids = random_ids({1, 8}, 31, 6);
    const Tensor before = model.logits(ids, Gate{0.5});
    ids.data<int32_t>()[5] = (ids.data<int32_t>()[5] + 1) % 31;
    const Tensor after = model.logits(ids, Gate{0.5});
    const Tensor a = before.reshaped({8, 31}), b = after.reshaped({8, 31});
    CHECK(greatest_difference(a.rows(0, 5), b.rows(0, 5)) == 0);
    CHECK(greatest_difference(a.rows(5, 6), b.rows(5, 6)) > 1e-6);
    CHECK(greatest_difference(a.rows(7, 8), b.rows(7, 8)) > 1e-9);
  }
}

TEST_CASE("transformer: at gate 1 a tapered model is the plain one to the bit") {
  const NoGrad no_grad;
  for (const std::string& arch : arch_names()) {
    CAPTURE(arch);
    Transformer tapered(tiny_config(arch, Variant::all), Precision::f32);
    Transformer plain(tiny_config(arch, Variant::baseline), Precision::f32);
    scramble(tapered, 9);
    for (const Parameter& p : plain.parameters()) p.master.copy_from(tapered.parameter(p.name).master);
    const Tensor ids = random_ids({2, 8}, 31, 1);
    CHECK(equal_bits(tapered.logits(ids, Gate{1.0}), plain.logits(ids, Gate{1.0})));
    CHECK_FALSE(equal_bits(tapered.logits(ids, Gate{0.9}), plain.logits(ids, Gate{0.9})));
  }
}

TEST_CASE("transformer: removed norms pass the stream on") {
  const NoGrad no_grad;
  ModelConfig config = tiny_config("taper", Variant::all);
  Transformer tapered(config, Precision::f64);
  scramble(tapered, 2);
  config.block_norms = config.final_norm = NormSite::removed;
  const Transformer removed(config, Precision::f64);
  for (const Parameter& p : removed.parameters()) p.master.copy_from(tapered.parameter(p.name).master);
  for (TaperNorm* norm : tapered.tapered_norms()) {
    norm->inputs().gamma_tilde.copy_from(Tensor::full({16}, 1.0, Dtype::f64));
    norm->inputs().c.copy_from(Tensor::full({1}, 1.0, Dtype::f64));
  }
  const Tensor ids = random_ids({2, 8}, 31, 1);
  CHECK(greatest_difference(tapered.logits(ids, Gate{0.0}), removed.logits(ids, Gate{0.0})) < 1e-12);
}

TEST_CASE("transformer: gradients agree with central differences") {
  for (const std::string& arch : arch_names()) {
    for (const double gate : {1.0, 0.4, 0.0}) {
      CAPTURE(arch);
      CAPTURE(gate);
      const Transformer model(tiny_config(arch), Precision::f64);
      scramble(model, 11);
      const Tensor ids = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
      const auto loss = [&] {
        return model.cross_entropy(model.hidden(ids, Gate{gate}).normed, targets, 1.0 / 16).loss;
      };
      model.zero_grad();
      backward(loss());
      const NoGrad no_grad;
      for (const Parameter& p : model.parameters()) {
        if (!p.is_trained) continue;
        CAPTURE(p.name);
        double* value = p.master.data<double>() + p.master.numel() / 2;
        const double before = *value, step = 1e-5;
        *value = before + step;
        const double above = loss().item();
        *value = before - step;
        const double below = loss().item();
        *value = before;
        const double grad =
            p.compute.grad() ? p.compute.grad().to_doubles()[static_cast<size_t>(p.master.numel() / 2)] : 0;
        CHECK(grad == doctest::Approx((above - below) / (2 * step)).epsilon(1e-5).scale(1e-3));
      }
    }
  }
}

TEST_CASE("transformer: bf16 computes with copies of f32 masters") {
  Transformer model(tiny_config("gpt2"), Precision::bf16);
  model.initialise(1);
  const Parameter& matrix = model.parameter("h.0.attn.qkv.weight");
  CHECK(matrix.master.dtype() == Dtype::f32);
  CHECK(matrix.compute.dtype() == Dtype::bf16);
  CHECK(equal_bits(matrix.master.cast(Dtype::bf16), matrix.compute));
  CHECK(model.parameter("wte.weight").has_copy());
  CHECK_FALSE(model.parameter("h.0.norm1.gamma").has_copy());
  CHECK_FALSE(model.parameter("h.0.attn.qkv.bias").has_copy());
  const HiddenStates states = model.hidden(random_ids({1, 8}, 31, 1), Gate{1.0});
  CHECK(states.h.dtype() == Dtype::f32);
  CHECK(states.normed.dtype() == Dtype::bf16);
}

TEST_CASE("transformer: ids and lengths outside the model are named") {
  const Transformer model(tiny_config(), Precision::f32);
  const NoGrad no_grad;
  CHECK_THROWS_WITH_AS(model.hidden(Tensor::full({1, 4}, 31, Dtype::i32), Gate{}),
                       doctest::Contains("got 31 at position 0, want 0 to 30"), Error);
  CHECK_THROWS_AS(model.hidden(Tensor::full({1, 4}, -1, Dtype::i32), Gate{}), Error);
  CHECK_THROWS_WITH_AS(model.hidden(Tensor::zeros({1, 9}, Dtype::i32), Gate{}),
                       doctest::Contains("got 9 positions, want at most 8"), Error);
  CHECK_THROWS_AS(model.hidden(Tensor::zeros({4}, Dtype::i32), Gate{}), Error);
}

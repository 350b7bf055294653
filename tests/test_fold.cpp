#include <doctest/doctest.h>

#include <cmath>

#include "engine/core/error.h"
#include "model/fold.h"
#include "tests/support/plain_forward.h"

using namespace taper;

namespace {

Tensor vector_of(const std::vector<float>& values) { return Tensor::from(values, {std::ssize(values)}); }

ModelConfig tapered(NormKind kind) {
  ModelConfig config;
  config.vocab_size = 61;
  config.context = 16;
  config.width = 24;
  config.layers = 2;
  config.heads = config.kv_heads = 3;
  config.head_size = 8;
  config.mlp_hidden = 48;
  config.norm = kind;
  config.has_bias = kind == NormKind::layer;
  config.block_norms = config.final_norm = NormSite::tapered;
  config.gate = 0;
  config.step = 1234;
  return config;
}

double greatest_difference(const Transformer& a, const Transformer& b) {
  const std::vector<int32_t> tokens{5, 60, 0, 17, 17, 3, 42, 8, 9, 10};
  const auto x = test::plain_logits(a, tokens, 0), y = test::plain_logits(b, tokens, 0);
  double difference = 0, greatest = 1;
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t v = 0; v < x[t].size(); ++v) {
      difference = std::max(difference, std::fabs(x[t][v] - y[t][v]));
      greatest = std::max(greatest, std::fabs(x[t][v]));
    }
  }
  return difference / greatest;
}

}  // namespace

TEST_CASE("fold: the gain of an RMS norm scales the columns of its reader") {
  const Tensor e = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const FoldedReader folded = fold_reader({NormKind::rms, 1, vector_of({10, 100}), {}}, e, {});
  CHECK(folded.weight.to_doubles() == std::vector<double>{10, 200, 30, 400, 50, 600});
  CHECK_FALSE(folded.bias);
  CHECK(e.to_doubles() == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("fold: an RMS norm is not centred and keeps its reader's bias") {
  const Tensor w = Tensor::from(std::vector<float>{1, 10}, {1, 2});
  const FoldedReader folded = fold_reader({NormKind::rms, 0.5, vector_of({2, 3}), {}}, w, vector_of({7}));
  CHECK(folded.weight.to_doubles() == std::vector<double>{1, 15});
  CHECK(folded.bias.to_doubles() == std::vector<double>{7});
}

TEST_CASE("fold: a LayerNorm's centring folds as each row minus its mean, its shift into the bias") {
  const Tensor w = Tensor::from(std::vector<float>{1, 10}, {1, 2});
  const FoldedReader folded = fold_reader({NormKind::layer, 1, vector_of({2, 3}), vector_of({0.5f, -1})}, w, {});
  CHECK(folded.weight.to_doubles() == std::vector<double>{-14, 14});
  // On [1, 3]: 28, as the direct form (1 * 2 * -1 + 10 * 3 * 1) has it.
  CHECK(folded.weight.to_doubles()[0] * 1 + folded.weight.to_doubles()[1] * 3 == 28);
  CHECK(folded.bias.to_doubles() == std::vector<double>{0.5 - 10});
}

TEST_CASE("fold: one rounding at the end") {
  // In float, c * gain rounds first and the product again; in double it rounds once.
  const float c = 1.0f / 3, gain = 0.1f, w = 0.7f;
  const FoldedReader folded =
      fold_reader({NormKind::rms, c, vector_of({gain}), {}}, Tensor::from(std::vector<float>{w}, {1, 1}), {});
  CHECK(folded.weight.data<float>()[0] == static_cast<float>(double(c) * double(w) * double(gain)));
}

TEST_CASE("fold: the folded model is the same function; no norm parameter is left; the embedding stays") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const bool is_tied : {true, false}) {
      for (const bool is_gated : {true, false}) {
        for (const NormSite final_norm : {NormSite::tapered, NormSite::plain}) {
          CAPTURE(is_tied);
          CAPTURE(is_gated);
          ModelConfig config = tapered(kind);
          config.is_tied = is_tied;
          config.is_gated_mlp = is_gated;
          config.final_norm = final_norm;
          Transformer model(config, Precision::f32);
          test::fill_randomly(model, 3);
          const Transformer folded = fold(model);
          CHECK(greatest_difference(model, folded) < 1e-5);
          CHECK(folded.config().block_norms == NormSite::removed);
          const bool has_final = final_norm == NormSite::plain;
          CHECK(norm_count(folded.config()) == (has_final ? 1 : 0));
          CHECK(folded.config().is_tied == (is_tied && has_final));
          for (const Parameter& p : folded.parameters()) {
            CAPTURE(p.name);
            CHECK((p.name.find("norm") == std::string::npos || (has_final && p.name.starts_with("norm_f"))));
          }
          CHECK(folded.parameter("wte.weight").master.to_doubles() ==
                model.parameter("wte.weight").master.to_doubles());
        }
      }
    }
  }
}

TEST_CASE("fold: a LayerNorm model without biases gains those that folding needs, and no others' values") {
  ModelConfig config = tapered(NormKind::layer);
  config.has_bias = false;
  Transformer model(config, Precision::f32);
  test::fill_randomly(model, 4);
  const Transformer folded = fold(model);
  CHECK(folded.config().has_bias);
  CHECK(folded.config().has_head_bias);
  for (const double value : folded.parameter("h.0.attn.out.bias").master.to_doubles()) CHECK(value == 0);
  CHECK(greatest_difference(model, folded) < 1e-5);
}

TEST_CASE("fold: constants of two layers exchanged are another function") {
  Transformer model(tapered(NormKind::rms), Precision::f32);
  test::fill_randomly(model, 5);
  Transformer swapped(tapered(NormKind::rms), Precision::f32);
  test::fill_randomly(swapped, 5);
  std::swap(swapped.parameter("h.0.norm1.c").master.data<float>()[0],
            swapped.parameter("h.1.norm2.c").master.data<float>()[0]);
  CHECK(greatest_difference(model, fold(swapped)) > 1e-3);
}

TEST_CASE("fold: what cannot be folded is refused with the reason") {
  ModelConfig config = tapered(NormKind::rms);
  config.gate = 0.25;
  CHECK_THROWS_WITH_AS(fold(Transformer(config, Precision::f32)), doctest::Contains("step 1234"), Error);
  config.gate = 0;
  Transformer model(config, Precision::f32);
  test::fill_randomly(model, 6);
  CHECK_THROWS_WITH_AS(fold(fold(model)), doctest::Contains("folded already"), Error);
  config.block_norms = config.final_norm = NormSite::plain;
  config.gate = 1;
  CHECK_THROWS_WITH_AS(fold(Transformer(config, Precision::f32)), doctest::Contains("no norms that taper"), Error);
}

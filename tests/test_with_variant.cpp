#include <doctest/doctest.h>

#include <set>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "model/fold.h"
#include "model/with_variant.h"
#include "tests/support/tiny_model.h"

using namespace taper;
using namespace taper::test;

namespace {

std::set<std::string> names_of(const Transformer& model) {
  std::set<std::string> names;
  for (const Parameter& p : model.parameters()) names.insert(p.name);
  return names;
}

Transformer plain_model(const std::string& arch, Precision precision = Precision::f32) {
  Transformer model(tiny_config(arch, Variant::baseline), precision);
  scramble(model, 3);
  return model;
}

}  // namespace

TEST_CASE("with_variant: the same function, with what the taper needs beside it") {
  const NoGrad no_grad;
  const Tensor ids = random_ids({2, 8}, 31, 1);
  for (const std::string& arch : arch_names()) {
    for (const Variant variant : {Variant::baseline, Variant::internal, Variant::all}) {
      CAPTURE(arch);
      CAPTURE(to_string(variant));
      Transformer plain = plain_model(arch);
      plain.set_saved_state(1.0, 77);
      const Transformer model = with_variant(plain, variant);
      CHECK(model.config().variant() == variant);
      CHECK(model.config().step == 0);
      CHECK(names_of(model) == names_of(Transformer(tiny_config(arch, variant), Precision::f32)));
      CHECK(model.logits(ids, Gate{1.0}).to_doubles() == plain.logits(ids, Gate{1.0}).to_doubles());
      for (const Parameter& p : plain.parameters()) {
        CAPTURE(p.name);
        CHECK(model.parameter(p.name).master.to_doubles() == p.master.to_doubles());
        CHECK_FALSE(model.parameter(p.name).master.shares_storage(p.master));
      }
      for (const Parameter& p : model.parameters()) {
        const bool is_new = p.name.ends_with("_tilde") || p.name.ends_with(".c");
        if (!is_new) continue;
        CAPTURE(p.name);
        CHECK(p.master.to_doubles() == std::vector<double>(static_cast<size_t>(p.master.numel()), 0.0));
      }
    }
  }
}

TEST_CASE("with_variant: bf16 keeps its masters in f32") {
  const Transformer plain = plain_model("gpt2", Precision::bf16);
  const Transformer model = with_variant(plain, Variant::all);
  const Parameter& matrix = model.parameter("h.1.mlp.up.weight");
  CHECK(matrix.master.dtype() == Dtype::f32);
  CHECK(matrix.compute.to_doubles() == plain.parameter("h.1.mlp.up.weight").compute.to_doubles());
}

TEST_CASE("with_norms_in_turn: all norms live still, their scales unset") {
  const NoGrad no_grad;
  const Tensor ids = random_ids({2, 8}, 31, 1);
  const Transformer plain = plain_model("gpt2");
  Transformer model = with_norms_in_turn(plain, 5);
  CHECK(model.config().is_replaced_in_turn);
  CHECK(model.config().end_of_text == 5);
  CHECK(model.logits(ids, Gate{0.0}).to_doubles() == plain.logits(ids, Gate{1.0}).to_doubles());
  CHECK(model.parameter("h.0.norm1.scales").master.shape() == Shape{2, 3});
  CHECK(model.parameter("h.1.norm2.scales").master.shape() == Shape{1, 3});
  CHECK(model.parameter("norm_f.scales").master.shape() == Shape{1, 3});
  for (TaperNorm* norm : model.tapered_norms()) CHECK_FALSE(norm->scales().is_fixed(0));
  ModelConfig config = tiny_config("gpt2", Variant::baseline);
  config.has_bias = false;
  const Transformer without_bias(config, Precision::f32);
  CHECK_THROWS_AS(with_norms_in_turn(without_bias, -1), UsageError);
}

TEST_CASE("with_variant: norms that are not live are refused, with what to do") {
  ModelConfig config = tiny_config("gpt2", Variant::all);
  CHECK_NOTHROW(check_norms_are_live(tiny_config("gpt2", Variant::baseline), "m"));
  CHECK_NOTHROW(check_norms_are_live(config, "m"));
  config.gate = 0.25;
  config.step = 40;
  CHECK_THROWS_WITH_AS(check_norms_are_live(config, "--model: m"),
                       doctest::Contains("--model: m: the taper of this model is unfinished; got gate 0.25 at step 40"),
                       UsageError);
  config.gate = 0;
  CHECK_THROWS_WITH_AS(check_norms_are_live(config, "m"), doctest::Contains("tapered away already"), UsageError);
  Transformer model(config, Precision::f32);
  scramble(model, 1);
  CHECK_THROWS_WITH_AS(check_norms_are_live(fold(model).config(), "m"), doctest::Contains("folded away already"),
                       UsageError);
}

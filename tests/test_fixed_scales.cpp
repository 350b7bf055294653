#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "infer/plan.h"
#include "model/fixed_scales.h"
#include "model/fold.h"
#include "model/model_folder.h"
#include "model/with_variant.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace taper;
using namespace taper::test;

namespace {

double greatest_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  double difference = 0, greatest = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    difference = std::max(difference, std::abs(x[i] - y[i]));
    greatest = std::max(greatest, std::abs(y[i]));
  }
  return difference / greatest;
}

Transformer model_in_turn(const std::string& arch, Precision precision) {
  Transformer plain(tiny_config(arch, Variant::baseline), precision);
  scramble(plain, 3);
  return with_norms_in_turn(plain, 30);
}

// Every path to a scale of its own, one for all kinds of token.
void fix_all(Transformer& model) {
  double scale = 0.5;
  for (TaperNorm* norm : model.tapered_norms()) {
    for (int64_t path = 0; path < norm->scales().paths(); ++path) {
      for (const TokenKind kind : {TokenKind::ordinary, TokenKind::first_position, TokenKind::end_of_text}) {
        norm->scales().set(path, kind, scale);
      }
      scale += 0.1;
    }
  }
}

}  // namespace

TEST_CASE("fixed scales: kinds of token, and their statistics") {
  const Tensor tokens = Tensor::from(std::vector<int32_t>{7, 3, 7, 3, 7, 7}, {2, 3});
  const Tensor kinds = token_kinds(tokens, 7);
  const std::vector<int32_t> want{1, 0, 2, 1, 2, 2};
  CHECK(std::vector<int32_t>(kinds.data<int32_t>(), kinds.data<int32_t>() + 6) == want);
  CHECK(token_kinds(tokens, -1).data<int32_t>()[2] == 0);

  // Rows (a, -a): mean 0, statistic a.
  const Tensor h = Tensor::from(std::vector<double>{1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6}, {2, 3, 2});
  const std::vector<double> sums = statistic_sums(h, kinds, NormKind::layer, 1e-12).to_doubles();
  CHECK(sums[0] == doctest::Approx(2));
  CHECK(sums[1] == 1);
  CHECK(sums[2] == doctest::Approx(1 + 4));
  CHECK(sums[3] == 2);
  CHECK(sums[4] == doctest::Approx(3 + 5 + 6));
  CHECK(sums[5] == 3);

  ParameterList parameters(Precision::f64);
  const FixedScales scales(parameters, "norm", 2);
  parameters.initialise(1);
  CHECK_FALSE(scales.is_fixed(1));
  scales.set(1, TokenKind::ordinary, 2);
  scales.set(1, TokenKind::first_position, 3);
  scales.set(1, TokenKind::end_of_text, 4);
  CHECK(scales.is_fixed(1));
  CHECK_FALSE(scales.is_fixed(0));
  CHECK(scales.by_token(1, kinds).to_doubles() == std::vector<double>{3, 2, 4, 3, 4, 4});
  CHECK(scales.by_token(1, kinds).shape() == Shape{2, 3, 1});
}

TEST_CASE("fixed scales: a norm whose scale is one over its statistic is that norm") {
  const NoGrad no_grad;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    ModelConfig config = tiny_config("gpt2", Variant::all);
    config.norm = kind;
    config.is_replaced_in_turn = true;
    ParameterList parameters(Precision::f64);
    const TaperNorm norm(parameters, "n", NormSite::tapered, config, 2);
    parameters.initialise(1);
    // All rows of one statistic, so that a constant can stand for it.
    const Tensor x = Tensor::empty({1, 2, 16}, Dtype::f64);
    for (int i = 0; i < 32; ++i) x.data<double>()[i] = (i % 2 == 0 ? 3.0 : -3.0);
    const Tensor kinds = token_kinds(Tensor::zeros({1, 2}, Dtype::i32), -1);
    const NormPass pass{Gate{1.0}, kinds, nullptr};
    const Tensor live = norm.forward(x, {}, pass).y;
    CHECK_FALSE(norm.forward(x, {}, pass).y_of_v);
    const double scale = 1 / std::sqrt(9 + config.eps);
    norm.scales().set(0, TokenKind::ordinary, scale);
    norm.scales().set(0, TokenKind::first_position, 2 * scale);
    const NormResult fixed = norm.forward(x, {}, pass);
    CHECK(greatest_difference(fixed.y_of_v, live) == 0);
    const auto want = live.to_doubles(), got = fixed.y.to_doubles();
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(i < 16 ? 2 * want[i] : want[i]));
  }
}

TEST_CASE("fixed scales: gradients agree with central differences on every stage of the way") {
  for (const std::string& arch : arch_names()) {
    CAPTURE(arch);
    Transformer model = model_in_turn(arch, Precision::f64);
    // norm2 of both blocks fixed, the first block's norm1 wholly, the second's for q and k.
    for (const auto& [norm, path] : {std::pair<size_t, int64_t>{1, 0}, {3, 0}, {0, 0}, {0, 1}, {2, 0}}) {
      const FixedScales& scales = model.tapered_norms()[norm]->scales();
      scales.set(path, TokenKind::ordinary, 0.7);
      scales.set(path, TokenKind::first_position, 0.2);
      scales.set(path, TokenKind::end_of_text, 0.4 + 0.1 * double(path));
    }
    const Tensor ids = random_ids({2, 8}, 31, 1), targets = random_ids({2, 8}, 31, 2);
    ids.data<int32_t>()[3] = 30;
    const auto loss = [&] { return model.cross_entropy(model.hidden(ids, Gate{}).normed, targets, 1.0 / 16).loss; };
    model.zero_grad();
    backward(loss());
    const NoGrad no_grad;
    for (const Parameter& p : model.parameters()) {
      if (!p.is_trained) continue;
      CAPTURE(p.name);
      const auto at = static_cast<size_t>(p.master.numel() * 2 / 3);
      double* value = p.master.data<double>() + at;
      const double before = *value, step = 1e-5;
      *value = before + step;
      const double above = loss().item();
      *value = before - step;
      const double below = loss().item();
      *value = before;
      const double grad = p.compute.grad() ? p.compute.grad().to_doubles()[at] : 0;
      CHECK(grad == doctest::Approx((above - below) / (2 * step)).epsilon(1e-5).scale(1e-3));
    }
  }
}

TEST_CASE("fixed scales: at the end it is a model at gate 0, which folds") {
  const NoGrad no_grad;
  const Tensor ids = random_ids({2, 8}, 31, 1);
  for (const std::string& arch : arch_names()) {
    CAPTURE(arch);
    Transformer model = model_in_turn(arch, Precision::f32);
    fix_all(model);
    const Tensor before = model.logits(ids, Gate{1.0});
    model.end_replacement();
    model.set_saved_state(0, 10);
    CHECK_FALSE(model.config().is_replaced_in_turn);
    CHECK(model.parameters().size() == Transformer(tiny_config(arch), Precision::f32).parameters().size());
    CHECK(model.parameter("h.0.norm1.c").master.item() == doctest::Approx(0.5));
    CHECK(greatest_difference(model.logits(ids, Gate{0.0}), before) < 1e-5);
    CHECK(greatest_difference(fold(model).logits(ids, Gate{0.0}), before) < 1e-4);
    // Each norm has its own: exchanging two must show.
    const Tensor one = model.parameter("h.0.norm1.c").master, other = model.parameter("h.1.norm2.c").master;
    const Tensor kept = one.clone();
    one.copy_from(other);
    other.copy_from(kept);
    CHECK(greatest_difference(fold(model).logits(ids, Gate{0.0}), before) > 1e-3);
    CHECK_THROWS_AS(model.end_replacement(), Error);
  }
}

TEST_CASE("fixed scales: a model on its way is saved whole, and neither folded nor decoded") {
  const NoGrad no_grad;
  const TempDir folder;
  const Tensor ids = random_ids({1, 8}, 31, 1);
  Transformer model = model_in_turn("gpt2", Precision::f32);
  model.tapered_norms()[0]->scales().set(0, TokenKind::ordinary, 0.3);
  model.tapered_norms()[0]->scales().set(0, TokenKind::first_position, 0.1);
  model.set_saved_state(0.9, 25);
  save_model(model, folder / "m");
  const Transformer loaded = load_model(folder / "m");
  CHECK(loaded.config().is_replaced_in_turn);
  CHECK(loaded.config().end_of_text == 30);
  CHECK(loaded.logits(ids, Gate{0.9}).to_doubles() == model.logits(ids, Gate{0.9}).to_doubles());
  CHECK_THROWS_WITH_AS(fold(loaded), doctest::Contains("saved at step 25"), Error);
  CHECK_THROWS_WITH_AS(choose_plan(loaded.config(), {}), doctest::Contains("one after another"), UsageError);
  CHECK_THROWS_WITH_AS(check_norms_are_live(loaded.config(), "m"), doctest::Contains("unfinished"), UsageError);
}

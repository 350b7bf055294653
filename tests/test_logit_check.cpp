#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "engine/core/error.h"
#include "model/fold.h"
#include "model/logit_check.h"
#include "tests/support/random_models.h"

using namespace taper;
using namespace taper::test;

namespace {

float* embedding_of(const Transformer& model, int64_t id) {
  return model.parameter("wte.weight").master.data<float>() + id * model.config().width;
}

void set_embedding(const Transformer& model, int64_t id, float value) {
  std::fill_n(embedding_of(model, id), model.config().width, value);
}

// An id that is in some of the windows, but not in all.
int32_t id_in_some(const std::vector<std::vector<int32_t>>& windows, int64_t vocab_size) {
  for (int32_t id = 0; id < vocab_size; ++id) {
    const auto has = [id](const std::vector<int32_t>& w) { return std::find(w.begin(), w.end(), id) != w.end(); };
    const auto count = std::count_if(windows.begin(), windows.end(), has);
    if (count > 0 && count < std::ssize(windows)) return id;
  }
  FAIL("no such id");
  return -1;
}

}  // namespace

TEST_CASE("logit check: the same function, and another one") {
  const Transformer model = random_model(small_config("taper", Variant::all));
  std::string said;
  const LogitCheck check(model, [&](std::string_view text) { said = text; });
  CHECK(said.empty());
  CHECK(check.windows().size() == 4);
  CHECK(check.difference(model).most == 0);
  const Transformer folded = fold(model);
  CHECK(check.difference(folded).is_within(1e-4));
  folded.parameter("h.1.mlp.down.weight").master.data<float>()[3] += 1;
  CHECK_FALSE(check.difference(folded).is_within(1e-3));
  folded.parameter("h.1.mlp.down.weight").master.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(check.difference(folded).most));
  CHECK_FALSE(check.difference(folded).is_within(1e6));
}

TEST_CASE("logit check: a window of huge logits excuses no other") {
  ModelConfig config = small_config("taper", Variant::all);
  config.is_tied = false;  // a huge embedding is no huge unembedding
  const Transformer model = random_model(config);
  const int32_t id = id_in_some(LogitCheck(model).windows(), model.config().vocab_size);
  set_embedding(model, id, 1e4f);
  const LogitCheck check(model);
  REQUIRE(check.windows().size() == 4);
  const Transformer folded = fold(model);
  CHECK(check.difference(folded).is_within(1e-4));
  folded.parameter("h.1.mlp.down.weight").master.data<float>()[3] += 1;
  const LogitDifference difference = check.difference(folded);
  CHECK_FALSE(difference.is_within(1e-3));
  CHECK(difference.greatest < 1e3);
}

TEST_CASE("logit check: windows in which the model itself is not finite are left out, and said") {
  const Transformer model = random_model(small_config("taper", Variant::all));
  const int32_t id = id_in_some(LogitCheck(model).windows(), model.config().vocab_size);
  set_embedding(model, id, 1e30f);
  std::string said;
  const LogitCheck check(model, [&](std::string_view text) { said = text; });
  CHECK(check.windows().size() < 4);
  CHECK(said.find("of 4 windows of random ids the model's own logits are not finite") != std::string::npos);
  CHECK(check.difference(fold(model)).is_within(1e-4));
}

TEST_CASE("logit check: a model with no finite window is an error, and one with a bad parameter, which is named") {
  const Transformer model = random_model(small_config("taper", Variant::all));
  for (int64_t id = 0; id < model.config().vocab_size; ++id) set_embedding(model, id, 1e30f);
  CHECK_THROWS_WITH_AS(LogitCheck{model}, doctest::Contains("not finite in any of 4 windows"), Error);
  const Transformer other = random_model(small_config("taper", Variant::all));
  embedding_of(other, id_in_some(LogitCheck(other).windows(), other.config().vocab_size))[0] =
      std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(LogitCheck{other}, doctest::Contains("tensor wte.weight: has values that are not finite"),
                       Error);
}

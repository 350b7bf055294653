#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/io/safetensors.h"
#include "infer/decoder.h"
#include "infer/int8_weights.h"
#include "infer/sampler.h"
#include "model/fold.h"
#include "tests/support/plain_forward.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

struct Case {
  const char* name;
  ModelConfig config;
};

ModelConfig small(NormKind norm, double gate) {
  ModelConfig config;
  config.vocab_size = 61;
  config.context = 40;
  config.width = 64;
  config.layers = 2;
  config.heads = config.kv_heads = 4;
  config.head_size = 16;
  config.mlp_hidden = 256;
  config.norm = norm;
  config.has_bias = norm == NormKind::layer;
  config.block_norms = NormSite::tapered;
  config.final_norm = NormSite::tapered;
  config.gate = gate;
  return config;
}

// Every option of a model, and sizes that fill no panel and divide among no threads.
std::vector<Case> cases(double gate) {
  std::vector<Case> result{{"rms", small(NormKind::rms, gate)}, {"layer norm", small(NormKind::layer, gate)}};
  ModelConfig odd = small(NormKind::layer, gate);
  odd.width = 27;
  odd.heads = odd.kv_heads = 3;
  odd.head_size = 9;
  odd.mlp_hidden = 50;
  odd.final_norm = NormSite::plain;
  result.push_back({"odd sizes, internal", odd});
  ModelConfig llama = small(NormKind::rms, gate);
  llama.positions = Positions::rotary;
  llama.is_gated_mlp = true;
  llama.is_tied = false;
  llama.kv_heads = 2;
  result.push_back({"rotary, gated, grouped queries, untied", llama});
  llama.mlp_hidden = 100;
  llama.kv_heads = 1;
  llama.activation = Activation::relu;
  result.push_back({"one head of keys, hidden channels that fill no panel", llama});
  ModelConfig others = small(NormKind::rms, gate);
  others.activation = Activation::gelu_erf;
  others.attention_scale = 0.1;
  others.heads = others.kv_heads = 8;
  others.head_size = 12;
  result.push_back({"erf, own attention scale, inner width of its own", others});
  return result;
}

Transformer random_model(const ModelConfig& config, uint64_t seed = 7) {
  Transformer model(config, Precision::f32);
  test::fill_randomly(model, seed);
  return model;
}

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 17 + 5) % vocab_size));
  return tokens;
}

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

// Logits at every position, token by token.
std::vector<std::vector<float>> decoded(const Transformer& model, const std::vector<int32_t>& tokens,
                                        const DecoderOptions& options) {
  Decoder decoder(model, options);
  std::vector<std::vector<float>> logits;
  for (const int32_t token : tokens) logits.push_back(copy(decoder.feed({&token, 1})));
  return logits;
}

template <class A, class B>
double greatest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  double difference = 0, greatest = 1;
  REQUIRE(a.size() == b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t v = 0; v < b[t].size(); ++v) {
      difference = std::max(difference, std::fabs(double(a[t][v]) - double(b[t][v])));
      greatest = std::max(greatest, std::fabs(double(b[t][v])));
    }
  }
  return difference / greatest;
}

std::vector<std::vector<float>> training_forward(const Transformer& model, const std::vector<int32_t>& tokens,
                                                 double gate) {
  const Tensor logits = model.logits(Tensor::from(tokens, {1, std::ssize(tokens)}), Gate{gate});
  std::vector<std::vector<float>> rows;
  const int64_t v = model.config().vocab_size;
  for (int64_t t = 0; t < std::ssize(tokens); ++t)
    rows.emplace_back(logits.data<float>() + t * v, logits.data<float>() + (t + 1) * v);
  return rows;
}

DecoderOptions with_plan(Plan plan, int64_t block = 128, int64_t sequences = 1) {
  DecoderOptions options;
  options.plan = plan;
  options.block = block;
  options.sequences = sequences;
  return options;
}

// Restores the number of threads.
struct Threads {
  const int before = thread_count();
  explicit Threads(int count) { set_thread_count(count); }
  ~Threads() { set_thread_count(before); }
};

constexpr double kTolerance = 1e-4;

}  // namespace

TEST_CASE("decoder: equals the training forward and the plain one at every position, in every plan") {
  for (const double gate : {1.0, 0.37, 0.0}) {
    for (const Case& each : cases(gate)) {
      CAPTURE(each.name);
      CAPTURE(gate);
      const Transformer model = random_model(each.config);
      const auto tokens = some_tokens(37, 61);
      const auto plain = test::plain_logits(model, tokens, gate);
      CHECK(greatest_difference(training_forward(model, tokens, gate), plain) < kTolerance);
      if (gate == 0) {
        CHECK(greatest_difference(decoded(model, tokens, with_plan(Plan::scaled)), plain) < kTolerance);
        const Transformer folded = fold(model);
        CHECK(greatest_difference(decoded(folded, tokens, with_plan(Plan::folded)), plain) < kTolerance);
        CHECK(greatest_difference(training_forward(folded, tokens, gate), plain) < kTolerance);
        // Live norms are another function, and so is a model that keeps one.
        CHECK(greatest_difference(decoded(model, tokens, with_plan(Plan::normed)), plain) > 1e-2);
      } else {
        const Plan plan = gate == 1 ? Plan::normed : Plan::blended;
        CHECK(greatest_difference(decoded(model, tokens, with_plan(plan)), plain) < kTolerance);
      }
    }
  }
}

TEST_CASE("decoder: a prompt gives the same bits as one block, in blocks of 7, and token by token") {
  for (const Case& each : cases(0)) {
    CAPTURE(each.name);
    const Transformer model = random_model(each.config);
    const auto tokens = some_tokens(37, 61);
    const auto last = [&](int64_t block) {
      Decoder decoder(model, with_plan(Plan::scaled, block));
      return copy(decoder.feed(tokens));
    };
    const auto whole = last(128);
    CHECK(last(7) == whole);
    CHECK(last(1) == whole);
    CHECK(decoded(model, tokens, with_plan(Plan::scaled)).back() == whole);
    DecoderOptions all = with_plan(Plan::scaled);
    all.all_logits = true;
    Decoder decoder(model, all);
    const auto logits = decoder.feed(tokens);
    CHECK(std::equal(whole.begin(), whole.end(), logits.begin() + 36 * decoder.logits_stride()));
  }
}

TEST_CASE("decoder: any number of threads gives the same bits") {
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    for (const Case& each : cases(0)) {
      CAPTURE(each.name);
      const Transformer model = random_model(each.config);
      const auto tokens = some_tokens(37, 61);
      std::vector<std::vector<float>> by_threads;
      for (const int count : {1, 2, 3, 4}) {
        const Threads threads(count);
        DecoderOptions options = with_plan(Plan::scaled, 40);
        options.weights = weights;
        Decoder decoder(model, options);
        std::vector<float> all = copy(decoder.feed(tokens));
        const auto next = decoder.step({tokens.data(), 1});
        all.insert(all.end(), next.begin(), next.end());
        by_threads.push_back(all);
      }
      for (const auto& logits : by_threads) CHECK(logits == by_threads[0]);
    }
  }
}

TEST_CASE("decoder: bf16 weights stay near f32") {
  for (const Case& each : cases(0)) {
    CAPTURE(each.name);
    const Transformer model = random_model(each.config);
    const auto tokens = some_tokens(37, 61);
    DecoderOptions options = with_plan(Plan::scaled);
    const auto f32 = decoded(model, tokens, options);
    options.weights = WeightType::bf16;
    const double difference = greatest_difference(decoded(model, tokens, options), f32);
    CHECK(difference > 1e-5);
    CHECK(difference < 2e-2);
    // As one block: on AMX its products go another way.
    Decoder decoder(model, options);
    using Rows = std::vector<std::vector<float>>;
    CHECK(greatest_difference(Rows{copy(decoder.feed(tokens))}, Rows{f32.back()}) < 2e-2);
  }
}

TEST_CASE("decoder: int8 weights write the text of the f32 model with its matrices rounded") {
  for (const Case& each : cases(0)) {
    CAPTURE(each.name);
    const Transformer model = random_model(each.config), folded = fold(model);
    const Transformer rounded = random_model(each.config), folded_rounded = fold(rounded);
    const auto f32 = decoded(model, some_tokens(37, 61), with_plan(Plan::scaled));
    round_to_int8(rounded);
    round_to_int8(folded_rounded);
    const auto check = [&](const Transformer& exact, const Transformer& wanted, Plan plan) {
      DecoderOptions options = with_plan(plan);
      Decoder f32_decoder(wanted, options);
      options.weights = WeightType::int8;
      Decoder int8_decoder(exact, options);
      std::vector<std::vector<float>> got{copy(int8_decoder.feed(some_tokens(5, 61)))};
      std::vector<std::vector<float>> want{copy(f32_decoder.feed(some_tokens(5, 61)))};
      while (got.size() < 30) {
        const int32_t token = greedy(got.back());
        CHECK(greedy(want.back()) == token);
        got.push_back(copy(int8_decoder.step({&token, 1})));
        want.push_back(copy(f32_decoder.step({&token, 1})));
      }
      CHECK(greatest_difference(got, want) < kTolerance);
    };
    check(model, rounded, Plan::scaled);
    check(folded, folded_rounded, Plan::folded);
    DecoderOptions options = with_plan(Plan::scaled);
    options.weights = WeightType::int8;
    const double difference = greatest_difference(decoded(model, some_tokens(37, 61), options), f32);
    CHECK(difference > 1e-4);
    CHECK(difference < 5e-2);
    CHECK(Decoder(model, options).bytes_per_step(0) < Decoder(model, with_plan(Plan::scaled)).bytes_per_step(0) / 3.9);
  }
}

TEST_CASE("decoder: sequences decoded together are those decoded alone") {
  for (const Case& each : cases(0)) {
    CAPTURE(each.name);
    const Transformer model = random_model(each.config);
    const auto tokens = some_tokens(30, 61);
    constexpr int64_t kSequences = 3;
    Decoder together(model, with_plan(Plan::scaled, 8, kSequences));
    std::vector<std::vector<float>> logits(kSequences);
    std::vector<int32_t> next(kSequences);
    // Prompts of different lengths.
    for (int64_t s = 0; s < kSequences; ++s) together.feed({tokens.data() + s, static_cast<size_t>(5 + s)}, s);
    for (int64_t step = 0; step < 5; ++step) {
      for (int64_t s = 0; s < kSequences; ++s) next[size_t(s)] = tokens[size_t(10 + step * kSequences + s)];
      const float* rows = together.step(next).data();
      for (int64_t s = 0; s < kSequences; ++s)
        logits[size_t(s)].assign(rows + s * together.logits_stride(), rows + s * together.logits_stride() + 61);
    }
    for (int64_t s = 0; s < kSequences; ++s) {
      Decoder alone(model, with_plan(Plan::scaled));
      std::vector<float> last = copy(alone.feed({tokens.data() + s, static_cast<size_t>(5 + s)}));
      for (int64_t step = 0; step < 5; ++step)
        last = copy(alone.step({&tokens[size_t(10 + step * kSequences + s)], 1}));
      CHECK(last == logits[size_t(s)]);
    }
  }
}

TEST_CASE("decoder: nothing of an earlier text is left after a reset, not even what is no number") {
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    Transformer model = random_model(small(NormKind::rms, 0));
    DecoderOptions options = with_plan(Plan::scaled);
    options.weights = weights;
    // Without 60; an odd count, so that the last value shares its 32 bits of a bf16 cache with one from before.
    const auto tokens = some_tokens(13, 61);
    Decoder fresh(model, options);
    const auto wanted = copy(fresh.feed(tokens));
    // Token 60 poisons whatever attends to it.
    float* row = model.parameter("wte.weight").master.data<float>() + 60 * 64;
    std::fill_n(row, 64, NAN);
    Decoder used(model, options);
    used.feed(std::vector<int32_t>(40, 60));
    used.reset();
    const auto again = used.feed(tokens);
    CHECK(std::equal(wanted.begin(), wanted.end() - 1, again.begin()));  // the logit of 60 itself is NaN: tied
  }
}

TEST_CASE("decoder: 200 greedy tokens are the same from the training forward, scaled, folded, cached and uncached") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    ModelConfig config = small(kind, 0);
    config.context = 208;
    const Transformer model = random_model(config, 11);
    const Transformer folded = fold(model);
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6};
    const auto cached = [&](const Transformer& which, Plan plan) {
      Decoder decoder(which, with_plan(plan));
      std::vector<int32_t> ids;
      std::span<const float> logits = decoder.feed(prompt);
      while (ids.size() < 200) {
        ids.push_back(greedy(logits));
        if (ids.size() < 200) logits = decoder.step({&ids.back(), 1});
      }
      return ids;
    };
    const auto ids = cached(model, Plan::scaled);
    CHECK(cached(folded, Plan::folded) == ids);
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), ids.begin(), ids.end() - 1);
    // Teacher-forced: greedy at each position repeats the ids exactly where both walk the same path.
    const auto rows = training_forward(model, text, 0);
    std::vector<int32_t> uncached, whole;
    Decoder decoder(model, with_plan(Plan::scaled));
    for (size_t t = prompt.size() - 1; t < text.size(); ++t) {
      whole.push_back(greedy(rows[t]));
      decoder.reset();
      uncached.push_back(greedy(decoder.feed({text.data(), t + 1})));
    }
    CHECK(whole == ids);
    CHECK(uncached == ids);
  }
}

TEST_CASE("decoder: tokens that do not fit or do not exist are refused, and change nothing") {
  const Transformer model = random_model(small(NormKind::rms, 0));
  Decoder decoder(model, with_plan(Plan::scaled));
  const auto tokens = some_tokens(41, 61);
  CHECK_THROWS_WITH_AS(decoder.feed(tokens), doctest::Contains("context is 40"), UsageError);
  CHECK(decoder.length() == 0);
  decoder.feed({tokens.data(), 40});
  CHECK_THROWS_AS(decoder.step({tokens.data(), 1}), UsageError);
  decoder.reset();
  for (const int32_t bad : {-1, 61}) {
    CHECK_THROWS_WITH_AS(decoder.feed(std::vector<int32_t>{1, bad}), doctest::Contains("want 0 to 60"), Error);
    CHECK(decoder.length() == 0);
  }
  CHECK_THROWS_AS(decoder.feed({}), Error);
  CHECK_THROWS_WITH_AS(Decoder(model, with_plan(Plan::folded)), doctest::Contains("fold it first"), Error);
}

TEST_CASE("plan: what suits a model, and what is refused") {
  ModelConfig config = small(NormKind::rms, 0);
  CHECK(choose_plan(config, {}) == Plan::folded);
  CHECK(choose_plan(config, Plan::scaled) == Plan::scaled);
  CHECK_THROWS_AS(choose_plan(config, Plan::normed), UsageError);
  config.gate = 0.5;
  CHECK(choose_plan(config, {}) == Plan::blended);
  CHECK_THROWS_AS(choose_plan(config, Plan::scaled), UsageError);
  CHECK_THROWS_AS(choose_plan(config, Plan::folded), UsageError);
  config.gate = 1;
  CHECK(choose_plan(config, {}) == Plan::normed);
  CHECK_THROWS_AS(choose_plan(config, Plan::folded), UsageError);
  config.block_norms = config.final_norm = NormSite::plain;
  CHECK(choose_plan(config, Plan::normed) == Plan::normed);
  CHECK_THROWS_AS(choose_plan(config, Plan::scaled), UsageError);
  config.block_norms = NormSite::removed;
  CHECK(choose_plan(config, {}) == Plan::folded);
  CHECK_THROWS_AS(choose_plan(config, Plan::normed), UsageError);
}

namespace {

// Logits of one file, decoded in the plans its gate allows. The case is read from the configuration.
void check_parity(const std::string& name) {
  const auto json = nlohmann::json::parse(test::read_file(test::shared_file("parity/" + name + ".json")));
  const auto file = SafetensorsFile::open(test::shared_file("parity/" + name + ".safetensors"));
  const auto& c = json.at("config");
  ModelConfig config;
  config.width = c.at("d");
  config.heads = config.kv_heads = c.at("heads");
  config.head_size = config.width / config.heads;
  config.layers = c.at("layers");
  config.vocab_size = c.at("vocab");
  config.context = c.at("T");
  config.mlp_hidden = 4 * config.width;
  config.eps = c.at("eps");
  config.gate = c.at("g");
  config.norm = c.at("norm") == "ln" ? NormKind::layer : NormKind::rms;
  config.has_bias = config.norm == NormKind::layer;
  set_variant(config, c.at("taper") == "all" ? Variant::all : Variant::internal);
  Transformer model(config, Precision::f32);
  for (const Parameter& p : model.parameters()) {
    const Tensor values = file.read("param." + p.name, Dtype::f32);
    p.master.copy_from(values.reshaped(p.master.shape()));
  }
  const Tensor tokens = file.read("tokens", Dtype::i32), logits = file.read("logits", Dtype::f32);
  const int64_t t = tokens.dim(1), v = config.vocab_size;
  for (int64_t b = 0; b < tokens.dim(0); ++b) {
    const std::vector<int32_t> row(tokens.data<int32_t>() + b * t, tokens.data<int32_t>() + (b + 1) * t);
    std::vector<std::vector<float>> wanted;
    for (int64_t i = 0; i < t; ++i)
      wanted.emplace_back(logits.data<float>() + (b * t + i) * v, logits.data<float>() + (b * t + i + 1) * v);
    if (config.gate == 0) {
      CHECK(greatest_difference(decoded(model, row, with_plan(Plan::scaled)), wanted) < kTolerance);
      CHECK(greatest_difference(decoded(fold(model), row, with_plan(Plan::folded)), wanted) < kTolerance);
    } else {
      CHECK(greatest_difference(decoded(model, row, with_plan(choose_plan(config, {}))), wanted) < kTolerance);
    }
  }
}

}  // namespace

#define PARITY_CASE(name)                               \
  TEST_CASE("decoder: parity with " name) {             \
    SKIP_WITHOUT_SHARED("parity/" name ".safetensors"); \
    check_parity(name);                                 \
  }
PARITY_CASE("rms_internal_g1")
PARITY_CASE("rms_internal_g037")
PARITY_CASE("rms_all_g0_aux")
PARITY_CASE("ln_internal_g0_aux")
PARITY_CASE("ln_all_g05")

// Decoding on the CUDA device of the tests (tests/emulation, or a real one in tests-on-gpu) against the processor's:
// the same logits, the same texts. On the emulated device every order of blocks and threads must give the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "infer/generator.h"
#include "model/fold.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/plain_forward.h"
#include "tests/support/shared.h"
#include "tools/common/plan_bench.h"

namespace taper::test {
namespace {

struct Case {
  std::string name;
  ModelConfig config;
};

ModelConfig tiny(NormKind norm, double gate) {
  ModelConfig config;
  config.vocab_size = 37;
  config.context = 12;
  config.width = 24;
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.head_size = 12;
  config.mlp_hidden = 40;
  config.norm = norm;
  config.has_bias = norm == NormKind::layer;
  config.block_norms = config.final_norm = NormSite::tapered;
  config.gate = gate;
  return config;
}

// Every option of a model, and sizes that fill no piece, warp or block.
std::vector<Case> cases(double gate) {
  std::vector<Case> result{{"rms", tiny(NormKind::rms, gate)}};
  ModelConfig gpt2 = tiny(NormKind::layer, gate);
  gpt2.width = 27;
  gpt2.heads = gpt2.kv_heads = 3;
  gpt2.head_size = 9;
  gpt2.mlp_hidden = 50;
  gpt2.final_norm = NormSite::plain;
  result.push_back({"gpt2's way, odd sizes, internal", gpt2});
  ModelConfig llama = tiny(NormKind::rms, gate);
  llama.positions = Positions::rotary;
  llama.is_gated_mlp = true;
  llama.is_tied = false;
  llama.heads = 6;
  llama.kv_heads = 2;
  llama.head_size = 6;
  result.push_back({"llama's way, grouped queries", llama});
  return result;
}

Transformer model_of(const ModelConfig& config) {
  Transformer model(config, Precision::f32);
  fill_randomly(model, 7);
  return model;
}

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 17 + 5) % 37));
  return tokens;
}

using Rows = std::vector<std::vector<float>>;

// Logits of a prompt in blocks of 3, then of one token more.
Rows decoded(const Transformer& model, const DecoderOptions& asked, const std::vector<int32_t>& tokens) {
  DecoderOptions options = asked;
  options.block = 3;
  Decoder decoder(model, options);
  Rows rows;
  const auto append = [&](std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); };
  append(decoder.feed({tokens.data(), tokens.size() - 1}));
  append(decoder.step({&tokens.back(), 1}));
  return rows;
}

double distance(const Rows& a, const Rows& b) {
  double difference = 0, greatest = 1;
  REQUIRE(a.size() == b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    REQUIRE(a[t].size() == b[t].size());
    for (size_t v = 0; v < b[t].size(); ++v) {
      // A NaN is farthest of all.
      const double d = std::fabs(double(a[t][v]) - double(b[t][v]));
      difference = d <= difference ? difference : std::isnan(d) ? INFINITY : d;
      greatest = std::max(greatest, std::fabs(double(b[t][v])));
    }
  }
  return difference / greatest;
}

DecoderOptions with_plan(Plan plan, WeightType weights = WeightType::f32, Device device = Device::cpu) {
  DecoderOptions options;
  options.plan = plan;
  options.weights = weights;
  options.device = device;
  return options;
}

// run(device) in every order, with guarded memory; gives the device's result, which must not depend on the order.
template <class Run>
auto on_cuda(const Run& run) {
  const MemoryGuard guard;
  const int64_t damaged = damaged_guards();
  const auto all = schedules();
  auto first = run();
  for (size_t i = 1; i < all.size(); ++i) {
    const ScheduleForTest chosen(all[i]);
    CHECK_MESSAGE(run() == first, "other bits in another order");
  }
  CHECK(damaged_guards() == damaged);
  return first;
}

}  // namespace

TEST_CASE("decoder on cuda: logits of every plan, kind of model and dtype are the processor's") {
  SKIP_WITHOUT_CUDA();
  const auto tokens = some_tokens(6);
  for (const double gate : {1.0, 0.37, 0.0}) {
    for (const Case& each : cases(gate)) {
      const Transformer model = model_of(each.config);
      const auto plans =
          gate == 0 ? std::vector{Plan::scaled, Plan::folded} : std::vector{gate == 1 ? Plan::normed : Plan::blended};
      for (const Plan plan : plans) {
        const Transformer ready = plan == Plan::folded ? fold(model) : model_of(each.config);
        for (const WeightType weights : {WeightType::f32, WeightType::bf16}) {
          CAPTURE(each.name);
          CAPTURE(to_string(plan));
          CAPTURE(to_string(weights));
          const Rows want = decoded(ready, with_plan(plan, weights), tokens);
          const auto run = [&] { return decoded(ready, with_plan(plan, weights, Device::cuda), tokens); };
          const bool is_f32 = weights == WeightType::f32;
          CHECK(distance(is_f32 ? on_cuda(run) : run(), want) < (is_f32 ? 1e-5 : 2e-2));
        }
      }
    }
  }
}

namespace {

std::vector<int32_t> text_of(const Transformer& model, const DecoderOptions& decoding, const GenerateOptions& options,
                             bool records = true) {
  Decoder decoder(model, decoding);
  decoder.record_steps(records);
  const std::vector<int32_t> prompt{3, 1, 4, 1};
  GenerateOptions other = options;
  other.max_tokens = 2;
  generate(decoder, std::vector<int32_t>{9, 8}, other, [](int32_t) { return false; });  // leaves nothing behind
  return generate(decoder, prompt, options, [](int32_t) { return false; }).ids;
}

}  // namespace

TEST_CASE("decoder on cuda: greedy texts are the processor's, in every plan, recorded and not") {
  SKIP_WITHOUT_CUDA();
  GenerateOptions options;
  options.sampler.temperature = 0;
  for (const double gate : {1.0, 0.0}) {
    for (const Case& each : cases(gate)) {
      CAPTURE(each.name);
      const Transformer model = model_of(each.config), folded = gate == 0 ? fold(model) : model_of(each.config);
      const Plan plan = gate == 0 ? Plan::scaled : Plan::normed, other = gate == 0 ? Plan::folded : Plan::normed;
      const auto want = text_of(model, with_plan(plan), options);
      CHECK(want.size() == 9);  // as many as the context holds
      CHECK(text_of(model, with_plan(plan, WeightType::f32, Device::cuda), options) == want);
      CHECK(text_of(folded, with_plan(other, WeightType::f32, Device::cuda), options, false) == want);
    }
  }
}

TEST_CASE("decoder on cuda: sampled texts are the processor's") {
  SKIP_WITHOUT_CUDA();
  const Transformer model = model_of(tiny(NormKind::rms, 0));
  SamplerOptions sampler;
  sampler.temperature = 2.5;
  sampler.seed = 0x1234567890abcdef;
  std::vector<SamplerOptions> all(6, sampler);
  all[1].top_k = 5;
  all[2].top_p = 0.7;
  all[3].min_p = 0.2;
  all[4].repetition_penalty = 3;
  all[4].temperature = 0;
  all[5].top_k = 20;
  all[5].top_p = 0.8;
  all[5].min_p = 0.1;
  all[5].repetition_penalty = 1.5;
  std::vector<std::vector<int32_t>> texts;
  for (const SamplerOptions& each : all) {
    CAPTURE(texts.size());
    GenerateOptions options;
    options.sampler = each;
    const auto want = text_of(model, with_plan(Plan::scaled), options);
    const auto run = [&] { return text_of(model, with_plan(Plan::scaled, WeightType::f32, Device::cuda), options); };
    CHECK((texts.size() == 5 ? on_cuda(run) : run()) == want);
    texts.push_back(want);
  }
  for (size_t i = 1; i < texts.size(); ++i) CHECK(texts[i] != texts[0]);
}

TEST_CASE("decoder on cuda: sequences decoded together are those of the processor") {
  SKIP_WITHOUT_CUDA();
  const Transformer model = model_of(tiny(NormKind::rms, 0));
  const auto texts = [&](Device device) {
    DecoderOptions options = with_plan(Plan::scaled, WeightType::f32, device);
    options.sequences = 5;
    options.block = 4;
    Decoder decoder(model, options);
    SamplerOptions sampler;
    decoder.set_sampler(sampler);
    const auto tokens = some_tokens(20);
    std::vector<int32_t> ids;
    // Prompts of different lengths; then steps of all.
    for (int64_t s = 0; s < 5; ++s) {
      decoder.feed({tokens.data() + s, static_cast<size_t>(2 + s)}, s);
      ids.push_back(decoder.choose()[0]);
    }
    for (int step = 0; step < 4; ++step) {
      for (const int32_t id : decoder.advance()) ids.push_back(id);
    }
    const float* logits = decoder.step(std::vector<int32_t>{1, 2, 3, 4, 5}).data();
    for (int64_t s = 0; s < 5; ++s)
      ids.push_back(greedy({logits + s * decoder.logits_stride(), static_cast<size_t>(decoder.vocab_size())}));
    for (const int32_t id : decoder.choose()) ids.push_back(id);
    CHECK_THROWS_AS(decoder.feed(std::vector<int32_t>(8, 1), 0), UsageError);
    decoder.reset(3);
    CHECK(decoder.length(0) == 3);
    CHECK(decoder.length(4) == 3);
    for (const int32_t id : decoder.advance()) ids.push_back(id);
    return ids;
  };
  const auto want = texts(Device::cpu);
  CHECK(on_cuda([&] { return texts(Device::cuda); }) == want);
}

// Where columns outgrow a tile, positions a part, and heads the lanes of a warp.
TEST_CASE("decoder on cuda: long rows, long contexts and large heads") {
  SKIP_WITHOUT_CUDA();
  ModelConfig wide = tiny(NormKind::layer, 0), long_heads = tiny(NormKind::layer, 0);
  wide.layers = long_heads.layers = 1;
  wide.mlp_hidden = 4102;
  wide.activation = Activation::gelu_erf;
  long_heads.context = 140;
  long_heads.heads = 3;
  long_heads.kv_heads = 1;
  long_heads.head_size = 150;
  long_heads.activation = Activation::relu;
  for (const ModelConfig& config : {wide, long_heads}) {
    const int64_t length = config.context > 100 ? 40 : 3;
    for (const WeightType weights : {WeightType::f32, WeightType::bf16}) {
      CAPTURE(to_string(weights));
      CAPTURE(length);
      const Transformer model = model_of(config);
      const auto last = [&](Device device) {
        Decoder decoder(model, with_plan(Plan::scaled, weights, device));
        decoder.feed(some_tokens(length));
        const auto logits = decoder.step(std::vector<int32_t>{1});
        return Rows{{logits.begin(), logits.end()}};
      };
      CHECK(distance(last(Device::cuda), last(Device::cpu)) < (weights == WeightType::f32 ? 1e-5 : 2e-2));
    }
  }
}

TEST_CASE("decoder on cuda: benchmarks report steps launched as a whole, and kernel by kernel") {
  SKIP_WITHOUT_CUDA();
  DecoderOptions options;
  options.device = Device::cuda;
  std::vector<BenchDecoder> decoders = bench_decoders(model_of(tiny(NormKind::rms, 0)), "all", options);
  const auto run = [](Decoder& decoder) {
    decoder.reset();
    decoder.feed(std::vector<int32_t>{1, 2});
    decoder.choose();
    for (int i = 0; i < 2; ++i) decoder.advance();
    CHECK(decoder.length() == 4);
    return 7.0;
  };
  const nlohmann::json result = measure_settings(decoders, Device::cuda, 1, run);
  for (const nlohmann::json& setting : {result, result.at("separate_launches")}) {
    for (const char* plan : {"normed", "scaled", "folded"})
      CHECK(setting.at(plan).at("tokens_per_s").at("median") == 7);
    CHECK(setting.at("ratios").at("folded") == 1);
  }
  CHECK(decoders[0].decoder->bytes_per_step(3) > decoders[0].decoder->bytes_per_step(0));
  CHECK(!measure_settings(decoders, Device::cpu, 1, run).contains("separate_launches"));
}

TEST_CASE("decoder on cuda: a logit that is no number is refused by name") {
  SKIP_WITHOUT_CUDA();
  Transformer model = model_of(tiny(NormKind::rms, 0));
  Decoder sound(model, with_plan(Plan::scaled, WeightType::f32, Device::cuda));
  CHECK_THROWS_AS(sound.choose(), Error);
  model.parameter("wte.weight").master.data<float>()[11 * 24] = NAN;
  Decoder decoder(model, with_plan(Plan::scaled, WeightType::f32, Device::cuda));
  decoder.feed(std::vector<int32_t>{1, 2});
  CHECK_THROWS_WITH_AS(decoder.choose(), doctest::Contains("logit of token 11"), Error);
}

}  // namespace taper::test

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/core/cuda_runtime.h"
#include "engine/core/parallel.h"
#include "engine/core/profile_entries.h"
#include "infer/decode_profile.h"
#include "infer/decoder.h"
#include "model/fold.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/random_models.h"
#include "tests/support/shared.h"

using namespace taper;

namespace {

// Sizes that fill whole panels: what is counted is what lies in memory. One or two threads own heads and hidden
// channels here, three divide the rows of matrices.
constexpr int64_t kLayers = 3, kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadSize = 8, kHidden = 64, kVocabulary = 48;

ModelConfig small(double gate, NormSite final_norm = NormSite::tapered) {
  ModelConfig config;
  config.vocab_size = kVocabulary;
  config.context = 24;
  config.width = kWidth;
  config.layers = kLayers;
  config.heads = kHeads;
  config.kv_heads = kKvHeads;
  config.head_size = kHeadSize;
  config.mlp_hidden = kHidden;
  config.is_gated_mlp = true;
  config.positions = Positions::rotary;
  config.block_norms = NormSite::tapered;
  config.final_norm = final_norm;
  config.gate = gate;
  return config;
}

struct Threads {
  const int before = thread_count();
  explicit Threads(int count) { set_thread_count(count); }
  ~Threads() { set_thread_count(before); }
};

Decoder decoder_of(const Transformer& model, Plan plan, WeightType weights = WeightType::f32,
                   Device device = Device::cpu) {
  DecoderOptions options;
  options.plan = plan;
  options.weights = weights;
  options.sequences = 2;
  options.device = device;
  return plan == Plan::folded ? Decoder(fold(model), options) : Decoder(model, options);
}

using Entries = std::map<std::string, ProfileEntry>;

std::set<std::string> names_of(const Entries& entries) {
  std::set<std::string> names;
  for (const auto& [name, entry] : entries) names.insert(name);
  return names;
}

// Two sequences of five and of three tokens, and one token more of each: that step alone is in the profile.
std::vector<float> step_of(Decoder& decoder, bool profiles) {
  decoder.feed(std::vector<int32_t>{1, 2, 3, 4, 5}, 0);
  decoder.feed(std::vector<int32_t>{6, 7, 8}, 1);
  if (profiles) start_profile();
  const auto logits = decoder.step(std::vector<int32_t>{9, 10});
  if (profiles) stop_profile();
  return {logits.begin(), logits.end()};
}

// A step of two rows, at 6 and 4 positions.
void check_step(const Entries& entries, int64_t weight_size, int64_t cache_size, bool multiplies_bf16) {
  const auto check = [&](const char* name, int64_t bytes, double flops) {
    CAPTURE(name);
    REQUIRE(entries.count(name) == 1);
    const KernelWork& work = entries.at(name).work;
    CHECK(work.bytes == bytes);
    CHECK((multiplies_bf16 ? work.bf16_flops : work.f32_flops) == flops);
    CHECK((multiplies_bf16 ? work.f32_flops : work.bf16_flops) == 0);
  };
  const auto check_product = [&](const char* name, int64_t weights) {
    check(name, weights * weight_size, 2.0 * 2 * double(weights));
  };
  check_product("decode_qkv", 3 * 32 * 64);
  check_product("decode_output", 3 * 32 * 32);
  check_product("decode_up", 3 * 32 * 128);
  check_product("decode_down", 3 * 64 * 32);
  check_product("decode_unembed", 48 * 32);
  // Keys and values of two heads of 8; scores and sums of four heads.
  check("decode_attend", 3 * 2 * 2 * 8 * 10 * cache_size, 3 * 2 * 2.0 * 4 * 8 * 10);
  for (const char* name : {"decode_qkv", "decode_attend", "decode_output", "decode_up", "decode_down"})
    CHECK(entries.at(name).calls == 3);
  CHECK(entries.at("decode_unembed").calls == 1);
}

}  // namespace

TEST_CASE("decode profile: stages of a step with their bytes and operations, in every type and plan, the same bits") {
  const Transformer model = test::random_model(small(0));
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    for (const Plan plan : {Plan::normed, Plan::scaled, Plan::folded}) {
      const char* const norm = plan == Plan::normed   ? "decode_norm"
                               : plan == Plan::scaled ? "decode_scale"
                                                      : "decode_residual";
      for (const int threads : {1, 2, 3}) {
        CAPTURE(to_string(weights));
        CAPTURE(norm);
        CAPTURE(threads);
        const Threads limited(threads);
        Decoder decoder = decoder_of(model, plan, weights);
        const std::vector<float> with = step_of(decoder, true);
        const Entries entries = profile_entries();
        CHECK(names_of(entries) == std::set<std::string>{"decode_embed", norm, "decode_qkv", "decode_append",
                                                         "decode_attend", "decode_output", "decode_up", "decode_down",
                                                         "decode_unembed", "decode_wait"});
        CHECK(entries.at(norm).calls == 2 * kLayers + 1);
        const DecodeKernels& kernels = decode_kernels(weights);
        check_step(entries,
                   weights == WeightType::f32    ? 4
                   : weights == WeightType::bf16 ? 2
                                                 : 1,
                   weights == WeightType::bf16 ? 2 : 4, kernels.input_dtype == Dtype::bf16);
        int64_t bytes = 0;
        for (const auto& [name, entry] : entries) bytes += entry.work.bytes;
        CHECK(bytes == decoder.bytes_per_step(5));  // five positions of each sequence on average

        decoder.reset();
        CHECK(step_of(decoder, false) == with);
      }
    }
  }
}

TEST_CASE("decode profile: nothing is recorded while it is off, by the decoder or its choice") {
  const Transformer model = test::random_model(small(0));
  Decoder decoder = decoder_of(model, Plan::scaled);
  start_profile();
  stop_profile();
  step_of(decoder, false);
  decoder.choose();
  decoder.advance();
  CHECK(profile_entries().empty());
}

TEST_CASE(
    "decode profile: a prompt reads matrices and cache once, only its last row has logits; stages fill the time") {
  const Transformer model = test::random_model(small(0.37, NormSite::plain));
  Decoder decoder = decoder_of(model, Plan::blended);
  const auto begin = std::chrono::steady_clock::now();
  start_profile();
  decoder.feed(std::vector<int32_t>{1, 2, 3, 4, 5});
  stop_profile();
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Entries entries = profile_entries();
  CHECK(entries.at("decode_blend").calls == 2 * kLayers);
  CHECK(entries.at("decode_norm").calls == 1);
  CHECK(entries.at("decode_qkv").work.bytes == 3 * 32 * 64 * 4);
  CHECK(entries.at("decode_qkv").work.f32_flops == 2.0 * 5 * 3 * 32 * 64);
  CHECK(entries.at("decode_attend").work.bytes == 3 * 2 * 2 * 8 * 5 * 4);
  CHECK(entries.at("decode_attend").work.f32_flops == 3 * 2 * 2.0 * 4 * 8 * (1 + 2 + 3 + 4 + 5));
  CHECK(entries.at("decode_unembed").work.f32_flops == 2.0 * 48 * 32);
  double sum = 0;
  for (const auto& [name, entry] : entries) sum += entry.seconds;
  CHECK(sum > 0);
  CHECK(sum <= whole);

  start_profile();
  decoder.advance();
  stop_profile();
  entries = profile_entries();
  CHECK(entries.at("decode_choose").calls == 1);
}

// Every block of work is launched by itself then, and gives what the recorded step gives.
TEST_CASE("decode profile: on a CUDA device the same stages and bytes, norms inside the products") {
  SKIP_WITHOUT_CUDA();
  const Transformer model = test::random_model(small(0));
  for (const WeightType weights : {WeightType::f32, WeightType::bf16}) {
    Decoder decoder = decoder_of(model, Plan::scaled, weights, Device::cuda);
    const std::vector<float> with = step_of(decoder, true);
    const Entries entries = profile_entries();
    CHECK(names_of(entries) == std::set<std::string>{"decode_embed", "decode_qkv", "decode_attend", "decode_output",
                                                     "decode_up", "decode_down", "decode_unembed"});
    const int64_t size = weights == WeightType::bf16 ? 2 : 4;
    check_step(entries, size, size, false);
    decoder.reset();
    CHECK(step_of(decoder, false) == with);

    const std::vector<int32_t> chosen = [&] {
      start_profile();
      const auto tokens = decoder.advance();
      stop_profile();
      return std::vector<int32_t>(tokens.begin(), tokens.end());
    }();
    CHECK(profile_entries().at("decode_choose").calls == 1);
    decoder.reset();
    step_of(decoder, false);
    const auto tokens = decoder.advance();
    CHECK(std::vector<int32_t>(tokens.begin(), tokens.end()) == chosen);
  }
}

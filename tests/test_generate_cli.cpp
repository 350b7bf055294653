#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "data/bpe/bpe_trainer.h"
#include "data/tokenizer.h"
#include "engine/core/error.h"
#include "infer/generator.h"
#include "model/fold.h"
#include "model/model_folder.h"
#include "tests/support/plain_forward.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"
#include "tools/common/plan_bench.h"

using namespace taper;

namespace {

constexpr int64_t kContext = 64;

ModelConfig small(double gate, int64_t context = kContext) {
  ModelConfig config;
  config.vocab_size = 257;
  config.context = context;
  config.width = 32;
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.head_size = 16;
  config.mlp_hidden = 64;
  set_variant(config, Variant::all);
  config.gate = gate;
  config.step = 77;
  return config;
}

// A folder with a random model and a tokenizer of the 256 bytes and the marker, id 0.
struct ModelFolder {
  test::TempDir folder;
  Transformer model;

  explicit ModelFolder(double gate = 0, int64_t context = kContext, bool has_tokenizer = true)
      : model(small(gate, context), Precision::f32) {
    test::fill_randomly(model, 21);
    write();
    if (has_tokenizer) Tokenizer(BpeTrainer().train(257, 1)).save(folder.path());
  }
  void write() const { save_model(model, folder.path()); }
  std::string path() const { return folder.path().string(); }

  // The model answers with this token at every position: the unembedding is wte, whose other rows are near 0.
  void always_say(int32_t token) const {
    for (const Parameter& p : model.parameters()) {
      float* values = p.master.data<float>();
      if (p.name == "wte.weight") {
        for (int64_t i = 0; i < p.master.numel(); ++i) values[i] *= 1e-3f;
        std::fill_n(values + token * 32, 32, 1.0f);
      } else if (p.name == "wpe.weight" || p.name == "norm_f.gamma_tilde") {
        std::fill_n(values, p.master.numel(), 1.0f);
      } else if (p.name.find("out.weight") != std::string::npos || p.name.find("down.weight") != std::string::npos) {
        std::fill_n(values, p.master.numel(), 0.0f);
      }
    }
    write();
  }
};

test::ProcessResult generate_with(const ModelFolder& model, std::vector<std::string> arguments,
                                  const test::ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), {"--model", model.path()});
  return test::run_process(test::binary("generate"), arguments, options);
}

std::string ids_text(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string(i * 7 % 257);
  return text;
}

bool says(const test::ProcessResult& result, const std::string& text) {
  return result.err.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("generate: --ids --greedy --json needs no tokenizer and equals the library") {
  const ModelFolder model(0, kContext, false);
  const auto result = generate_with(model, {"--ids", "1,2,3", "--greedy", "--max-tokens", "20", "--json"});
  CHECK(result.exit_code == 0);
  const auto ids = nlohmann::json::parse(result.out).at("ids").get<std::vector<int32_t>>();
  DecoderOptions options;
  options.plan = Plan::folded;
  Decoder decoder(fold(model.model), options);
  GenerateOptions wanted;
  wanted.max_tokens = 20;
  wanted.sampler.temperature = 0;
  const std::vector<int32_t> prompt{1, 2, 3};
  CHECK(generate(decoder, prompt, wanted, [](int32_t) { return false; }).ids == ids);
  // Again in the same process, after another text.
  generate(decoder, std::vector<int32_t>{9, 8}, wanted, [](int32_t) { return false; });
  CHECK(generate(decoder, prompt, wanted, [](int32_t) { return false; }).ids == ids);
  for (const char* plan : {"scaled", "folded"}) {
    const auto other =
        generate_with(model, {"--ids", "1,2,3", "--greedy", "--max-tokens", "20", "--json", "--plan", plan});
    CHECK(nlohmann::json::parse(other.out).at("ids") == ids);
  }
}

TEST_CASE("generate: the context counts the token predicted from its last position") {
  const ModelFolder model;
  for (const auto& lengths : {std::pair{kContext - 1, 2}, {kContext, 1}, {int64_t{10}, int(kContext) - 9}}) {
    const int64_t prompt = lengths.first;
    const int wanted = lengths.second;
    CAPTURE(prompt);
    const auto result = generate_with(model, {"--ids", ids_text(prompt), "--greedy", "--max-tokens", "5000", "--json"});
    CHECK(result.exit_code == 0);
    CHECK(nlohmann::json::parse(result.out).at("ids").size() == size_t(wanted));
    CHECK(says(result, "context full"));
  }
  const auto result = generate_with(model, {"--ids", ids_text(kContext + 1), "--greedy", "--json"});
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(says(result, "65"));
  CHECK(says(result, "64"));
}

TEST_CASE("generate: text goes to stdout alone, statistics to stderr, and no tokens are no division by zero") {
  const ModelFolder model;
  const auto result = generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "12", "--ignore-end"});
  CHECK(result.exit_code == 0);
  const auto ids =
      nlohmann::json::parse(generate_with(model, {"--ids", "65,66,67", "--greedy", "--max-tokens", "12", "--json"}).out)
          .at("ids")
          .get<std::vector<int32_t>>();
  const Tokenizer tokenizer = Tokenizer::load(model.path());
  CHECK(tokenizer.encode("abc", Special::kText) == std::vector<int32_t>{65, 66, 67});
  CHECK(result.out == tokenizer.decode(ids));
  CHECK(says(result, "generated 12 tokens"));
  CHECK(says(result, "tokens/s"));
  const auto none = generate_with(model, {"--prompt", "abc", "--max-tokens", "0"});
  CHECK(none.exit_code == 0);
  CHECK(none.out.empty());
  CHECK(says(none, "generated 0 tokens"));
}

TEST_CASE("generate: an empty prompt starts from the end-of-text marker; the marker ends the text unless ignored") {
  ModelFolder model;
  const auto from_marker = generate_with(model, {"--ids", "0", "--greedy", "--max-tokens", "5", "--json"});
  const auto from_nothing =
      generate_with(model, {"--prompt", "", "--greedy", "--max-tokens", "5", "--json", "--ignore-end"});
  CHECK(nlohmann::json::parse(from_nothing.out).at("ids") == nlohmann::json::parse(from_marker.out).at("ids"));
  model.always_say(0);
  const auto stopped = generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "4"});
  CHECK(stopped.exit_code == 0);
  CHECK(stopped.out.empty());
  CHECK(says(stopped, "end-of-text marker"));
  const auto ignored =
      generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "4", "--ignore-end", "--json"});
  CHECK(nlohmann::json::parse(ignored.out).at("ids") == std::vector<int32_t>{0, 0, 0, 0});
}

TEST_CASE("generate: --special reads the marker in a prompt, and a prompt may come from a file or stdin") {
  const ModelFolder model;
  const std::string text = "a<|endoftext|>b";
  const auto file = model.folder.write("prompt.txt", text);
  const auto ids = [&](std::vector<std::string> arguments, const std::string& input = {}) {
    arguments.insert(arguments.end(), {"--greedy", "--max-tokens", "6", "--json", "--ignore-end"});
    test::ProcessOptions options;
    options.input = input;
    return nlohmann::json::parse(generate_with(model, arguments, options).out).at("ids");
  };
  const auto as_marker = ids({"--ids", "65,0,66"});
  CHECK(ids({"--prompt", text, "--special"}) == as_marker);
  CHECK(ids({"--prompt", text}) == ids({"--prompt-file", file.string()}));
  CHECK(ids({"--prompt", text}) == ids({"--prompt-file", "-"}, text));
  CHECK(ids({"--prompt", text}) != as_marker);
}

TEST_CASE("generate: a stop text ends the text and is not printed") {
  ModelFolder model;
  const int32_t letter = Tokenizer::load(model.path()).encode("x", Special::kText)[0];
  model.always_say(letter);
  const auto result = generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "9", "--stop", "xxxx"});
  CHECK(result.out.empty());
  CHECK(says(result, "stop text"));
  CHECK(generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "3", "--stop", "xxxx"}).out == "xxx");
}

TEST_CASE("generate: wrong use ends with 2 before any work, damaged models with 1") {
  ModelFolder model;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--plan", "normed"},
                                             {"--temperature", "-1"},
                                             {"--temperature", "nan"},
                                             {"--top-p", "1.5"},
                                             {"--top-p", "-1"},
                                             {"--max-tokens", "-3"},
                                             {"--max-tokens", "12abc"},
                                             {"--ids", "1,,2"},
                                             {"--ids", "1,x"},
                                             {"--ids", "257"},
                                             {"--ids", "99999999999"},
                                             {"--top-q", "1"},
                                             {"--device", "cuda"},
                                             {"--precision", "int4"},
                                             {"--greedy", "--temperature", "1"},
                                             {"--prompt", "a", "--ids", "1"}}) {
    const auto result = generate_with(model, arguments);
    CAPTURE(arguments[0]);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CommonOptions int8;
  int8.precision = "int8";
  CHECK(decode_device(int8) == Device::cpu);
  int8.device = "cuda";
  CHECK_THROWS_WITH_AS(decode_device(int8), doctest::Contains("--precision int8"), UsageError);
  for (const double gate : {1.0, 0.5}) {
    const ModelFolder other(gate);
    CHECK(generate_with(other, {"--plan", "folded", "--prompt", "a"}).exit_code == 2);
    CHECK(generate_with(other, {"--plan", "scaled", "--prompt", "a"}).exit_code == 2);
    CHECK(generate_with(other, {"--prompt", "a", "--max-tokens", "2"}).exit_code == 0);
  }
  model.model.parameter("h.1.mlp.up.weight").master.data<float>()[5] = NAN;
  model.write();
  const auto result = generate_with(model, {"--prompt", "abc"});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(says(result, "nan"));
}

TEST_CASE("generate: Ctrl-C stops cleanly, and the text so far stays") {
  ModelFolder model(0, 1 << 17);
  const int32_t letter = Tokenizer::load(model.path()).encode("x", Special::kText)[0];
  model.always_say(letter);
  test::ProcessOptions options;
  options.signal = SIGINT;
  options.signal_after = "xxx";
  const auto result = generate_with(model, {"--prompt", "abc", "--greedy", "--max-tokens", "120000"}, options);
  CHECK(result.exit_code == 130);
  CHECK(result.out.find_first_not_of('x') == std::string::npos);
  CHECK(says(result, "ended: stopped"));
}

TEST_CASE("fold tool: writes a model that generates the same text, with the tokenizer, and says what it checked") {
  const ModelFolder model;
  const test::TempDir folder;
  const std::string output = (folder / "folded").string();
  const auto result = test::run_process(test::binary("fold"), {"--model", model.path(), "--output", output});
  REQUIRE(result.exit_code == 0);
  const auto json = nlohmann::json::parse(result.out);
  CHECK(json.at("norms_left") == 0);
  CHECK(json.at("max_logit_difference") < 1e-4);
  CHECK(json.at("loss_before").get<double>() == doctest::Approx(json.at("loss_after").get<double>()).epsilon(1e-5));
  const std::vector<std::string> arguments{"--prompt", "abc", "--greedy", "--max-tokens", "20", "--json"};
  auto folded = arguments;
  folded.insert(folded.begin(), {"--model", output});
  CHECK(nlohmann::json::parse(test::run_process(test::binary("generate"), folded).out) ==
        nlohmann::json::parse(generate_with(model, arguments).out));
  // Again: folded already, and nothing is written.
  const std::string again = (folder / "again").string();
  const auto refused = test::run_process(test::binary("fold"), {"--model", output, "--output", again});
  CHECK(refused.exit_code == 1);
  CHECK_FALSE(std::filesystem::exists(again));
  const ModelFolder unfinished(0.5);
  const auto early = test::run_process(test::binary("fold"), {"--model", unfinished.path(), "--output", again});
  CHECK(early.exit_code == 1);
  CHECK(says(early, "step 77"));
  CHECK_FALSE(std::filesystem::exists(again));
  CHECK(test::run_process(test::binary("fold"), {"--model", model.path(), "--output", model.path()}).exit_code == 2);
}

TEST_CASE("evaluate: --precision int8 gives its loss beside that in f32") {
  const ModelFolder model(0, kContext, false);
  const std::string rows = model.folder.write("rows.json", "[[1,2,3,4,5,6,7,8],[9,8,7]]").string();
  const auto loss = [&](const char* precision) {
    const auto result = test::run_process(test::binary("evaluate"),
                                          {"--model", model.path(), "--ids", rows, "--json", "--precision", precision});
    CHECK(result.exit_code == 0);
    return nlohmann::json::parse(result.out);
  };
  const auto int8 = loss("int8");
  CHECK(int8.at("f32_loss").get<double>() == doctest::Approx(loss("f32").at("loss").get<double>()).epsilon(1e-5));
  CHECK(int8.at("loss") != int8.at("f32_loss"));
  CHECK(int8.at("loss").get<double>() == doctest::Approx(int8.at("f32_loss").get<double>()).epsilon(0.02));
}

TEST_CASE("decode-bench and last-token-bench: the documented keys") {
  const auto decode = test::run_process(test::binary("decode-bench"),
                                        {"--size", "1M", "--tokens", "2", "--repeat", "1", "--batch", "2", "--json"});
  REQUIRE(decode.exit_code == 0);
  const auto result = nlohmann::json::parse(decode.out);
  for (const char* plan : {"normed", "scaled", "folded"}) {
    for (const char* key : {"median", "min", "max"}) CHECK(result.at(plan).at("tokens_per_s").at(key) > 0);
    CHECK(result.at(plan).at("bytes_per_token") > 4'000'000 / 2);
    CHECK(result.at(plan).at("share_of_limit") > 0);
  }
  CHECK(result.at("limit").at("tokens_per_s").at("median") > 0);
  CHECK(result.at("limit").at("bytes_per_token") > 4'000'000 / 2);
  const auto int8 = test::run_process(test::binary("decode-bench"), {"--size", "1M", "--tokens", "2", "--repeat", "1",
                                                                     "--batch", "2", "--json", "--precision", "int8"});
  CHECK(nlohmann::json::parse(int8.out).at("normed").at("bytes_per_token") <
        result.at("normed").at("bytes_per_token").get<double>() / 3.5);
  CHECK(result.at("ratios").at("scaled") > 0);
  CHECK(result.at("ratios").at("folded") > 0);
  const auto last = test::run_process(test::binary("last-token-bench"), {"--size", "1M", "--batch", "1,2", "--context",
                                                                         "8,16", "--repeat", "1", "--json"});
  REQUIRE(last.exit_code == 0);
  const auto rows = nlohmann::json::parse(last.out);
  REQUIRE(rows.size() == 4);
  CHECK(rows[3].at("batch") == 2);
  CHECK(rows[3].at("context") == 16);
  CHECK(rows[3].at("folded").at("tokens_per_s").at("median") > 0);
  CHECK(test::run_process(test::binary("decode-bench"), {"--size", "1M", "--tokens", "600"}).exit_code == 2);
  const ModelFolder model(1.0);
  const auto baseline = test::run_process(test::binary("decode-bench"),
                                          {"--model", model.path(), "--tokens", "2", "--repeat", "1", "--json"});
  CHECK(nlohmann::json::parse(baseline.out).at("normed").at("tokens_per_s").at("median") > 0);
  CHECK(test::run_process(test::binary("decode-bench"), {"--model", model.path(), "--plan", "folded"}).exit_code == 2);
  // Without --tokens, as many as the model's context holds.
  CHECK(test::run_process(test::binary("decode-bench"), {"--model", model.path(), "--repeat", "1"}).exit_code == 0);
}

TEST_CASE("decode-bench: --profile lists the stages of its plans and the size that reading is measured on") {
  const std::vector<std::string> arguments = {"--size", "1M", "--tokens", "2", "--repeat", "1", "--precision", "int8"};
  std::vector<std::string> profiled = arguments;
  profiled.emplace_back("--profile");
  const auto result = test::run_process(test::binary("decode-bench"), profiled);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  for (const char* stage : {"decode_norm", "decode_scale", "decode_residual", "decode_qkv", "decode_attend",
                            "decode_output", "decode_up", "decode_down", "decode_unembed", "decode_choose",
                            "decode_wait", "reading, and nothing else", "on the 1.0 MB of a token's matrices"})
    CHECK(result.err.find(stage) != std::string::npos);
  CHECK(test::run_process(test::binary("decode-bench"), arguments).err.find("decode_") == std::string::npos);
}

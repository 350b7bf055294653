// The program `convert` as others call it.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "model/model_folder.h"
#include "tests/support/random_models.h"
#include "tests/support/run_process.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using namespace taper::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

ProcessResult convert(const fs::path& model, const std::string& to, const fs::path& output,
                      std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"--model",  model.string(),  "--to",      to,
                                     "--output", output.string(), "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_process(binary("convert"), arguments);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("convert: to Hugging Face, to GGUF and back to a native folder") {
  const TempDir folder;
  const Transformer model = random_model(small_config("taper", Variant::all));
  save_model(model, folder / "native");
  ProcessResult result = convert(folder / "native", "hf", folder / "hf", {"--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json said = json::parse(result.out);
  CHECK(said["dtype"] == "f32");
  CHECK(contains(said["form"], "GPT2LMHeadModel, doubled stream"));
  CHECK(said["max_logit_difference"] <= said["allowed_logit_difference"]);
  CHECK(contains(result.err, "folded into its matrices first"));
  CHECK(contains(result.err, "no tokenizer"));
  CHECK(convert(folder / "hf", "taper", folder / "again").exit_code == 0);
  CHECK(logit_distance(sample_logits(model), sample_logits(load_model(folder / "again"))) <= 1e-4);
  result = convert(folder / "native", "gguf", folder / "model.gguf", {"--dtype", "f16"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "model.gguf: GGUF gpt2 (GPT2LMHeadModel, doubled stream"));
  CHECK(convert(folder / "native", "hf", folder / "own", {"--route", "custom", "--dtype", "bf16"}).exit_code == 0);
  CHECK(fs::exists(folder / "own/modeling_taper.py"));
}

TEST_CASE("convert: the source's dtype is the default") {
  SKIP_WITHOUT_SHARED("hf/llama_tied_bf16");
  const TempDir folder;
  const ProcessResult result = convert(shared_file("hf/llama_tied_bf16"), "hf", folder / "out", {"--json"});
  REQUIRE(result.exit_code == 0);
  CHECK(json::parse(result.out)["dtype"] == "bf16");
  CHECK(json::parse(test::read_file(folder / "out/config.json"))["eos_token_id"] == 2);
}

TEST_CASE("convert: wrong use is exit 2 with one line, and nothing is written") {
  const TempDir folder;
  save_model(random_model(small_config("gpt2")), folder / "gpt2");
  ModelConfig unfinished = small_config("gpt2", Variant::all);
  unfinished.gate = 0.5;
  save_model(random_model(unfinished), folder / "unfinished");
  fs::create_directories(folder / "empty");
  const auto check = [&](const ProcessResult& result, const std::string& part) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, part));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.out.empty());
    CHECK_FALSE(fs::exists(folder / "out"));
  };
  check(convert(folder / "gpt2", "hf", folder / "out", {"--route", "imagegpt"}),
        "--route imagegpt: the model does not fit");
  check(convert(folder / "gpt2", "taper", folder / "out", {"--route", "gpt2"}), "--route");
  check(convert(folder / "gpt2", "onnx", folder / "out"), "--to");
  check(convert(folder / "gpt2", "hf", folder / "out", {"--dtype", "int4"}), "--dtype");
  check(convert(folder / "gpt2", "hf", folder / "gpt2"), "is there already");
  check(convert(folder / "gpt2", "gguf", folder / "empty"), "empty is a folder; want the name of a file");
  check(convert(folder / "none", "hf", folder / "out"), "none");
  check(convert(folder / "empty", "hf", folder / "out"), "empty");
  check(convert(folder / "unfinished", "hf", folder / "out"), "the gate was 0.5 at step 100");
  check(convert(folder / "unfinished", "gguf", folder / "out"), "the gate was 0.5 at step 100");
  folder.write("gpt2/config.json", "{\"model_type\": \"bloom\"}");
  check(convert(folder / "gpt2", "hf", folder / "out"), "model_type is not supported");
  folder.write("gpt2/config.json", "{");
  check(convert(folder / "gpt2", "hf", folder / "out"), "not valid JSON");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

// The program finetune as a user calls it.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "engine/core/error.h"
#include "model/model_folder.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

nlohmann::json result_of(const ProcessResult& process) {
  CAPTURE(process.err);
  REQUIRE(process.exit_code == 0);
  return nlohmann::json::parse(process.out);
}

// A prepared folder of a few thousand tokens, and a small GPT-2 trained on it for a moment.
struct Setting {
  Setting() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("The {} cat saw {} dogs.\n<|endoftext|>", i % 17, i % 5);
    prepare("", text, 270);
    before = result_of(
        run_process(binary("pretrain"),
                    {"--data",   path("data"), "--arch",         "gpt2", "--size",    "1M",       "--width",    "16",
                     "--layers", "1",          "--heads",        "2",    "--context", "16",       "--steps",    "20",
                     "--lr",     "3e-3",       "--batch-tokens", "64",   "--json",    "--output", path("model")}));
  }

  void prepare(const std::string& prefix, const std::string& text, int vocabulary) const {
    const std::string file = folder.write(prefix + "stories.txt", text).string();
    REQUIRE(run_process(binary("tokenizer"), {"train", "--input", file, "--vocab-size", std::to_string(vocabulary),
                                              "--output", path(prefix + "tokenizer")})
                .exit_code == 0);
    REQUIRE(run_process(binary("prepare"), {"--tokenizer", path(prefix + "tokenizer"), "--input", file,
                                            "--valid-fraction", "0.2", "--output", path(prefix + "data")})
                .exit_code == 0);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  Arguments arguments(const std::string& variant, const std::string& run) const {
    return {"--model", path("model"), "--data",         path("data"), "--variant", variant,    "--steps", "30",
            "--lr",    "1e-3",        "--batch-tokens", "64",         "--json",    "--output", path(run)};
  }
  ProcessResult finetune(const Arguments& all, const ProcessOptions& options = {}) const {
    return run_process(binary("finetune"), all, options);
  }

  TempDir folder;
  nlohmann::json before;
};

}  // namespace

TEST_CASE("finetune: every variant begins with the model's loss and ends as its kind of model") {
  const Setting setting;
  for (const std::string variant : {"vanilla", "fakeln", "internal", "all"}) {
    CAPTURE(variant);
    const nlohmann::json result = result_of(setting.finetune(setting.arguments(variant, variant)));
    for (const char* key : {"valid_loss", "bits_per_byte", "tokens_per_s", "steps", "parameters", "gate"}) {
      CAPTURE(key);
      CHECK(result.contains(key));
    }
    CHECK(result["variant"] == variant);
    CHECK(result["valid_loss_before"].get<double>() ==
          doctest::Approx(setting.before["valid_loss"].get<double>()).epsilon(1e-6));
    CHECK(result["valid_loss"] < result["valid_loss_before"]);
    CHECK(result["parameters"] == setting.before["parameters"]);
    CHECK(result["gate"] == (variant == "vanilla" ? 1.0 : 0.0));
    CHECK(nlohmann::json::parse(read_file(setting.folder / variant / "summary.json")) == result);
    const ModelConfig config = load_model(setting.folder / variant).config();
    CHECK(config.variant() == (variant == "vanilla"    ? Variant::baseline
                               : variant == "internal" ? Variant::internal
                                                       : Variant::all));
    CHECK_FALSE(config.is_replaced_in_turn);
    if (variant == "vanilla") continue;
    const nlohmann::json fold = result_of(run_process(
        binary("fold"), {"--model", setting.path(variant), "--output", setting.path(variant + "-folded"), "--json"}));
    CHECK(fold["norms_left"] == (variant == "internal" ? 1 : 0));
    const nlohmann::json evaluation = result_of(run_process(
        binary("evaluate"), {"--model", setting.path(variant + "-folded"), "--data", setting.path("data"), "--json"}));
    CHECK(evaluation["loss"].get<double>() == doctest::Approx(result["valid_loss"].get<double>()).epsilon(1e-5));
  }

  SUBCASE("models whose norms are gone are refused by name") {
    const auto refuses = [&](const std::string& model, const char* message) {
      Arguments arguments = setting.arguments("internal", "none");
      arguments[1] = setting.path(model);
      const ProcessResult result = setting.finetune(arguments);
      CAPTURE(result.err);
      CHECK(result.exit_code == 2);
      CHECK(result.err.find(message) != std::string::npos);
      CHECK_FALSE(fs::exists(setting.folder / "none"));
    };
    refuses("internal-folded", "folded away already");
    refuses("fakeln-folded", "folded away already");
    refuses("internal", "tapered away already");
    const Arguments half = setting.arguments("all", "half") + Arguments{"--taper-end", "2", "--allow-unfinished-taper"};
    CHECK(result_of(setting.finetune(half))["gate"] > 0.0);
    refuses("half", "the taper of this model is unfinished");
    refuses("nowhere", "is no folder");
  }
}

TEST_CASE("finetune: --overwrite removes no model that is to be tuned, and no folder that is no run's") {
  const Setting setting;
  const auto refuses = [&](const std::string& output, const std::string& message) {
    const ProcessResult result = setting.finetune(setting.arguments("internal", output) + Arguments{"--overwrite"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK(fs::exists(setting.folder / "model/step-20/config.json"));
  };
  refuses("model", "holds the model to begin with");
  refuses("model/step-20", "is no run's folder, but holds a ");
}

TEST_CASE("finetune: a signal saves, and going on costs no bit") {
  const Setting setting;
  for (const std::string variant : {"fakeln", "internal"}) {
    CAPTURE(variant);
    const auto with = [&](const std::string& run) {
      Arguments arguments = setting.arguments(variant, run);
      arguments[7] = "400";
      return arguments;
    };
    const nlohmann::json whole = result_of(setting.finetune(with("whole-" + variant)));
    ProcessOptions options;
    options.signal = 2;
    options.signal_after = "step 1/400";
    const std::string run = "stopped-" + variant;
    const ProcessResult stopped = setting.finetune(with(run), options);
    CAPTURE(stopped.err);
    CHECK(stopped.exit_code == 130);
    CHECK(stopped.err.find("go on with: finetune --config") != std::string::npos);
    const nlohmann::json resumed =
        result_of(setting.finetune({"--config", setting.path(run) + "/config.json", "--resume", "--json"}));
    CHECK(resumed["valid_loss"] == whole["valid_loss"]);
    CHECK(resumed["valid_loss_before"] == whole["valid_loss_before"]);
    CHECK(read_file(setting.folder / run / "step-400/model.safetensors") ==
          read_file(setting.folder / ("whole-" + variant) / "step-400/model.safetensors"));
    const ProcessResult other = setting.finetune(
        {"--config", setting.path(run) + "/config.json", "--variant", "vanilla", "--resume", "--json"});
    CHECK(other.exit_code == 2);
    CHECK(other.err.find("--variant: another than the run's") != std::string::npos);
    const ProcessResult faster =
        setting.finetune({"--config", setting.path(run) + "/config.json", "--lr", "0.5", "--resume", "--json"});
    CAPTURE(faster.err);
    CHECK(faster.exit_code == 2);
    CHECK(faster.err.find("--lr") != std::string::npos);
  }
}

TEST_CASE("finetune: what is wrong is said before any work, with exit code 2") {
  const Setting setting;
  setting.prepare("other-", "Another text altogether. <|endoftext|>Nothing alike, nothing at all, and never was.", 265);
  const auto refuses = [&](const Arguments& more, const char* message, const std::string& variant = "fakeln") {
    Arguments arguments = setting.arguments(variant, "none");
    for (size_t i = 0; i < more.size(); i += 2) {
      const auto found = std::find(arguments.begin(), arguments.end(), more[i]);
      if (found != arguments.end()) {
        *(found + 1) = more[i + 1];
      } else {
        arguments.insert(arguments.end(), {more[i], more[i + 1]});
      }
    }
    const ProcessResult result = setting.finetune(arguments);
    CAPTURE(result.err);
    CAPTURE(message);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK_FALSE(fs::exists(setting.folder / "none/metrics.jsonl"));
  };
  refuses({"--data", setting.path("other-data")}, "was prepared with another tokenizer than that of");
  refuses({"--variant", "interal"}, "--variant");
  refuses({"--steps", "5"}, "fakeln: the last replacement would come after the run");
  refuses({"--fakeln-start", "40"}, "fakeln: the last replacement would come after the run");
  refuses({"--fakeln-gap-v", "-1"}, "--fakeln-gap-v");
  refuses({"--fakeln-momentum", "1"}, "--fakeln-momentum");
  refuses({"--context", "17"}, "--context: the model has fewer positions");
  refuses({"--batch-tokens", "65"}, "--batch-tokens: must be a multiple of the context");
  refuses({"--taper-end", "0.05"}, "taper-end: must come after taper-start", "internal");
  refuses({"--data", setting.path("tokenizer")}, "not a prepared folder");
}

TEST_CASE("finetune: shorter windows than the model's, another optimizer, bf16") {
  const Setting setting;
  const nlohmann::json result = result_of(setting.finetune(
      setting.arguments("all", "run") + Arguments{"--context", "8", "--precision", "bf16", "--weight-decay", "0.01",
                                                  "--lr-floor", "0.5", "--anchor", "0"}));
  CHECK(result["gate"] == 0.0);
  const std::string metrics = read_file(setting.folder / "run/metrics.jsonl");
  CHECK(metrics.find("\"step\":29,") != std::string::npos);
  CHECK(load_model(setting.folder / "run").config().context == 16);
}

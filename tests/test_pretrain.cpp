// The programs pretrain, evaluate and train-bench as a user calls them.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "engine/core/error.h"
#include "model/model_folder.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"
#include "tools/common/live_page.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ProcessResult call(const std::string& program, const Arguments& arguments, const ProcessOptions& options = {}) {
  return run_process(binary(program), arguments, options);
}

// A prepared folder of a few thousand tokens with a vocabulary of 270.
struct Prepared {
  Prepared() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("The {} cat saw {} dogs.\n<|endoftext|>", i % 17, i % 5);
    const std::string file = (folder.write("stories.txt", text)).string();
    REQUIRE(
        call("tokenizer", {"train", "--input", file, "--vocab-size", "270", "--output", path("tokenizer")}).exit_code ==
        0);
    REQUIRE(call("prepare", {"--tokenizer", path("tokenizer"), "--input", file, "--valid-fraction", "0.2", "--output",
                             path("data")})
                .exit_code == 0);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  // Options that pretrain and train-bench share.
  Arguments model() const {
    return {"--size",    "1M",        "--width", "16",         "--layers", "1",      "--heads",
            "2",         "--context", "16",      "--steps",    "10",       "--lr",   "1e-3",
            "--variant", "all",       "--data",  path("data"), "--json",   "--seed", "5"};
  }
  Arguments pretrain(const std::string& run) const {
    return model() + Arguments{"--batch-tokens", "64", "--output", path(run)};
  }

  TempDir folder;
};

nlohmann::json result_of(const ProcessResult& process) {
  CAPTURE(process.err);
  REQUIRE(process.exit_code == 0);
  return nlohmann::json::parse(process.out);
}

}  // namespace

TEST_CASE("pretrain: a run, its folder, and what evaluate and train-bench say of the same") {
  const Prepared prepared;
  const nlohmann::json result = result_of(call("pretrain", prepared.pretrain("run") + Arguments{"--eval-every", "4"}));
  for (const char* key : {"valid_loss", "bits_per_byte", "tokens_per_s", "steps", "parameters", "gate"}) {
    CAPTURE(key);
    CHECK(result.contains(key));
  }
  CHECK(result["gate"] == 0.0);
  CHECK(result["steps"] == 10);
  CHECK(result["parameters"] == 270 * 16 + 16 * 16 + 12 * 256 + 3 * 16);
  for (const char* file : {"config.json", "metrics.jsonl", "summary.json", "step-10/model.safetensors",
                           "step-10/tokenizer.json", "step-10/training.safetensors", "step-10/training.json"}) {
    CAPTURE(file);
    CHECK(fs::exists(prepared.folder / "run" / file));
  }

  const auto evaluation =
      result_of(call("evaluate", {"--model", prepared.path("run"), "--data", prepared.path("data"), "--json"}));
  CHECK(evaluation["loss"] == result["valid_loss"]);
  CHECK(evaluation["bits_per_byte"] == result["bits_per_byte"]);
  CHECK(evaluation["tokens"].get<int64_t>() % 16 == 0);

  const auto bench = result_of(call("train-bench", prepared.model() + Arguments{"--batch", "4"}));
  for (const char* key : {"tokens_per_s", "step_ms", "gflops", "peak_memory_mb", "loss"}) CHECK(bench.contains(key));
  std::string last;
  std::istringstream metrics(read_file(prepared.folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    if (line.find("\"step\":9,") != std::string::npos) last = line;
  }
  CHECK(bench["loss"] == nlohmann::json::parse(last)["loss"]);

  SUBCASE("the run's tokenizer prepares more data") {
    prepared.folder.write("more.txt", "once upon a time");
    CHECK(call("prepare", {"--tokenizer", prepared.path("run"), "--input", prepared.path("more.txt"), "--output",
                           prepared.path("more")})
              .exit_code == 0);
  }
  SUBCASE("the folder's configuration repeats it") {
    const nlohmann::json again = result_of(
        call("pretrain", {"--config", prepared.path("run/config.json"), "--output", prepared.path("again"), "--json"}));
    CHECK(again["valid_loss"] == result["valid_loss"]);
  }
  SUBCASE("--overwrite removes nothing for a run that cannot begin") {
    std::unique_ptr<LivePage> other;
    int port = 38571;
    for (; !other; ++port) {
      try {
        other = std::make_unique<LivePage>(port, prepared.folder / "run");
        break;
      } catch (const UsageError&) {
        REQUIRE(port < 38671);
      }
    }
    const ProcessResult refused =
        call("pretrain", prepared.pretrain("run") + Arguments{"--overwrite", "--live", std::to_string(port)});
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("--live: port ") != std::string::npos);
    CHECK(fs::exists(prepared.folder / "run/summary.json"));
    CHECK(fs::exists(prepared.folder / "run/step-10/model.safetensors"));
  }
  SUBCASE("texts written on the way: one after each evaluation, none where none are asked for") {
    const auto samples = [&](const Arguments& options) {
      const ProcessResult process =
          call("pretrain", prepared.pretrain("samples") + Arguments{"--overwrite", "--eval-every", "5"} + options);
      REQUIRE(process.exit_code == 0);
      int64_t count = 0;
      for (size_t at = 0; (at = process.err.find("sample: The 3", at)) != std::string::npos; ++at) ++count;
      return count;
    };
    CHECK(samples({"--sample-prompt", "The 3", "--sample-tokens", "4"}) == 2);
    CHECK(samples({"--sample-prompt", "The 3", "--sample-tokens", "0"}) == 0);
    CHECK(samples({"--sample-prompt", "The 3", "--sample-tokens", "4", "--precision", "bf16"}) == 2);
  }
  SUBCASE("a used folder is refused unless it is to be overwritten or resumed") {
    CHECK(call("pretrain", prepared.pretrain("run")).exit_code == 2);
    CHECK(call("pretrain", prepared.pretrain("run") + Arguments{"--resume", "--overwrite"}).exit_code == 2);
    CHECK(call("pretrain", prepared.pretrain("run") + Arguments{"--overwrite"}).exit_code == 0);
    const ProcessResult other = call("pretrain", prepared.pretrain("run") + Arguments{"--resume", "--arch", "gpt2"});
    CHECK(other.exit_code == 2);
    CHECK(other.err.find("--arch is another than the run's; got \"gpt2\", want \"taper\"") != std::string::npos);
    const ProcessResult rate =
        call("pretrain", prepared.pretrain("run") + Arguments{"--resume", "--weight-decay", "0"});
    CHECK(rate.exit_code == 2);
    CHECK(rate.err.find("--weight-decay is another than the run's; got 0, want 0.1") != std::string::npos);
  }
  SUBCASE("fold does not write into the folder of a run") {
    const std::string settings = read_file(prepared.folder / "run/config.json");
    for (const char* model : {"run", "run/step-10"}) {
      CHECK(call("fold", {"--model", prepared.path(model), "--output", prepared.path("run")}).exit_code == 2);
    }
    CHECK(read_file(prepared.folder / "run/config.json") == settings);
    CHECK(call("fold", {"--model", prepared.path("run"), "--output", prepared.path("run/folded")}).exit_code == 0);
  }
  SUBCASE("rows of ids") {
    ProcessOptions options;
    options.input = "[[1,2,3],[4]]";
    const auto rows = result_of(call("evaluate", {"--model", prepared.path("run"), "--ids", "-", "--json"}, options));
    CHECK(rows["last_logits"].size() == 2);
    CHECK(rows["last_logits"][0].size() == 270);
    CHECK(rows["loss"] > 0);
    for (const char* bad : {"", "[]", "[1,2]", "[[]]", "[[270]]", "[[-1]]", "[[1.5]]", "[[\"a\"]]", "{",
                            "[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]"}) {
      CAPTURE(bad);
      options.input = bad;
      CHECK(call("evaluate", {"--model", prepared.path("run"), "--ids", "-"}, options).exit_code == 2);
    }
    options.input = "[[" + std::string(300000, '[') + std::string(300002, ']');
    CHECK(call("evaluate", {"--model", prepared.path("run"), "--ids", "-"}, options).exit_code == 2);
  }
  SUBCASE("a text of too few tokens") {
    ProcessOptions options;
    options.input = "The cat";
    const ProcessResult shorter = call("evaluate", {"--model", prepared.path("run"), "--input", "-"}, options);
    CHECK(shorter.exit_code == 2);
    CHECK(shorter.err.find("at least T+1 = 17 tokens") != std::string::npos);
  }
}

TEST_CASE("pretrain: a signal saves, says how to go on, and costs no bit") {
  const Prepared prepared;
  const auto with = [&](const std::string& run) {
    Arguments arguments = prepared.pretrain(run);
    for (size_t i = 0; i + 1 < arguments.size(); ++i) {
      if (arguments[i] == "--steps") arguments[i + 1] = "400";
    }
    return arguments;
  };
  const nlohmann::json whole = result_of(call("pretrain", with("whole")));
  for (const int signal : {2, 15}) {
    CAPTURE(signal);
    ProcessOptions options;
    options.signal = signal;
    options.signal_after = "step 1/400";
    const std::string run = "reader's run " + std::to_string(signal);  // a name that a shell takes apart
    const ProcessResult stopped = call("pretrain", with(run), options);
    CAPTURE(stopped.err);
    CHECK(stopped.exit_code == 130);
    CHECK(stopped.out.empty());
    CHECK_FALSE(complete_checkpoints(prepared.folder / run).empty());
    const std::string before = "go on with: ";
    const size_t begin = stopped.err.find(before + "pretrain --config");
    REQUIRE(begin != std::string::npos);
    const size_t end = stopped.err.find('\n', begin);
    const std::string hint = stopped.err.substr(begin + before.size(), end - begin - before.size());
    const std::string programs = fs::path(binary("pretrain")).parent_path().string();
    const auto resumed = result_of(run_process("/bin/sh", {"-c", programs + "/" + hint + " --json"}));
    CHECK(resumed["valid_loss"] == whole["valid_loss"]);
    CHECK(read_file(prepared.folder / run / "step-400/model.safetensors") ==
          read_file(prepared.folder / "whole/step-400/model.safetensors"));
  }
}

TEST_CASE("pretrain: a finished run that is resumed is shown again and stays as it is") {
  const Prepared prepared;
  const nlohmann::json whole = result_of(call("pretrain", prepared.pretrain("run")));
  const std::string summary = read_file(prepared.folder / "run/summary.json");
  const std::string metrics = read_file(prepared.folder / "run/metrics.jsonl");
  const ProcessResult again = call("pretrain", prepared.pretrain("run") + Arguments{"--resume"});
  CHECK(result_of(again) == whole);
  CHECK(again.err.find("the run has finished") != std::string::npos);
  CHECK(read_file(prepared.folder / "run/summary.json") == summary);
  CHECK(read_file(prepared.folder / "run/metrics.jsonl") == metrics);
}

TEST_CASE("pretrain: a run goes on with its own data alone, wherever that lies") {
  const Prepared prepared;
  const nlohmann::json whole = result_of(call("pretrain", prepared.pretrain("run")));
  const auto resume = [&](const std::string& data) {
    fs::remove(prepared.folder / "run/summary.json");
    Arguments arguments = prepared.pretrain("run") + Arguments{"--resume"};
    *(std::find(arguments.begin(), arguments.end(), "--data") + 1) = prepared.path(data);
    return call("pretrain", arguments);
  };
  fs::copy(prepared.folder / "data", prepared.folder / "moved");
  CHECK(result_of(resume("moved"))["valid_loss"] == whole["valid_loss"]);
  REQUIRE(call("prepare", {"--tokenizer", prepared.path("tokenizer"), "--input", prepared.path("stories.txt"),
                           "--valid-fraction", "0.2", "--seed", "1", "--output", prepared.path("other")})
              .exit_code == 0);
  const ProcessResult refused = resume("other");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("other (training) holds other tokens") != std::string::npos);
}

TEST_CASE("pretrain: what is wrong is said before any work, with exit code 2") {
  const Prepared prepared;
  const auto refuses = [&](const Arguments& more, const char* message) {
    const ProcessResult result = call("pretrain", prepared.pretrain("none") + more);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK_FALSE(fs::exists(prepared.folder / "none/metrics.jsonl"));
  };
  refuses({"--taper-ned", "0.5"}, "did you mean --taper-end");
  refuses({"--taper-end", "0.05"}, "taper-end: must come after taper-start");
  refuses({"--taper-end", "1"}, "--allow-unfinished-taper");
  refuses({"--warmup-fraction", "1.5"}, "--warmup-fraction");
  refuses({"--clip", "1e-3x"}, "--clip");
  refuses({"--clip", "nan"}, "--clip");
  refuses({"--micro-batch", "9223372036854775807"}, "--micro-batch: out of range; got '9223372036854775807'");
  refuses({"--device", "cuda"}, "cuda");
  refuses({"--resume"}, "no complete checkpoint");
  const auto changed = [&](const std::string& option, const std::string& value) {
    Arguments arguments = prepared.pretrain("none");
    for (size_t i = 0; i + 1 < arguments.size(); ++i) {
      if (arguments[i] == option) arguments[i + 1] = value;
    }
    return call("pretrain", arguments);
  };
  CHECK(changed("--batch-tokens", "65").exit_code == 2);
  CHECK(changed("--batch-tokens", "6400000000000").exit_code == 2);
  CHECK(changed("--heads", "3").exit_code == 2);
  CHECK(changed("--context", "100000").exit_code == 2);  // the validation data is shorter
  CHECK(changed("--data", prepared.path("tokenizer")).exit_code == 2);
  CHECK(changed("--output", prepared.path("stories.txt")).exit_code == 2);
}

TEST_CASE("pretrain: in bf16, evaluations, samples and a resumed run included") {
  const Prepared prepared;
  const Arguments half{"--precision", "bf16", "--eval-every", "5", "--sample-tokens", "4"};
  const ProcessResult whole = call("pretrain", prepared.pretrain("half") + half);
  const nlohmann::json result = result_of(whole);
  CHECK(result["gate"] == 0.0);
  CHECK(whole.err.find("sample: ") != std::string::npos);
  fs::remove(prepared.folder / "half/summary.json");  // as if stopped before its end
  CHECK(result_of(call("pretrain", prepared.pretrain("half") + half + Arguments{"--resume"}))["valid_loss"] ==
        result["valid_loss"]);
}

TEST_CASE("pretrain: an absurd learning rate ends with exit code 1 and the last good state saved") {
  const Prepared prepared;
  Arguments arguments = prepared.pretrain("run");
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--lr") arguments[i + 1] = "1e30";
  }
  const ProcessResult result = call("pretrain", arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  const std::string saved = prepared.path("run/step-6");
  CHECK(result.err.find("is not finite; last good checkpoint: " + saved) != std::string::npos);
  CHECK(is_regular_file(std::filesystem::path(saved) / "model.safetensors"));
}

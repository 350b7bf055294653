#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "model/model_folder.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_run.h"
#include "train/checkpoint.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

void check_same_checkpoint(const fs::path& a, const fs::path& b) {
  for (const char* file : {"model.safetensors", "training.safetensors", "training.json", "config.json"}) {
    CAPTURE(file);
    CHECK(read_file(a / file) == read_file(b / file));
  }
}

// A run as it looked after `steps` steps, a half-written line and a half-written save included.
void cut_back(const fs::path& from, const fs::path& to, int64_t steps) {
  fs::copy(from, to, fs::copy_options::recursive);
  for (const fs::path& checkpoint : complete_checkpoints(to)) {
    if (std::stoll(checkpoint.filename().string().substr(5)) > steps) fs::remove_all(checkpoint);
  }
  fs::create_directories(to / "step-99.partial");
  std::ofstream(to / "metrics.jsonl", std::ios::app) << "{\"step\": 12, \"lo";
}

}  // namespace

TEST_CASE("training run: resumed anywhere it ends with the same bits") {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const std::string name = to_string(precision);
    CAPTURE(name);
    const TempDir folder;
    TinyRun tiny(folder.path());
    tiny.precision = precision;
    const RunResult whole = tiny.run(folder / "whole");
    CHECK(whole.gate == 0.0);
    CHECK(whole.steps == 12);
    // Before, at and after taper start (step 4), before and after taper end (step 8).
    for (const int64_t steps : {1, 3, 4, 5, 7, 8, 9, 12}) {
      CAPTURE(steps);
      const fs::path other = folder / std::to_string(steps);
      cut_back(folder / "whole", other, steps);
      const RunResult resumed = tiny.run(other, true);
      CHECK(resumed.valid.loss == whole.valid.loss);
      check_same_checkpoint(other / "step-12", folder / "whole/step-12");
      CHECK(metrics_of(other) == metrics_of(folder / "whole"));
      CHECK_FALSE(fs::exists(other / "step-99.partial"));
    }
  }
}

TEST_CASE("training run: a stop saves what is needed to go on") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.options.save_every = 0;
  const RunResult whole = tiny.run(folder / "whole");
  tiny.options.after_evaluation = [](int64_t) { request_stop(); };
  const RunResult stopped = tiny.run(folder / "cut");
  clear_stop_request();
  CHECK(stopped.was_stopped);
  CHECK(stopped.steps == 5);
  tiny.options.after_evaluation = nullptr;
  CHECK(tiny.run(folder / "cut", true).valid.loss == whole.valid.loss);
  check_same_checkpoint(folder / "cut/step-12", folder / "whole/step-12");
}

TEST_CASE("training run: the newest whole checkpoint counts, and old ones go") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.options.keeping.last = 3;
  const RunResult whole = tiny.run(folder / "run");
  CHECK(complete_checkpoints(folder / "run").size() == 3);
  fs::resize_file(folder / "run/step-12/training.safetensors", 100);
  fs::remove(folder / "run/step-11/model.safetensors");
  std::string said;
  const auto newest = newest_checkpoint(folder / "run", [&](const std::string& message) { said += message; });
  CHECK(newest == folder / "run/step-10");
  CHECK(said.find("step-12: is damaged and passed over: ") != std::string::npos);
  CHECK(said.find("training.safetensors: is not what was saved; got 100 bytes, want ") != std::string::npos);
  CHECK(tiny.run(folder / "run", true).valid.loss == whole.valid.loss);
}

TEST_CASE("training run: a checkpoint of other bytes is named and the one before is used") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  const RunResult whole = tiny.run(folder / "run");
  const std::string wanted = state_of(folder / "run", 12);
  std::string weights = read_file(folder / "run/step-12/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  folder.write("run/step-12/model.safetensors", weights);
  std::string config = read_file(folder / "run/step-11/config.json");
  config[config.find("gelu")] = 'r';
  folder.write("run/step-11/config.json", config);
  std::vector<std::string> said;
  const auto newest = newest_checkpoint(folder / "run", [&](const std::string& message) { said.push_back(message); });
  CHECK(newest == folder / "run/step-10");
  REQUIRE(said.size() == 2);
  CHECK(said[0].find("step-12: is damaged and passed over: ") != std::string::npos);
  CHECK(said[0].find("model.safetensors: tensor \"") != std::string::npos);
  CHECK(said[0].find("is not what was saved; got checksum ") != std::string::npos);
  CHECK(said[1].find("step-11: is damaged and passed over: ") != std::string::npos);
  CHECK(said[1].find("config.json: is not what was saved; got checksum ") != std::string::npos);
  CHECK(tiny.run(folder / "run", true).valid.loss == whole.valid.loss);
  CHECK(state_of(folder / "run", 12) == wanted);
}

TEST_CASE("training run: a manifest that points outside its folder is damaged") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.run(folder / "run");
  nlohmann::json manifest = nlohmann::json::parse(read_file(folder / "run/step-12/training.json"));
  manifest["files"]["../step-11/config.json"] = 1;
  folder.write("run/step-12/training.json", manifest.dump());
  std::string said;
  CHECK(newest_checkpoint(folder / "run", [&](const std::string& message) { said += message; }) ==
        folder / "run/step-11");
  CHECK(said.find("which lies outside") != std::string::npos);
}

TEST_CASE("training run: the newest checkpoints stay, and one of every so many steps") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.options.keeping = {2, 4};
  tiny.run(folder / "run");
  std::vector<int64_t> steps;
  for (const fs::path& checkpoint : complete_checkpoints(folder / "run")) {
    steps.push_back(checkpoint_step(checkpoint).value_or(-1));
  }
  CHECK(steps == std::vector<int64_t>{12, 11, 8, 4});
}

TEST_CASE("training run: a folder in which another process trains is refused") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  const FolderLock other = prepare_run_folder(folder / "run", OutputUse::refuse);
  CHECK_THROWS_WITH_AS(tiny.run(folder / "run"), doctest::Contains("is being written by process"), UsageError);
}

TEST_CASE("training run: numbers that are not finite end it and leave the good checkpoint") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.run(folder / "run");
  for (const fs::path& checkpoint : complete_checkpoints(folder / "run")) {
    if (checkpoint.filename() != "step-6") fs::remove_all(checkpoint);
  }
  const std::string good = read_file(folder / "run/step-6/model.safetensors");
  tiny.trainer.schedule.peak = 1e30;
  tiny.trainer.schedule.steps = 100;
  try {
    tiny.run(folder / "run", true);
    FAIL("the run went on");
  } catch (const Error& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.find(" is not finite") != std::string::npos);
    CHECK(text.find("last good checkpoint: " + (folder / "run/step-").string()) != std::string::npos);
  }
  CHECK(read_file(folder / "run/step-6/model.safetensors") == good);
  for (const fs::path& checkpoint : complete_checkpoints(folder / "run")) {
    CHECK_FALSE(first_non_finite(load_model(checkpoint)).has_value());
  }
}

TEST_CASE("training run: five steps in a row that are not finite are too many") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.options.save_every = 0;
  tiny.trainer.anchor = 1e308;  // overflows from taper start, step 4, on
  CHECK_THROWS_WITH_AS(tiny.run(folder / "run"), doctest::Contains("stopped after step 8"), Error);
  const std::vector<std::string> lines = metrics_of(folder / "run");
  CHECK(nlohmann::json::parse(lines.back()).contains("bad"));
  // What it leaves are the parameters of before the trouble: those of a run without it after four steps.
  tiny.trainer.anchor = 1;
  tiny.options.save_every = 4;
  tiny.options.keeping.last = 9;
  tiny.run(folder / "good");
  REQUIRE(newest_checkpoint(folder / "run", [](const std::string&) {}) == folder / "run/step-9");
  const Transformer left = load_model(folder / "run/step-9"), wanted = load_model(folder / "good/step-4");
  const Transformer later = load_model(folder / "good/step-8");
  for (const Parameter& p : left.parameters()) {
    // What the taper's start fixes came between.
    if (!p.is_trained || p.name.ends_with("gamma_tilde")) continue;
    CAPTURE(p.name);
    CHECK(p.master.to_doubles() == wanted.parameter(p.name).master.to_doubles());
    CHECK(p.master.to_doubles() != later.parameter(p.name).master.to_doubles());
  }
}

TEST_CASE("training run: a used folder is refused, overwritten or resumed as asked") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.run(folder / "run");
  CHECK_THROWS_WITH_AS(static_cast<void>(prepare_run_folder(folder / "run", OutputUse::refuse)),
                       doctest::Contains("--resume or --overwrite"), UsageError);
  CHECK_THROWS_AS(static_cast<void>(prepare_run_folder(folder / "empty", OutputUse::resume)), UsageError);
  folder.write("file", "text");
  CHECK_THROWS_AS(static_cast<void>(prepare_run_folder(folder / "file", OutputUse::refuse)), UsageError);
  CHECK_THROWS_AS(static_cast<void>(prepare_run_folder(folder / "file/run", OutputUse::refuse)), UsageError);
  folder.write("run/notes.txt", "mine");
  const FolderLock lock = prepare_run_folder(folder / "run", OutputUse::overwrite);
  CHECK(complete_checkpoints(folder / "run").size() == 12);
  CHECK(fs::exists(folder / "run/metrics.jsonl"));
  remove_run(folder / "run");
  CHECK(complete_checkpoints(folder / "run").empty());
  CHECK_FALSE(fs::exists(folder / "run/metrics.jsonl"));
  CHECK(fs::exists(folder / "run/notes.txt"));
}

TEST_CASE("training run: a folder with another program's files is refused and keeps them") {
  const TempDir folder;
  const auto refuses = [&](const std::string& file, const std::string& text) {
    folder.write(file, text);
    for (const OutputUse use : {OutputUse::refuse, OutputUse::resume, OutputUse::overwrite}) {
      CHECK_THROWS_WITH_AS(static_cast<void>(prepare_run_folder((folder / file).parent_path(), use)),
                           doctest::Contains("is no run's folder, but holds a "), UsageError);
      CHECK(read_file(folder / file) == text);
    }
  };
  refuses("gpt2/config.json", R"({"model_type": "gpt2", "n_layer": 12})");
  refuses("damaged/config.json", "{");
  refuses("other/summary.json", "{}");
  refuses("prepared/data.json", "{}");
  refuses("work/notes.txt", "mine");
  // A run that was killed before its first line.
  folder.write("begun/config.json", R"({"written-by-version": "0.1.0", "data": "stories", "output": "begun"})");
  CHECK_THROWS_WITH_AS(static_cast<void>(prepare_run_folder(folder / "begun", OutputUse::refuse)),
                       doctest::Contains("holds a run already"), UsageError);
  const FolderLock lock = prepare_run_folder(folder / "begun", OutputUse::overwrite);
}

TEST_CASE("training run: what fails after an evaluation costs no step") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  const RunResult whole = tiny.run(folder / "whole");
  int calls = 0;
  tiny.options.after_evaluation = [&](int64_t) {
    ++calls;
    fail("no memory for a sample");
  };
  CHECK(tiny.run(folder / "run").valid.loss == whole.valid.loss);
  CHECK(calls > 1);
  check_same_checkpoint(folder / "run/step-12", folder / "whole/step-12");
}

TEST_CASE("training run: another seed than the run's cannot resume it") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  tiny.run(folder / "run");
  tiny.options.seed = 4;
  CHECK_THROWS_WITH_AS(tiny.run(folder / "run", true), doctest::Contains("seed"), UsageError);
}

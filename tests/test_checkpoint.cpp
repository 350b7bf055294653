#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "model/model_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_run.h"
#include "train/checkpoint.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

TEST_CASE("checkpoint: masters are saved in f32, bit for bit, whatever the precision of training") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::bf16);
  scramble(model, 1);
  Trainer trainer(model, {});
  const fs::path checkpoint = save_checkpoint(run.path(), model, trainer, {7, 9}, nullptr);
  CHECK(checkpoint == run / "step-0");
  const Transformer loaded = load_model(checkpoint, Precision::bf16);
  for (const Parameter& p : model.parameters()) {
    CAPTURE(p.name);
    const Tensor& other = loaded.parameter(p.name).master;
    CHECK(std::memcmp(p.master.raw(), other.raw(), static_cast<size_t>(p.master.bytes())) == 0);
  }
  CHECK(SafetensorsFile::open(checkpoint / "model.safetensors").info("wte.weight").dtype == "F32");
}

TEST_CASE("checkpoint: the tokenizer goes with the model") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  Trainer trainer(model, {});
  const Tokenizer tokenizer = byte_tokenizer();
  const fs::path checkpoint = save_checkpoint(run.path(), model, trainer, {}, &tokenizer);
  CHECK(Tokenizer::load(checkpoint).vocab_size() == 256);
}

TEST_CASE("checkpoint: parameters that are not finite are not saved") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  model.parameter("h.0.mlp.up.weight").master.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  Trainer trainer(model, {});
  CHECK_THROWS_WITH_AS(save_checkpoint(run.path(), model, trainer, {}, nullptr),
                       doctest::Contains("h.0.mlp.up.weight is not finite"), Error);
  CHECK(fs::is_empty(run.path()));
}

TEST_CASE("checkpoint: a save that fails leaves the old one and nothing else") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  Trainer trainer(model, {});
  save_checkpoint(run.path(), model, trainer, {}, nullptr);
  trainer.step({4, 0.1, Gate{1.0}}, random_ids({1, 8}, 31, 1), random_ids({1, 8}, 31, 2));
  // A file where the temporary folder would be.
  run.write("step-5.partial/config.json/in-the-way", "");
  fs::permissions(run / "step-5.partial", fs::perms::owner_all);
  const fs::path saved = save_checkpoint(run.path(), model, trainer, {}, nullptr);
  CHECK(saved == run / "step-5");
  CHECK(complete_checkpoints(run.path()).size() == 2);
  CHECK_FALSE(fs::exists(run / "step-5.partial"));
  run.write("file", "");
  CHECK_THROWS_WITH_AS(save_checkpoint(run / "file", model, trainer, {}, nullptr), doctest::Contains("step-5"), Error);
}

TEST_CASE("checkpoint: a damaged training state names file and entry") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  Trainer trainer(model, {});
  const fs::path checkpoint = save_checkpoint(run.path(), model, trainer, {7, 9}, nullptr);
  const DataPosition position = load_training_state(checkpoint, trainer);
  CHECK(position.seed == 7);
  CHECK(position.windows == 9);
  const std::string manifest = read_file(checkpoint / "training.json");
  const auto refuses = [&](const std::string& text, const char* message) {
    run.write("step-0/training.json", text);
    CHECK_THROWS_WITH_AS(load_training_state(checkpoint, trainer), doctest::Contains(message), Error);
  };
  refuses("", "not valid JSON");
  refuses("[]", "is damaged");
  refuses("{\"step\": 1e300}", "step is damaged");
  refuses("{\"step\": -1}", "step is damaged");
  refuses("{\"step\": 9223372036854775808}", "step is damaged; got 9223372036854775808, want a whole number up to");
  refuses("{\"step\": 1e999}", "a number is beyond what a double can hold");
  refuses(std::string(100'000, '['), "nested too deeply");
  refuses("{\"step\": \"0\"}", "step is damaged; got \"0\", want a whole number");
  refuses(manifest.substr(0, manifest.size() / 2), "not valid JSON");
  std::string without = manifest;
  without.replace(without.find("data_windows"), 12, "data_windoes");
  refuses(without, "data_windows is missing");
}

TEST_CASE("checkpoint: a model is loaded from it only as it was saved") {
  const TempDir run;
  Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  Trainer trainer(model, {});
  const fs::path checkpoint = save_checkpoint(run.path(), model, trainer, {7, 9}, nullptr);
  CHECK_NOTHROW(load_model(run.path()));
  const auto with_a_bit_turned = [&](const char* name, size_t from_end) {
    const std::string good = read_file(checkpoint / name);
    std::string bad = good;
    bad[bad.size() - from_end] = static_cast<char>(bad[bad.size() - from_end] ^ 1);
    write_file(checkpoint / name, bad);
    // By the run's name and by its own.
    const std::string error = error_of([&] { load_model(run.path()); });
    CHECK(error_of([&] { load_model(checkpoint); }) == error);
    write_file(checkpoint / name, good);
    CAPTURE(error);
    CHECK(error.starts_with((checkpoint / name).string() + ": "));
    CHECK(error.find(" is not what was saved; got checksum ") != std::string::npos);
    CHECK(error.find(", want ") != std::string::npos);
    return error;
  };
  const SafetensorsFile file = SafetensorsFile::open(checkpoint / "model.safetensors");
  const std::string first = file.names().front(), last = file.names().back();
  const auto first_bytes = static_cast<size_t>(file.info(last).end - file.info(first).begin);
  CHECK(with_a_bit_turned("model.safetensors", 1).find(": tensor \"" + last + "\" is not") != std::string::npos);
  CHECK(with_a_bit_turned("model.safetensors", first_bytes).find(": tensor \"" + first + "\" is not") !=
        std::string::npos);
  with_a_bit_turned("config.json", 2);
  // The state of training is no part of the model.
  fs::remove(checkpoint / "training.safetensors");
  CHECK_NOTHROW(load_model(checkpoint));
}

TEST_CASE("checkpoint: what killed saves left behind goes") {
  const TempDir run;
  run.write("step-3.partial/model.safetensors", "half");
  run.write("step-3/notes.txt", "not a checkpoint");
  run.write("mine.partial/file", "not ours");
  remove_partial_checkpoints(run.path());
  CHECK_FALSE(fs::exists(run / "step-3.partial"));
  CHECK(fs::exists(run / "mine.partial/file"));
  CHECK(fs::exists(run / "step-3/notes.txt"));
}

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "model/model_folder.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

// The file's tensors with one taken out, added or replaced.
void rewrite(const fs::path& file, const std::string& without, const std::string& name, const Tensor& tensor) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFile old = SafetensorsFile::open(file);
    for (const std::string& each : old.names()) {
      if (each != without) tensors.emplace_back(each, old.read(each, Dtype::f32));
    }
  }
  if (tensor) tensors.emplace_back(name, tensor);
  write_safetensors(file, tensors);
}

}  // namespace

TEST_CASE("model folder: every kind of model reads back bit for bit") {
  for (const std::string& arch : arch_names()) {
    for (const Variant variant : {Variant::baseline, Variant::internal, Variant::all}) {
      CAPTURE(arch);
      const TempDir folder;
      ModelConfig config = tiny_config(arch, variant);
      config.is_tied = variant != Variant::internal;
      Transformer model(config, Precision::f32);
      scramble(model, 4);
      model.set_saved_state(0.25, 12);
      save_model(model, folder.path());
      const Transformer loaded = load_model(folder.path());
      CHECK(config_to_json(loaded.config()) == config_to_json(model.config()));
      for (const Parameter& p : model.parameters()) {
        CAPTURE(p.name);
        const Tensor& other = loaded.parameter(p.name).master;
        CHECK(std::memcmp(p.master.raw(), other.raw(), static_cast<size_t>(p.master.bytes())) == 0);
      }
      const Transformer half = load_model(folder.path(), Precision::bf16);
      CHECK(half.parameter("wte.weight").compute.dtype() == Dtype::bf16);
      CHECK(half.parameter("wte.weight").compute.to_doubles() ==
            model.parameter("wte.weight").master.cast(Dtype::bf16).to_doubles());
    }
  }
}

TEST_CASE("model folder: names in the file") {
  const TempDir folder;
  save_model(Transformer(tiny_config("llama", Variant::all), Precision::f32), folder.path());
  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
  CHECK(file.info("h.0.mlp.gate.weight").shape == std::vector<int64_t>{64, 16});
  CHECK(file.info("h.0.mlp.up.weight").shape == std::vector<int64_t>{64, 16});
  CHECK_FALSE(file.has("h.0.mlp.gate_up.weight"));
  CHECK_FALSE(file.has("lm_head.weight"));
  CHECK(file.info("norm_f.c").shape.empty());
  CHECK(file.info("h.0.attn.qkv.weight").shape == std::vector<int64_t>{32, 16});
}

TEST_CASE("model folder: missing, unknown and misshapen tensors are named") {
  const TempDir folder;
  const fs::path file = folder / "model.safetensors";
  const Transformer model(tiny_config(), Precision::f32);
  const auto refuses = [&](const std::string& without, const std::string& name, const Tensor& tensor,
                           const char* message) {
    save_model(model, folder.path());
    rewrite(file, without, name, tensor);
    CHECK_THROWS_WITH_AS(load_model(folder.path()), doctest::Contains(message), Error);
  };
  refuses("h.1.norm2.gamma_tilde", "", {}, "tensor h.1.norm2.gamma_tilde is missing");
  refuses("", "h.2.norm1.gamma", Tensor::zeros({16}, Dtype::f32), "tensor h.2.norm1.gamma is unknown");
  refuses("wpe.weight", "wpe.weight", Tensor::zeros({7, 16}, Dtype::f32),
          "tensor wpe.weight has another shape; got [7, 16], want [8, 16]");
  refuses("norm_f.c", "norm_f.c", Tensor::zeros({1}, Dtype::f32), "tensor norm_f.c has another shape");
  refuses("", "lm_head.weight", Tensor::zeros({31, 16}, Dtype::f32), "lm_head.weight is unknown");
}

TEST_CASE("model folder: a configuration larger than the file allocates nothing") {
  const TempDir folder;
  ModelConfig config = tiny_config();
  save_model(Transformer(config, Precision::f32), folder.path());
  config.layers = 90000;
  config.width = config.mlp_hidden = 1 << 20;
  folder.write("config.json", config_to_json(config));
  CHECK_THROWS_WITH_AS(load_model(folder.path()), doctest::Contains("too small for config.json"), Error);
}

TEST_CASE("model folder: a run stands for its newest complete checkpoint") {
  const TempDir run;
  CHECK_THROWS_AS(find_model_folder(run / "absent"), UsageError);
  CHECK_THROWS_WITH_AS(find_model_folder(run.path()), doctest::Contains("complete checkpoint"), UsageError);
  const Transformer model(tiny_config(), Precision::f32);
  for (const char* name : {"step-9", "step-10", "step-11", "step-x", "step-12.partial"}) {
    save_model(model, run / name);
    if (std::string(name) != "step-11") write_file(run / name / kCheckpointManifest, "{}");
  }
  CHECK(find_model_folder(run.path()) == run / "step-10");
  CHECK(complete_checkpoints(run.path()).size() == 2);
  CHECK(find_model_folder(run / "step-11") == run / "step-11");
}

TEST_CASE("model folder: the first tensor that is not finite is named") {
  const Transformer model(tiny_config(), Precision::f32);
  scramble(model, 1);
  CHECK_FALSE(first_non_finite(model).has_value());
  model.parameter("h.1.attn.out.weight").master.data<float>()[7] = std::numeric_limits<float>::infinity();
  CHECK(first_non_finite(model) == "h.1.attn.out.weight");
}

#include "tests/support/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

namespace taper::test {

ParityCase ParityCase::open(const std::string& name) {
  const auto stem = shared_file("parity") / name;
  return {nlohmann::json::parse(read_file(stem.string() + ".json")),
          SafetensorsFile::open(stem.string() + ".safetensors")};
}

ModelConfig ParityCase::model_config() const {
  ModelConfig model;
  model.vocab_size = config()["vocab"];
  model.context = config()["T"];
  model.width = config()["d"];
  model.layers = config()["layers"];
  model.heads = model.kv_heads = config()["heads"];
  model.head_size = model.width / model.heads;
  model.mlp_hidden = 4 * model.width;
  model.eps = config()["eps"];
  const bool is_layer_norm = config()["norm"] == "ln";
  model.norm = is_layer_norm ? NormKind::layer : NormKind::rms;
  model.has_bias = is_layer_norm;
  set_variant(model, parse_variant(config()["taper"].get<std::string>()));
  return model;
}

Transformer ParityCase::load_model(Precision precision) const {
  Transformer model(model_config(), precision);
  for (const Parameter& p : model.parameters()) {
    const Tensor stored = tensors.read("param." + p.name, p.master.dtype());
    p.master.copy_from(stored.reshaped(p.master.shape()));
    p.refresh_copy();
  }
  return model;
}

TrainerOptions ParityCase::trainer_options() const {
  TrainerOptions options;
  options.anchor = config()["aux"];
  const nlohmann::json& adamw = json["adamw"];
  options.beta1 = adamw["betas"][0];
  options.beta2 = adamw["betas"][1];
  options.adam_eps = adamw["eps"];
  options.weight_decay = adamw["weight_decay_on_matrices"];
  options.clip = adamw["clip"];
  if (config().contains("K")) {
    options.schedule.steps = config()["K"];
    options.schedule.warmup = config()["W"];
    options.schedule.taper_start = config()["T0"];
    options.schedule.taper_end = config()["Z"];
    options.schedule.peak = config()["lr"];
    options.schedule.floor = config()["floor"];
    options.schedule.tapers = true;
    options.ema_decay = config()["ema"];
  }
  return options;
}

double relative_error(const Tensor& ours, const Tensor& file) {
  const std::vector<double> a = ours.to_doubles(), b = file.to_doubles();
  require(a.size() == b.size(), "relative_error: got {}, want {}", describe(ours), describe(file));
  double difference = 0, greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(a[i] - b[i]));
    greatest = std::max(greatest, std::abs(b[i]));
  }
  if (difference == 0) return 0;
  return greatest == 0 ? std::numeric_limits<double>::infinity() : difference / greatest;
}

}  // namespace taper::test

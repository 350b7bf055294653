// Reference models of the folder parity/ of the reference data: NAME.json with the configuration and NAME.safetensors
// with parameters, tokens and results, computed elsewhere in f64.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "engine/io/safetensors.h"
#include "model/transformer.h"
#include "train/trainer.h"

namespace taper::test {

struct ParityCase {
  nlohmann::json json;
  SafetensorsFile tensors;

  static ParityCase open(const std::string& name);

  const nlohmann::json& config() const { return json["config"]; }
  ModelConfig model_config() const;
  Transformer load_model(Precision precision) const;  // the parameters named param.*
  TrainerOptions trainer_options() const;             // AdamW's, the anchor's and, where there is one, the schedule's
  Tensor tokens(const std::string& name) const { return tensors.read(name, Dtype::i32); }
};

// How near ours must be: |ours - file| <= tolerance * max |file|.
struct ParityTolerance {
  Precision precision;
  double tolerance;
};

// max |ours - file| / max |file| over all elements; where the file is all zero, 0 for all zero and infinity
// otherwise.
double relative_error(const Tensor& ours, const Tensor& file);

}  // namespace taper::test

#include "tools/common/plan_bench.h"

#include <algorithm>

#include "engine/core/error.h"
#include "model/fold.h"

namespace taper {
namespace {

bool has_plan(const ModelConfig& config, Plan plan) {
  switch (plan) {
    case Plan::normed:
      return !is_folded(config);
    case Plan::scaled:
      return config.has_taper() && config.gate == 0;
    case Plan::folded:
      return is_folded(config) || (config.has_taper() && config.gate == 0);
    case Plan::blended:
      break;
  }
  return false;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Dtype decode_dtype(const CommonOptions& common) { return common.precision == "bf16" ? Dtype::bf16 : Dtype::f32; }

Transformer random_model(const std::string& size, int64_t context, uint64_t seed) {
  ModelConfig config = named_config(size, "taper");
  set_variant(config, Variant::all);
  config.gate = 0;
  config.context = std::max(config.context, context);
  Transformer model(config, Precision::f32);
  model.initialise(seed);
  for (const Parameter& p : model.parameters()) {
    if (p.name.ends_with(".gamma_tilde") || p.name.ends_with(".c"))
      std::fill_n(p.master.data<float>(), p.master.numel(), 1.0f);
  }
  return model;
}

std::vector<BenchDecoder> bench_decoders(const Transformer& model, const std::string& plan,
                                         const DecoderOptions& options) {
  std::vector<BenchDecoder> decoders;
  for (const Plan each : {Plan::normed, Plan::scaled, Plan::folded}) {
    if (plan != "all" && parse_plan(plan) != each) continue;
    if (!has_plan(model.config(), each)) {
      if (plan != "all") choose_plan(model.config(), each);
      continue;
    }
    DecoderOptions own = options;
    own.plan = each;
    const bool folds = each == Plan::folded && model.config().has_taper();
    decoders.push_back(
        {each, folds ? std::make_unique<Decoder>(fold(model), own) : std::make_unique<Decoder>(model, own)});
  }
  return decoders;
}

nlohmann::json measure_in_turn(std::vector<BenchDecoder>& decoders, int64_t repeat,
                               const std::function<double(Decoder&)>& run) {
  std::vector<std::vector<double>> rates(decoders.size());
  for (int64_t round = -1; round < repeat; ++round) {
    for (size_t i = 0; i < decoders.size(); ++i) {
      const double rate = run(*decoders[i].decoder);
      if (round >= 0) rates[i].push_back(rate);
    }
  }
  nlohmann::json result;
  for (size_t i = 0; i < decoders.size(); ++i) {
    const auto [least, most] = std::minmax_element(rates[i].begin(), rates[i].end());
    result[to_string(decoders[i].plan)]["tokens_per_s"] = {
        {"median", median(rates[i])}, {"min", *least}, {"max", *most}};
  }
  for (const char* plan : {"scaled", "folded"}) {
    const bool has_both = result.contains(plan) && result.contains("normed");
    result["ratios"][plan] = has_both ? nlohmann::json(result[plan]["tokens_per_s"]["median"].get<double>() /
                                                       result["normed"]["tokens_per_s"]["median"].get<double>())
                                      : nlohmann::json();
  }
  return result;
}

nlohmann::json measure_settings(std::vector<BenchDecoder>& decoders, Device device, int64_t repeat,
                                const std::function<double(Decoder&)>& run) {
  nlohmann::json result = measure_in_turn(decoders, repeat, run);
  if (device != Device::cuda || result.empty()) return result;
  for (BenchDecoder& each : decoders) each.decoder->record_steps(false);
  result["separate_launches"] = measure_in_turn(decoders, repeat, run);
  for (BenchDecoder& each : decoders) each.decoder->record_steps(true);
  return result;
}

}  // namespace taper

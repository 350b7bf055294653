#include "tools/common/plan_bench.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/profile.h"
#include "model/fold.h"
#include "tools/common/device.h"
#include "tools/common/run_tool.h"

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

WeightType decode_weights(const CommonOptions& common) {
  return common.precision == "int8"   ? WeightType::int8
         : common.precision == "bf16" ? WeightType::bf16
                                      : WeightType::f32;
}

Device decode_device(const CommonOptions& common) {
  if (common.precision != "int8") return choose_device(common.device);
  require_usage(common.device != "cuda",
                "--precision int8: the processor alone decodes with it; got --device cuda, want cpu, or f32 or bf16");
  return Device::cpu;
}

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
                               const std::function<double(Decoder&)>& run, const std::function<double()>& limit) {
  std::vector<std::vector<double>> rates(decoders.size());
  std::vector<double> limits;
  for (int64_t round = -1; round < repeat; ++round) {
    const double most = limit ? limit() : 0;
    if (round >= 0 && limit) limits.push_back(most);
    for (size_t i = 0; i < decoders.size(); ++i) {
      const double rate = run(*decoders[i].decoder);
      if (round >= 0) rates[i].push_back(rate);
    }
  }
  nlohmann::json result;
  const auto summary = [](const std::vector<double>& values) -> nlohmann::json {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return {{"median", median(values)}, {"min", *least}, {"max", *most}};
  };
  for (size_t i = 0; i < decoders.size(); ++i) {
    nlohmann::json& plan = result[to_string(decoders[i].plan)];
    plan["tokens_per_s"] = summary(rates[i]);
    if (limit) plan["share_of_limit"] = median(rates[i]) / median(limits);
  }
  if (limit && !decoders.empty()) result["limit"]["tokens_per_s"] = summary(limits);
  for (const char* plan : {"scaled", "folded"}) {
    const bool has_both = result.contains(plan) && result.contains("normed");
    result["ratios"][plan] = has_both ? nlohmann::json(result[plan]["tokens_per_s"]["median"].get<double>() /
                                                       result["normed"]["tokens_per_s"]["median"].get<double>())
                                      : nlohmann::json();
  }
  return result;
}

nlohmann::json measure_settings(std::vector<BenchDecoder>& decoders, Device device, int64_t repeat,
                                const std::function<double(Decoder&)>& run, const std::function<double()>& limit) {
  nlohmann::json result = measure_in_turn(decoders, repeat, run, limit);
  if (device != Device::cuda || result.empty()) return result;
  for (BenchDecoder& each : decoders) each.decoder->record_steps(false);
  result["separate_launches"] = measure_in_turn(decoders, repeat, run);
  for (BenchDecoder& each : decoders) each.decoder->record_steps(true);
  return result;
}

void profile_from_here(const Decoder& decoder) {
  limit_profile_by_reading(decoder.bytes_per_step(0));
  if (is_profiling()) start_profile();
}

}  // namespace taper

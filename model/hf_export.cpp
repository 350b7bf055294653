#include "model/hf_export.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/float16.h"
#include "engine/io/staged_output.h"
#include "model/fold.h"
#include "model/gguf_model.h"
#include "model/hf_custom.h"
#include "model/hf_weights.h"
#include "model/logit_check.h"
#include "model/model_folder.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

float rounded(float value, StoredDtype stored) {
  if (stored == StoredDtype::f16) return float16_to_float(float_to_float16(value));
  if (stored == StoredDtype::bf16) return static_cast<float>(bf16(value));
  return value;
}

const char* dtype_name(StoredDtype stored) {
  return stored == StoredDtype::f16 ? "f16" : stored == StoredDtype::bf16 ? "bf16" : "f32";
}

void check_values(const std::string& name, const Tensor& tensor, StoredDtype stored) {
  const float* values = tensor.data<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    require(std::isfinite(values[i]), "tensor {}: element {} is {}; want finite values", name, i, values[i]);
    require_usage(std::isfinite(rounded(values[i], stored)),
                  "tensor {}: element {} is {}, which {} cannot hold; want --dtype f32 or bf16", name, i, values[i],
                  dtype_name(stored));
  }
}

void check_same(const std::string& name, const Tensor& want, const Tensor& got, StoredDtype stored) {
  require(want.shape() == got.shape(), "tensor {}: read back, it has another shape; got {}, want {}", name,
          to_string(got.shape()), to_string(want.shape()));
  const float* const wanted = want.data<float>();
  const float* const read = got.data<float>();
  for (int64_t i = 0; i < want.numel(); ++i) {
    const float value = rounded(wanted[i], stored);
    require(read[i] == value, "tensor {}: read back, element {} is {}, want {}", name, i, read[i], value);
  }
}

// Of the greatest logit: f32 rounding in another order of sums, and what half the bits may lose besides.
double tolerance(StoredDtype stored, bool has_extra_block) {
  return stored == StoredDtype::bf16 ? 0.1 : stored == StoredDtype::f16 ? 1e-2 : has_extra_block ? 2e-4 : 1e-4;
}

void finish(ExportResult& result, const LogitCheck& check, const Transformer& read_back, StoredDtype stored,
            bool has_extra_block) {
  const LogitDifference difference = check.difference(read_back);
  result.max_logit_difference = difference.most;
  result.allowed = difference.allowed(tolerance(stored, has_extra_block));
  require(difference.is_within(tolerance(stored, has_extra_block)),
          "{}: read back, it is another function, so nothing was written; logits differ by {:.3g}, want at most {:.3g}",
          result.form, result.max_logit_difference, result.allowed);
}

Tensor as_in_file(const HfTensor& tensor) {
  if (!tensor.is_transposed && tensor.padding_rows == 0) return tensor.part;
  const std::vector<int64_t> sizes = tensor.hf_shape();
  const Tensor stored = Tensor::zeros({sizes[0], sizes[1]}, Dtype::f32);
  if (tensor.is_transposed) {
    transpose_into(tensor.part.data<float>(), tensor.part.dim(0), tensor.part.dim(1), stored.data<float>());
  } else {
    stored.rows(0, tensor.part.dim(0)).copy_from(tensor.part);
  }
  return stored;
}

HfConfig hf_config_of(const StockForm& form, const ModelConfig& model, const ExportOptions& options) {
  HfConfig config;
  config.hf_class = form.hf_class;
  config.model = model;
  config.has_attention_bias = config.has_mlp_bias = model.has_bias;
  config.bos_id = options.bos_id;
  config.eos_id = options.eos_id;
  return config;
}

void save_tokenizer(const ExportOptions& options, const fs::path& folder, const ModelConfig& config) {
  if (!options.tokenizer) return;
  require_usage(options.tokenizer->size <= config.vocab_size,
                "tokenizer: does not fit the model; got {} tokens, want at most {}", options.tokenizer->size,
                config.vocab_size);
  options.tokenizer->save(folder, config.context);
}

ExportResult write_stock(const Transformer& source, const StockForm& form, const LogitCheck& check,
                         const fs::path& output, const ExportOptions& options) {
  const Transformer& model = form.model(source);
  const std::vector<HfTensor> tensors = hf_tensors(model, form.hf_class);
  for (const HfTensor& tensor : tensors) check_values(tensor.name, tensor.part, options.stored);
  ExportResult result{form.how, std::ssize(tensors), 0, 0};
  StagedOutput staging(output);
  staging.make_folder();
  {
    std::vector<std::pair<std::string, Tensor>> stored;
    for (const HfTensor& tensor : tensors) stored.emplace_back(tensor.name, as_in_file(tensor));
    write_safetensors(staging.path() / "model.safetensors", stored, {}, options.stored);
  }
  const HfConfig config = hf_config_of(form, model.config(), options);
  write_file(staging.path() / "config.json", hf_config_to_json(config, options.stored));
  write_file(staging.path() / "generation_config.json", generation_config_to_json(config));
  save_tokenizer(options, staging.path(), source.config());

  const HfWeights weights = HfWeights::open(staging.path(), form.hf_class);
  for (const HfTensor& tensor : tensors) {
    HfTensor copy = tensor;
    copy.part = Tensor::empty(tensor.part.shape(), Dtype::f32);
    weights.read_into(copy);
    check_same(tensor.name, tensor.part, copy.part, options.stored);
  }
  finish(result, check, load_hf_model(staging.path(), Precision::f32), options.stored, form.has_extra_block);
  staging.commit();
  return result;
}

void check_native(const Transformer& model, const Transformer& read_back, StoredDtype stored) {
  for (const Parameter& p : model.parameters()) {
    check_same(p.name, p.master, read_back.parameter(p.name).master, stored);
  }
}

ExportResult write_custom(const Transformer& model, const LogitCheck& check, const fs::path& output,
                          const ExportOptions& options) {
  for (const Parameter& p : model.parameters()) check_values(p.name, p.master, options.stored);
  ExportResult result{"TaperForCausalLM, a class of its own (trust_remote_code)", std::ssize(model.parameters()), 0, 0};
  StagedOutput staging(output);
  staging.make_folder();
  save_custom_model(model, staging.path(), options.stored, options.bos_id, options.eos_id);
  HfConfig ids;
  ids.bos_id = options.bos_id;
  ids.eos_id = options.eos_id;
  write_file(staging.path() / "generation_config.json", generation_config_to_json(ids));
  save_tokenizer(options, staging.path(), model.config());
  const Transformer read_back = load_model(staging.path());
  check_native(model, read_back, options.stored);
  finish(result, check, read_back, options.stored, false);
  staging.commit();
  return result;
}

// The form by the route asked for. For automatic, one whose logits are not the model's is none.
std::optional<StockForm> form_for(const Transformer& model, const LogitCheck& check, const ExportOptions& options,
                                  LargeEps eps, std::string* why_not) {
  std::optional<StockForm> form = make_stock_form(model, options.route, eps, why_not);
  if (!form || !form->changed) return form;
  const LogitDifference difference = check.difference(*form->changed);
  const double allowed = tolerance(StoredDtype::f32, form->has_extra_block);
  if (difference.is_within(allowed)) return form;
  *why_not = fmt::format("as {} it is another function: logits differ by {:.3g}, want at most {:.3g}", form->how,
                         difference.most, difference.allowed(allowed));
  return std::nullopt;
}

}  // namespace

std::optional<Transformer> without_taper(const Transformer& model, const Say& say) {
  const ModelConfig& config = model.config();
  if (!config.has_taper()) return std::nullopt;
  if (config.gate == 1) return with_plain_norms(model);
  require_usage(config.gate == 0,
                "model: its taper is unfinished, the gate was {} at step {}; want 0, which training to the end of the "
                "taper reaches, or 1",
                config.gate, config.step);
  if (say) say("the model's norms have tapered away: they are folded into its matrices first");
  return fold(model);
}

ExportResult export_hf(const Transformer& model, const fs::path& output, const ExportOptions& options) {
  const std::optional<Transformer> ready = without_taper(model, options.say);
  const Transformer& source = ready ? *ready : model;
  const LogitCheck check(source, options.say);
  if (options.route == ExportRoute::custom) return write_custom(source, check, output, options);
  std::string why_not;
  const std::optional<StockForm> form = form_for(source, check, options, large_eps_of(options.stored), &why_not);
  if (form) return write_stock(source, *form, check, output, options);
  require_usage(options.route == ExportRoute::automatic, "--route {}: the model does not fit: {}",
                to_string(options.route), why_not);
  if (options.say)
    options.say(fmt::format("no stock class holds this model ({}): it takes a file of its own", why_not));
  return write_custom(source, check, output, options);
}

ExportResult export_gguf(const Transformer& model, const fs::path& output, const ExportOptions& options) {
  const std::optional<Transformer> ready = without_taper(model, options.say);
  const Transformer& source = ready ? *ready : model;
  const LogitCheck check(source, options.say);
  std::string why_not = "GGUF runs no code of its own";
  // Norms stay F32 in every GGUF file: the large eps is that of f32.
  const std::optional<StockForm> form =
      options.route == ExportRoute::custom ? std::nullopt : form_for(source, check, options, LargeEps{}, &why_not);
  if (form) why_not = gguf_refusal(form->model(source).config(), form->hf_class);
  require_usage(why_not.empty(), "--to gguf: the model does not fit: {}", why_not);
  const Transformer& stock = form->model(source);
  GgufOptions gguf;
  gguf.name = options.name;
  gguf.stored = options.stored;
  if (options.tokenizer) gguf.tokenizer = options.tokenizer->gguf(stock.config().vocab_size);
  gguf.has_extra_block = form->has_extra_block;
  const std::vector<GgufTensor> tensors = gguf_tensors(stock, form->hf_class, gguf);
  for (const GgufTensor& tensor : tensors) check_values(tensor.name, tensor.values, tensor.stored);
  const char* arch = form->hf_class == HfClass::llama ? "llama" : "gpt2";
  ExportResult result{fmt::format("GGUF {} ({})", arch, form->how), std::ssize(tensors), 0, 0};
  StagedOutput staging(output);
  write_gguf(staging.path(), gguf_metadata(stock.config(), form->hf_class, gguf), tensors);
  const GgufFile file = GgufFile::open(staging.path());
  for (const GgufTensor& tensor : tensors)
    check_same(tensor.name, tensor.values, file.read(tensor.name), tensor.stored);
  // What llama.cpp works out from the file is taken back from it, but for llama3's frequencies, which are rounded.
  if (stock.config().rope_scaling != RopeScaling::llama3) {
    finish(result, check, load_gguf_model(staging.path()), options.stored, form->has_extra_block);
  }
  staging.commit();
  return result;
}

ExportResult export_native(const Transformer& model, const fs::path& output, const ExportOptions& options) {
  for (const Parameter& p : model.parameters()) check_values(p.name, p.master, options.stored);
  ExportResult result{"taper", std::ssize(model.parameters()), 0, 0};
  const LogitCheck check(model, options.say);
  StagedOutput staging(output);
  save_model(model, staging.path(), options.stored);
  save_tokenizer(options, staging.path(), model.config());
  const Transformer read_back = load_model(staging.path());
  check_native(model, read_back, options.stored);
  finish(result, check, read_back, options.stored, false);
  staging.commit();
  return result;
}

}  // namespace taper

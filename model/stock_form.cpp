#include "model/stock_form.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {
namespace {

// A matrix or vector of a model, by row and column.
class Cells {
 public:
  Cells(const Transformer& model, const std::string& name)
      : master_(model.parameter(name).master), columns_(master_.shape().rank < 2 ? 1 : master_.dim(1)) {
    require(master_.dtype() == Dtype::f32, "{}: got {}, want an f32 model", name, describe(master_));
  }
  float& at(int64_t row, int64_t column = 0) const { return master_.data<float>()[row * columns_ + column]; }
  int64_t rows() const { return master_.dim(0); }
  int64_t columns() const { return columns_; }

 private:
  Tensor master_;
  int64_t columns_;
};

std::string block(int64_t layer) { return "h." + std::to_string(layer) + "."; }

void fill(const Transformer& model, const std::string& name, double value) {
  kernels::fill(model.parameter(name).master, value);
}

void check_norms(const Transformer& model, NormSite block_norms, NormSite final_norm, const char* what) {
  require(model.config().block_norms == block_norms && model.config().final_norm == final_norm,
          "{}: the model's norms are in another state", what);
}

// Rows [0, n) and columns [0, m) of `to` from `from`, times a factor; `mirrors` writes the negative a further n rows
// below, or, for tables, m columns to the right.
void copy_cells(const Cells& from, const Cells& to, float factor = 1) {
  for (int64_t r = 0; r < from.rows(); ++r) {
    for (int64_t c = 0; c < from.columns(); ++c) to.at(r, c) = factor * from.at(r, c);
  }
}

struct Doubling {
  const Transformer& from;
  const Transformer& to;
  int64_t width, old_head, new_head;

  // [E, -E]: what writes into the stream a row at a time.
  void table(const std::string& name) const {
    const Cells old(from, name), doubled(to, name);
    for (int64_t r = 0; r < old.rows(); ++r) {
      for (int64_t c = 0; c < width; ++c) {
        doubled.at(r, c) = old.at(r, c);
        doubled.at(r, width + c) = -old.at(r, c);
      }
    }
  }
  // [O; -O]: what writes into the stream, its columns mapped.
  template <class Map>
  void writer(const std::string& name, Map&& column_of) const {
    const Cells old(from, name + ".weight"), doubled(to, name + ".weight");
    for (int64_t r = 0; r < width; ++r) {
      for (int64_t c = 0; c < old.columns(); ++c) {
        doubled.at(r, column_of(c)) = old.at(r, c);
        doubled.at(width + r, column_of(c)) = -old.at(r, c);
      }
    }
    if (!from.config().has_bias) return;
    const Cells old_bias(from, name + ".bias"), bias(to, name + ".bias");
    for (int64_t r = 0; r < width; ++r) {
      bias.at(r) = old_bias.at(r);
      bias.at(width + r) = -old_bias.at(r);
    }
  }
  void norm(const std::string& name, float factor = 1) const {
    const Cells old(from, name + ".gamma"), gamma(to, name + ".gamma");
    for (int64_t c = 0; c < width; ++c) gamma.at(c) = gamma.at(width + c) = factor * old.at(c);
  }
  // Reads the first half of the stream; queries make up for the other width of heads, grouped keys are repeated.
  void attention_reader(const std::string& name) const {
    const ModelConfig& old_config = from.config();
    const int64_t heads = old_config.heads, kv_heads = old_config.kv_heads;
    const double scale =
        old_config.attention_scale != 0 ? old_config.attention_scale : 1.0 / std::sqrt(double(old_head));
    const auto query_factor = static_cast<float>(scale * std::sqrt(double(new_head)));
    const Cells old(from, name + ".weight"), wide(to, name + ".weight");
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t old_index = part == 0 ? head : heads + (part - 1) * kv_heads + head / (heads / kv_heads);
        const float factor = part == 0 ? query_factor : 1;
        for (int64_t i = 0; i < old_head; ++i) {
          const int64_t old_row = old_index * old_head + i, row = (part * heads + head) * new_head + i;
          for (int64_t c = 0; c < width; ++c) wide.at(row, c) = factor * old.at(old_row, c);
          if (!old_config.has_bias) continue;
          Cells(to, name + ".bias").at(row) = factor * Cells(from, name + ".bias").at(old_row);
        }
      }
    }
  }
};

void double_block(const Doubling& doubling, const std::string& name) {
  if (doubling.from.config().block_norms == NormSite::plain) {
    doubling.norm(name + "norm1");
    doubling.norm(name + "norm2");
  }
  doubling.attention_reader(name + "attn.qkv");
  doubling.writer(name + "attn.out", [&](int64_t column) {
    return column / doubling.old_head * doubling.new_head + column % doubling.old_head;
  });
  copy_cells(Cells(doubling.from, name + "mlp.up.weight"), Cells(doubling.to, name + "mlp.up.weight"));
  doubling.writer(name + "mlp.down", [](int64_t column) { return column; });
}

}  // namespace

Transformer rebuilt(const Transformer& model, const ModelConfig& config) {
  Transformer result(config, Precision::f32);
  result.set_requires_grad(false);
  std::vector<std::string> names;
  for (const Parameter& p : model.parameters()) names.push_back(p.name);
  for (const Parameter& p : result.parameters()) {
    const bool has_source = std::find(names.begin(), names.end(), p.name) != names.end();
    const Tensor source = has_source ? model.parameter(p.name).master : Tensor();
    if (source && source.shape() == p.master.shape()) {
      p.master.copy_from(source);
    } else {
      kernels::fill(p.master, p.initial_mean);
    }
  }
  return result;
}

Transformer with_plain_norms(const Transformer& model) {
  ModelConfig config = model.config();
  config.block_norms = config.block_norms == NormSite::tapered ? NormSite::plain : config.block_norms;
  config.final_norm = config.final_norm == NormSite::tapered ? NormSite::plain : config.final_norm;
  return rebuilt(model, config);
}

Transformer with_biases(const Transformer& model) {
  ModelConfig config = model.config();
  config.has_bias = true;
  return rebuilt(model, config);
}

Transformer with_own_unembedding(const Transformer& model) {
  ModelConfig config = model.config();
  if (!config.is_tied) return rebuilt(model, config);
  config.is_tied = false;
  Transformer result = rebuilt(model, config);
  result.parameter("lm_head.weight").master.copy_from(model.parameter("wte.weight").master);
  return result;
}

Transformer with_doubled_stream(const Transformer& model) {
  const ModelConfig& old = model.config();
  require(old.norm == NormKind::rms && old.positions == Positions::learned && !old.is_gated_mlp && !old.has_head_bias,
          "doubled stream: the model is no RMSNorm model with learned positions and plain MLPs");
  require(2 * old.width % old.heads == 0 && 2 * old.width / old.heads >= old.head_size,
          "doubled stream: {} heads of {} do not fit a width of {}", old.heads, old.head_size, 2 * old.width);
  ModelConfig config = old;
  config.arch = "gpt2";
  config.width = 2 * old.width;
  config.norm = NormKind::layer;
  config.has_bias = true;
  config.head_size = config.width / config.heads;
  config.kv_heads = config.heads;
  config.attention_scale = 0;
  // Without a last norm nothing would halve what a tied unembedding sees twice.
  if (old.final_norm == NormSite::removed) config.is_tied = false;
  Transformer result = rebuilt(model, config);
  const Doubling doubling{model, result, old.width, old.head_size, config.head_size};
  doubling.table("wte.weight");
  doubling.table("wpe.weight");
  for (int64_t layer = 0; layer < old.layers; ++layer) double_block(doubling, block(layer));
  if (old.final_norm == NormSite::plain) doubling.norm("norm_f", config.is_tied ? 0.5f : 1.0f);
  if (!config.is_tied) {
    copy_cells(Cells(model, old.is_tied ? "wte.weight" : "lm_head.weight"), Cells(result, "lm_head.weight"));
  }
  return result;
}

Transformer with_large_eps(const Transformer& model, LargeEps form) {
  check_norms(model, NormSite::removed, NormSite::removed, "large eps");
  ModelConfig config = model.config();
  config.block_norms = config.final_norm = NormSite::plain;
  config.eps = form.eps;
  config.has_head_bias = false;
  require(!model.config().has_head_bias || (config.norm == NormKind::layer && !config.is_tied),
          "large eps: a bias of the unembedding has a place in folded LayerNorm models alone");
  Transformer result = rebuilt(model, config);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    fill(result, block(layer) + "norm1.gamma", form.gain);
    fill(result, block(layer) + "norm2.gamma", form.gain);
  }
  fill(result, "norm_f.gamma", form.gain);
  if (!model.config().has_head_bias) return result;
  fill(result, "norm_f.beta", 1.0);
  const Cells bias(model, "lm_head.bias"), head(result, "lm_head.weight");
  for (int64_t v = 0; v < config.vocab_size; ++v) {
    for (int64_t c = 0; c < config.width; ++c) head.at(v, c) += bias.at(v) / static_cast<float>(config.width);
  }
  return result;
}

Transformer with_extra_block(const Transformer& model, LargeEps form) {
  check_norms(model, NormSite::removed, NormSite::plain, "extra block");
  const ModelConfig& old = model.config();
  require(!old.is_gated_mlp, "extra block: a gated MLP cannot be linear");
  ModelConfig config = old;
  config.block_norms = NormSite::plain;
  config.eps = form.eps;
  config.layers += 1;
  config.mlp_hidden = std::max(old.mlp_hidden, 2 * old.width);
  Transformer result = rebuilt(model, config);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    fill(result, block(layer) + "norm1.gamma", form.gain);
    fill(result, block(layer) + "norm2.gamma", form.gain);
  }
  if (config.mlp_hidden > old.mlp_hidden) {
    for (int64_t layer = 0; layer < old.layers; ++layer) {
      const std::string up = block(layer) + "mlp.up.weight", down = block(layer) + "mlp.down.weight";
      copy_cells(Cells(model, up), Cells(result, up));
      copy_cells(Cells(model, down), Cells(result, down));
      const std::string bias = block(layer) + "mlp.up.bias";
      if (old.has_bias) copy_cells(Cells(model, bias), Cells(result, bias));
    }
  }
  constexpr double kSteepness = 0x1p14;
  const double growth = std::sqrt(form.eps / old.eps) - 1;
  const Cells up(result, block(old.layers) + "mlp.up.weight"), down(result, block(old.layers) + "mlp.down.weight");
  for (int64_t c = 0; c < old.width; ++c) {
    up.at(c, c) = static_cast<float>(kSteepness);
    up.at(old.width + c, c) = static_cast<float>(-kSteepness);
    down.at(c, c) = static_cast<float>(growth / kSteepness);
    down.at(c, old.width + c) = static_cast<float>(-growth / kSteepness);
  }
  return result;
}

const char* to_string(ExportRoute route) {
  switch (route) {
    case ExportRoute::automatic:
      return "automatic";
    case ExportRoute::gpt2:
      return "gpt2";
    case ExportRoute::imagegpt:
      return "imagegpt";
    case ExportRoute::extra_block:
      return "extra-block";
    case ExportRoute::custom:
      break;
  }
  return "custom";
}

namespace {

// Builds a form step by step; `refuse` ends it with the reason.
class FormBuilder {
 public:
  FormBuilder(const Transformer& source, ExportRoute route, LargeEps eps, std::string* why_not)
      : source_(source), route_(route), eps_(eps), why_not_(why_not) {}

  std::optional<StockForm> build() {
    if (!fit_stream() || !fit_norms()) return std::nullopt;
    std::string why;
    const std::optional<HfClass> hf_class = hf_class_of(current().config(), &why);
    if (!hf_class) {
      refuse("no class fits: " + why);
      return std::nullopt;
    }
    if (route_ == ExportRoute::imagegpt && *hf_class != HfClass::imagegpt)
      return refuse(std::string("it is a model for ") + to_string(*hf_class)), std::nullopt;
    const bool wants_gpt2 = route_ == ExportRoute::gpt2 || route_ == ExportRoute::extra_block;
    if (wants_gpt2 && *hf_class != HfClass::gpt2)
      return refuse(std::string("it is a model for ") + to_string(*hf_class)), std::nullopt;
    form_.hf_class = *hf_class;
    form_.how = to_string(*hf_class) + form_.how;
    return std::move(form_);
  }

 private:
  const Transformer& current() const { return form_.model(source_); }
  bool refuse(std::string why) {
    if (why_not_) *why_not_ = std::move(why);
    return false;
  }
  bool change(Transformer model, const char* how) {
    form_.changed.emplace(std::move(model));
    form_.how += how;
    return true;
  }

  bool fit_stream() {
    const ModelConfig& config = source_.config();
    if (config.norm != NormKind::rms || config.positions != Positions::learned || config.is_gated_mlp) return true;
    if (config.has_head_bias) return refuse("no class has RMSNorm and a bias of the unembedding");
    if (route_ == ExportRoute::imagegpt) return change(with_own_unembedding(with_biases(source_)), "");
    if (2 * config.width % config.heads != 0 || 2 * config.width / config.heads < config.head_size)
      return refuse(fmt::format("{} heads of {} do not fit a doubled stream of {}", config.heads, config.head_size,
                                2 * config.width));
    return change(with_doubled_stream(source_), ", doubled stream");
  }

  bool fit_norms() {
    const ModelConfig& config = current().config();
    const bool is_plain = config.block_norms == NormSite::plain && config.final_norm == NormSite::plain;
    const bool is_free = config.block_norms == NormSite::removed && config.final_norm == NormSite::removed;
    if (route_ == ExportRoute::extra_block && (is_plain || is_free))
      return refuse("the extra block is for models whose last norm alone is left");
    if (is_plain) return true;
    if (is_free) {
      if (config.has_head_bias && config.norm != NormKind::layer)
        return refuse("no class has RMSNorm and a bias of the unembedding");
      return change(with_large_eps(current(), eps_), ", norms linear by a large eps");
    }
    if (config.block_norms == NormSite::plain)
      return refuse("its last norm was removed and those of the blocks were not, but classes have one eps for all");
    if (config.is_gated_mlp)
      return refuse(
          "its last norm is left alone; classes have one eps for all norms, and a gated MLP cannot make up for "
          "that");
    if (route_ == ExportRoute::gpt2 || route_ == ExportRoute::imagegpt)
      return refuse(
          "its last norm is left alone; classes have one eps for all norms; the routes extra-block and custom "
          "keep it");
    if (eps_.gain < LargeEps{}.gain)
      return refuse("its last norm is left alone, and the stream of the extra block leaves the range of f16");
    form_.has_extra_block = true;
    return change(with_extra_block(current(), eps_), ", norms linear by a large eps, an extra block for the last");
  }

  const Transformer& source_;
  ExportRoute route_;
  LargeEps eps_;
  std::string* why_not_;
  StockForm form_;
};

}  // namespace

std::optional<StockForm> make_stock_form(const Transformer& model, ExportRoute route, LargeEps form,
                                         std::string* why_not) {
  return FormBuilder(model, route, form, why_not).build();
}

}  // namespace taper

#include "tests/support/plain_forward.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/core/random.h"

namespace taper::test {
namespace {

using Vector = std::vector<double>;

class PlainForward {
 public:
  PlainForward(const Transformer& model, double gate) : model_(model), config_(model.config()), gate_(gate) {}

  std::vector<Vector> run(const std::vector<int32_t>& tokens) {
    keys_.assign(size_t(config_.layers), {});
    values_ = keys_;
    std::vector<Vector> logits;
    for (size_t t = 0; t < tokens.size(); ++t) logits.push_back(token(tokens[t], int64_t(t)));
    return logits;
  }

 private:
  bool has(const std::string& name) const {
    return std::any_of(model_.parameters().begin(), model_.parameters().end(),
                       [&](const Parameter& p) { return p.name == name; });
  }
  const float* get(const std::string& name) const { return model_.parameter(name).master.data<float>(); }

  Vector row(const std::string& name, int64_t index) const {
    const float* values = get(name) + index * config_.width;
    return Vector(values, values + config_.width);
  }

  Vector linear(const Vector& x, const std::string& weight, const std::string& bias) const {
    const Tensor& w = model_.parameter(weight).master;
    Vector y(size_t(w.dim(0)), 0.0);
    for (int64_t m = 0; m < w.dim(0); ++m) {
      if (has(bias)) y[size_t(m)] = get(bias)[m];
      for (int64_t k = 0; k < w.dim(1); ++k) y[size_t(m)] += double(w.data<float>()[m * w.dim(1) + k]) * x[size_t(k)];
    }
    return y;
  }

  Vector norm(const Vector& h, const std::string& name, NormSite site) const {
    if (site == NormSite::removed) return h;
    const double n = double(h.size());
    const bool is_layer = config_.norm == NormKind::layer;
    double mean = 0, square = 0;
    for (double v : h) mean += is_layer ? v / n : 0.0;
    for (double v : h) square += (v - mean) * (v - mean) / n;
    const double g = site == NormSite::tapered ? gate_ : 1.0;
    Vector y(h.size());
    for (size_t i = 0; i < h.size(); ++i) {
      double normed = (h[i] - mean) / std::sqrt(square + config_.eps) * get(name + ".gamma")[i];
      if (is_layer) normed += get(name + ".beta")[i];
      y[i] = g * normed;
      if (g == 1.0) continue;
      double scaled = get(name + ".c")[0] * (h[i] - mean) * get(name + ".gamma_tilde")[i];
      if (is_layer) scaled += get(name + ".beta_tilde")[i];
      y[i] += (1 - g) * scaled;
    }
    return y;
  }

  void rotate(double* head, int64_t position) const {
    const int64_t half = config_.head_size / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          double(position) * std::pow(config_.rope_theta, -2.0 * double(i) / double(config_.head_size));
      const double a = head[i], b = head[half + i];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[half + i] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  Vector attention(Vector qkv, size_t layer, int64_t position) {
    const int64_t d = config_.head_size, q_heads = config_.heads, kv_heads = config_.kv_heads;
    if (config_.positions == Positions::rotary) {
      for (int64_t i = 0; i < q_heads + kv_heads; ++i) rotate(qkv.data() + i * d, position);
    }
    const auto k_begin = qkv.begin() + q_heads * d, v_begin = k_begin + kv_heads * d;
    keys_[layer].emplace_back(k_begin, v_begin);
    values_[layer].emplace_back(v_begin, qkv.end());
    const double scale = config_.attention_scale != 0 ? config_.attention_scale : 1 / std::sqrt(double(d));
    Vector y(size_t(q_heads * d), 0.0);
    for (int64_t head = 0; head < q_heads; ++head) {
      const int64_t kv = head / (q_heads / kv_heads);
      Vector weights;
      double sum = 0;
      for (const Vector& key : keys_[layer]) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += qkv[size_t(head * d + i)] * key[size_t(kv * d + i)];
        weights.push_back(std::exp(score * scale));
        sum += weights.back();
      }
      for (size_t t = 0; t < weights.size(); ++t) {
        for (int64_t i = 0; i < d; ++i)
          y[size_t(head * d + i)] += weights[t] / sum * values_[layer][t][size_t(kv * d + i)];
      }
    }
    return y;
  }

  double act(double x) const {
    switch (config_.activation) {
      case Activation::gelu_tanh:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      case Activation::gelu_erf:
        return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      case Activation::relu:
        return std::max(x, 0.0);
      case Activation::none:
        break;
    }
    return x;
  }

  Vector mlp(const Vector& x, const std::string& name) const {
    Vector up = linear(x, name + (config_.is_gated_mlp ? ".gate_up.weight" : ".up.weight"),
                       name + (config_.is_gated_mlp ? ".gate_up.bias" : ".up.bias"));
    Vector hidden(size_t(config_.mlp_hidden));
    for (size_t i = 0; i < hidden.size(); ++i)
      hidden[i] = config_.is_gated_mlp ? up[i] / (1 + std::exp(-up[i])) * up[hidden.size() + i] : act(up[i]);
    return linear(hidden, name + ".down.weight", name + ".down.bias");
  }

  Vector token(int32_t id, int64_t position) {
    const auto add = [](Vector& h, const Vector& branch) {
      for (size_t i = 0; i < h.size(); ++i) h[i] += branch[i];
    };
    Vector h = row("wte.weight", id);
    if (config_.positions == Positions::learned) add(h, row("wpe.weight", position));
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string name = "h." + std::to_string(i);
      const Vector qkv =
          linear(norm(h, name + ".norm1", config_.block_norms), name + ".attn.qkv.weight", name + ".attn.qkv.bias");
      add(h, linear(attention(qkv, size_t(i), position), name + ".attn.out.weight", name + ".attn.out.bias"));
      add(h, mlp(norm(h, name + ".norm2", config_.block_norms), name + ".mlp"));
    }
    return linear(norm(h, "norm_f", config_.final_norm), config_.is_tied ? "wte.weight" : "lm_head.weight",
                  "lm_head.bias");
  }

  const Transformer& model_;
  const ModelConfig& config_;
  const double gate_;
  std::vector<std::vector<Vector>> keys_, values_;
};

}  // namespace

std::vector<std::vector<double>> plain_logits(const Transformer& model, const std::vector<int32_t>& tokens,
                                              double gate) {
  return PlainForward(model, gate).run(tokens);
}

void fill_randomly(const Transformer& model, uint64_t seed) {
  uint32_t stream = 0;
  for (const Parameter& p : model.parameters()) {
    const Random random(seed, RandomStream::test, stream++);
    float* values = p.master.data<float>();
    const bool is_matrix = p.master.shape().rank == 2;
    const bool is_gain = p.name.find("gamma") != std::string::npos;
    const bool is_scalar = p.name.ends_with(".c");
    const double deviation =
        is_matrix ? (p.name.starts_with("w") ? 0.3 : 1.0 / std::sqrt(double(p.master.dim(1)))) : 0.2;
    for (int64_t i = 0; i < p.master.numel(); ++i) {
      const double normal = random.normal_at(uint64_t(i));
      values[i] = float(is_scalar ? 0.8 + 0.1 * normal : (is_gain ? 1.0 : 0.0) + deviation * normal);
    }
    p.refresh_copy();
  }
}

}  // namespace taper::test

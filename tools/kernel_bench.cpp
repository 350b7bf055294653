// The kernels of a training step one by one, at a model's sizes, on the processor or a GPU: how long each takes, and
// how fast it so moves the memory and computes the products that it cannot do without.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "engine/core/cuda_runtime.h"
#include "engine/core/interrupt.h"
#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"
#include "model/config.h"
#include "tools/common/cli.h"
#include "tools/common/device.h"
#include "tools/common/run_tool.h"
#include "tools/common/step_costs.h"

namespace taper {
namespace {

struct Case {
  std::string name;
  int64_t bytes;  // of all that is read and all that is written, once
  double gflop;   // of products; 0 where there are none worth counting
  std::function<void()> run;
};

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t ? t.bytes() : 0;
  return bytes;
}

double product_gflop(int64_t m, int64_t n, int64_t k) { return 2e-9 * double(m) * double(n) * double(k); }

// What the kernels of one model need, and the cases made of it.
class Step {
 public:
  Step(const ModelConfig& config, int64_t batch, Dtype dtype, Device device)
      : config_(config), batch_(batch), rows_(batch * config.context), dtype_(dtype), device_(device) {}

  std::vector<Case> cases() {
    std::vector<Case> all;
    for (const double gate : {1.0, 0.5, 0.0}) add_norms(all, gate);
    add_products(all);
    add_attention(all);
    add_cross_entropy(all);
    add_embedding(all);
    add_adamw(all);
    return all;
  }

 private:
  // Of numbers that repeat only after many rows.
  Tensor noise(const Shape& shape, Dtype dtype) const {
    constexpr size_t kPeriod = 65521;
    static const std::vector<float> table = [] {
      std::vector<float> values(kPeriod);
      Random random(1, RandomStream::test);
      for (float& value : values) value = static_cast<float>(random.next_normal());
      return values;
    }();
    const Tensor values = Tensor::empty(shape, Dtype::f32);
    float* data = values.data<float>();
    for (int64_t i = 0; i < values.numel(); ++i) data[i] = 0.5f * table[static_cast<size_t>(i) % kPeriod];
    return values.cast(dtype).to(device_);
  }
  Tensor activations(int64_t cols) const { return noise({rows_, cols}, dtype_); }
  Tensor parameters(int64_t cols) const { return noise({cols}, Dtype::f32); }
  static Accumulator written(const Tensor& t) { return Accumulator(t, false); }

  void add_norms(std::vector<Case>& all, double gate) const {
    const int64_t width = config_.width;
    const NormOptions options{config_.norm, 1e-5, gate};
    const bool centres = options.kind == NormKind::layer;
    const Tensor none, x = activations(width), branch = activations(width), y = activations(width);
    const Tensor h = activations(width), dsum = activations(width), dy = activations(width);
    const Tensor gamma = parameters(width), gamma_tilde = parameters(width), c = parameters(1);
    const Tensor beta = centres ? parameters(width) : none, beta_tilde = centres ? parameters(width) : none;
    const Tensor mean = centres ? parameters(rows_) : none, rstd = gate > 0 ? parameters(rows_) : none;
    const std::string suffix = fmt::format(", gate {}", gate);
    all.push_back({"taper_norm_fwd" + suffix, bytes_of({x, branch, h, y, mean, rstd}), 0, [=] {
                     kernels::taper_norm_fwd(y, h, mean, rstd, View(), x, branch, gamma, beta, gamma_tilde, beta_tilde,
                                             c, options);
                   }});
    const Tensor dh = activations(width), dgamma = parameters(width), dgamma_tilde = parameters(width);
    const Tensor dbeta = centres ? parameters(width) : none, dbeta_tilde = centres ? parameters(width) : none;
    all.push_back({"taper_norm_bwd" + suffix, bytes_of({dy, dsum, h, mean, rstd, dh}), 0, [=] {
                     kernels::taper_norm_bwd(written(dh), Accumulator(), written(dgamma), written(dbeta),
                                             written(dgamma_tilde), written(dbeta_tilde), dy, dsum, h, mean, rstd,
                                             gamma, gamma_tilde, c, options);
                   }});
  }

  void add_products(std::vector<Case>& all) const {
    const int64_t width = config_.width, hidden = config_.mlp_hidden;
    const Tensor x = activations(width), y = activations(hidden), pre = activations(hidden);
    const Tensor w = noise({hidden, width}, dtype_), bias = parameters(hidden), dbias = parameters(hidden);
    const Tensor dw = noise({hidden, width}, Dtype::f32), dx = activations(width), none;
    const double gflop = product_gflop(rows_, hidden, width);
    all.push_back({"linear_fwd", bytes_of({x, w, y}), gflop,
                   [=] { kernels::linear_fwd(y, none, x, w, none, Activation::none); }});
    all.push_back({"linear_fwd, bias and gelu", bytes_of({x, w, pre, y}), gflop,
                   [=] { kernels::linear_fwd(y, pre, x, w, bias, Activation::gelu_tanh); }});
    all.push_back({"linear_act_bwd, gelu", 3 * y.bytes(), 0,
                   [=] { kernels::linear_act_bwd(y, written(dbias), y, pre, Activation::gelu_tanh); }});
    all.push_back(
        {"matmul, dx", bytes_of({y, w, dx}), gflop, [=] { kernels::matmul(written(dx), y, w, MatmulOptions{}); }});
    all.push_back({"matmul, dw", bytes_of({y, x, dw}), gflop, [=] {
                     kernels::matmul(written(dw), y, x, MatmulOptions{true, false});
                   }});
  }

  void add_attention(std::vector<Case>& all) const {
    const int64_t tokens = config_.context, size = config_.head_size, heads = config_.heads, kv = config_.kv_heads;
    const AttentionOptions options{heads, kv, size, 1 / std::sqrt(double(size))};
    const Shape shape{batch_, tokens, (heads + 2 * kv) * size}, y_shape{batch_, tokens, heads * size};
    const Tensor qkv = noise(shape, dtype_), dqkv = noise(shape, dtype_), y = noise(y_shape, dtype_);
    const Tensor dy = noise(y_shape, dtype_), lse = noise({batch_, heads, tokens}, Dtype::f32);
    // Of the lower triangle: scores and values forward, five such products backward.
    const double gflop = product_gflop(batch_ * heads * tokens, tokens, size) / 2;
    all.push_back(
        {"attention_fwd", bytes_of({qkv, y, lse}), 2 * gflop, [=] { kernels::attention_fwd(y, lse, qkv, options); }});
    all.push_back({"attention_bwd", bytes_of({qkv, y, dy, lse, dqkv}), 5 * gflop,
                   [=] { kernels::attention_bwd(written(dqkv), dy, y, lse, qkv, options); }});
  }

  Tensor token_ids() const {
    const Tensor ids = Tensor::empty({batch_, config_.context}, Dtype::i32);
    for (int64_t i = 0; i < rows_; ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i * 7919 % config_.vocab_size);
    return ids.to(device_);
  }

  void add_cross_entropy(std::vector<Case>& all) const {
    const int64_t width = config_.width, vocabulary = config_.vocab_size;
    const Tensor x = activations(width), dx = activations(width), w = noise({vocabulary, width}, dtype_);
    const Tensor dw = noise({vocabulary, width}, Dtype::f32), targets = token_ids(), none;
    const Tensor loss = noise({1}, Dtype::f64), squares = noise({1}, Dtype::f64);
    const double factor = 1.0 / double(rows_), gflop = 3 * product_gflop(rows_, vocabulary, width);
    all.push_back({"unembed_cross_entropy", bytes_of({x, dx, w, dw}), gflop,
                   [=] { kernels::unembed_cross_entropy(loss, squares, dx, dw, none, x, w, none, targets, factor); }});
  }

  void add_embedding(std::vector<Case>& all) const {
    const Tensor tokens = token_ids(), wte = noise({config_.vocab_size, config_.width}, dtype_), none;
    const Tensor y = noise({batch_, config_.context, config_.width}, dtype_);
    const Tensor dwte = noise({config_.vocab_size, config_.width}, Dtype::f32);
    all.push_back({"embedding_fwd", 2 * y.bytes(), 0, [=] { kernels::embedding_fwd(y, tokens, wte, none); }});
    all.push_back({"embedding_bwd", bytes_of({y, dwte}), 0,
                   [=] { kernels::embedding_bwd(written(dwte), Accumulator(), y, tokens); }});
  }

  void add_adamw(std::vector<Case>& all) const {
    const Shape shape{config_.mlp_hidden, config_.width};
    const Tensor master = noise(shape, Dtype::f32), m = noise(shape, Dtype::f32), grad = noise(shape, Dtype::f32);
    const Tensor v = Tensor::full(shape, 1.0, Dtype::f32).to(device_);
    const Tensor copy = dtype_ == Dtype::bf16 ? noise(shape, dtype_) : Tensor();
    const AdamwOptions options{0.9, 0.95, 1e-8, 0.1};
    const Tensor scalars = Tensor::from(std::vector<double>{1e-4, 1, 0.1, 0.05, 1}, {kUpdateScalars}).to(device_);
    all.push_back({"adamw", 2 * bytes_of({master, m, v}) + bytes_of({grad, copy}), 0,
                   [=] { kernels::adamw(master, m, v, copy, grad, scalars, options); }});
  }

  const ModelConfig config_;
  const int64_t batch_, rows_;
  const Dtype dtype_;
  const Device device_;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of one call, among so many that they take `budget`.
double seconds_of(Device device, double budget, const std::function<void()>& call) {
  const auto time = [&](int64_t calls) {
    const double begin = now();
    for (int64_t i = 0; i < calls; ++i) call();
    if (device == Device::cuda) cuda_runtime().synchronise();
    return now() - begin;
  };
  time(1);  // memory is taken, algorithms are chosen
  for (int64_t calls = 1;;) {
    const double seconds = time(calls);
    if (seconds >= budget) return seconds / double(calls);
    calls = std::max(2 * calls, static_cast<int64_t>(double(calls) * std::min(100.0, budget / (seconds + 1e-9))));
  }
}

std::string line_of(const nlohmann::json& row) {
  const double gflops = row["gflops"].get<double>();
  return fmt::format("{:<28} {:10.4f} ms {:9.1f} GB/s {:>12} {:10.2f} MB\n", row["kernel"].get<std::string>(),
                     row["milliseconds"].get<double>(), row["gb_per_s"].get<double>(),
                     gflops > 0 ? fmt::format("{:.0f} GFLOP/s", gflops) : "", row["bytes"].get<double>() * 1e-6);
}

nlohmann::json limits_of(const KernelCost& cost, Dtype dtype) {
  nlohmann::json row = {{"kernel", cost.name},
                        {"calls", cost.calls},
                        {"bytes", cost.calls * cost.bytes},
                        {"gflop", double(cost.calls) * cost.flops * 1e-9},
                        {"launches", cost.calls * cost.launches}};
  for (const Card& card : kCards) row[card.name] = 1e3 * double(cost.calls) * least_seconds(cost, card, dtype);
  return row;
}

// The sum of the rows; times too, since one kernel follows another.
nlohmann::json total_of(const std::string& name, const nlohmann::json& rows) {
  nlohmann::json total = {{"kernel", name}};
  for (const char* key : {"bytes", "launches"}) {
    int64_t sum = 0;
    for (const nlohmann::json& row : rows) sum += row[key].get<int64_t>();
    total[key] = sum;
  }
  for (const char* key : {"gflop", kCards[0].name, kCards[1].name}) {
    double sum = 0;
    for (const nlohmann::json& row : rows) sum += row[key].get<double>();
    total[key] = sum;
  }
  return total;
}

std::string limit_line(const nlohmann::json& row) {
  std::string line =
      fmt::format("{:<28} {:10.1f} MB {:10.1f} GFLOP {:6} launches", row["kernel"].get<std::string>(),
                  row["bytes"].get<double>() * 1e-6, row["gflop"].get<double>(), row["launches"].get<int64_t>());
  for (const Card& card : kCards) line += fmt::format("  {} {:8.4f} ms", card.name, row[card.name].get<double>());
  return line + '\n';
}

// What the step costs whatever it runs on, and the time that the cards' memory and tensor cores need for it.
nlohmann::json limits(const ModelConfig& config, int64_t batch, Dtype dtype) {
  nlohmann::json kernels = nlohmann::json::array(), steps = nlohmann::json::array();
  for (const double gate : {1.0, 0.5, 0.0}) {
    nlohmann::json rows = nlohmann::json::array();
    for (const KernelCost& cost : step_costs(config, batch, dtype, gate)) rows.push_back(limits_of(cost, dtype));
    steps.push_back(total_of(fmt::format("a step at gate {}", gate), rows));
    if (gate == 0) kernels = rows;
  }
  steps.push_back(limits_of(token_cost(config, config.context - 1, dtype), dtype));
  return {{"kernels", kernels}, {"totals", steps}};
}

int run(int argc, char** argv) {
  leave_at_first_signal();
  Cli cli("kernel-bench", "Measures each kernel of a training step at a model's sizes.");
  bool wants_limits = false;
  std::string size = "1M", arch = "taper";
  int64_t batch = 4;
  double budget = 0.1;
  cli.choice("--size", size, size_names(), "the model whose sizes are measured");
  cli.choice("--arch", arch, arch_names(), "its architecture");
  cli.option("--batch", batch, "sequences of the model's context in a step")
      .unit("sequences")
      .at_least(1)
      .at_most(4096);
  cli.option("--budget", budget, "time for each measurement").unit("seconds").above(0).at_most(60);
  cli.flag(
      "--limits", wants_limits,
      "measure nothing; what a step and a token must move and compute, and the time that takes at the limits of an "
      "H100 and an H200");
  cli.allow_cuda();
  const CommonOptions common = cli.parse(argc, argv);

  const Dtype dtype = common.precision == "bf16" ? Dtype::bf16 : Dtype::f32;
  ModelConfig config = named_config(size, arch);
  if (wants_limits) {
    set_variant(config, Variant::all);
    const nlohmann::json result = limits(config, batch, dtype);
    if (common.json) return write_result(result.dump() + '\n'), 0;
    for (const char* part : {"kernels", "totals"}) {
      for (const nlohmann::json& row : result[part]) write_result(limit_line(row));
    }
    return 0;
  }
  const Device device = choose_device(common.device);
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& c : Step(config, batch, dtype, device).cases()) {
    const double seconds = seconds_of(device, budget, c.run);
    rows.push_back({{"kernel", c.name},
                    {"milliseconds", seconds * 1e3},
                    {"bytes", c.bytes},
                    {"gb_per_s", double(c.bytes) * 1e-9 / seconds},
                    {"gflops", c.gflop / seconds}});
    if (!common.json) write_result(line_of(rows.back()));
  }
  if (!common.json) return 0;
  const nlohmann::json result = {{"size", size},
                                 {"arch", arch},
                                 {"tokens", batch * config.context},
                                 {"device", to_string(device)},
                                 {"precision", common.precision},
                                 {"kernels", rows}};
  write_result(result.dump() + '\n');
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

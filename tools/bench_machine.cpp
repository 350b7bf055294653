// What this machine can do at the shapes in use, without a model around it: matrix products by each backend, the
// products of a whole training step, read bandwidth, and the chain of reads that a decoded token is at least.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/core/tensor.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/kernels.h"
#include "tools/common/cli.h"
#include "tools/common/read_chain.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

struct Model {
  const char* name;
  int64_t width, layers, vocabulary, tokens;  // tokens of a training step
};
constexpr Model kModels[] = {{"1M", 64, 8, 10000, 2048},
                             {"3M", 128, 8, 10000, 2048},
                             {"9M", 256, 8, 10000, 2048},
                             {"30M", 512, 8, 10000, 2048},
                             {"124M", 768, 12, 50257, 1024}};

struct Layer {
  const char* name;
  int64_t in, out, count;  // of a model
};

std::vector<Layer> layers_of(const Model& m) {
  return {{"qkv", m.width, 3 * m.width, m.layers},
          {"attention_out", m.width, m.width, m.layers},
          {"mlp_up", m.width, 4 * m.width, m.layers},
          {"mlp_down", 4 * m.width, m.width, m.layers},
          {"unembedding", m.width, m.vocabulary, 1}};
}

struct Backend {
  const char* name;
  std::function<void(const Gemm&)> run;
  bool takes_f32, takes_bf16;
};

std::vector<Backend> backends() {
  const auto pick = [](auto base, auto avx2, auto avx512) {
    return cpu_isa() == Isa::avx512 ? avx512 : cpu_isa() == Isa::avx2 ? avx2 : base;
  };
  std::vector<Backend> all = {
      {"chosen", pick(cpu::base::gemm, cpu::avx2::gemm, cpu::avx512::gemm), true, true},
      {"packed", pick(cpu::base::gemm_packed, cpu::avx2::gemm_packed, cpu::avx512::gemm_packed), true, true}};
#ifdef TAPER_ONEDNN
  if (cpu_isa() == Isa::avx512) all.push_back({"onednn", cpu::gemm_onednn, true, true});
#endif
#if defined(__x86_64__)
  if (has_amx_bf16()) all.push_back({"amx", cpu::amx::gemm_amx, false, true});
#endif
  return all;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds of one call: the median of as many as fit into `budget` seconds, three at least.
double seconds_of(double budget, const std::function<void()>& call) {
  call();
  std::vector<double> times;
  for (const double start = now(); times.size() < 3 || now() - start < budget;) {
    const double begin = now();
    call();
    times.push_back(now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Memory large enough for every operand, filled with numbers of which no product overflows.
struct Memory {
  Tensor a, b, c;

  Memory(const Model& m, Dtype dtype) {
    const int64_t largest = m.tokens * std::max(m.vocabulary, 4 * m.width);
    a = Tensor::full({largest}, 0.01, dtype);
    b = Tensor::full({std::max(m.vocabulary, 4 * m.width) * m.width}, 0.01, dtype);
    c = Tensor::full({std::max(b.numel(), largest)}, 0.0, Dtype::f32);
  }
};

enum Pass { forward, input_gradient, weight_gradient };
constexpr const char* kPassNames[] = {"forward", "input_gradient", "weight_gradient"};

Gemm product_of(const Layer& layer, int64_t tokens, Pass pass, Dtype dtype, const Memory& memory) {
  Gemm g;
  g.dtype = dtype;
  g.a = {memory.a.raw(), layer.out, false};
  g.b = {memory.b.raw(), layer.in, false};
  g.c = memory.c.raw();
  g.c_dtype = dtype;
  if (pass == forward) {
    g.m = tokens, g.n = layer.out, g.k = layer.in;
    g.a.stride = layer.in;
    g.b.is_transposed = true;
  } else if (pass == input_gradient) {
    g.m = tokens, g.n = layer.in, g.k = layer.out;
  } else {
    g.m = layer.out, g.n = layer.in, g.k = tokens;
    g.a.is_transposed = true;
    g.c_dtype = Dtype::f32;
  }
  g.c_stride = g.n;
  return g;
}

double gflop_of(const Gemm& g) { return 2e-9 * double(g.m) * double(g.n) * double(g.k); }

// Adds a row for each product, and for each backend the products of a step together.
void bench_products(const Model& model, Dtype dtype, double budget, nlohmann::json& products, nlohmann::json& steps) {
  const Memory memory(model, dtype);
  for (const Backend& backend : backends()) {
    if (dtype == Dtype::f32 ? !backend.takes_f32 : !backend.takes_bf16) continue;
    double step_seconds = 0, step_gflop = 0;
    for (const Layer& layer : layers_of(model)) {
      for (const Pass pass : {forward, input_gradient, weight_gradient}) {
        const Gemm g = product_of(layer, model.tokens, pass, dtype, memory);
        const double seconds = seconds_of(budget, [&] { backend.run(g); });
        step_seconds += seconds * double(layer.count);
        step_gflop += gflop_of(g) * double(layer.count);
        products.push_back({{"size", model.name},
                            {"layer", layer.name},
                            {"pass", kPassNames[pass]},
                            {"m", g.m},
                            {"n", g.n},
                            {"k", g.k},
                            {"dtype", to_string(dtype)},
                            {"backend", backend.name},
                            {"gflops", gflop_of(g) / seconds}});
        print_message(fmt::format("{:>5} {:<14} {:<16} {:<4} {:<7} {:8.0f} GFLOP/s", model.name, layer.name,
                                  kPassNames[pass], to_string(dtype), backend.name, gflop_of(g) / seconds));
      }
    }
    steps.push_back({{"size", model.name},
                     {"dtype", to_string(dtype)},
                     {"backend", backend.name},
                     {"tokens", model.tokens},
                     {"milliseconds", step_seconds * 1e3},
                     {"gflops", step_gflop / step_seconds},
                     {"tokens_per_s", double(model.tokens) / step_seconds}});
  }
}

nlohmann::json bench_bandwidth(double budget) {
  nlohmann::json result = nlohmann::json::array();
  for (const int64_t megabytes : {1, 4, 17, 34, 60, 120, 500, 1000}) {
    ReadChain chain({megabytes * 1'000'000});
    const double seconds = seconds_of(budget, [&] { chain.read(1); });
    result.push_back({{"megabytes", megabytes}, {"gb_per_s", double(megabytes) * 1e-3 / seconds}});
    print_message(fmt::format("reading {:>5} MB: {:6.1f} GB/s", megabytes, double(megabytes) * 1e-3 / seconds));
  }
  return result;
}

// The matrices of a token one after the other: no decoder that reads its weights can be faster.
nlohmann::json bench_chain(const Model& model, WeightType weights, double budget) {
  ModelConfig config;
  config.width = model.width;
  config.layers = model.layers;
  config.vocab_size = model.vocabulary;
  config.heads = config.kv_heads = 1;
  config.head_size = model.width;
  config.mlp_hidden = 4 * model.width;
  ReadChain chain(matrix_bytes(config, weights));
  constexpr int64_t kTokens = 8;
  const double seconds = seconds_of(budget, [&] { chain.read(kTokens); }) / kTokens;
  print_message(
      fmt::format("{:>5} {:<4} chain of a token: {:8.0f} tokens/s", model.name, to_string(weights), 1 / seconds));
  return {{"size", model.name},
          {"dtype", to_string(weights)},
          {"bytes", chain.bytes()},
          {"tokens_per_s", 1 / seconds},
          {"gb_per_s", double(chain.bytes()) * 1e-9 / seconds}};
}

void print_tables(const nlohmann::json& result) {
  std::string text = fmt::format("{} threads, {}\n\nproducts of a training step\n", result["threads"].get<int>(),
                                 result["isa"].get<std::string>());
  for (const auto& step : result["steps"]) {
    text += fmt::format("{:>5} {:<5} {:<7} {:9.1f} ms {:8.0f} GFLOP/s {:10.0f} tokens/s\n",
                        step["size"].get<std::string>(), step["dtype"].get<std::string>(),
                        step["backend"].get<std::string>(), step["milliseconds"].get<double>(),
                        step["gflops"].get<double>(), step["tokens_per_s"].get<double>());
  }
  text += "\nreading memory\n";
  for (const auto& row : result["read_bandwidth"]) {
    text += fmt::format("{:>5} MB {:8.1f} GB/s\n", row["megabytes"].get<int64_t>(), row["gb_per_s"].get<double>());
  }
  text += "\nchain of a token\n";
  for (const auto& row : result["chain"]) {
    text +=
        fmt::format("{:>5} {:<5} {:10.0f} tokens/s {:8.1f} GB/s\n", row["size"].get<std::string>(),
                    row["dtype"].get<std::string>(), row["tokens_per_s"].get<double>(), row["gb_per_s"].get<double>());
  }
  write_result(text);
}

int run(int argc, char** argv) {
  leave_at_first_signal();
  Cli cli("bench-machine", "Measures matrix products, read bandwidth and the chain of a token at the shapes in use.");
  std::string size = "all";
  double budget = 0.05;
  std::vector<std::string> names = {"all"};
  for (const Model& model : kModels) names.push_back(model.name);
  cli.choice("--size", size, names, "the model whose shapes are measured");
  cli.option("--budget", budget, "time for each measurement").unit("seconds").above(0).at_most(60);
  const CommonOptions common = cli.parse(argc, argv);

  using nlohmann::json;
  json result = {{"threads", thread_count()}, {"isa", cpu_isa_name()},           {"products", json::array()},
                 {"steps", json::array()},    {"read_bandwidth", json::array()}, {"chain", json::array()}};
  for (const Model& model : kModels) {
    if (size != "all" && size != model.name) continue;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      bench_products(model, dtype, budget, result["products"], result["steps"]);
    for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8})
      result["chain"].push_back(bench_chain(model, weights, budget));
  }
  result["read_bandwidth"] = bench_bandwidth(budget);
  if (common.json) {
    write_result(result.dump() + '\n');
  } else {
    print_tables(result);
  }
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}

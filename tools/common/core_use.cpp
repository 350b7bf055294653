#include "tools/common/core_use.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "model/model_folder.h"
#include "tools/common/child_process.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kSecondsOfOne = 2;
// More processes take more memory, and are worth it only where they gain something.
constexpr double kLeastGain = 1.05;

// Options of a run that train-bench knows and that decide its speed.
constexpr const char* kShapeKeys[] = {"data",    "size",    "arch",        "width",       "layers",
                                      "heads",   "context", "micro-batch", "variant",     "precision",
                                      "threads", "device",  "model",       "batch-tokens"};

struct Speed {
  double tokens_per_s = 0;
  double step_seconds = 0;
};

// Of `processes` at once, each with `threads`.
Speed measure(const std::vector<std::string>& arguments, int processes, int threads, int64_t steps,
              const fs::path& folder) {
  std::vector<ChildProcess> children;
  std::vector<fs::path> files;
  for (int i = 0; i < processes; ++i) {
    files.push_back(folder / ("speed-" + std::to_string(i) + ".json"));
    fs::remove(files.back());
    std::vector<std::string> all = arguments;
    for (const std::string& more :
         {std::string("--json"), "--steps=" + std::to_string(steps), "--threads=" + std::to_string(threads)}) {
      all.push_back(more);
    }
    children.emplace_back(sibling_program("train-bench"), all, files.back(), folder / "speed.txt");
  }
  Speed sum;
  for (size_t i = 0; i < children.size(); ++i) {
    std::optional<int> code;
    while (!(code = children[i].poll()) && !stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (stop_requested()) return {};
    const Json result = try_parse_json<Json>(*code == 0 ? read_file(files[i], 1 << 16) : "");
    require(result.is_object(), "plan: the speed of its runs cannot be measured; see {}",
            (folder / "speed.txt").string());
    sum.tokens_per_s += result["tokens_per_s"].get<double>();
    sum.step_seconds = result["step_ms"].get<double>() / 1e3;
    fs::remove(files[i]);
  }
  return sum;
}

// What train-bench is to be told of the model that a run goes on with; empty where it does not know such models, or the
// model is still to be trained.
Json model_shape(const std::string& folder) {
  if (!fs::exists(folder)) return {};
  const ModelConfig config = read_model_config(find_model_folder(folder));
  const std::vector<std::string> known = arch_names();
  if (std::count(known.begin(), known.end(), config.arch) == 0) return {};
  return {{"arch", config.arch}, {"width", config.width}, {"layers", config.layers}, {"heads", config.heads}};
}

// The run's options for train-bench; empty where it cannot repeat them.
std::vector<std::string> bench_arguments(const PlannedRun& run) {
  const std::optional<int64_t> context = option_count(run, "context"), tokens = option_count(run, "batch-tokens");
  if (!context || !tokens) return {};
  Json options = run.program == "finetune" ? model_shape(option_text(run, "model").value_or("")) : Json::object();
  if (options.is_null()) return {};
  for (const char* key : kShapeKeys) {
    const std::string_view name = key;
    const bool is_of_bench =
        name != "batch-tokens" && name != "model" && (name != "variant" || run.program != "finetune");
    if (run.options.contains(key) && is_of_bench) options[key] = run.options[key];
  }
  options["batch"] = std::max<int64_t>(1, *tokens / *context);
  return arguments_of(options);
}

}  // namespace

CoreUse measure_core_use(const PlannedRun& run, int most_processes, const fs::path& folder) {
  const int cores = thread_count();
  if (const auto threads = option_count(run, "threads")) return {1, static_cast<int>(*threads), 0};
  const std::vector<std::string> arguments = bench_arguments(run);
  if (arguments.empty()) return {1, cores, 0};
  print_message(fmt::format("plan: measuring how such runs use {} cores best", cores));
  const Speed first = measure(arguments, 1, cores, 3, folder);
  if (stop_requested()) return {};
  const auto steps = std::clamp<int64_t>(static_cast<int64_t>(kSecondsOfOne / first.step_seconds), 3, 100);
  CoreUse best{1, cores, measure(arguments, 1, cores, steps, folder).tokens_per_s};
  // A GPU is one for all.
  const int most = option_text(run, "device") == "cuda" ? 1 : std::min(cores, most_processes);
  for (int processes = 2; processes <= most; processes *= 2) {
    const int threads = cores / processes;
    const double speed =
        measure(arguments, processes, threads, std::max<int64_t>(3, steps / processes), folder).tokens_per_s;
    if (stop_requested() || speed < kLeastGain * best.tokens_per_s) break;
    best = {processes, threads, speed};
  }
  fs::remove(folder / "speed.txt");
  print_message(fmt::format("plan: {} at once, threads of each: {}; {:.0f} tokens/s together", best.processes,
                            best.threads, best.tokens_per_s));
  return best;
}

std::string shape_of(const PlannedRun& run) {
  std::string shape = run.program;
  for (const char* key : kShapeKeys) {
    // The norms cost little, whether they go or stay.
    const bool is_shape = std::string_view(key) != "variant" && run.options.contains(key);
    if (is_shape) shape += fmt::format(" {}={}", key, run.options[key].dump());
  }
  return shape;
}

CoreUses::CoreUses(const fs::path& folder) : folder_(folder), uses_(Json::object()) {
  if (!fs::exists(folder / kCoresFile)) return;
  uses_ = try_parse_json<Json>(read_file(folder / kCoresFile, 1 << 20));
  const auto is_count = [](const Json& use, const char* key) {
    return use.contains(key) && use[key].is_number_integer() && use[key] > 0;
  };
  bool is_whole = uses_.is_object();
  for (const auto& [shape, use] : uses_.items()) {
    is_whole = is_whole && use.is_object() && is_count(use, "processes") && is_count(use, "threads") &&
               use.contains("tokens_per_s") && use["tokens_per_s"].is_number();
  }
  require(is_whole, "{}: is damaged; without it the cores are measured anew", (folder / kCoresFile).string());
}

CoreUse CoreUses::of(const PlannedRun& run, int most_processes) {
  const std::string shape = shape_of(run);
  if (!uses_.contains(shape)) {
    const CoreUse use = measure_core_use(run, most_processes, folder_);
    if (stop_requested()) return use;
    set(run, use);
  }
  const Json& use = uses_[shape];
  return {use["processes"].get<int>(), use["threads"].get<int>(), use["tokens_per_s"].get<double>()};
}

void CoreUses::set(const PlannedRun& run, const CoreUse& use) {
  uses_[shape_of(run)] = {{"processes", use.processes}, {"threads", use.threads}, {"tokens_per_s", use.tokens_per_s}};
  save();
}

void CoreUses::save() const { write_file(folder_ / kCoresFile, uses_.dump(2) + "\n"); }

}  // namespace taper

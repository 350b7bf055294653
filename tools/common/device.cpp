#include "tools/common/device.h"

#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "tools/common/run_tool.h"

namespace taper {

Device choose_device(const std::string& asked) {
  if (asked == "cpu") return Device::cpu;
  const std::string problem = cuda_problem();
  require(problem.empty() || asked != "cuda", "--device cuda: {}", problem);
  if (problem.empty()) {
    print_message("device: " + to_string(cuda_runtime().device()));
    return Device::cuda;
  }
  if (is_built_with_cuda()) print_message("device: the processor, because " + problem);
  return Device::cpu;
}

}  // namespace taper

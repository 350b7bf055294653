#include "engine/core/cuda_runtime.h"

#include "engine/core/error.h"

namespace taper {

bool is_built_with_cuda() { return linked_cuda_runtime != nullptr; }

std::string cuda_problem() {
  if (!linked_cuda_runtime) return "this build has no CUDA";
  static const std::string problem = linked_cuda_runtime().problem();
  return problem;
}

CudaRuntime& cuda_runtime() {
  static CudaRuntime* const runtime = cuda_problem().empty() ? &linked_cuda_runtime() : nullptr;
  require(runtime != nullptr, "cuda: {}", cuda_problem());
  return *runtime;
}

std::string to_string(const CudaDevice& device) {
  const auto gb = [](int64_t bytes) { return double(bytes) / double(int64_t{1} << 30); };
  return fmt::format("{} (compute capability {}.{}), {:.1f} of {:.1f} GB free, driver for CUDA {}", device.name,
                     device.major, device.minor, gb(device.free_bytes), gb(device.memory_bytes), device.driver);
}

}  // namespace taper

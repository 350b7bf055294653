#include "engine/core/cuda_runtime.h"

#include "engine/core/allocator.h"
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

namespace cuda {

Graph::Graph(const std::function<void()>& work) {
  CudaRuntime& runtime = cuda_runtime();
  pool_ = open_memory_pool(Device::cuda);
  bool lost_memory = false;
  try {
    runtime.begin_capture();
    work();
    lost_memory = close_memory_pool(Device::cuda);
    recorded_ = runtime.end_capture();
  } catch (...) {
    close_memory_pool(Device::cuda);
    drop_memory_pool(pool_, Device::cuda);
    if (runtime.is_capturing()) runtime.end_capture();
    throw;
  }
  if (!lost_memory) return;
  drop_memory_pool(pool_, Device::cuda);
  fail("cuda: recorded work lets go of memory that was there before it: a later launch would use what is another's");
}

Graph::~Graph() { drop_memory_pool(pool_, Device::cuda); }

}  // namespace cuda

std::string to_string(const CudaDevice& device) {
  const auto gb = [](int64_t bytes) { return double(bytes) / double(int64_t{1} << 30); };
  return fmt::format("{} (compute capability {}.{}), {:.1f} of {:.1f} GB free, driver for CUDA {}", device.name,
                     device.major, device.minor, gb(device.free_bytes), gb(device.memory_bytes), device.driver);
}

}  // namespace taper

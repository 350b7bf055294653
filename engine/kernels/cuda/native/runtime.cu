// The CUDA runtime behind engine/core/cuda_runtime.h, and the launch of kernels.
#include <cstring>
#include <string>

#include "engine/core/cuda_runtime.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper {
namespace {

void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  gpu::fail_on_device(doing + ": " + cudaGetErrorString(status));
}

__global__ void probe_code() {}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string find_problem() {
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "this machine has no NVIDIA driver";
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver serves CUDA up to " + version_text(driver) + "; this build wants " +
           version_text(runtime);
  }
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (count == 0) return "this machine has no CUDA device";
  cudaDeviceProp properties{};
  const cudaError_t described = cudaGetDeviceProperties(&properties, 0);
  if (described != cudaSuccess) return cudaGetErrorString(described);
  cudaFuncAttributes attributes{};
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, probe_code);
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorInvalidDeviceFunction) {
    return std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + "; this build has code for " TAPER_CUDA_ARCHS;
  }
  return loaded == cudaSuccess ? "" : cudaGetErrorString(loaded);
}

bool is_recording = false;

// Asked before CUDA is, whose own refusal would spoil the recording.
void require_repeatable(const char* what) {
  if (is_recording) {
    gpu::fail_on_device(std::string(what) + " while work is recorded: it could not be repeated");
  }
}

class NativeEvent final : public CudaEvent {
 public:
  NativeEvent() { check(cudaEventCreate(&event_), "an event"); }
  ~NativeEvent() override { cudaEventDestroy(event_); }
  void record() override {
    require_repeatable("an event");
    check(cudaEventRecord(event_, gpu::stream()), "an event");
  }
  double seconds_since(const CudaEvent& earlier) const override {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "an event");
    check(cudaEventElapsedTime(&milliseconds, static_cast<const NativeEvent&>(earlier).event_, event_), "an event");
    return milliseconds / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class NativeGraph final : public CudaGraph {
 public:
  explicit NativeGraph(cudaGraph_t graph) : graph_(graph) {
    check(cudaGraphInstantiate(&executable_, graph_, 0), "a graph");
  }
  ~NativeGraph() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void launch() override { check(cudaGraphLaunch(executable_, gpu::stream()), "the launch of a graph"); }
  int64_t size() const override {
    size_t nodes = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &nodes), "a graph");
    return static_cast<int64_t>(nodes);
  }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
};

// Page-locked memory through which small copies go, so that the host need not wait for them: used in turn.
class Staging {
 public:
  static constexpr int64_t kBytes = int64_t{1} << 20;

  void copy_to_device(void* to, const void* from, int64_t bytes) {
    Buffer& buffer = buffers_[next_];
    next_ = (next_ + 1) % kBuffers;
    if (!buffer.memory) {
      check(cudaMallocHost(&buffer.memory, kBytes), "page-locked memory");
      check(cudaEventCreateWithFlags(&buffer.is_free, cudaEventDisableTiming), "an event");
    } else {
      check(cudaEventSynchronize(buffer.is_free), "a copy to the device");
    }
    std::memcpy(buffer.memory, from, static_cast<size_t>(bytes));
    check(cudaMemcpyAsync(to, buffer.memory, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, gpu::stream()),
          "a copy to the device");
    check(cudaEventRecord(buffer.is_free, gpu::stream()), "a copy to the device");
  }

 private:
  struct Buffer {
    void* memory = nullptr;
    cudaEvent_t is_free = nullptr;
  };
  static constexpr int kBuffers = 4;
  Buffer buffers_[kBuffers];
  int next_ = 0;
};

class NativeRuntime final : public CudaRuntime {
 public:
  std::string problem() override { return find_problem(); }

  CudaDevice device() override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "the device's properties");
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "the device's memory");
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "the driver's version");
    CudaDevice result;
    result.name = properties.name;
    result.major = properties.major;
    result.minor = properties.minor;
    result.memory_bytes = static_cast<int64_t>(total);
    result.free_bytes = static_cast<int64_t>(free);
    result.driver = version_text(driver);
    result.built_for = TAPER_CUDA_ARCHS;
    return result;
  }

  void* take_memory(int64_t bytes) override {
    require_repeatable("memory is taken");
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "memory of the device");
    return memory;
  }
  void return_memory(void* memory) override {
    require_repeatable("memory is returned");
    cudaFree(memory);
  }

  void copy_to_device(void* to, const void* from, int64_t bytes) override {
    require_repeatable("a copy to the device");
    if (bytes <= Staging::kBytes) return staging_.copy_to_device(to, from, bytes);
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, gpu::stream()),
          "a copy to the device");
    synchronise();
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) override {
    require_repeatable("a copy from the device");
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, gpu::stream()),
          "a copy from the device");
    synchronise();
  }
  void copy_on_device(void* to, const void* from, int64_t bytes) override {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, gpu::stream()),
          "a copy on the device");
  }
  void convert(Out to, In from) override { cuda::convert(to, from); }
  void fill_bytes(void* to, unsigned char value, int64_t bytes) override {
    check(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), gpu::stream()), "a fill of memory");
  }
  void synchronise() override {
    require_repeatable("the host waits for the device");
    check(cudaStreamSynchronize(gpu::stream()), "work on the device");
  }

  std::unique_ptr<CudaEvent> make_event() override { return std::make_unique<NativeEvent>(); }

  void begin_capture() override {
    require_repeatable("work is recorded");
    check(cudaStreamBeginCapture(gpu::stream(), cudaStreamCaptureModeThreadLocal), "the recording of a graph");
    is_recording = true;
  }
  std::unique_ptr<CudaGraph> end_capture() override {
    is_recording = false;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(gpu::stream(), &graph), "the recording of a graph");
    return std::make_unique<NativeGraph>(graph);
  }
  bool is_capturing() const override { return is_recording; }

 private:
  Staging staging_;
};

}  // namespace

// Never destroyed: tensors in static storage may return memory later than any static object lives.
CudaRuntime& linked_cuda_runtime() {
  static NativeRuntime& runtime = *new NativeRuntime;
  return runtime;
}

namespace gpu {

Stream stream() {
  static const Stream stream = [] {
    Stream created = nullptr;
    check(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "a stream");
    return created;
  }();
  return stream;
}

namespace detail {

void launch_kernel(const void* kernel, const Grid& grid, dim3 block, void** arguments, size_t shared_bytes,
                   Stream stream) {
  constexpr size_t kSharedWithoutAsking = 48 << 10;
  cudaError_t status = cudaSuccess;
  if (shared_bytes > kSharedWithoutAsking) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  }
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
  if (status == cudaSuccess) status = cudaLaunchKernel(kernel, blocks, block, arguments, shared_bytes, stream);
  if (status != cudaSuccess) check(status, std::string("a launch at ") + grid.file + ":" + std::to_string(grid.line));
}

}  // namespace detail
}  // namespace gpu
}  // namespace taper

// The narrow door to a CUDA device: memory, copies, order of work. Behind it stand engine/kernels/cuda/runtime.cu, the
// device's own library; in tests tests/emulation/runtime.cpp, a device that the processor plays; or nothing, in a build
// without CUDA. So no other file outside kernels/cuda knows which it is.
//
// All work goes into one stream, in order: kernels, copies, fills. Only what hands values to the host waits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/view.h"

namespace taper {

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;  // in all
  int64_t free_bytes = 0;    // now
  std::string driver;        // "13.0": the newest CUDA it serves
  std::string built_for;     // "8.0, 9.0 and later"
  bool is_emulated = false;
};

// A sequence of work recorded once and launched as a whole.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  virtual void launch() = 0;
};

// A moment in the stream.
class CudaEvent {
 public:
  virtual ~CudaEvent() = default;
  virtual void record() = 0;
  virtual double seconds_since(const CudaEvent& earlier) const = 0;  // waits for both
};

class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;

  // Why nothing can be computed here: no driver, no device, a device this build has no code for. Empty where it can.
  virtual std::string problem() = 0;
  // The rest REQUIRES problem() to be empty.
  virtual CudaDevice device() = 0;

  virtual void* take_memory(int64_t bytes) = 0;  // null where there is not as much; aligned to 256 bytes
  virtual void return_memory(void* memory) = 0;

  virtual void copy_to_device(void* to, const void* from, int64_t bytes) = 0;  // `from` may change after the return
  virtual void copy_to_host(void* to, const void* from, int64_t bytes) = 0;    // waits
  virtual void copy_on_device(void* to, const void* from, int64_t bytes) = 0;  // the two may not overlap
  virtual void convert(Out to, In from) = 0;                                   // the kernel of this name
  virtual void fill_bytes(void* to, unsigned char value, int64_t bytes) = 0;
  virtual void synchronise() = 0;  // waits for all work; Error where some of it failed

  virtual std::unique_ptr<CudaEvent> make_event() = 0;
  // Between the two, work is recorded instead of done. Memory taken and values read meanwhile are an Error.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<CudaGraph> end_capture() = 0;
};

// Defined by the implementation that is linked, if one is: elsewhere ask cuda_problem() or cuda_runtime().
[[gnu::weak]] CudaRuntime& linked_cuda_runtime();

bool is_built_with_cuda();
std::string cuda_problem();   // as CudaRuntime::problem(); or that this build has no CUDA
CudaRuntime& cuda_runtime();  // Error with cuda_problem() where nothing can be computed

// "NVIDIA H200 (compute capability 9.0), 139 of 140 GB free, driver for CUDA 13.0"
std::string to_string(const CudaDevice& device);

}  // namespace taper

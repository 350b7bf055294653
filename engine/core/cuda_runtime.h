// The narrow door to a CUDA device: memory, copies, order of work. Behind it stand
// engine/kernels/cuda/native/runtime.cu, the device's own library; in tests tests/emulation/runtime.cpp, a device that
// the processor plays; or nothing, in a build without CUDA. So no other file outside kernels/cuda knows which it is.
//
// All work goes into one stream, in order: kernels, copies, fills. Only what hands values to the host waits.
#pragma once

#include <cstdint>
#include <functional>
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

// What a runtime recorded; others use cuda::Graph, below.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  virtual void launch() = 0;
  virtual int64_t size() const = 0;  // kernels, copies and fills
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
  // Between the two, work is recorded instead of done. What cannot be repeated is an Error meanwhile, and leaves the
  // recording as it is: memory taken or returned, copies from and to the host, waiting, events.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<CudaGraph> end_capture() = 0;
  virtual bool is_capturing() const = 0;
};

// Defined by the implementation that is linked, if one is: elsewhere ask cuda_problem() or cuda_runtime().
[[gnu::weak]] CudaRuntime& linked_cuda_runtime();

bool is_built_with_cuda();
std::string cuda_problem();   // as CudaRuntime::problem(); or that this build has no CUDA
CudaRuntime& cuda_runtime();  // Error with cuda_problem() where nothing can be computed

namespace cuda {

// Work on the device recorded once and launched as a whole, as often as wanted: the same kernels with the same
// arguments, which read what is in memory then. Two rules make the addresses hold:
//   - What the work takes for itself comes out of the allocator's cache and is the graph's as long as it lives, also
//     after the work has let go of it. So the work runs once unrecorded, to fill the cache; then it is recorded.
//   - What the work uses of others must outlive the graph. Memory of others that is let go of while the work is
//     recorded is an Error.
// Values that differ from launch to launch lie in memory of the device that was taken before. The host may change it
// between two launches, in the order of the stream.
class Graph {
 public:
  // Records what work() queues, and does nothing of it. Error where it asks for what cannot be repeated
  // (CudaRuntime::begin_capture), or finds no memory in the cache; what work() throws is passed on.
  explicit Graph(const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const { recorded_->launch(); }
  int64_t size() const { return recorded_->size(); }  // kernels, copies and fills

 private:
  int pool_ = 0;
  std::unique_ptr<CudaGraph> recorded_;
};

}  // namespace cuda

// "NVIDIA H200 (compute capability 9.0), 139 of 140 GB free, driver for CUDA 13.0"
std::string to_string(const CudaDevice& device);

}  // namespace taper

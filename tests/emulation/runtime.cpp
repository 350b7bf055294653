// The emulated device's memory: the host's, apart from it, so that kernels that read the host's are caught. Everything
// happens at once, or is recorded for a graph.
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "engine/kernels/cuda/gpu.h"
#include "tests/emulation/access_checker.h"
#include "tests/emulation/device.h"

namespace taper {
namespace {

constexpr int64_t kMemoryBytes = int64_t{512} << 20;
constexpr int64_t kAlign = 256;

// Begin and size of what was handed out.
using Blocks = std::map<const char*, int64_t>;
Blocks& blocks() {
  static auto& instance = *new Blocks;
  return instance;
}

// One range of addresses, so that what belongs to the device can be told by its address.
char* device_memory() {
  static char* const memory = [] {
    void* range =
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(range != MAP_FAILED, "emulated device: no memory");
    emulation::watch_memory(emulation::Memory::device, range, kMemoryBytes);
    return static_cast<char*>(range);
  }();
  return memory;
}

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// The first gap that is large enough; null where there is none.
char* find_gap(int64_t bytes) {
  char* begin = device_memory();
  for (const auto& [block, size] : blocks()) {
    if (block - begin >= bytes) return begin;
    begin = const_cast<char*>(block) + aligned(size);
  }
  return device_memory() + kMemoryBytes - begin >= bytes ? begin : nullptr;
}

bool is_on_device(const void* address, int64_t bytes) {
  const auto* first = static_cast<const char*>(address);
  auto it = blocks().upper_bound(first);
  if (it == blocks().begin()) return false;
  --it;
  return first + bytes <= it->first + it->second;
}

void require_on_device(const void* address, int64_t bytes) {
  require(is_on_device(address, bytes), "emulated device: a copy leaves the memory of the device");
}

// The allocator's guard fills fresh blocks with 0xFF and writes canaries of 0xA5 behind them.
emulation::Bytes meaning_of(unsigned char value) {
  return value == 0xFF ? emulation::Bytes::unset : value == 0xA5 ? emulation::Bytes::forbidden : emulation::Bytes::set;
}

// Not empty while a graph is recorded.
std::vector<std::function<void()>>* recording = nullptr;

void require_repeatable(const char* what) {
  require(recording == nullptr, "cuda: {} while work is recorded: it could not be repeated", what);
}

class EmulatedGraph final : public CudaGraph {
 public:
  void launch() override {
    for (const std::function<void()>& one : work) emulation::enqueue(one);
  }
  int64_t size() const override { return static_cast<int64_t>(work.size()); }

  std::vector<std::function<void()>> work;
};

class EmulatedEvent final : public CudaEvent {
 public:
  void record() override {
    require_repeatable("an event");
    at_ = std::chrono::steady_clock::now();
  }
  double seconds_since(const CudaEvent& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const EmulatedEvent&>(earlier).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_{};
};

class EmulatedRuntime final : public CudaRuntime {
 public:
  std::string problem() override { return ""; }
  CudaDevice device() override {
    CudaDevice result;
    result.name = "emulated device";
    result.major = 8;
    result.memory_bytes = kMemoryBytes;
    result.free_bytes = kMemoryBytes - used_;
    result.driver = "none";
    result.built_for = "the processor";
    result.is_emulated = true;
    return result;
  }

  void* take_memory(int64_t bytes) override {
    require_repeatable("memory is taken");
    char* memory = bytes < kMemoryBytes ? find_gap(aligned(bytes)) : nullptr;
    if (!memory) return nullptr;
    std::memset(memory, 0xFF, static_cast<size_t>(bytes));
    emulation::mark_memory(memory, static_cast<size_t>(bytes), emulation::Bytes::unset);
    blocks()[memory] = bytes;
    used_ += bytes;
    return memory;
  }
  void return_memory(void* memory) override {
    require_repeatable("memory is returned");
    const auto it = blocks().find(static_cast<const char*>(memory));
    require(it != blocks().end(), "emulated device: memory is returned that was not taken");
    used_ -= it->second;
    emulation::mark_memory(memory, static_cast<size_t>(it->second), emulation::Bytes::forbidden);
    blocks().erase(it);
  }

  void copy_to_device(void* to, const void* from, int64_t bytes) override {
    require_repeatable("a copy to the device");
    require_on_device(to, bytes);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    emulation::mark_memory(to, static_cast<size_t>(bytes), emulation::Bytes::set);
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) override {
    require_repeatable("a copy from the device");
    require_on_device(from, bytes);
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_on_device(void* to, const void* from, int64_t bytes) override {
    emulation::enqueue([=] {
      require_on_device(to, bytes);
      require_on_device(from, bytes);
      std::memcpy(to, from, static_cast<size_t>(bytes));
      emulation::mark_memory(to, static_cast<size_t>(bytes), emulation::Bytes::set);
    });
  }
  void convert(Out to, In from) override { cuda::convert(to, from); }
  void fill_bytes(void* to, unsigned char value, int64_t bytes) override {
    emulation::enqueue([=] {
      require_on_device(to, bytes);
      std::memset(to, value, static_cast<size_t>(bytes));
      emulation::mark_memory(to, static_cast<size_t>(bytes), meaning_of(value));
    });
  }
  void synchronise() override { require_repeatable("the host waits for the device"); }
  std::unique_ptr<CudaEvent> make_event() override { return std::make_unique<EmulatedEvent>(); }
  void begin_capture() override {
    require_repeatable("work is recorded");
    graph_ = std::make_unique<EmulatedGraph>();
    recording = &graph_->work;
  }
  std::unique_ptr<CudaGraph> end_capture() override {
    recording = nullptr;
    return std::move(graph_);
  }
  bool is_capturing() const override { return recording != nullptr; }

 private:
  std::unique_ptr<EmulatedGraph> graph_;
  int64_t used_ = 0;
};

}  // namespace

CudaRuntime& linked_cuda_runtime() {
  static EmulatedRuntime& runtime = *new EmulatedRuntime;
  return runtime;
}

namespace emulation {

void enqueue(std::function<void()> work) {
  if (recording) {
    recording->push_back(std::move(work));
  } else {
    work();
  }
}

void check_device_pointer(const void* pointer, int argument, const gpu::Grid& grid) {
  require(pointer == nullptr || is_on_device(pointer, 0),
          "{}:{}: argument {} of a launch points to no memory of the device", grid.file, grid.line, argument);
}

}  // namespace emulation

gpu::Stream gpu::stream() { return nullptr; }

}  // namespace taper

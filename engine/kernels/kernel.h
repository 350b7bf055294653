// The kernel contract. kernels.h declares each kernel once, by one TAPER_KERNEL line:
//
//   TAPER_KERNEL(scale, Out y, In x, double factor)
//
// declares the CPU functions taper::cpu::{base,avx2,avx512}::scale, the CUDA function taper::cuda::scale, and the
// object taper::kernels::scale, whose call picks one by the device of the arguments and the processor at hand.
// engine/kernels/cpu/<stem>.cpp defines `void taper::cpu::TAPER_ISA::scale(...)` and is compiled once for each
// instruction set of the machine's kind; engine/kernels/cuda/<stem>.cu defines `void taper::cuda::scale(...)`. That one
// is declared weak: the same objects link without CUDA, where the call says so, with the device's kernels, or with
// these run on the processor (tests/emulation). A weak reference pulls nothing out of an archive: the device's objects
// are linked by name.
//
// Rules: outputs come first; an Acc parameter is written or added to as its flag says; a kernel allocates no tensors,
// checks nothing that infer() of its op has checked, throws only where its scratch finds no memory, and takes any size.
#pragma once

#include <type_traits>

#include "engine/core/cpu_features.h"
#include "engine/core/profile.h"
#include "engine/core/view.h"

namespace taper {

[[noreturn]] void fail_no_kernel(const char* name, Device device);

// Waits until the device has done what was queued, so that a profile times the work and not the queueing.
void finish_on_device();

// Operations of a call's matrix products; kernels.h has the functions of those that compute any.
template <class... P>
double product_operations(const P&...) {
  return 0;
}

template <class Signature>
struct Kernel;

template <class... P>
struct Kernel<void(P...)> {
  const char* name;
  void (*cpu[kIsaCount])(P...);
  void (*cuda)(P...);

  void operator()(P... args) const {
    Device device = Device::cpu;
    (note_device(device, args), ...);
    void (*const run)(P...) = device == Device::cpu ? cpu[static_cast<int>(cpu_isa())] : cuda;
    if (!run) fail_no_kernel(name, device);
    if (!is_profiling()) return run(args...);
    const ProfileScope profile(name, work_of(args...));
    run(args...);
    if (device == Device::cuda) finish_on_device();
  }

 private:
  template <class T>
  static void note_device(Device& device, const T& arg) {
    if constexpr (std::is_convertible_v<const T&, ConstView>) {
      if (const ConstView view = arg) device = view.device;
    }
  }

  template <class T>
  static void note_operand(KernelWork& work, Dtype& narrowest, const T& arg) {
    if constexpr (std::is_convertible_v<const T&, ConstView>) {
      const ConstView view = arg;
      if (!view) return;
      work.bytes += view.numel() * size_of(view.dtype);
      if (view.dtype == Dtype::bf16) narrowest = Dtype::bf16;
    }
    if constexpr (std::is_same_v<T, Accumulator>) {
      if (arg && arg.add) work.bytes += arg.numel() * size_of(arg.dtype);
    }
  }

  static KernelWork work_of(P... args) {
    KernelWork work;
    Dtype narrowest = Dtype::f32;
    (note_operand(work, narrowest, args), ...);
    (narrowest == Dtype::bf16 ? work.bf16_flops : work.f32_flops) = product_operations(args...);
    return work;
  }
};

}  // namespace taper

#define TAPER_KERNEL_AT(name, avx2_or_less, avx512_or_less, ...)                                     \
  namespace cpu::base {                                                                              \
  void name(__VA_ARGS__);                                                                            \
  }                                                                                                  \
  namespace cpu::avx2_or_less {                                                                      \
  void name(__VA_ARGS__);                                                                            \
  }                                                                                                  \
  namespace cpu::avx512_or_less {                                                                    \
  void name(__VA_ARGS__);                                                                            \
  }                                                                                                  \
  namespace cuda {                                                                                   \
  [[gnu::weak]] void name(__VA_ARGS__);                                                              \
  }                                                                                                  \
  namespace kernels {                                                                                \
  inline constexpr Kernel<void(__VA_ARGS__)> name{                                                   \
      #name, {&cpu::base::name, &cpu::avx2_or_less::name, &cpu::avx512_or_less::name}, &cuda::name}; \
  }

#if defined(__x86_64__)
#define TAPER_KERNEL(name, ...) TAPER_KERNEL_AT(name, avx2, avx512, __VA_ARGS__)
#else
#define TAPER_KERNEL(name, ...) TAPER_KERNEL_AT(name, base, base, __VA_ARGS__)
#endif

// Of engine/kernels/cpu/base: one instruction set is enough for it.
#define TAPER_BASE_KERNEL(name, ...) TAPER_KERNEL_AT(name, base, base, __VA_ARGS__)

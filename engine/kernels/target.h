// What a kernel's source is being compiled for. The build names it: TAPER_ISA, an instruction set of the processor
// (kernel.h), or TAPER_GPU_BACKEND, the header that says how device code is launched (cuda/gpu.h). Code that both share
// lives in TAPER_KERNEL_NAMESPACE, so that the versions never merge.
#pragma once

#ifdef TAPER_GPU_BACKEND
#include TAPER_GPU_BACKEND
#define TAPER_HD __host__ __device__
#define TAPER_KERNEL_NAMESPACE taper::cuda
#define TAPER_ROUND_TO_BF16(x) ::taper::gpu::round_to_bf16(x)
#else
// For tools that read a source without the build's flags.
#ifndef TAPER_ISA
#define TAPER_ISA base
#endif
#define TAPER_HD
#define TAPER_KERNEL_NAMESPACE taper::cpu::TAPER_ISA
#define TAPER_ROUND_TO_BF16(x) ::taper::bf16(x)
#endif

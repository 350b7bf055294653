// What the processor at hand can do: binaries are built for every level and choose at run time.
#pragma once

namespace taper {

// Instruction sets for which every kernel is compiled.
enum class Isa : int { base, avx2, avx512 };  // x86-64-v2, -v3, -v4
inline constexpr int kIsaCount = 3;

// The best level of this processor, or the lower one that TAPER_ISA names: base, avx2, avx512, avx512bf16, amx.
// UsageError where it names one that the processor lacks.
Isa cpu_isa();

// Beyond avx512, and not turned off by TAPER_ISA.
bool has_avx512_bf16();
bool has_amx_bf16();  // also asks the kernel for the right to use tiles

// For tests, between kernels: one of the names above, from now on. UsageError as above.
void set_cpu_isa(const char* name);

const char* cpu_isa_name();  // "avx512bf16", ...: the highest level in use

}  // namespace taper

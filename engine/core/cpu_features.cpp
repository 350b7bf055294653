#include "engine/core/cpu_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "engine/core/error.h"

namespace taper {
namespace {

constexpr const char* kLevels[] = {"base", "avx2", "avx512", "avx512bf16", "amx"};

#if defined(__x86_64__)
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

int processor_level() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512cd"))
    return 1;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 5))) return 2;  // AVX512_BF16
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 3;
  const bool has_tiles = (d & (1u << 22)) && (d & (1u << 24));  // AMX-BF16, AMX-TILE
  return has_tiles && may_use_tiles() ? 4 : 3;
}
#else
int processor_level() { return 0; }
#endif

int level_named(const char* name) {
  const int best = processor_level();
  for (int i = 0; i < 5; ++i) {
    if (std::string(name) != kLevels[i]) continue;
    require_usage(i <= best, "TAPER_ISA: this processor has no {}; its best is {}", name, kLevels[best]);
    return i;
  }
  fail_usage("TAPER_ISA: got '{}', want base, avx2, avx512, avx512bf16 or amx", name);
}

int& level() {
  static int chosen = [] {
    const char* asked = std::getenv("TAPER_ISA");
    return asked && *asked ? level_named(asked) : processor_level();
  }();
  return chosen;
}

}  // namespace

Isa cpu_isa() { return static_cast<Isa>(level() < 2 ? level() : 2); }
bool has_avx512_bf16() { return level() >= 3; }
bool has_amx_bf16() { return level() >= 4; }
void set_cpu_isa(const char* name) { level() = level_named(name); }
const char* cpu_isa_name() { return kLevels[level()]; }

}  // namespace taper

// How much work is worth a thread.
#pragma once

#include "engine/kernels/element.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Elements below which a second thread costs more than it brings.
constexpr int64_t kGrain = int64_t{1} << 15;

constexpr int64_t grain_of_rows(int64_t cols) { return cols > 0 && cols < kGrain ? kGrain / cols : 1; }

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

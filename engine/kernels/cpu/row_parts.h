// Sums over rows whose bits do not depend on the number of threads: the rows are cut into parts by their number and
// size alone, each part is summed by one thread, and the sums of the parts are added in order.
#pragma once

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"

namespace taper::cpu::TAPER_ISA {
namespace {

constexpr int64_t kMostParts = 64;

struct RowParts {
  int64_t rows;
  int64_t count;

  RowParts(int64_t rows_, int64_t cols) : rows(rows_), count((rows_ * cols + kGrain - 1) / kGrain) {
    if (count > kMostParts) count = kMostParts;
    if (count > rows) count = rows;
  }
  // body(part, first row, last row + 1)
  template <class Body>
  void run(Body&& body) const {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) body(part, rows * part / count, rows * (part + 1) / count);
    });
  }
};

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

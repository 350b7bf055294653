// Token and position embeddings. The backward gives each thread a range of columns and takes the rows in order: no two
// threads meet, the bits depend on nothing but the input, and only rows of tokens that occur are touched.
#include <cstring>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class Y, class W>
void embed_row(Y* y, const W* token, const W* position, int64_t n) {
  using C = Compute<W>;
  if (!position) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert_to<Y>(convert_to<C>(token[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert_to<Y>(convert_to<C>(token[i]) + convert_to<C>(position[i]));
  }
}

template <class G, class D>
void add_columns(G* target, const D* dy, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) target[i] += convert_to<G>(dy[i]);
}

void clear(Acc target) {
  if (!target || target.add) return;
  const int64_t size = size_of(target.dtype);
  parallel_for(target.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(target.as<char>() + begin * size, 0, static_cast<size_t>((end - begin) * size));
  });
}

// Cut at cache lines, so that threads do not share one.
constexpr int64_t kLine = 16;

template <class G, class D>
void add_rows(Acc dwte, Acc dwpe, In dy, In tokens) {
  const int64_t rows = dy.rows(), cols = dy.cols(), window = tokens.cols();
  const int64_t ranges = (cols + kLine - 1) / kLine;
  const int64_t grain = rows > 0 && rows * kLine < kGrain ? kGrain / (rows * kLine) : 1;
  parallel_for(ranges, grain, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kLine;
    const int64_t n = (last * kLine < cols ? last * kLine : cols) - begin;
    for (int64_t row = 0; row < rows; ++row) {
      const D* upstream = dy.as<D>() + row * cols + begin;
      if (dwte) add_columns(dwte.as<G>() + tokens.as<int32_t>()[row] * cols + begin, upstream, n);
      if (dwpe) add_columns(dwpe.as<G>() + row % window * cols + begin, upstream, n);
    }
  });
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::embedding_fwd(Out y, In tokens, In wte, In wpe) {
  const int64_t cols = y.cols(), window = tokens.cols();
  with_result_type(wte.dtype, y.dtype, [&](auto type, auto result_type) {
    using W = typename decltype(type)::type;
    using Y = typename decltype(result_type)::type;
    parallel_for(y.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const W* position = wpe ? wpe.as<W>() + row % window * cols : nullptr;
        embed_row(y.as<Y>() + row * cols, wte.as<W>() + tokens.as<int32_t>()[row] * cols, position, cols);
      }
    });
  });
}

void cpu::TAPER_ISA::embedding_bwd(Acc dwte, Acc dwpe, In dy, In tokens) {
  clear(dwte);
  clear(dwpe);
  with_float_type(dy.dtype, [&](auto type) {
    using D = typename decltype(type)::type;
    add_rows<Compute<D>, D>(dwte, dwpe, dy, tokens);
  });
}

}  // namespace taper

#include <algorithm>
#include <cmath>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Rows whose logits are in memory at once. Each block passes over its own logits and over all of dw, so it should have
// about as many rows as dw has columns.
constexpr int64_t kLeastRows = 128;
constexpr int64_t kMostRows = 512;

int64_t rows_of_block(int64_t width) { return std::clamp((width + 31) / 32 * 32, kLeastRows, kMostRows); }

struct RowResult {
  double loss, squares;
};

// Leaves exp(logit - max) in the row and gives the factor that makes probabilities of them.
template <class F>
RowResult softmax_row(F* logits, int64_t columns, int64_t target, F& norm) {
  F largest = logits[0];
  double squares = 0;
#pragma omp simd reduction(max : largest) reduction(+ : squares)
  for (int64_t i = 0; i < columns; ++i) {
    const double logit = static_cast<double>(logits[i]);
    largest = logits[i] > largest ? logits[i] : largest;
    squares += logit * logit;
  }
  const double margin = static_cast<double>(largest) - static_cast<double>(logits[target]);
  F sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; ++i) {
    logits[i] = math::exp(logits[i] - largest);
    sum += logits[i];
  }
  norm = F(1) / sum;
  // The margin apart from the logarithm: their sum keeps small losses of large logits.
  return {margin + std::log(static_cast<double>(sum)), squares};
}

template <class F, class T>
void gradient_row(T* dlogits, const F* exponentials, int64_t columns, int64_t target, F norm, F factor) {
  const F scale = norm * factor;
  const F at_target = exponentials[target] * norm;
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) dlogits[i] = convert_to<T>(exponentials[i] * scale);
  dlogits[target] = convert_to<T>((at_target - F(1)) * factor);
}

// dbias [V] (+)= the column sums of a block, each column by one thread in the order of the rows.
template <class F, class T>
void add_column_sums(F* dbias, const T* dlogits, int64_t rows, int64_t columns, bool adds) {
  parallel_for(columns, 256, [&](int64_t begin, int64_t end) {
    if (!adds) std::memset(static_cast<void*>(dbias + begin), 0, static_cast<size_t>(end - begin) * sizeof(F));
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = dlogits + row * columns;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dbias[i] += convert_to<F>(from[i]);
    }
  });
}

// F: the type of logits, sums and statistics; T: of x, w and of the gradient of the logits.
template <class F, class T>
class BlockedCrossEntropy {
 public:
  BlockedCrossEntropy(Out dx, Out dw, Out dbias, In x, In w, In bias, const int32_t* targets, double factor)
      : dx_(dx),
        dw_(dw),
        dbias_(dbias),
        x_(x),
        w_(w),
        bias_(bias),
        targets_(targets),
        factor_(static_cast<F>(factor)),
        width_(w.cols()),
        vocabulary_(w.rows()),
        has_gradient_(dx || dw || dbias),
        block_rows_(rows_of_block(width_)),
        logits_(std::min(block_rows_, x.rows()) * vocabulary_),
        narrow_(kNarrows && has_gradient_ ? std::min(block_rows_, x.rows()) * vocabulary_ : 0),
        row_losses_(2 * block_rows_) {}

  void run(double& loss, double& squares) {
    for (int64_t row = 0; row < x_.rows(); row += block_rows_) {
      run_block(row, std::min(block_rows_, x_.rows() - row), loss, squares);
    }
  }

 private:
  static constexpr bool kNarrows = !std::is_same_v<F, T>;

  T* dlogits() const {
    if constexpr (kNarrows)
      return narrow_.get();
    else
      return logits_.get();
  }

  Gemm product(int64_t m, int64_t n, int64_t k, Operand a, Operand b, void* c, Dtype c_dtype) const {
    Gemm g;
    g.m = m;
    g.n = n;
    g.k = k;
    g.dtype = DtypeOf<T>::value;
    g.a = a;
    g.b = b;
    g.c = c;
    g.c_stride = n;
    g.c_dtype = c_dtype;
    return g;
  }

  void run_block(int64_t first, int64_t rows, double& loss, double& squares) {
    const T* x = x_.template as<T>() + first * width_;
    Gemm forward = product(rows, vocabulary_, width_, {x, width_, false}, {w_.data, width_, true}, logits_.get(),
                           DtypeOf<F>::value);
    forward.bias = bias_.data;
    gemm(forward);
    softmax_block(targets_ + first, rows);
    for (int64_t row = 0; row < rows; ++row) {
      loss += row_losses_.get()[2 * row];
      squares += row_losses_.get()[2 * row + 1];
    }
    const Operand d{dlogits(), vocabulary_, false}, d_transposed{dlogits(), vocabulary_, true};
    if (dx_) {
      gemm(product(rows, width_, vocabulary_, d, {w_.data, width_, false}, dx_.template as<T>() + first * width_,
                   dx_.dtype));
    }
    if (dw_) {
      Gemm backward = product(vocabulary_, width_, rows, d_transposed, {x, width_, false}, dw_.data, dw_.dtype);
      backward.adds = first > 0;
      gemm(backward);
    }
    if (dbias_) add_column_sums(dbias_.template as<F>(), dlogits(), rows, vocabulary_, first > 0);
  }

  void softmax_block(const int32_t* targets, int64_t rows) {
    parallel_for(rows, 1 + (int64_t{1} << 13) / (vocabulary_ + 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        F norm;
        F* logits = logits_.get() + row * vocabulary_;
        const auto result = softmax_row<F>(logits, vocabulary_, targets[row], norm);
        row_losses_.get()[2 * row] = result.loss;
        row_losses_.get()[2 * row + 1] = result.squares;
        if (has_gradient_) {
          gradient_row<F, T>(dlogits() + row * vocabulary_, logits, vocabulary_, targets[row], norm, factor_);
        }
      }
    });
  }

  const View &dx_, &dw_, &dbias_;
  const ConstView &x_, &w_, &bias_;
  const int32_t* targets_;
  const F factor_;
  const int64_t width_, vocabulary_;
  const bool has_gradient_;
  const int64_t block_rows_;
  const Scratch<F> logits_;
  const Scratch<T> narrow_;
  const Scratch<double> row_losses_;
};

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::unembed_cross_entropy(Out loss, Out logit_squares, Out dx, Out dw, Out dbias, In x, In w, In bias,
                                           In targets, double factor) {
  double loss_sum = 0, squares_sum = 0;
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    BlockedCrossEntropy<Compute<T>, T>(dx, dw, dbias, x, w, bias, targets.as<int32_t>(), factor)
        .run(loss_sum, squares_sum);
  });
  if (x.rows() == 0) {
    if (dw) fill(dw, 0);
    if (dbias) fill(dbias, 0);
  }
  *loss.as<double>() = factor * loss_sum;
  *logit_squares.as<double>() = squares_sum;
}

}  // namespace taper

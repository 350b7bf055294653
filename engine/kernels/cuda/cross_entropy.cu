// Unembedding and cross-entropy in blocks of rows. A block's logits are products in bounded scratch memory; one kernel
// reads each row of them for its loss and leaves the row's gradient in its place, from which the products for dx and dw
// take it.
#include <cmath>
#include <limits>

#include "engine/kernels/cuda/gemm.h"
#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {
namespace {

// Each block of rows passes over all of dw: enough rows to hide that, as far as memory goes.
constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr int64_t kLeastRows = 128;
constexpr int64_t kMostRows = 4096;

constexpr unsigned kMostThreads = 1024;
constexpr int kHeld = 4;  // packs that a thread keeps in registers between the two passes over a row

// F: the type of logits and sums; T: of x, w and of the gradient of the logits, which begins where its row's logits do.
template <class F>
struct Rows {
  F* logits;  // [rows][stride]
  int64_t columns, stride;
  const int32_t* targets;
  double* results;  // [rows][2]: loss, sum of squares
  F factor;
  bool has_gradient;
};

template <class F, int kWidth>
class Row {
 public:
  using Values = gpu::Pack<F, kWidth>;

  __device__ Row(F* row, int64_t columns) : row_(row), columns_(columns) {}

  // Behind the last column, what adds nothing to a softmax.
  __device__ Values load(int64_t column, F filler) const {
    if (column + kWidth <= columns_) return gpu::load_pack<kWidth>(row_ + column);
    Values values;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) values[j] = column + j < columns_ ? row_[column + j] : filler;
    return values;
  }

  template <class T>
  __device__ void store(int64_t column, const Values& values) const {
    T* to = reinterpret_cast<T*>(row_) + column;
    gpu::Pack<T, kWidth> stored;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) stored[j] = convert_to<T>(values[j]);
    if (column + kWidth <= columns_) return gpu::store_pack(to, stored);
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      if (column + j < columns_) to[j] = stored[j];
    }
  }

 private:
  F* row_;
  const int64_t columns_;
};

// The greatest logit so far, the sum of exp(logit - greatest), the sum of squares.
template <class F>
struct Running {
  F greatest, sum, squares;

  template <int kWidth>
  __device__ void add(const gpu::Pack<F, kWidth>& values, int64_t column, int64_t columns) {
    F most = greatest;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) most = values[j] > most ? values[j] : most;
    if (most > greatest) {
      sum *= std::exp(greatest - most);
      greatest = most;
    }
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      if (column + j >= columns) continue;
      sum += std::exp(values[j] - greatest);
      squares += values[j] * values[j];
    }
  }
};

template <class F, class T, int kWidth>
__device__ void write_gradient(const Row<F, kWidth>& row, int64_t column, gpu::Pack<F, kWidth> values, int64_t target,
                               F greatest, F norm, F factor) {
  GPU_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    const F probability = std::exp(values[j] - greatest) * norm;
    values[j] = (column + j == target ? probability - F(1) : probability) * factor;
  }
  row.template store<T>(column, values);
}

template <class F, class T>
__global__ void __launch_bounds__(kMostThreads) softmax_rows(Rows<F> rows) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(F));
  constexpr F kLowest = -std::numeric_limits<F>::infinity();
  const int64_t columns = rows.columns, step = int64_t{blockDim.x} * kWidth, begin = int64_t{threadIdx.x} * kWidth;
  F* logits = rows.logits + blockIdx.x * rows.stride;
  const Row<F, kWidth> row(logits, columns);
  const int64_t target = rows.targets[blockIdx.x];
  const bool is_target_valid = target >= 0 && target < columns;
  const F at_target = is_target_valid ? logits[target] : std::numeric_limits<F>::quiet_NaN();

  gpu::Pack<F, kWidth> held[kHeld];
  GPU_UNROLL
  for (int k = 0; k < kHeld; ++k) held[k] = row.load(begin + k * step, kLowest);
  Running<F> running{kLowest, 0, 0};
  GPU_UNROLL
  for (int k = 0; k < kHeld; ++k) running.add(held[k], begin + k * step, columns);
  for (int64_t column = begin + kHeld * step; column < columns; column += step) {
    running.add(row.load(column, kLowest), column, columns);
  }
  const F greatest = gpu::block_max(running.greatest, kLowest);
  // A thread without columns has no greatest logit, but nothing to rescale either.
  const F own = running.greatest == kLowest ? F(0) : running.sum * std::exp(running.greatest - greatest);
  const F sum = gpu::block_sum(own);
  const double squares = gpu::block_sum(static_cast<double>(running.squares));
  if (threadIdx.x == 0) {
    // The margin apart from the logarithm: their sum keeps small losses of large logits.
    const double margin = static_cast<double>(greatest) - static_cast<double>(at_target);
    rows.results[2 * int64_t{blockIdx.x}] = margin + std::log(static_cast<double>(sum));
    rows.results[2 * int64_t{blockIdx.x} + 1] = squares;
  }
  if (!rows.has_gradient) return;
  const F norm = F(1) / sum;
  GPU_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    write_gradient<F, T>(row, begin + k * step, held[k], target, greatest, norm, rows.factor);
  }
  for (int64_t base = kHeld * step; base < columns; base += step) {
    const auto values = row.load(base + begin, kLowest);
    // Narrower gradients overwrite logits of other threads: none that are still to be read.
    if constexpr (!std::is_same_v<F, T>) __syncthreads();
    write_gradient<F, T>(row, base + begin, values, target, greatest, norm, rows.factor);
  }
}

template <class F, class T>
class BlockedCrossEntropy {
 public:
  BlockedCrossEntropy(Out dx, Out dw, Out dbias, In x, In w, In bias, In targets, double factor)
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
        stride_((vocabulary_ + 7) / 8 * 8),  // rows begin where products read them fastest
        block_rows_(rows_of_block(stride_, x.rows())),
        logits_(block_rows_ * stride_) {}

  void run(double* results) const {
    for (int64_t row = 0; row < x_.rows(); row += block_rows_) {
      run_block(row, block_rows_ < x_.rows() - row ? block_rows_ : x_.rows() - row, results + 2 * row);
    }
  }

 private:
  static int64_t rows_of_block(int64_t stride, int64_t rows) {
    int64_t most = kMostBytes / (stride * static_cast<int64_t>(sizeof(F))) / kLeastRows * kLeastRows;
    most = most < kLeastRows ? kLeastRows : most > kMostRows ? kMostRows : most;
    return rows < most ? rows : most;
  }

  Gemm product(int64_t m, int64_t n, int64_t k, Operand a, Operand b) const {
    Gemm g;
    g.m = m;
    g.n = n;
    g.k = k;
    g.dtype = DtypeOf<T>::value;
    g.a = a;
    g.b = b;
    return g;
  }

  static void set_result(Gemm& g, void* c, int64_t stride, Dtype dtype) {
    g.c = c;
    g.c_stride = stride;
    g.c_dtype = dtype;
  }

  void run_block(int64_t first, int64_t rows, double* results) const {
    const T* x = x_.template as<T>() + first * width_;
    Gemm forward = product(rows, vocabulary_, width_, {x, width_, false}, {w_.data, width_, true});
    set_result(forward, logits_.data(), stride_, DtypeOf<F>::value);
    forward.bias = bias_.data;
    gemm(forward);
    softmax_block(first, rows, results);
    const int64_t stride = stride_ * static_cast<int64_t>(sizeof(F) / sizeof(T));
    if (dx_) {
      Gemm backward = product(rows, width_, vocabulary_, {logits_.data(), stride, false}, {w_.data, width_, false});
      set_result(backward, dx_.template as<char>() + first * width_ * size_of(dx_.dtype), width_, dx_.dtype);
      gemm(backward);
    }
    if (dw_) {
      Gemm backward = product(vocabulary_, width_, rows, {logits_.data(), stride, true}, {x, width_, false});
      set_result(backward, dw_.data, width_, dw_.dtype);
      backward.adds = first > 0;
      gemm(backward);
    }
    if (dbias_) sum_columns({dbias_, first > 0}, logits_.data(), DtypeOf<T>::value, rows, vocabulary_, stride);
  }

  void softmax_block(int64_t first, int64_t rows, double* results) const {
    unsigned threads = 128;
    while (threads < kMostThreads && int64_t{threads} * kHeld * 16 < stride_ * static_cast<int64_t>(sizeof(F))) {
      threads *= 2;
    }
    const Rows<F> arguments{logits_.data(), vocabulary_,         stride_, targets_.as<int32_t>() + first, results,
                            factor_,        dx_ || dw_ || dbias_};
    gpu::launch(softmax_rows<F, T>, gpu::Grid(rows), threads, 0, gpu::stream(), arguments);
  }

  const View &dx_, &dw_, &dbias_;
  const ConstView &x_, &w_, &bias_, &targets_;
  const F factor_;
  const int64_t width_, vocabulary_, stride_, block_rows_;
  const gpu::Scratch<F> logits_;
};

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::unembed_cross_entropy(Out loss, Out logit_squares, Out dx, Out dw, Out dbias, In x, In w, In bias,
                                 In targets, double factor) {
  const gpu::Scratch<double> results(2 * x.rows());
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    BlockedCrossEntropy<Compute<T>, T>(dx, dw, dbias, x, w, bias, targets, factor).run(results.data());
  });
  if (x.rows() == 0) {
    if (dw) fill(dw, 0);
    if (dbias) fill(dbias, 0);
  }
  sum_pairs(loss.as<double>(), logit_squares.as<double>(), factor, results.data(), x.rows());
}

}  // namespace taper

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "engine/core/cpu_features.h"
#include "engine/core/random.h"
#include "engine/kernels/decode.h"
#include "engine/kernels/int8_row.h"

using namespace taper;

namespace {

std::vector<float> random_values(int64_t count, uint64_t seed) {
  Random random(seed, RandomStream::test);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

// Of every instruction set that this processor has.
std::vector<const DecodeKernels*> all_kernels() {
  std::vector<const DecodeKernels*> all{&cpu::base::decode_kernels_f32, &cpu::base::decode_kernels_bf16,
                                        &cpu::base::decode_kernels_int8};
#if defined(__x86_64__)
  if (cpu_isa() >= Isa::avx2) {
    all.insert(all.end(),
               {&cpu::avx2::decode_kernels_f32, &cpu::avx2::decode_kernels_bf16, &cpu::avx2::decode_kernels_int8});
  }
  if (cpu_isa() >= Isa::avx512) {
    all.insert(all.end(), {&cpu::avx512::decode_kernels_f32, &cpu::avx512::decode_kernels_bf16,
                           &cpu::avx512::decode_kernels_int8});
  }
  if (has_avx512_bf16()) all.push_back(&cpu::avx512bf16::decode_kernels_bf16);
  if (has_amx_bf16()) all.push_back(&cpu::amx::decode_kernels_bf16);
#endif
  return all;
}

// A matrix [m, k] packed, and what the packed one holds, row after row.
struct Packed {
  std::vector<std::byte> data;
  std::vector<float> scales;
  std::vector<double> values;
  int64_t k_padded;

  Packed(const DecodeKernels& kernels, const std::vector<float>& w, int64_t m, int64_t k, int64_t k_padded_)
      : k_padded(k_padded_) {
    const int64_t panels = round_up(m, kPanelRows) / kPanelRows;
    const auto panel_bytes = static_cast<size_t>(kPanelRows * k_padded * size_of(kernels.weight_type));
    data.resize(static_cast<size_t>(panels) * panel_bytes);
    scales.resize(static_cast<size_t>(panels * kPanelRows));
    values.resize(static_cast<size_t>(panels * kPanelRows * k), 0.0);
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* rows[kPanelRows] = {};
      for (int64_t i = 0; i < kPanelRows && panel * kPanelRows + i < m; ++i)
        rows[i] = w.data() + (panel * kPanelRows + i) * k;
      kernels.pack(data.data() + static_cast<size_t>(panel) * panel_bytes, scales.data() + panel * kPanelRows, k_padded,
                   rows, k);
    }
    for (int64_t row = 0; row < m; ++row) {
      const float scale = int8_scale(w.data() + row * k, k);
      for (int64_t j = 0; j < k; ++j) {
        const float each = w[static_cast<size_t>(row * k + j)];
        double& value = values[static_cast<size_t>(row * k + j)];
        value = kernels.weight_type == WeightType::f32    ? double(each)
                : kernels.weight_type == WeightType::bf16 ? double(float(bf16(each)))
                                                          : double(scale) * to_int8(each, scale);
      }
    }
  }
};

struct Case {
  int64_t rows, m, k;
  int slices;
};

// The greatest error of a product, in parts of the sum of |x w| + |bias|.
double error_of(const DecodeKernels& kernels, const Case& c) {
  const bool is_bf16 = kernels.weight_type == WeightType::bf16, rounds_x = kernels.input_dtype == Dtype::bf16;
  const int64_t k_padded = is_bf16 ? round_up(c.k, 2) : c.k, m_padded = round_up(c.m, kPanelRows);
  const Packed w(kernels, random_values(c.m * c.k, 1), c.m, c.k, k_padded);
  const std::vector<float> bias = random_values(m_padded, 3);
  std::vector<float> x(static_cast<size_t>(c.rows * k_padded), 0.0f);
  std::vector<bf16> narrow_x(x.size());
  const std::vector<float> values = random_values(c.rows * c.k, 2);
  for (int64_t i = 0; i < c.rows * c.k; ++i) {
    const auto to = static_cast<size_t>(i / c.k * k_padded + i % c.k);
    x[to] = rounds_x ? float(bf16(values[static_cast<size_t>(i)])) : values[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < x.size(); ++i) narrow_x[i] = bf16(x[i]);
  std::vector<float> y(static_cast<size_t>(c.rows * m_padded), NAN);
  PanelProduct a;
  a.y = y.data();
  a.y_stride = m_padded;
  a.x = rounds_x ? static_cast<const void*>(narrow_x.data()) : x.data();
  a.x_stride = k_padded;
  a.rows = c.rows;
  a.w = w.data.data();
  a.panel_stride = k_padded * kPanelRows;
  a.panels = m_padded / kPanelRows;
  a.k = k_padded / c.slices;
  a.slices = c.slices;
  a.scale = kernels.weight_type == WeightType::int8 ? w.scales.data() : nullptr;
  a.bias = bias.data();
  kernels.product(a);
  double error = 0;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < m_padded; ++i) {
      double want = bias[static_cast<size_t>(i)], size = std::fabs(want);
      for (int64_t j = 0; j < c.k; ++j) {
        const double term =
            double(x[static_cast<size_t>(r * k_padded + j)]) * w.values[static_cast<size_t>(i * c.k + j)];
        want += term;
        size += std::fabs(term);
      }
      const double difference = std::fabs(double(y[static_cast<size_t>(r * m_padded + i)]) - want) / size;
      error = difference <= error ? error : difference;  // NaN counts
    }
  }
  return error;
}

}  // namespace

TEST_CASE("decode kernels: products agree with sums in f64, on every instruction set of this processor") {
  for (const DecodeKernels* kernels : all_kernels()) {
    CAPTURE(kernels->name);
    for (const int64_t m : {16, 23, 80}) {
      for (const int64_t rows : {1, 2, 5, 7, 33}) {
        for (const int64_t k : {1, 2, 9, 27, 64, 250}) {
          CAPTURE(m);
          CAPTURE(rows);
          CAPTURE(k);
          CHECK(error_of(*kernels, {rows, m, k, 1}) < 1e-6);
        }
        for (const int slices : {2, 4, 8}) CHECK(error_of(*kernels, {rows, m, 32 * slices, slices}) < 1e-6);
      }
    }
  }
}

TEST_CASE("int8 rows: the nearest multiple of the scale, and nothing that is not finite gets lost") {
  const std::vector<float> row = random_values(1000, 5);
  const float scale = int8_scale(row.data(), 1000);
  int greatest = 0;
  for (const float w : row) {
    const int q = to_int8(w, scale);
    greatest = std::max(greatest, std::abs(q));
    CHECK(std::fabs(double(w) - double(scale) * q) <= 0.5001 * double(scale));
  }
  CHECK(greatest == 127);
  CHECK(to_int8(2.5f, 1) == 2);
  CHECK(to_int8(3.5f, 1) == 4);
  CHECK(to_int8(-2.5f, 1) == -2);
  const float zeros[2] = {}, near_zero[2] = {1e-44f, -3e-43f}, infinite[2] = {1, INFINITY}, broken[2] = {NAN, 1};
  CHECK(int8_scale(zeros, 2) == 0);
  CHECK(to_int8(0, 0) == 0);
  CHECK(to_int8(near_zero[1], int8_scale(near_zero, 2)) >= -127);
  CHECK(std::isnan(int8_scale(infinite, 2)));
  CHECK(std::isnan(int8_scale(broken, 2)));
  CHECK(to_int8(1, NAN) == 0);
}

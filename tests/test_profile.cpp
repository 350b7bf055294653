#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "engine/core/profile.h"
#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"
#include "tools/common/machine_limits.h"

using namespace taper;

namespace {

// The line of a kernel, without its times: what stands from its calls on.
std::string line_of(const std::string& report, const std::string& kernel) {
  const size_t end = report.find("  " + kernel + "\n");
  if (end == std::string::npos) return {};
  return report.substr(report.rfind('\n', end) + 1, end - report.rfind('\n', end) - 1);
}

}  // namespace

TEST_CASE("profile: kernels are counted by name once a profile is on") {
  const Tensor x = Tensor::zeros({4}, Dtype::f32);
  start_profile();
  for (int i = 0; i < 3; ++i) kernels::fill(x, 1.0);
  const std::string report = profile_report();
  CAPTURE(report);
  CHECK(line_of(report, "fill").find("        3 ") != std::string::npos);
  CHECK(report.find("the rest of") != std::string::npos);
  start_profile();
  CHECK(line_of(profile_report(), "fill").empty());
  stop_profile();
  kernels::fill(x, 1.0);
  CHECK(line_of(profile_report(), "fill").empty());
}

// Limits of one unit a second make the share of the limits work divided by time.
TEST_CASE("profile: bytes are every operand's once, operations those of the products") {
  const Tensor a = Tensor::full({8, 16}, 1.0, Dtype::f32), b = Tensor::full({16, 32}, 1.0, Dtype::f32);
  const Tensor c = Tensor::zeros({8, 32}, Dtype::f32);
  const auto least = [&](const MachineLimits& limits) {
    const std::string line = line_of(profile_report(limits), "matmul");
    CAPTURE(line);
    double seconds = 0, share = 0;
    REQUIRE(std::sscanf(line.c_str(), "%lf", &seconds) == 1);
    const size_t percent = line.rfind(" %");
    REQUIRE(std::sscanf(line.c_str() + line.rfind(' ', percent - 1), "%lf", &share) == 1);
    return share;
  };
  start_profile();
  kernels::matmul(Accumulator(View(c), true), a, b, MatmulOptions{});
  stop_profile();
  const double bytes = 4 * (8 * 16 + 16 * 32 + 2 * 8 * 32), flops = 2 * 8 * 16 * 32;
  // The same time divides both.
  CHECK(least({1, 0, 0}) / least({0, 1, 0}) == doctest::Approx(bytes / flops).epsilon(1e-3));
  CHECK(least({1, 1, 0}) == least({0, 1, 0}));
  CHECK(line_of(profile_report({0, 0, 1}), "matmul").find(" -") != std::string::npos);
}

TEST_CASE("profile: operations of attention are of the causal half, of the unembedding of the gradients wanted") {
  const AttentionOptions options{2, 1, 4, 1.0};
  const View qkv{nullptr, {3, 10, 16}, Dtype::f32}, none;
  CHECK(product_operations(none, none, ConstView(qkv), options) == 2 * 3 * 2 * 4 * 10 * 10);
  CHECK(product_operations(Accumulator(), ConstView(), ConstView(), ConstView(), ConstView(qkv), options) ==
        5 * 3 * 2 * 4 * 10 * 10);
  const Tensor x = Tensor::zeros({6, 4}, Dtype::f32), w = Tensor::zeros({7, 4}, Dtype::f32);
  const auto loss = [&](const View& dx, const View& dw) {
    return product_operations(none, none, dx, dw, none, ConstView(View(x)), ConstView(View(w)), ConstView(),
                              ConstView(), 1.0);
  };
  CHECK(loss(none, none) == 2 * 6 * 7 * 4);
  CHECK(loss(x, w) == 3 * 2 * 6 * 7 * 4);
}

TEST_CASE("profile: limits of this machine are measured") {
  const MachineLimits limits = measure_machine_limits();
  CHECK(limits.bytes_per_s > 1e8);
  CHECK(limits.f32_flops_per_s > 1e8);
  CHECK(limits.bf16_flops_per_s > 1e8);
}

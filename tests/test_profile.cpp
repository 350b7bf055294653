#include <doctest/doctest.h>

#include "engine/core/profile.h"
#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"

using namespace taper;

TEST_CASE("profile: kernels are counted by name once a profile is on") {
  const Tensor x = Tensor::zeros({4}, Dtype::f32);
  start_profile();
  for (int i = 0; i < 3; ++i) kernels::fill(x, 1.0);
  const std::string report = profile_report();
  CAPTURE(report);
  CHECK(report.find("3 calls  fill\n") != std::string::npos);
  CHECK(report.find("the rest of") != std::string::npos);
  start_profile();
  CHECK(profile_report().find("fill") == std::string::npos);
  detail::profile_is_on = false;
  kernels::fill(x, 1.0);
  CHECK(profile_report().find("fill") == std::string::npos);
}

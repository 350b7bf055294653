// Running things on the CUDA device of the tests: a real one in tests-on-gpu, the emulated one elsewhere.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/emulation/schedule.h"
#include "tests/support/op_runs.h"

namespace taper::test {

// Orders in which to run a kernel whose result must not depend on it; for a real device one, which is its own.
std::vector<emulation::Schedule> schedules();

// Runs the rest of the scope in this order.
class ScheduleForTest {
 public:
  explicit ScheduleForTest(const emulation::Schedule& schedule);
  ~ScheduleForTest();
};

Tensors to_device(const Tensors& tensors, Device device);  // absent ones stay absent

// run_op() on the device, with inputs from the host and results brought back to it.
OpRun run_op_on_cuda(const std::shared_ptr<const Op>& op, const Tensors& inputs, const Tensors& cotangents,
                     const std::vector<bool>& asks, int passes = 1);

// body(info, sample, dtype) for everything in the registry. A use whose kernel does not exist for the device is left
// out, and the test case marked as skipped with the names of such kernels.
void for_each_cuda_use(const std::function<void(const OpInfo&, const Sample&, Dtype)>& body);

}  // namespace taper::test

#define SKIP_WITHOUT_CUDA()                                                   \
  do {                                                                        \
    if (!::taper::cuda_problem().empty()) SKIP_TEST(::taper::cuda_problem()); \
  } while (false)

// Walks the registry of ops once more, on the CUDA device of the tests (tests/emulation, or a real one in
// tests-on-gpu): every op, sample and dtype, forward and backward, against the processor. On the emulated device every
// order of blocks and threads must give the same bits.
#include <doctest/doctest.h>

#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/ops/ops.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/shared.h"

namespace taper::test {
namespace {

TEST_CASE("ops on cuda: results and gradients agree with the processor's f64, in every order with the same bits") {
  SKIP_WITHOUT_CUDA();
  const MemoryGuard guard;
  for_each_cuda_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    const int64_t damaged = damaged_guards();
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const auto asks = all_differentiated(sample);
    const OpRun exact = run_op(sample.op(Dtype::f64), to_f64(inputs), to_f64(cotangents), asks);
    OpRun first;
    for (const emulation::Schedule& schedule : schedules()) {
      const ScheduleForTest chosen(schedule);
      const std::string order = emulation::set_schedule ? emulation::to_string(schedule) : "the device's";
      CAPTURE(order);
      const OpRun run = run_op_on_cuda(sample.op(dtype), inputs, cotangents, asks);
      if (first.outputs.empty()) {
        first = run;
        CHECK(difference(run.outputs, exact.outputs, tolerance_of(sample, dtype)) == "");
        CHECK(difference(run.grads, exact.grads, tolerance_of(sample, dtype)) == "");
      } else {
        CHECK_MESSAGE(are_same_bits(run, first), "other bits in another order");
      }
    }
    CHECK(damaged_guards() == damaged);
  });
}

TEST_CASE("ops on cuda: two backward passes into one leaf give twice the gradient, and one input alone the same") {
  SKIP_WITHOUT_CUDA();
  const MemoryGuard guard;
  for_each_cuda_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    if (!has_gradient(sample)) return;
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const auto all = all_differentiated(sample);
    const OpRun once = run_op_on_cuda(sample.op(dtype), inputs, cotangents, all);
    const OpRun twice = run_op_on_cuda(sample.op(dtype), inputs, cotangents, all, 2);
    CHECK(are_same_bits(once.outputs, twice.outputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!all[i] || !inputs[i]) continue;
      CAPTURE(i);
      CHECK(difference(twice.grads[i], scaled(once.grads[i], 2), dtype == Dtype::f64 ? 1e-12 : 1e-5) == "");
      std::vector<bool> one(inputs.size());
      one[i] = true;
      const OpRun alone = run_op_on_cuda(sample.op(dtype), inputs, cotangents, one);
      CHECK(difference(alone.grads[i], once.grads[i], tolerance_of(sample, dtype)) == "");
    }
  });
}

}  // namespace
}  // namespace taper::test

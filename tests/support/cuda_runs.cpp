#include "tests/support/cuda_runs.h"

#include <doctest/doctest.h>

#include <set>

#include "engine/core/error.h"
#include "engine/ops/registry.h"
#include "tests/support/shared.h"

namespace taper::test {

using emulation::Schedule;

std::vector<Schedule> schedules() {
  if (!emulation::set_schedule) return {{}};
  return {{Schedule::Order::ascending, 0},
          {Schedule::Order::descending, 0},
          {Schedule::Order::run_ahead, 1},
          {Schedule::Order::run_ahead, 2}};
}

ScheduleForTest::ScheduleForTest(const Schedule& schedule) {
  if (emulation::set_schedule) emulation::set_schedule(schedule);
}
ScheduleForTest::~ScheduleForTest() {
  if (emulation::set_schedule) emulation::set_schedule({});
}

Tensors to_device(const Tensors& tensors, Device device) {
  Tensors moved;
  for (const Tensor& t : tensors) moved.push_back(t ? t.to(device) : t);
  return moved;
}

OpRun run_op_on_cuda(const std::shared_ptr<const Op>& op, const Tensors& inputs, const Tensors& cotangents,
                     const std::vector<bool>& asks, int passes) {
  const OpRun run = run_op(op, to_device(inputs, Device::cuda), to_device(cotangents, Device::cuda), asks, passes);
  return {to_device(run.outputs, Device::cpu), to_device(run.grads, Device::cpu)};
}

void for_each_cuda_use(const std::function<void(const OpInfo&, const Sample&, Dtype)>& body) {
  std::set<std::string> missing;
  for_each_sample([&](const OpInfo& info, const Sample& sample, Dtype dtype) {
    try {
      body(info, sample, dtype);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("has no kernel for cuda") == std::string::npos) throw;
      missing.insert(text.substr(0, text.find(':')));
    }
  });
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) skip_test("no kernel for cuda: " + names);
}

}  // namespace taper::test

// Walks the registry of ops: for every op, sample, dtype and instruction set of this processor, whatever can be asked
// of an op without knowing what it computes. A new op needs an entry in the registry and no test of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "engine/autograd/gradcheck.h"
#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/cpu_features.h"
#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/ops/ops.h"
#include "tests/support/op_runs.h"

namespace taper::test {
namespace {

// The instruction sets to try: all of this processor's, whatever TAPER_ISA said at the start.
std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  const std::string before = cpu_isa_name();
  for (const char* name : {"base", "avx2", "avx512", "avx512bf16", "amx"}) {
    try {
      set_cpu_isa(name);
      names.push_back(name);
    } catch (const UsageError&) {
      break;
    }
  }
  set_cpu_isa(before.c_str());
  return names;
}

class IsaForTest {
 public:
  explicit IsaForTest(const std::string& name) : before_(cpu_isa_name()) { set_cpu_isa(name.c_str()); }
  ~IsaForTest() { set_cpu_isa(before_.c_str()); }

 private:
  std::string before_;
};

class ThreadsForTest {
 public:
  explicit ThreadsForTest(int count) : before_(thread_count()) { set_thread_count(count); }
  ~ThreadsForTest() { set_thread_count(before_); }

 private:
  int before_;
};

// body(info, sample, dtype) for everything in the registry, on each instruction set.
template <class Body>
void for_each_use(Body&& body) {
  for (const std::string& isa : instruction_sets()) {
    const IsaForTest chosen(isa);
    CAPTURE(isa);
    for_each_sample(body);
  }
}

TEST_CASE("ops: every op of the sources is registered, once, with samples good and bad") {
  std::set<std::string> names, classes;
  for (const OpInfo& info : all_ops()) {
    CAPTURE(info.name);
    CHECK_MESSAGE(names.insert(info.name).second, "two entries of one name");
    const auto samples = info.samples();
    CHECK(!samples.empty());
    CHECK(!info.bad_samples().empty());
    for (const Sample& sample : samples) {
      const auto op = sample.op(Dtype::f32);
      CHECK(op->name() == info.name);
      classes.insert(class_name(*op));
    }
    CHECK_MESSAGE(std::any_of(samples.begin(), samples.end(), has_gradient), "no sample is differentiated");
  }
  const auto in_sources = op_classes_in_sources({"engine/ops", "engine/optim", "model", "train", "infer", "data"});
  REQUIRE_MESSAGE(!in_sources.empty(), "tests: no sources here; run from the project's folder");
  for (const std::string& name : in_sources) {
    CHECK_MESSAGE(classes.count(name) == 1, name << " is an Op without a sample in the registry");
  }
}

TEST_CASE("ops: results have the inferred shapes, agree with the reference and are written whole, nothing beyond") {
  const MemoryGuard guard;
  for_each_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    const int64_t damaged = damaged_guards();
    const auto op = sample.op(dtype);
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors outputs = run_op(op, inputs, {}, std::vector<bool>(inputs.size())).outputs;
    const std::vector<Spec> specs = op->infer(inputs);
    REQUIRE(specs.size() == outputs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      CHECK(outputs[i].shape() == specs[i].shape);
      CHECK(outputs[i].dtype() == specs[i].dtype);
    }
    const NoGrad no_grad;
    const Tensors exact = to_f64(inputs);
    const Tensors want = sample.reference ? sample.reference(exact) : taper::apply(sample.op(Dtype::f64), exact);
    CHECK(difference(outputs, want, tolerance_of(sample, dtype)) == "");
    CHECK(damaged_guards() == damaged);
  });
}

TEST_CASE("ops: gradients agree with central differences against random cotangents") {
  const auto sets = instruction_sets();
  for (const std::string& isa : {sets.front(), sets[std::min<size_t>(2, sets.size() - 1)]}) {
    const IsaForTest chosen(isa);
    for (const OpInfo& info : all_ops()) {
      for (const Sample& sample : info.samples()) {
        if (!has_gradient(sample)) continue;
        GradCheck check;
        check.what = info.name + ", " + sample.label + " [" + isa + "]";
        check.function = [op = sample.op(Dtype::f64)](const Tensors& in) { return taper::apply(op, in); };
        check.inputs = make_inputs(sample, Dtype::f64);
        check.is_differentiated = all_differentiated(sample);
        check.outputs_without_grad = sample.outputs_without_grad;
        CHECK(check_gradients(check) == "");
      }
    }
  }
}

TEST_CASE("ops: gradients in f32 and bf16 agree with f64's, are written whole, nothing beyond") {
  const MemoryGuard guard;
  for_each_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    if (!has_gradient(sample)) return;
    const int64_t damaged = damaged_guards();
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const auto asks = all_differentiated(sample);
    const OpRun run = run_op(sample.op(dtype), inputs, cotangents, asks);
    const OpRun exact = run_op(sample.op(Dtype::f64), to_f64(inputs), to_f64(cotangents), asks);
    CHECK(difference(run.grads, exact.grads, tolerance_of(sample, dtype)) == "");
    CHECK(damaged_guards() == damaged);
  });
}

TEST_CASE("ops: two backward passes into one leaf give twice the gradient") {
  const MemoryGuard guard;
  for_each_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    if (!has_gradient(sample)) return;
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const auto asks = all_differentiated(sample);
    const OpRun once = run_op(sample.op(dtype), inputs, cotangents, asks);
    const OpRun twice = run_op(sample.op(dtype), inputs, cotangents, asks, 2);
    Tensors doubled;
    for (const Tensor& grad : once.grads) doubled.push_back(grad ? scaled(grad, 2) : grad);
    CHECK(difference(twice.grads, doubled, dtype == Dtype::f64 ? 1e-12 : 1e-5) == "");
  });
}

TEST_CASE("ops: the gradient of one input alone is the same as among all") {
  const MemoryGuard guard;
  for_each_use([](const OpInfo&, const Sample& sample, Dtype dtype) {
    const auto all = all_differentiated(sample);
    if (std::count(all.begin(), all.end(), true) < 2) return;
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const OpRun whole = run_op(sample.op(dtype), inputs, cotangents, all);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!all[i]) continue;
      CAPTURE(i);
      std::vector<bool> one(inputs.size());
      one[i] = true;
      const OpRun alone = run_op(sample.op(dtype), inputs, cotangents, one);
      CHECK(difference(alone.grads[i], whole.grads[i], tolerance_of(sample, dtype)) == "");
    }
  });
}

TEST_CASE("ops: a gradient through one output alone is right as well") {
  const MemoryGuard guard;
  for (const OpInfo& info : all_ops()) {
    CAPTURE(info.name);
    for (const Sample& sample : info.samples()) {
      CAPTURE(sample.label);
      if (!has_gradient(sample)) continue;
      const Tensors inputs = make_inputs(sample, Dtype::f64);
      const Tensors cotangents = cotangents_for(sample, inputs, Dtype::f64);
      const auto asks = all_differentiated(sample);
      std::vector<OpRun> parts;
      for (size_t i = 0; i < cotangents.size(); ++i) {
        Tensors one(cotangents.size());
        one[i] = cotangents[i];
        if (one[i]) parts.push_back(run_op(sample.op(Dtype::f64), inputs, one, asks));
      }
      if (parts.size() < 2) continue;
      const OpRun whole = run_op(sample.op(Dtype::f64), inputs, cotangents, asks);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!asks[i]) continue;
        Tensor sum = parts[0].grads[i];
        for (size_t p = 1; p < parts.size(); ++p) sum = add(sum, parts[p].grads[i]);
        CHECK(difference(sum, whole.grads[i], 1e-10) == "");
      }
    }
  }
}

TEST_CASE("ops: the same bits when run again, and for any number of threads where that is promised") {
  std::set<std::string> depend_on_threads;
  for_each_use([&](const OpInfo& info, const Sample& sample, Dtype dtype) {
    const Tensors inputs = make_inputs(sample, dtype);
    const Tensors cotangents = cotangents_for(sample, inputs, dtype);
    const auto run = [&](int threads) {
      const ThreadsForTest chosen(threads);
      return run_op(sample.op(dtype), inputs, cotangents, all_differentiated(sample));
    };
    const OpRun two = run(2);
    CHECK_MESSAGE(are_same_bits(two, run(2)), "other bits when run again");
    if (are_same_bits(two, run(1)) && are_same_bits(two, run(3))) return;
    depend_on_threads.insert(info.name);
    CHECK_MESSAGE(!info.keeps_bits_for_any_threads, "other bits with another number of threads");
  });
  for (const std::string& name : depend_on_threads) {
    std::printf("note: %s gives other bits with another number of threads\n", name.c_str());
  }
}

TEST_CASE("ops: every misuse is refused with an error that names the op") {
  for (const OpInfo& info : all_ops()) {
    CAPTURE(info.name);
    for (const BadSample& bad : info.bad_samples()) {
      std::string text = "nothing was thrown";
      try {
        bad.call();
      } catch (const Error& error) {
        text = error.what();
      }
      CAPTURE(text);
      CHECK(text.rfind(info.name + ": ", 0) == 0);
      CHECK_MESSAGE(text.find(bad.message) != std::string::npos, "want: " << bad.message);
    }
  }
}

}  // namespace
}  // namespace taper::test

#include "tests/support/op_runs.h"

#include <cxxabi.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <typeinfo>

#include "engine/autograd/gradcheck.h"
#include "engine/autograd/tape.h"
#include "engine/core/error.h"

namespace taper::test {

namespace {

// Made once: the driver asks for the same numbers many times.
Tensor normals(const Shape& shape, Dtype dtype, uint64_t seed) {
  static std::map<std::pair<int64_t, uint64_t>, Tensor> made;
  Tensor& values = made[{shape.numel(), seed}];
  if (!values) values = random_normal({shape.numel()}, Dtype::f64, seed);
  return values.reshaped(shape).cast(dtype);
}

}  // namespace

Tensors make_inputs(const Sample& sample, Dtype dtype) {
  Tensors inputs;
  uint64_t seed = 1;
  for (const SampleInput& input : sample.inputs) {
    const Dtype own = input.follows_dtype ? dtype : accumulation_dtype(dtype);
    inputs.push_back(input.make ? input.make(own) : normals(input.shape, own, seed));
    ++seed;
  }
  return inputs;
}

Tensors make_cotangents(const Sample& sample, const Tensors& outputs) {
  Tensors cotangents(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& left_out = sample.outputs_without_grad;
    if (std::find(left_out.begin(), left_out.end(), static_cast<int>(i)) != left_out.end()) continue;
    cotangents[i] = normals(outputs[i].shape(), outputs[i].dtype(), 1000 + i);
  }
  return cotangents;
}

Tensors cotangents_for(const Sample& sample, const Tensors& inputs, Dtype dtype) {
  const NoGrad no_grad;
  return make_cotangents(sample, taper::apply(sample.op(dtype), inputs));
}

void for_each_sample(const std::function<void(const OpInfo&, const Sample&, Dtype)>& body) {
  for (const OpInfo& info : all_ops()) {
    CAPTURE(info.name);
    for (const Sample& sample : info.samples()) {
      CAPTURE(sample.label);
      for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        if (dtype == Dtype::bf16 && !sample.has_bf16) continue;
        const std::string type = to_string(dtype);
        CAPTURE(type);
        body(info, sample, dtype);
      }
    }
  }
}

Tensors to_f64(const Tensors& tensors) {
  Tensors wide;
  for (const Tensor& t : tensors) wide.push_back(t && t.dtype() != Dtype::i32 ? t.cast(Dtype::f64) : t);
  return wide;
}

std::vector<bool> all_differentiated(const Sample& sample) {
  std::vector<bool> asks;
  for (const SampleInput& input : sample.inputs) asks.push_back(input.is_differentiated);
  return asks;
}

bool has_gradient(const Sample& sample) {
  const auto asks = all_differentiated(sample);
  return std::find(asks.begin(), asks.end(), true) != asks.end();
}

OpRun run_op(const std::shared_ptr<const Op>& op, const Tensors& inputs, const Tensors& cotangents,
             const std::vector<bool>& asks, int passes) {
  OpRun run;
  Tensors leaves;
  bool asks_any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool asked = asks[i] && inputs[i];
    leaves.push_back(asked ? inputs[i].clone().set_requires_grad() : inputs[i]);
    asks_any = asks_any || asked;
  }
  for (int pass = 0; pass < passes; ++pass) {
    run.outputs = taper::apply(op, leaves);
    if (!asks_any) continue;
    Tensors roots, given;
    for (size_t i = 0; i < cotangents.size(); ++i) {
      if (!cotangents[i]) continue;
      roots.push_back(run.outputs[i]);
      given.push_back(cotangents[i]);
    }
    backward(roots, given);
  }
  for (size_t i = 0; i < leaves.size(); ++i) run.grads.push_back(asks[i] && leaves[i] ? leaves[i].grad() : Tensor());
  return run;
}

std::string difference(const Tensor& got, const Tensor& want, double tolerance) {
  if (!got || !want) return got.is_defined() == want.is_defined() ? "" : "one of the two is missing";
  if (!(got.shape() == want.shape())) return "got " + describe(got) + ", want " + describe(want);
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  double scale = 1;
  for (const double value : b) scale = std::isfinite(value) ? std::max(scale, std::fabs(value)) : scale;
  size_t worst = 0, count = 0;
  double greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = a[i] == b[i] ? 0 : std::fabs(a[i] - b[i]);
    if (error <= tolerance * scale) continue;  // not so where either is no number, nor where one alone is infinite
    ++count;
    if (count > 1 && !(error > greatest)) continue;
    worst = i;
    greatest = error;
  }
  if (count == 0) return "";
  return fmt::format("{} of {} entries of {} differ, most of all entry {}: got {:.9g}, want {:.9g}, allowed {:.3g}",
                     count, a.size(), describe(got), worst, a[worst], b[worst], tolerance * scale);
}

std::string difference(const Tensors& got, const Tensors& want, double tolerance) {
  if (got.size() < want.size()) return "fewer results than wanted";
  std::string text;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string one = difference(got[i], want[i], tolerance);
    if (!one.empty()) text += fmt::format("[{}] {}\n", i, one);
  }
  return text;
}

bool are_same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].is_defined() != b[i].is_defined()) return false;
    if (a[i] && a[i].bytes() != b[i].bytes()) return false;
    if (a[i] && std::memcmp(a[i].raw(), b[i].raw(), static_cast<size_t>(a[i].bytes())) != 0) return false;
  }
  return true;
}

bool are_same_bits(const OpRun& a, const OpRun& b) {
  return are_same_bits(a.outputs, b.outputs) && are_same_bits(a.grads, b.grads);
}

double tolerance_of(const Sample& sample, Dtype dtype) {
  return dtype == Dtype::f64   ? sample.tolerance.f64
         : dtype == Dtype::f32 ? sample.tolerance.f32
                               : sample.tolerance.bf16;
}

std::vector<std::string> op_classes_in_sources(const std::vector<std::string>& folders) {
  static const std::regex declaration(R"((?:struct|class)\s+(\w+)(?:\s+final)?\s*:\s*(?:public\s+)?Op\b)");
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::string text, line;
      // Headers show examples in comments.
      while (std::getline(file, line)) text += line.substr(0, line.find("//")) + "\n";
      for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it)
        names.push_back((*it)[1]);
    }
  }
  return names;
}

std::string class_name(const Op& op) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(typeid(op).name(), nullptr, nullptr, &status);
  const std::string whole = status == 0 ? demangled : typeid(op).name();
  std::free(demangled);
  return whole.substr(whole.rfind(':') + 1);
}

}  // namespace taper::test

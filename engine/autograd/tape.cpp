#include "engine/autograd/tape.h"

#include <atomic>
#include <functional>
#include <map>

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {

// One op that was applied. `out_grads` fills during a backward pass.
class GradNode {
 public:
  GradNode() = default;
  ~GradNode();
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;

  std::shared_ptr<const Op> op;
  Saved saved{false, {}};
  Tensors inputs;
  std::vector<std::weak_ptr<Tensor::Impl>> outputs;
  std::vector<GradSlot> out_grads;
  uint64_t age = 0;
  bool is_spent = false;
};

namespace {

// Takes the nodes of tensors that nothing else refers to.
void take_nodes(const Tensors& tensors, std::vector<std::shared_ptr<GradNode>>& nodes) {
  for (const Tensor& tensor : tensors) {
    if (tensor && tensor.impl().use_count() == 1 && tensor.impl()->node) {
      nodes.push_back(std::move(tensor.impl()->node));
    }
  }
}

}  // namespace

// Left to itself, the destruction of a long chain of nodes would take a stack frame for each.
GradNode::~GradNode() {
  std::vector<std::shared_ptr<GradNode>> nodes;
  take_nodes(inputs, nodes);
  while (!nodes.empty()) {
    const std::shared_ptr<GradNode> node = std::move(nodes.back());
    nodes.pop_back();
    if (node.use_count() == 1) take_nodes(node->inputs, nodes);
  }
}

namespace {

thread_local bool grad_is_enabled = true;
std::atomic<uint64_t> next_age{1};

// Nodes that wait for their turn, newest first.
using Agenda = std::map<uint64_t, std::shared_ptr<GradNode>, std::greater<>>;

// The leaves among a node's inputs, with their gradients, held for the length of one backward() of an op.
class LeafSlots {
 public:
  explicit LeafSlots(const Tensors& inputs) {
    slots_.reserve(inputs.size());
    for (const Tensor& input : inputs) {
      if (!input || !input.impl()->is_leaf_with_grad || find(input)) continue;
      const auto& impl = input.impl();
      slots_.emplace_back(input, GradSlot{std::exchange(impl->grad, Tensor()), impl->grad_is_set});
    }
  }
  ~LeafSlots() {
    for (auto& [leaf, slot] : slots_) {
      leaf.impl()->grad = std::move(slot.value);
      leaf.impl()->grad_is_set = slot.is_set;
    }
  }
  LeafSlots(const LeafSlots&) = delete;
  LeafSlots& operator=(const LeafSlots&) = delete;

  GradSlot* find(const Tensor& leaf) {
    for (auto& [held, slot] : slots_) {
      if (held.impl() == leaf.impl()) return &slot;
    }
    return nullptr;
  }

 private:
  std::vector<std::pair<Tensor, GradSlot>> slots_;
};

// Before anything of the node is touched: its slots are gone with the rest.
void require_unspent(const GradNode& node) {
  require(!node.is_spent, "backward: {} was differentiated before, and its memory is gone", node.op->name());
}

Grads::Target target_of(const Tensor& input, Agenda& agenda, LeafSlots& leaves) {
  Grads::Target target;
  if (!input || !input.requires_grad()) return target;
  target.device = input.device();
  if (const auto& node = input.impl()->node) {
    require_unspent(*node);
    agenda.emplace(node->age, node);
    target.slot = &node->out_grads[static_cast<size_t>(input.impl()->output_index)];
    target.spec = {input.shape(), input.dtype()};
  } else {
    target.slot = leaves.find(input);
    target.spec = {input.shape(), accumulation_dtype(input.dtype())};
  }
  return target;
}

// An input that another input of the node is as well, and the memory for its own share of the gradient.
struct SharedSlot {
  Grads::Target target;
  std::unique_ptr<GradSlot> apart;
};

std::vector<SharedSlot> part_shared_slots(std::vector<Grads::Target>& targets) {
  std::vector<SharedSlot> shared;
  for (size_t i = 1; i < targets.size(); ++i) {
    const auto is_same = [&](const Grads::Target& other) { return other.slot == targets[i].slot; };
    const auto end = targets.begin() + static_cast<std::ptrdiff_t>(i);
    if (targets[i].slot == nullptr || std::none_of(targets.begin(), end, is_same)) continue;
    shared.push_back({targets[i], std::make_unique<GradSlot>()});
    targets[i].slot = shared.back().apart.get();
  }
  return shared;
}

Tensors take_output_grads(GradNode& node) {
  Tensors dy(node.out_grads.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    if (node.out_grads[i].is_set) dy[i] = node.out_grads[i].value;
    const auto output = node.outputs[i].lock();
    if (output && output->retains_grad && dy[i]) {
      output->grad = dy[i];
      output->grad_is_set = true;
    }
  }
  node.out_grads.clear();
  return dy;
}

void run_node(GradNode& node, Agenda& agenda) {
  const Tensors dy = take_output_grads(node);
  LeafSlots leaves(node.inputs);
  std::vector<Grads::Target> targets;
  for (const Tensor& input : node.inputs) targets.push_back(target_of(input, agenda, leaves));
  // A tensor that is several inputs: a kernel may write all of its gradients at once, so they get memory of their own.
  std::vector<SharedSlot> shared = part_shared_slots(targets);
  Grads grads(std::move(targets));
  node.op->backward(node.saved, dy, grads);
  for (size_t i = 0; i < grads.targets().size(); ++i) {
    require(!grads.needs(i) || grads.targets()[i].was_served, "{}: backward left out the gradient of input {}",
            node.op->name(), i);
  }
  for (const SharedSlot& each : shared) Grads({each.target}).pass(0, each.apart->value);
  node.saved.drop();
  node.inputs.clear();
  node.is_spent = true;
}

void seed_root(const Tensor& root, const Tensor& cotangent, Agenda& agenda) {
  require(root && root.impl()->node, "backward: the root depends on nothing that requires a gradient");
  require(cotangent.is_defined() && cotangent.shape() == root.shape() && cotangent.dtype() == root.dtype(),
          "backward: the cotangent is {}, want {}", describe(cotangent), describe(root));
  const auto& node = root.impl()->node;
  require_unspent(*node);
  GradSlot& slot = node->out_grads[static_cast<size_t>(root.impl()->output_index)];
  require(!slot.is_set, "backward: a root of {} is given twice", node->op->name());
  slot = {cotangent.detached(), true};
  agenda.emplace(node->age, node);
}

// Where all inputs are.
Device device_of(const Op& op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& input : in) {
    if (!input) continue;
    if (!first) first = &input;
    require(input.device() == first->device(), "{}: the inputs are on different devices; got {} on {} and {} on {}",
            op.name(), describe(*first), to_string(first->device()), describe(input), to_string(input.device()));
  }
  return first ? first->device() : Device::cpu;
}

}  // namespace

Tensors apply(std::shared_ptr<const Op> op, const Tensors& in) {
  const std::vector<Spec> specs = op->infer(in);
  const Device device = device_of(*op, in);
  std::vector<bool> needs;
  bool needs_backward = false;
  for (const Tensor& input : in) {
    needs.push_back(grad_is_enabled && input && input.requires_grad());
    needs_backward = needs_backward || needs.back();
  }
  Tensors out;
  for (const Spec& spec : specs) out.push_back(Tensor::empty(spec.shape, spec.dtype, device, op->name()));
  Saved saved(needs_backward, std::move(needs));
  op->forward(in, out, saved);
  if (!needs_backward) return out;

  auto node = std::make_shared<GradNode>();
  node->op = std::move(op);
  node->saved = std::move(saved);
  node->inputs = in;
  node->age = next_age++;
  node->out_grads.resize(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].impl()->node = node;
    out[i].impl()->output_index = static_cast<int>(i);
    node->outputs.push_back(out[i].impl());
  }
  return out;
}

void backward(const Tensor& root, const Tensor& cotangent) {
  Tensor seed = cotangent;
  if (root && !seed) {
    require(root.numel() == 1, "backward: the root is {}, want one element or a cotangent", to_string(root.shape()));
    seed = Tensor::empty(root.shape(), root.dtype(), root.device(), "a cotangent");
    kernels::fill(seed, 1.0);
  }
  backward(Tensors{root}, Tensors{seed});
}

void backward(const Tensors& roots, const Tensors& cotangents) {
  require(roots.size() == cotangents.size(), "backward: got {} roots and {} cotangents, want as many", roots.size(),
          cotangents.size());
  Agenda agenda;
  for (size_t i = 0; i < roots.size(); ++i) seed_root(roots[i], cotangents[i], agenda);
  while (!agenda.empty()) {
    const std::shared_ptr<GradNode> newest = agenda.begin()->second;
    agenda.erase(agenda.begin());
    run_node(*newest, agenda);
  }
}

NoGrad::NoGrad() : before_(std::exchange(grad_is_enabled, false)) {}
NoGrad::~NoGrad() { grad_is_enabled = before_; }
bool is_grad_enabled() { return grad_is_enabled; }

}  // namespace taper

// Threads of a kernel take turns on one thread of the processor. Each has a stack of its own, and a switch between two
// stacks saves what the calling convention says must survive a call: a dozen instructions on x86-64, swapcontext
// elsewhere.
#pragma once

#include <cstddef>

namespace taper::emulation {

// A suspended place in the program: a stack and where it went on from. The default one is filled by the first switch
// away from the stack of the program itself.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Takes the stack [base, base + bytes); the first switch here calls entry(), which must not return.
  void prepare(char* base, size_t bytes, void (*entry)());
  // Saves where this one is, and goes on with the other.
  void switch_to(Fiber& other);

 private:
  friend void start_fiber();
  struct Context;
  Context* context_;
};

}  // namespace taper::emulation

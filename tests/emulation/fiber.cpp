#include "tests/emulation/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define TAPER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TAPER_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef TAPER_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__
// taper_switch_stack(save, to): pushes the registers that a call preserves, leaves the stack pointer in *save, takes
// the other's and pops its registers.
extern "C" void taper_switch_stack(void** save, void* to);
asm(R"(
.text
.p2align 4
.globl taper_switch_stack
.type taper_switch_stack, @function
taper_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size taper_switch_stack, . - taper_switch_stack
)");
#else
#include <ucontext.h>
#endif

namespace taper::emulation {

struct Fiber::Context {
#ifdef __x86_64__
  void* stack_pointer = nullptr;
#else
  ucontext_t context{};
#endif
  const void* base = nullptr;  // of the stack; unknown for the program's own until the first switch away from it
  size_t bytes = 0;
  void (*entry)() = nullptr;
};

namespace {

Fiber* current = nullptr;   // the fiber being switched to
Fiber* previous = nullptr;  // the one that was left

}  // namespace

// What a new stack begins with.
void start_fiber() {
#ifdef TAPER_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &previous->context_->base, &previous->context_->bytes);
#endif
  current->context_->entry();
}

Fiber::Fiber() : context_(new Context) {}
Fiber::~Fiber() { delete context_; }

void Fiber::prepare(char* base, size_t bytes, void (*entry)()) {
  context_->base = base;
  context_->bytes = bytes;
  context_->entry = entry;
#ifdef TAPER_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(base, bytes);
#endif
#ifdef __x86_64__
  // Six registers to pop and the address to return to; at the entry of a function the stack is 8 beyond a multiple
  // of 16.
  auto top = reinterpret_cast<uintptr_t>(base + bytes) / 16 * 16;
  auto* slots = reinterpret_cast<uint64_t*>(top) - 8;
  for (int i = 0; i < 8; ++i) slots[i] = 0;
  slots[6] = reinterpret_cast<uint64_t>(&start_fiber);
  context_->stack_pointer = slots;
#else
  getcontext(&context_->context);
  context_->context.uc_stack.ss_sp = base;
  context_->context.uc_stack.ss_size = bytes;
  context_->context.uc_link = nullptr;
  makecontext(&context_->context, start_fiber, 0);
#endif
}

void Fiber::switch_to(Fiber& other) {
  current = &other;
  previous = this;
#ifdef TAPER_ADDRESS_SANITIZER
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(&shadow, other.context_->base, other.context_->bytes);
#endif
#ifdef __x86_64__
  taper_switch_stack(&context_->stack_pointer, other.context_->stack_pointer);
#else
  swapcontext(&context_->context, &other.context_->context);
#endif
#ifdef TAPER_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(shadow, &previous->context_->base, &previous->context_->bytes);
#endif
}

}  // namespace taper::emulation

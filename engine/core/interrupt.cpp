#include "engine/core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace taper {
namespace {

std::atomic<bool> stop_is_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait for a lock");

void on_signal(int) {
  if (stop_is_requested.exchange(true)) _exit(kExitStopped);
}

}  // namespace

void install_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // Reads and writes in progress go on; whoever waits for input polls the flag.
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() noexcept { return stop_is_requested.load(std::memory_order_relaxed); }

void request_stop() noexcept { stop_is_requested.store(true); }

void clear_stop_request() noexcept { stop_is_requested.store(false); }

}  // namespace taper

#include "engine/core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace taper {
namespace {

std::atomic<bool> stop_is_requested{false};
std::atomic<bool> leaves_at_once{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait for a lock");

void on_signal(int) {
  if (stop_is_requested.exchange(true) || leaves_at_once.load()) _exit(kExitStopped);
}

}  // namespace

void install_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // Reads and writes in progress go on; whoever waits for input (data/byte_stream.h) polls the flag.
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Whoever was started to outlive its terminal (nohup) ignores the signal, and goes on doing so.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

void leave_at_first_signal() noexcept { leaves_at_once.store(true); }

bool stop_requested() noexcept { return stop_is_requested.load(std::memory_order_relaxed); }

void request_stop() noexcept { stop_is_requested.store(true); }

void clear_stop_request() noexcept { stop_is_requested.store(false); }

}  // namespace taper

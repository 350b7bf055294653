// Stopping on request. The first SIGINT, SIGTERM or SIGHUP asks the running work to end at its next safe point, the
// second one leaves the program at once with exit code 130. Long loops poll stop_requested(); files stay whole either
// way, because they are written beside their place and renamed.
#pragma once

namespace taper {

inline constexpr int kExitStopped = 130;

// Thrown out of work that has nothing to save, once a stop is requested; the program ends with kExitStopped.
struct Stopped {};

// Takes SIGINT and SIGTERM over for the whole process, and SIGHUP unless it is ignored.
void install_stop_signals();

// From here on the first signal ends the program at once, in the middle of whatever it does: for programs that have
// nothing to save, whose steps may take long.
void leave_at_first_signal() noexcept;

// True from the first signal, or from request_stop(), on. Safe and cheap to call from any thread.
bool stop_requested() noexcept;

void request_stop() noexcept;

inline void throw_if_stop_requested() {
  if (stop_requested()) throw Stopped{};
}

// Forgets an earlier request: for tests and for programs that run several pieces of work in turn.
void clear_stop_request() noexcept;

}  // namespace taper

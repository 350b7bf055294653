// How far a run is, on stderr: on a terminal one line that is rewritten, elsewhere a line every ten seconds.
//   step 120/1000  loss 5.1234  gate 0.87  lr 5.9e-04  8,123 tokens/s  3m12s left
// The time left counts the evaluations that are still to come.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/trainer.h"

namespace taper {

class Progress {
 public:
  // evaluate_every: steps between evaluations, 0: one at the end alone. A quiet one prints nothing.
  Progress(int64_t steps, int64_t evaluate_every, bool is_quiet);
  ~Progress();  // leaves the terminal's line

  void step_done(const StepReport& report, double seconds, int64_t tokens);
  void evaluation_done(double seconds);
  // A line of its own, whatever the terminal shows.
  void say(const std::string& message);

  double seconds_left(int64_t next_step) const;

 private:
  void clear_line();

  int64_t steps_;
  int64_t evaluate_every_;
  bool is_quiet_;
  bool is_terminal_;
  bool has_line_ = false;
  double step_seconds_ = 0;        // a running mean
  double evaluation_seconds_ = 0;  // the last one; before the first, as long as ten steps
  std::chrono::steady_clock::time_point last_print_{};
};

// "45s", "3m12s", "2h05m".
std::string format_duration(double seconds);

}  // namespace taper

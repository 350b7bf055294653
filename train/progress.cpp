#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace taper {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPlainInterval = std::chrono::seconds(10);
constexpr auto kTerminalInterval = std::chrono::milliseconds(200);

// 12345 -> "12,345".
std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(int64_t steps, int64_t evaluate_every, bool is_quiet)
    : steps_(steps), evaluate_every_(evaluate_every), is_quiet_(is_quiet), is_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (has_line_) std::fputc('\n', stderr);
}

void Progress::step_done(const StepReport& report, double seconds, int64_t tokens) {
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const Clock::time_point now = Clock::now();
  const bool is_last = report.step + 1 == steps_;
  const bool is_due = is_terminal_ ? now - last_print_ >= kTerminalInterval : now - last_print_ >= kPlainInterval;
  if (is_quiet_ || !(is_due || is_last)) return;
  last_print_ = now;
  const std::string line = fmt::format("step {}/{}  loss {:.4f}  gate {:.2f}  lr {:.1e}  {} tokens/s  {} left",
                                       report.step + 1, steps_, report.loss, report.gate, report.learning_rate,
                                       with_commas(std::llround(static_cast<double>(tokens) / step_seconds_)),
                                       format_duration(seconds_left(report.step + 1)));
  clear_line();
  std::fprintf(stderr, is_terminal_ ? "%s" : "%s\n", line.c_str());
  has_line_ = is_terminal_;
  std::fflush(stderr);
}

void Progress::evaluation_done(double seconds) { evaluation_seconds_ = seconds; }

void Progress::say(const std::string& message) {
  if (is_quiet_) return;
  clear_line();
  std::fprintf(stderr, "%s\n", message.c_str());
}

double Progress::seconds_left(int64_t next_step) const {
  const int64_t steps = std::max<int64_t>(0, steps_ - next_step);
  int64_t evaluations = 1;
  if (evaluate_every_ > 0)
    evaluations += (steps_ - 1) / evaluate_every_ - std::max<int64_t>(0, next_step - 1) / evaluate_every_;
  const double evaluation = evaluation_seconds_ > 0 ? evaluation_seconds_ : 10 * step_seconds_;
  return static_cast<double>(steps) * step_seconds_ + static_cast<double>(evaluations) * evaluation;
}

void Progress::clear_line() {
  if (has_line_) std::fputs("\r\033[K", stderr);
  has_line_ = false;
}

}  // namespace taper

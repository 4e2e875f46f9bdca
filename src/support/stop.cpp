#include "support/stop.h"
#include <algorithm>
#include <atomic>
#include <chrono>

namespace tkc {

namespace {
std::atomic<bool> interrupted{false};
std::atomic<int64_t> deadline{0}; // nanoseconds of the steady clock; 0: none
std::atomic<double> limit{0};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
bool late() {
  int64_t d = deadline.load(std::memory_order_relaxed);
  return d != 0 && now() > d;
}
static_assert(std::atomic<bool>::is_always_lock_free); // a signal handler writes it
} // namespace

void request_stop() { interrupted.store(true, std::memory_order_relaxed); }

TimeLimit::TimeLimit(double seconds) {
  if (seconds <= 0) return;
  constexpr double kLongest = 1e9; // seconds; keeps the sum inside 64 bits
  limit = seconds;
  deadline = now() + int64_t(std::min(seconds, kLongest) * 1e9);
}
TimeLimit::~TimeLimit() { deadline = 0; }

bool stop_requested() { return interrupted.load(std::memory_order_relaxed) || late(); }

std::optional<Error> stop_reason() {
  if (interrupted) return Error{"interrupted", ErrorKind::Interrupted};
  if (late()) return Error{fmt::format("stopped after the time limit of {:.3g} s", limit.load()), ErrorKind::Timeout};
  return std::nullopt;
}

} // namespace tkc

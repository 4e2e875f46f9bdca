// Why long work must end early: the user pressed Ctrl-C, or a time limit is over. Whatever may run long (the
// interpreter, the emulator, waiting for a GPU, the rounds of a measurement) asks often and gives back what it has.
#pragma once
#include "support/result.h"
#include <optional>

namespace tkc {

// Async-signal-safe: sets the mark of Ctrl-C.
void request_stop();
// A time limit for everything that runs while the object lives; seconds, none if <= 0. Limits do not nest.
class TimeLimit {
public:
  explicit TimeLimit(double seconds);
  ~TimeLimit();
  TimeLimit(const TimeLimit &) = delete;
  TimeLimit &operator=(const TimeLimit &) = delete;
};

// Whether to stop. Takes some 30 ns where a limit is set; any thread may ask.
bool stop_requested();
// The error of work that stopped, of kind Interrupted or Timeout; nothing while there is no reason to stop.
std::optional<Error> stop_reason();

} // namespace tkc

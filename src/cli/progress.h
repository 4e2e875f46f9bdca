// Long work on the command line: Ctrl-C, and a line that says how far it is.
#pragma once
#include <cstdint>
#include <string>

namespace tkc::cli {

// From here on Ctrl-C (and SIGTERM) asks the work to stop (support/stop.h), which then gives back what it has; a second
// one ends the process at once.
void stop_on_interrupt();

// One line on stderr that is written over; nothing where stderr is no terminal.
class Progress {
public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  void show(const std::string &text);
  void clear(); // before anything else is printed

private:
  bool terminal_;
  size_t shown_ = 0;
};

} // namespace tkc::cli

#include "cli/progress.h"
#include "support/stop.h"
#include <csignal>
#include <cstdio>
#include <unistd.h>

namespace tkc::cli {

void stop_on_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { request_stop(); };
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART; // the next one is not caught
  for (int n : {SIGINT, SIGTERM}) ::sigaction(n, &action, nullptr);
}

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string &text) {
  if (!terminal_) return;
  std::string line = text.substr(0, 79);
  size_t length = line.size();
  if (length < shown_) line.append(shown_ - length, ' ');
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
  shown_ = length;
}

void Progress::clear() {
  if (shown_ == 0) return;
  std::fprintf(stderr, "\r%*s\r", int(shown_), "");
  std::fflush(stderr);
  shown_ = 0;
}

} // namespace tkc::cli

#include "support/check.h"
#include <cstdio>
#include <cstdlib>

namespace tkc {

static InternalErrorHook the_hook = nullptr;

void set_internal_error_hook(InternalErrorHook hook) { the_hook = hook; }

void internal_error(const char *file, int line, const std::string &message) {
  fmt::print(stderr, "tkc: internal error: {} ({}:{})\n", message, file, line);
  if (the_hook) {
    InternalErrorHook hook = the_hook;
    the_hook = nullptr; // a fault inside the hook must not call it again
    hook(message);
  }
  std::fflush(nullptr);
  std::_Exit(70);
}

} // namespace tkc

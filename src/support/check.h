// Broken invariants. A user's fault is a diagnostic (diagnostics.h); what TKC_CHECK reports is a fault of tkc itself.
#pragma once
#include <fmt/format.h>
#include <string>

namespace tkc {

// Called once before an internal error ends the process (exit 70); the command line sets it to write a reproducer.
using InternalErrorHook = void (*)(const std::string &message);
void set_internal_error_hook(InternalErrorHook hook);

[[noreturn]] void internal_error(const char *file, int line, const std::string &message);

} // namespace tkc

// TKC_CHECK(condition, "text with {}", args...): ends the process with the message if the condition does not hold.
#define TKC_CHECK(condition, ...)                                                                                      \
  do {                                                                                                                 \
    if (!(condition)) ::tkc::internal_error(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__));                           \
  } while (0)
#define TKC_UNREACHABLE(...) ::tkc::internal_error(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__))

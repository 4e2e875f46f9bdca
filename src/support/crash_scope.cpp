#include "support/crash_scope.h"

namespace tkc {

static thread_local const CrashScope *the_innermost = nullptr;

CrashScope::CrashScope(const char *file_name, std::function<std::string()> text)
    : file_name_(file_name), text_(std::move(text)), outer_(the_innermost) {
  the_innermost = this;
}
CrashScope::~CrashScope() { the_innermost = outer_; }
const CrashScope *CrashScope::innermost() { return the_innermost; }

} // namespace tkc

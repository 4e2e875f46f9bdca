// When tkc itself fails (a broken invariant, an uncaught exception, a fatal error of LLVM, a signal such as SIGSEGV),
// the process ends with code 70 and leaves a folder that holds what a developer needs: report.txt (message, version,
// command line, working directory), rerun.sh, the sources with their imports, and the last IR where there is one.
#pragma once
#include "support/source.h"
#include <string>
#include <vector>

namespace tkc::cli {

// Before anything else; `version` is copied.
void install_crash_report(int argc, char **argv, const std::string &version);
// The files that the report keeps; they must live until the next call. Null: none.
void set_crash_sources(const SourceManager *sources);

// For tests of the report: one of fault_kinds(). "llvm" fails elsewhere (driver::CompileOptions).
void fail_on_purpose(const std::string &kind);
const std::vector<std::string> &fault_kinds();

} // namespace tkc::cli

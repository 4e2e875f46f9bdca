#include "cli/cli.h"
#include "cli/crash.h"
#include <algorithm>
#include <malloc.h>

namespace tkc::cli {

std::string version_text() { return "tkc " TKC_VERSION " (LLVM " + codegen::llvm_version() + ")"; }

const char *const kExitCodes =
    "Exit codes: 0 ok, 1 an error in a source, a file or a value, 2 usage, 3 a result does not match, 4 no "
    "device, 5 timeout, 6 a requirement is missed (ab, bench --compare), 70 a fault of tkc, 130 interrupted.\n"
    "Results go to standard output, messages to standard error.";

} // namespace tkc::cli

int main(int argc, char **argv) {
  using namespace tkc::cli;
  // Tiles of references are hundreds of kB: given back to the system and taken again for every op, they cost more time
  // than the arithmetic.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  install_crash_report(argc, argv, version_text());
  // The names that compilers give these options; the parser knows only long names with two dashes.
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string &w : words)
    if (w == "-MD" || w == "-MF") w = "-" + w;
  std::reverse(words.begin(), words.end()); // as the parser takes them
  CLI::App app{"tkc: a compiler for GPU tile kernels", "tkc"};
  app.footer(kExitCodes);
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  int exit = kOk;
  setup_compile(app, exit);
  setup_run(app, exit);
  setup_verify(app, exit);
  setup_bench(app, exit);
  setup_ab(app, exit);
  setup_report(app, exit);
  setup_ops(app, exit);
  try {
    app.parse(words);
  } catch (const CLI::ParseError &e) { return app.exit(e) == 0 ? kOk : kUsage; }
  return exit;
}

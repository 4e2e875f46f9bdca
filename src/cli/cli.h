// The command line: one file a subcommand, each with its options and what it does with them.
#pragma once
#include "driver/verify.h"
#include "support/diag_kinds.h"
#include <CLI/CLI.hpp>

namespace tkc::cli {

// Exit codes.
enum Exit : int { kOk = 0, kDiagnostics = 1, kUsage = 2, kMismatch = 3, kNoDevice = 4, kTimeout = 5, kInternal = 70 };

// What most subcommands share.
struct Common {
  std::string file, kernel, arch;
  std::vector<std::string> params; // -P N=V
  bool json_diagnostics = false;
};
void add_common(CLI::App &app, Common &c);

// A file that was read and parsed; diagnostics go to stderr when it ends.
class Session {
public:
  explicit Session(const Common &c);
  bool load();                                    // false: errors were printed
  const ir::Target *target(const Device *device); // null after a message: `native` needs a device
  std::vector<const ast::Function *> kernels();   // those of -k, or all; empty after a message
  std::optional<sema::InstanceSpec> overrides();  // of -P
  void print_diagnostics();

  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;

private:
  const Common &c_;
};

// auto, gpu, emu, interp. Opens the GPU where one is wanted; `exit` is set on failure.
struct Chosen {
  driver::Executor executor = driver::Executor::Interp;
  std::unique_ptr<Device> device;
  int exit = kOk;
};
Chosen choose_executor(const std::string &name);
int exit_code(ErrorKind kind);

void setup_compile(CLI::App &app, int &exit);
void setup_verify(CLI::App &app, int &exit);
void setup_bench(CLI::App &app, int &exit);
void setup_ops(CLI::App &app, int &exit);

} // namespace tkc::cli

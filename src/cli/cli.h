// The command line: one file a subcommand, each with its options and what it does with them.
#pragma once
#include "driver/verify.h"
#include "passes/schedule.h"
#include "support/diag_kinds.h"
#include "support/json.h"
#include <CLI/CLI.hpp>

namespace tkc::cli {

enum Exit : int {
  kOk = 0,
  kDiagnostics = 1, // an error in a source, a file or an argument's value
  kUsage = 2,
  kMismatch = 3,
  kNoDevice = 4,
  kTimeout = 5,
  kMissed = 6, // a requirement of `ab`, or a regression of `bench --compare`
  kInternal = 70,
  kInterrupted = 130,
};
extern const char *const kExitCodes; // for the help
std::string version_text();

// What most subcommands share.
struct Common {
  std::string file, kernel, arch, tune_for, schedule;
  std::vector<std::string> params; // -P N=V
  std::string diagnostics = "text";
  int64_t proof_states = 0; // 0: the default
};
void add_common(CLI::App &app, Common &c);
// An option that may be given several times, one value each.
CLI::Option *add_list(CLI::App &app, const std::string &name, std::vector<std::string> &to, const std::string &help);

// A file that was read and parsed; diagnostics go to stderr when print_diagnostics() is called.
class Session {
public:
  explicit Session(const Common &c);
  ~Session();
  bool load();                                  // false: errors were printed
  std::vector<const ast::Function *> kernels(); // and programs: that of -k, or all; empty after a message
  // Of -P, values as they were written, absent tensors; empty after a message.
  std::optional<sema::InstanceSpec> overrides();
  // Both of the above: what most commands begin with. Nothing after a message.
  struct Selection {
    std::vector<const ast::Function *> kernels;
    sema::InstanceSpec spec;
  };
  std::optional<Selection> select();
  // Reads what --schedule forces from a file, "" for none; false after a message.
  bool read_schedule(const std::string &path, std::shared_ptr<const passes::Schedule> &to);
  // After errors: adds those of other entries (sema/check_bodies.h).
  void check_bodies(const std::vector<const ast::Function *> &entries);
  // Whether the program declares such a compile-time parameter; else there was a message.
  bool known_parameter(const std::string &name);
  void print_diagnostics();
  // Prints a message, and the diagnostics if there are any; the exit code.
  int fail(const Error &e);
  const Common &common() const { return c_; }

  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;

private:
  bool optional_tensor(const std::string &name) const;
  const Common &c_;
};

// Fills `target` and `tune_for` from --arch (of the device where there is one, else the default; `native` opens a GPU)
// and --tune-for. False after a message, with the exit code.
bool choose_target(const Common &c, const Device *device, driver::CompileOptions &options, int &exit);

// Of programs.
struct ProgramOptions {
  std::vector<std::string> assume;
  bool graph = false;
  std::string baseline; // "" or "unfused"
};
void add_program(CLI::App &app, ProgramOptions &o);
bool read_program(const ProgramOptions &o, driver::VerifyOptions &to); // false after a message
// Of verify, bench and ab.
void add_baseline(CLI::App &app, ProgramOptions &o, const std::string &help);

// auto, gpu, emu, interp. Opens the GPU where one is wanted; `exit` is set on failure.
struct Chosen {
  driver::Executor executor = driver::Executor::Interp;
  std::unique_ptr<Device> device;
  int exit = kOk;
};
CLI::Option *add_device(CLI::App &app, std::string &name);
Chosen choose_executor(const std::string &name);
// "GPU NVIDIA H200, sm_90"
std::string executor_text(const Chosen &chosen, const ir::Target *target);
// The end of a command that used a device: a hung one must not be touched again, not even by destructors.
int finish(const Chosen &chosen, int exit);

std::string indented(const std::string &lines); // every line by four columns
int exit_code(ErrorKind kind);
int print_error(const Error &e); // "tkc: ..." on stderr; the exit code
// NAME=VALUE of an option; false after a message.
bool split_pair(const std::string &option, const std::string &text, std::string &name, std::string &value);
// Writes JSON to a file; the exit code.
int write_json(const std::string &path, const Json &j);

void setup_compile(CLI::App &app, int &exit);
void setup_run(CLI::App &app, int &exit);
void setup_verify(CLI::App &app, int &exit);
void setup_bench(CLI::App &app, int &exit);
void setup_ab(CLI::App &app, int &exit);
void setup_report(CLI::App &app, int &exit);
void setup_ops(CLI::App &app, int &exit);

} // namespace tkc::cli

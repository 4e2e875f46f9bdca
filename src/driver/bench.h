// Timing kernels and programs on the GPU by the benchmark convention (runtime/bench.h).
#pragma once
#include "driver/ceilings.h"
#include "driver/program_gpu.h"
#include "driver/stamps.h"
#include "driver/verify.h"
#include "runtime/bench.h"

namespace tkc::driver {

struct BenchSource; // bench_tensors.h

// The tensors of every group on the device, and what they were made from.
struct BenchTensors {
  std::vector<std::string> signature; // what they are and where their contents come from
  bool written_inputs = false;        // an inout parameter: calls change what later calls read
  std::vector<Buffer> buffers;
  std::vector<std::vector<uint64_t>> addresses;                      // by group and parameter index
  std::vector<std::pair<std::string, std::vector<uint64_t>>> inputs; // name, checksum over the groups up to each one
  // Over the first groups alone: two sides may need different numbers of them.
  std::vector<std::pair<std::string, uint64_t>> checksums(int64_t first_groups) const;
};

// One kernel or program on one case, ready to be measured. A program's temporaries belong to a group as its tensors do;
// with VerifyOptions::graph each group is captured as a graph of its own.
class PreparedBench final : public BenchTarget {
public:
  // `share`: uses the tensors of another side if they are the same and no call changes an input. Errors of the source
  // are in `diags`, with the message "the kernel has errors".
  static Result<std::unique_ptr<PreparedBench>> create(sema::Program &program, const ast::Function &kernel,
                                                       const ast::Check &check, const sema::CaseSpec &c,
                                                       const VerifyOptions &options, Diagnostics &diags,
                                                       const PreparedBench *share = nullptr);
  Status launch(int64_t group) override;
  // One run of the convention: seconds of a call.
  Result<double> measure(const BenchOptions &convention = {});
  // Where the time of a program's calls goes (driver/stamps.h), launched as it is measured; no parts for a kernel.
  Result<Breakdown> breakdown(const BenchOptions &convention = {});

  std::string kernel, name;             // of the case
  std::map<std::string, double> counts; // bytes, flops of the block
  int64_t groups = 0, registers = 0, local_bytes = 0, blocks_per_sm = 0, shared_bytes = 0;
  int64_t workspace_bytes = 0;      // of a program
  std::string entry;                // or "2 launches" of a program
  std::vector<std::string> remarks; // of an unfused form: what stayed together
  std::shared_ptr<BenchTensors> tensors;

private:
  PreparedBench(Module module, Stream stream, double limit)
      : module_(std::move(module)), stream_(std::move(stream)), limit_seconds_(limit) {}
  static Result<std::unique_ptr<PreparedBench>> prepare(const VerifyOptions &o, const std::string &ptx);
  static Result<std::unique_ptr<PreparedBench>> create_program(sema::Program &program, const ast::Function &ast,
                                                               const ast::Check &check, const sema::CaseSpec &c,
                                                               const sema::InstanceSpec &spec, const VerifyOptions &o,
                                                               Diagnostics &diags, const PreparedBench *share);
  void describe(sema::Program &program, const ast::Function &ast, const ast::Check &check, const sema::CaseSpec &c,
                const ir::Function &f, Diagnostics &diags);
  Status make_groups(const BenchSource &source, int64_t workspace_bytes, const PreparedBench *share);

  Module module_;
  Stream stream_;
  double limit_seconds_;
  std::vector<PreparedLaunch> launches_; // of a kernel, by group
  // Of a program, what it was made from, and by group.
  std::unique_ptr<sema::HostProgram> host_;
  Plan plan_;
  std::unique_ptr<CompiledProgram> compiled_;
  std::vector<Buffer> workspaces_;
  std::vector<PreparedProgram> programs_;
  std::vector<Graph> graphs_;
};

// ---- sweeps: -P BM=64,128 -P BN=32,64

// Compile-time parameters of one configuration; under kStages the most slots of a ring (1: loops run as they stand).
using Setting = std::map<std::string, std::string>;
inline constexpr const char *kStages = "--stages";
// "2..4,6" as "2,3,4,6", which expand_sweep() takes.
Result<std::string> expand_stages(std::string_view text);
// Every combination of the listed values, the last name varying fastest. An empty value is an error.
Result<std::vector<Setting>> expand_sweep(const Setting &lists);
std::string setting_text(const Setting &s, std::string_view before_each = ""); // "BM=64 BN=32"

struct BenchRow {
  std::string kernel, name; // of the case
  Setting setting;
  std::vector<double> samples; // seconds of a call, one a round; empty for a misfit
  std::string reason;          // of a misfit
  ErrorKind kind = ErrorKind::Failure;
  // As in PreparedBench.
  std::map<std::string, double> counts;
  int64_t groups = 0, registers = 0, local_bytes = 0, blocks_per_sm = 0;
  std::string entry;
  Breakdown breakdown; // of a program
  int64_t workspace_bytes = 0;
  bool graph = false;
  std::optional<Ceilings> ceilings; // of the GPU, where they were measured
  std::vector<std::string> remarks; // as in PreparedBench

  bool fits() const { return !samples.empty(); }
  double seconds() const; // the median
  bool drifts() const;    // the rounds became slower or faster by more than 2 % from first to last
  // What the GPU needs at least for the bytes and flops of the block at its measured ceilings; 0 where one is unknown.
  double floor_seconds() const;
  std::string rates() const; // "  4.063 TB/s  120.1 TFLOP/s  96% of the floor"
  Json to_json() const;
};
// Measures one configuration `rounds` times. A configuration that does not compile or launch gives its reason.
BenchRow bench_case(sema::Program &program, const ast::Function &kernel, const ast::Check &check,
                    const sema::CaseSpec &c, const VerifyOptions &options, const Setting &setting, int64_t rounds,
                    SourceManager &sources, const BenchOptions &convention = {});
// The parts of a program's call, one line each, then their sum beside the time of a call without stamps; "" for a
// kernel. A sum that is off by more than kStampTolerance is pointed out.
inline constexpr double kStampTolerance = 0.02;
std::string breakdown_table(const BenchRow &row);
// The rows of one kernel and case as a table, fastest first, misfits last with their reasons; and the command line of
// the fastest ("" if none fits).
std::string sweep_table(const std::vector<BenchRow> &rows);
std::string fastest_command(const std::vector<BenchRow> &rows, const std::string &file, const std::string &more);

} // namespace tkc::driver

// What the compiler decided for a kernel and what it expects of it, as one value that is written as text, as JSON and
// as an HTML page (`tkc report`, `tkc compile --emit schedule`).
#pragma once
#include "driver/estimate.h"
#include "runtime/assemble.h"
#include "support/json.h"

namespace tkc::driver {

struct ReportTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

// Of one iteration of a loop in the compiled kernel.
struct LoopReport {
  passes::LoopPlan plan;
  BodyEstimate estimate;
  int64_t waits = 0, barriers = 0, warp_syncs = 0, fences = 0; // for items, of all warps, within warps, of proxies
};

struct KernelReport {
  std::string kernel, target, part, grid, warps; // warps: "5: 1 for producer, 4 for compute"
  std::vector<std::pair<std::string, std::string>> bindings;
  bool persistent = false;                 // the grid's blocks compute several tiles each
  int64_t shared_bytes = 0, registers = 0; // registers: estimated_registers()
  passes::KernelPlan plan;
  std::vector<LoopReport> loops;    // with loads of tiles
  std::vector<BodyEstimate> bodies; // of the other loops, and of what is in none
  // Products (instruction, warps over M, N, K), conversions between layouts (how, what they cost, whether in a loop),
  // reads from rings, the map of shared memory.
  std::vector<ReportTable> tables;
  std::vector<std::string> assembled;                       // resource_lines(), if an assembler was asked for
  std::vector<std::pair<std::string, std::string>> remarks; // line; what is slower than it could be, and why
};

// `compiled`: the kernel after all passes. Nothing after an error, which is in `diags`.
std::optional<KernelReport> report_kernel(sema::Program &program, const KernelInstance &kernel,
                                          const ir::Function &compiled, const CompileOptions &options, bool assembler,
                                          Diagnostics &diags);

// As `tkc report --text` prints it.
std::string to_text(const KernelReport &r);
std::string to_text(const std::vector<CaseEstimate> &cases);
// The schedule as passes/schedule.h reads it, what is known besides as comments.
std::string schedule_text(const std::vector<KernelReport> &kernels, const std::vector<CaseEstimate> &cases);
Json schedule_json(const std::vector<KernelReport> &kernels, const std::vector<CaseEstimate> &cases);
// One page that needs nothing else; the timeline of each pipelined loop as SVG.
struct ReportPage {
  std::string title;
  std::vector<std::pair<std::string, std::vector<CaseEstimate>>> cases; // by target
  std::vector<KernelReport> kernels;
};
std::string to_html(const ReportPage &page);

// "1 wait for items, 0 barriers, 0 syncs of a warp, 1 proxy fence"
std::string synchronisation(const LoopReport &l);
// "3.2 us", with three digits.
std::string duration(double seconds);
// Registers, spills, shared memory and blocks per SM, a line for each entry of a module.
std::string resource_lines(const std::vector<const ir::Function *> &functions, const codegen::EmitResult &code,
                           const Result<Assembled> &assembled, const ir::Target &t);

} // namespace tkc::driver

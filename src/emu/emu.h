// The emulator: executes PTX text on the CPU, as adversarially as the PTX memory model allows, and reports every access
// and synchronisation fault that it sees. Contract:
//  - One source of truth: the text. An instruction, modifier or directive outside the supported subset is a parse error
//    that names it; nothing is skipped.
//  - Deterministic: the same module, memory contents, launch and options (threads excepted) give the same memory
//    contents, report and printed text. Blocks run in parallel only where that cannot be seen: a kernel whose global
//    memory traffic could order blocks (returning or floating-point atomics, fences of gpu or sys scope, strong loads)
//    is run by one host thread, its blocks interleaved.
//  - Arithmetic is exact where the PTX manual is; approximate functions return the correctly rounded result; mma is
//    modelled as exact products added in double precision, first C, then k ascending, rounded once per instruction.
#pragma once
#include "emu/memory.h"
#include "emu/ptx_ast.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::emu {

struct Module; // module.h

struct ParseResult {
  std::shared_ptr<const Module> module; // null if there are errors
  std::vector<PtxDiagnostic> errors;    // line and message
};
ParseResult parse_ptx(std::string text);

struct KernelInfo {
  std::string name;
  std::vector<PtxParam> params; // name, type, offset, bytes, align, pointer space
  int64_t param_bytes = 0;
  int64_t static_shared = 0;               // bytes of the .shared variables
  int64_t required_threads[3] = {0, 0, 0}; // .reqntid, 0 = any
  int64_t max_threads = 0;                 // .maxntid, 0 = any
  int64_t cluster[3] = {0, 0, 0};          // .reqnctapercluster, 0 = any
  int64_t instructions = 0;                // PTX instructions of the kernel and the functions it calls
};
const KernelInfo *find_kernel(const Module &module, std::string_view name);
std::vector<const KernelInfo *> kernels(const Module &module);

// The parameter buffer of a launch, laid out as the .param declarations say.
class ParamWriter {
public:
  explicit ParamWriter(const KernelInfo &kernel) : kernel_(kernel), bytes_(size_t(kernel.param_bytes)) {}
  // The value must have the declared size.
  template <typename T> ParamWriter &set(int64_t index, const T &value) { return set_bytes(index, &value, sizeof(T)); }
  ParamWriter &set_bytes(int64_t index, const void *data, int64_t bytes);
  const std::vector<uint8_t> &bytes() const { return bytes_; }

private:
  const KernelInfo &kernel_;
  std::vector<uint8_t> bytes_;
};

struct Launch {
  int64_t grid[3] = {1, 1, 1};
  int64_t block[3] = {1, 1, 1};
  int64_t cluster[3] = {1, 1, 1};
  int64_t dynamic_shared = 0; // bytes
  // May start while the launch before it runs: until a thread has passed griddepcontrol.wait it neither writes global
  // memory nor reads what is not read-only.
  bool overlaps = false;
  std::vector<uint8_t> params;
};

// When asynchronous work completes, and which warp goes next. Every policy is legal behaviour of a GPU.
enum class Policy : uint8_t {
  Eager,   // copies complete when issued; warps run in order, each until it must wait
  Lazy,    // copies complete when nothing else can run; warps as in Eager
  Random,  // both at random
  Reverse, // copies complete last issued first, when nothing else can run; the highest warp first
};
std::string_view policy_name(Policy p);                          // "eager", ...
std::optional<Policy> find_policy(std::string_view policy_name); // nothing if there is none of that name

struct Options {
  uint64_t seed = 0;
  Policy policy = Policy::Eager;
  int threads = 0;                               // host threads; 0 = all
  int64_t instruction_budget = int64_t(1) << 32; // warp instructions a block
  bool check_shared = true;                      // races, uninitialised bytes, in-flight bytes
  bool check_global = true;           // races on tensors that the kernel may write, within and between blocks
  bool fence_before_overwrite = true; // generic read, then asynchronous write, needs a proxy fence
  int64_t shared_limit = 227 * 1024;  // static + dynamic bytes a block
  int64_t resident_blocks = 3;        // that a GPU would hold at a time: a launcher of persistent grids asks for it
};

enum class ErrorKind : uint8_t {
#define TKC_EMU_ERROR(kind, name, fatal) kind,
#include "emu/error_kind.def"
#undef TKC_EMU_ERROR
};
// The k-th of the schedules that a kernel should be tried under: eager, lazy, reverse, then random ones, each with
// another seed. With a policy: that one, with the seeds options.seed + k.
Options nth_schedule(Options options, int64_t k, std::optional<Policy> policy);

std::string_view error_name(ErrorKind kind);
bool error_is_fatal(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::Launch;
  std::string message;
  int32_t ptx_line = 0;    // 0 = none
  std::string source_file; // of the .loc in force; "" = none
  int32_t source_line = 0;
  int64_t block[3] = {0, 0, 0};
  int64_t thread[3] = {0, 0, 0};
  uint64_t address = 0; // generic address; 0 = none
};
// "error: text [kind] (PTX line 12, gemm.tk:7, block (0,0,0), thread (3,0,0))"
std::string to_string(const Error &error);

struct Report {
  std::vector<Error> errors; // of the first block (in launch order) that has any, in order of detection
  int64_t instructions = 0;  // warp instructions executed
  std::string printed;       // output of vprintf, block by block
  bool ok() const { return errors.empty(); }
};
// Runs the whole grid. Blocks after the first one with an error may or may not have run.
Report run(const Module &module, std::string_view kernel, Memory &memory, const Launch &launch, const Options &options);

} // namespace tkc::emu

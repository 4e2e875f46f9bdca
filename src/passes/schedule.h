// The schedule of loops as a value: what `tkc compile --emit schedule` writes, what `--schedule FILE` forces, what
// reports show. In the IR it is the attribute `schedule` of each loop that has loads of tiles (LoopPlan::statements).
//
// The text has one statement a line; leading blanks do not count, and a line that begins with # is a comment.
//
//   kernel gemm on sm_90                      which kernel; without `on`: for every target
//   shared 131136 B                           of the block
//   loop k at 12                              the variable of a `for`, the line where the statement begins; in another
//                                             file `at FILE:12`; a second loop of this name on this line: `at 12 (2)`
//     stages 4
//     transport tma                           cp_async, mbarrier, tma (ops/ring.cpp)
//     producer none                           warp or none: who copies
//     over tiles                              its items follow each other from tile to tile of a persistent grid
//     stage 32768 B                           a slot
//     field a bf16[128, 64] at 0 swizzle 128  a tensor's tile, its first byte in a slot and its layout there: `rows`, a
//                                             swizzle of TMA, or a map
//                                             (SmemLayout::to_string), or `record`: as the type of the record has it
//     record x: 16896 B at 0 by one copy      its fields of layout `record` come together
//     sync beta: REASON                       a load that does not go through the ring
//     not tma: REASON                         why tensor copies do not bring the items
//     plain copies: REASON                    why what should be cp.async is loads and stores
//     fewer stages: REASON                    why it does not have as many as fit
//     asks ahead                              an iteration asks whether the next one's item has arrived; or `asks not`
//     unroll 4                                iterations that stand one behind the other, each with slots of its own
//     ahead x 2                               in a role: a load whose tile comes so many iterations ahead, in registers
//     modulo: WORDS                           its modulo schedule (modulo_schedule.h)
//   loop i at 20
//     synchronous: REASON                     no ring
//
// A file may say less. What it says is forced: stages, transport, producer, which loads go through the ring (those of
// its `field` statements, or all but its `sync` statements) and their swizzles; of everything else it says, reasons
// and words excepted, the result must agree with it.
#pragma once
#include "ir/ir.h"
#include "support/diagnostics.h"
#include <map>
#include <optional>

namespace tkc::passes {

// Something that a statement says, and where; nothing: it is not said.
template <typename T> struct Said {
  std::optional<T> value;
  SourceLoc loc;
  bool operator==(const Said &o) const { return value == o.value; }
};

struct FieldPlan {
  std::string tensor;
  DType dtype = DType::F32;
  std::vector<int64_t> tile;
  int64_t offset = 0;
  std::string layout; // "rows", "swizzle 128", "record", "smem[..]"
  SourceLoc loc;
  std::string to_string() const;
  std::optional<int64_t> swizzle() const; // 0: rows; nothing: a map
};
struct SynchronousLoad {
  std::string tensor, reason;
  SourceLoc loc;
};

struct AheadLoad {
  std::string tensor;
  int64_t distance = 1;
  SourceLoc loc;
};

struct LoopPlan {
  std::string variable, file; // file "": that of the kernel
  int64_t line = 0, nth = 1;
  SourceLoc loc;
  Said<std::string> synchronous; // why there is no ring
  Said<int64_t> stages, stage_bytes;
  Said<std::string> transport, producer;
  Said<bool> over_tiles, asks_ahead;
  Said<int64_t> unroll;
  std::vector<AheadLoad> ahead;
  std::vector<FieldPlan> fields;
  std::vector<SynchronousLoad> left;
  std::vector<std::string> records; // fields that come together
  std::string not_tma, plain, fewer, modulo;

  std::string name() const;                    // "k at 12"
  std::vector<std::string> statements() const; // the first is "loop k at 12"
  bool has_ring_statement() const;
};

struct KernelPlan {
  std::string kernel, target; // target "": all
  SourceLoc loc;
  Said<int64_t> shared_bytes;
  std::vector<LoopPlan> loops;
  std::string to_string() const;
};

// Whether a plan for `planned` is one for a kernel: it is its name, or that of which it is an instance, NAME__N_64.
bool plans_for(const std::string &planned, const std::string &kernel);

struct Schedule {
  std::vector<KernelPlan> kernels;
  std::string to_string() const;
  // That for a kernel, or for its instance NAME__N_64 in a program, on a target. One that names the target comes first,
  // then one that names the instance.
  const KernelPlan *find(const std::string &kernel, const std::string &target) const;
};

// What cannot be in any schedule: "" and nothing, or what and where.
struct ScheduleFault {
  std::string text;
  SourceLoc loc;
};
std::optional<ScheduleFault> verify(const KernelPlan &k);

// Parses a file of `diags.sources()` and verifies it; reports all errors, nullopt if there were any.
std::optional<Schedule> parse_schedule(int32_t file, Diagnostics &diags);
// The attribute `schedule` of a loop.
LoopPlan parse_loop_plan(const std::vector<std::string> &statements);

// ---- in the IR

// The tensor that a load reads, as its parameter is called; of a field of records `x.kp`. And without the field.
std::string tensor_name(const ir::Op &load);
std::string root_name(const ir::Op &load);
// Loops with loads of tiles, in program order, with what names them.
std::vector<std::pair<ir::Op *, LoopPlan>> schedulable_loops(const ir::Function &f, const SourceManager &sources);
// Of a function that pipeline_loops has seen.
KernelPlan schedule_of(const ir::Function &f, const std::string &target);
// Writes what a schedule says into the IR as annotations of loops and loads, before schedule_loops: they replace those
// of the source. The result says which loop has which plan. Unknown loops and loads are errors.
std::map<const ir::Op *, const LoopPlan *> force_schedule(ir::Function &f, const KernelPlan &k, Diagnostics &diags);
// Reports every statement that does not hold of the compiled function.
void check_forced(const ir::Function &f, const KernelPlan &k, Diagnostics &diags);

} // namespace tkc::passes

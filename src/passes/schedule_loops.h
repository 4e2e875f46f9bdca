// Software pipelining of for loops, shared declarations. schedule_loops.cpp decides, rewrite_loops.cpp writes the
// decision into the IR.
//
// What is decided: which loads of a loop go through a ring in shared memory, the layout of their tiles there, the
// number of slots. A load can if its tensor is not written by the kernel and its place depends on nothing but the
// loop's counter; everything else in the body keeps its order, so no dependence is broken. What stays synchronous is
// named with the reason.
//
// The transport of a ring (ops/ring.cpp) is "tma" where the target has it, all tiles of the loop can be brought by it
// and one of them feeds a product; else the threads copy. `@pipeline(via =, stages =, producer =)` on the loop forces a
// choice (sema/annotations.h), and so does a schedule as text (schedule.h); what cannot be done is a fault of who asks.
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include "layout/smem_layout.h"
#include "passes/pass_manager.h"
#include "passes/record_copies.h"
#include "passes/schedule.h"
#include "passes/tensor_copies.h"
#include "support/diagnostics.h"

namespace tkc::passes {

struct RingField {
  ir::Op *load = nullptr;  // global memory to registers
  ir::Op *store = nullptr; // registers to scratch; null: the users have the tile as it was read
  RegLayout read;          // deals the tile out to the threads that copy
  SmemLayout smem;
  TensorCopy tensor;    // how TMA would bring it
  int64_t offset = 0;   // in a slot
  RecordPart part = {}; // of LoopSchedule::records: it comes with others
};

struct LoopSchedule {
  ir::Op *loop = nullptr;
  int64_t stages = 1;
  int64_t stage_bytes = 0;
  std::vector<RingField> fields;
  std::vector<RecordCopy> records; // that bring some of the fields
  std::vector<SynchronousLoad> left;
  std::string synchronous;            // why the loop has no ring
  std::string transport = "cp_async"; // ops/ring.cpp
  std::string not_tma;                // why, where it could have been
  std::string plain;                  // why some of its copies are loads and stores
  std::string fewer;                  // why it has fewer slots than fit
  std::string modulo;                 // its modulo schedule, in words
  bool asks_ahead = false;            // each iteration asks whether the next one's item has arrived (ring_test)
  int64_t unroll = 1;                 // iterations one behind the other, each with slots of its own
  bool over_tiles = false;            // its items follow each other from tile to tile (loop_over_tiles.cpp)
  bool by_tma() const { return transport == "tma"; }
  bool mbarriers() const { return transport != "cp_async"; }
  int64_t slot_bytes() const { return stages * stage_bytes; }
  int64_t tx_bytes() const; // of an item, by tma
  // What a load is in the ring: fields that come alone have numbers of their own, behind them each record copy has one.
  int64_t ring_field(const RingField &f) const;
  // As a value without pointers; `place` names the loop.
  LoopPlan plan(LoopPlan place, bool producer) const;
};

struct FunctionSchedule {
  std::vector<LoopSchedule> loops;       // with rings; inner loops first
  std::vector<LoopSchedule> synchronous; // those with loads of tiles and no ring
  int64_t producer_warps = 0;            // 0: the compute warps copy themselves
  std::string problem;                   // not empty: an annotation asks for what cannot be done
  const ir::Op *problem_at = nullptr;    // the loop
  std::string problem_of;                // of the annotation: "stages", "via", "producer" or "" for all of it
};

// `f` is laid out, its shared memory not yet allocated. Of the options: most_stages and unproven.
FunctionSchedule schedule_loops(ir::Function &f, const ir::Target &target, const ir::Part &part,
                                const PassOptions &options);
void rewrite_loops(ir::Function &f, const FunctionSchedule &s, Diagnostics &diags);

} // namespace tkc::passes

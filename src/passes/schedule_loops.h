// Software pipelining of for loops, shared declarations. schedule_loops.cpp decides, rewrite_loops.cpp writes the
// decision into the IR.
//
// What is decided: which loads of a loop go through a ring in shared memory, the layout of their tiles there, the
// number of slots. A load can if its tensor is not written by the kernel and its place depends on nothing but the
// loop's counter; everything else in the body keeps its order, so no dependence is broken. What stays synchronous is
// named with the reason.
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include "layout/smem_layout.h"
#include "support/diagnostics.h"

namespace tkc::passes {

struct RingField {
  ir::Op *load = nullptr;  // global memory to registers
  ir::Op *store = nullptr; // registers to scratch; null: the users have the tile as it was read
  RegLayout read;          // deals the tile out to the threads that copy
  SmemLayout smem;
  int64_t offset = 0; // in a slot
};

struct LoopSchedule {
  ir::Op *loop = nullptr;
  int64_t stages = 1;
  int64_t stage_bytes = 0;
  std::vector<RingField> fields;
  std::vector<std::string> left;      // loads that stay synchronous: `name`: reason
  std::string transport = "cp_async"; // ops/ring.cpp
  int64_t ring_bytes() const;         // slots and mbarriers
  std::string to_string() const;      // "3 stages of 24576 B by cp.async: a, b; not c: ..."
};

struct FunctionSchedule {
  std::vector<LoopSchedule> loops; // inner loops first
  int64_t producer_warps = 0;      // 0: the compute warps copy themselves
};

// `f` is laid out, its shared memory not yet allocated.
FunctionSchedule schedule_loops(ir::Function &f, const ir::Target &target);
void rewrite_loops(ir::Function &f, const FunctionSchedule &s, Diagnostics &diags);

} // namespace tkc::passes

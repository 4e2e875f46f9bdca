// The pass list: what happens to a kernel between sema and code generation.
#include "ir/by_hand.h"
#include "ir/op_def.h"
#include "passes/cleanup.h"
#include "passes/layout_choice.h"
#include "passes/loads_ahead.h"
#include "passes/passes.h"
#include "passes/prove_protocol.h"
#include "passes/schedule_loops.h"
#include "passes/sink_fragments.h"
#include "support/diag_kinds.h"
#include <map>

namespace tkc::passes {

bool infer_layouts(ir::Function &f, PassContext &context) {
  // Each role has warps and layouts of its own.
  ir::Op *roles = ir::roles_of(f);
  std::vector<ir::Block *> programs = roles ? roles->regions : std::vector<ir::Block *>{f.body};
  for (ir::Block *program : programs) {
    LayoutDecision d = search_layouts(f, program, context.target, context.part);
    if (!d.plan.problem.empty()) {
      context.diags.report(d.plan.problem_at.valid() ? d.plan.problem_at : f.loc, DiagKind::no_layout, f.name,
                           d.plan.problem);
      return true;
    }
    apply_layouts(f, program, d);
  }
  // One pass with the search: there is no stage between "no layouts" and "conversions through memory are explicit".
  lower_conversions(f, context);
  return true;
}

// Where the statement of a forced schedule stands that asks for what cannot be done.
static SourceLoc statement_of(const LoopPlan &plan, const std::string &annotation) {
  SourceLoc at = annotation == "stages"     ? plan.stages.loc
                 : annotation == "via"      ? plan.transport.loc
                 : annotation == "producer" ? plan.producer.loc
                                            : plan.loc;
  return at.valid() ? at : plan.loc;
}

bool pipeline_loops(ir::Function &f, PassContext &context) {
  std::map<const ir::Op *, const LoopPlan *> forced;
  if (const Schedule *text = context.options.schedule.get())
    if (const KernelPlan *k = text->find(f.name, context.target.name)) forced = force_schedule(f, *k, context.diags);
  if (context.diags.has_errors()) return true;
  auto places = schedulable_loops(f, context.diags.sources());
  if (ir::by_hand(f)) { // its author has said what runs ahead of what
    for (auto &[op, place] : places) {
      place.synchronous.value = "the kernel copies by hand";
      op->attrs.set("schedule", place.statements());
    }
    return !places.empty();
  }
  if (ir::roles_of(f)) {
    std::vector<RoleLoop> loops = schedule_roles(f, context);
    for (auto &[op, place] : places)
      for (const RoleLoop &l : loops)
        if (l.loop == op) op->attrs.set("schedule", l.plan(place).statements());
    rewrite_role_loops(f, loops, context.diags);
    return !places.empty();
  }
  FunctionSchedule s = schedule_loops(f, context.target, context.part, context.options);
  if (!s.problem.empty()) {
    if (auto it = forced.find(s.problem_at); it != forced.end())
      context.diags.report(statement_of(*it->second, s.problem_of), DiagKind::forced_pipeline, f.name, s.problem);
    else
      context.diags.report(s.problem_at->loc, DiagKind::forced_pipeline, f.name, s.problem);
    return true;
  }
  for (auto &[op, place] : places)
    for (const auto *list : {&s.loops, &s.synchronous})
      for (const LoopSchedule &l : *list)
        if (l.loop == op) op->attrs.set("schedule", l.plan(place, s.producer_warps > 0).statements());
  rewrite_loops(f, s, context.diags);
  return !s.loops.empty() || !s.synchronous.empty();
}

std::vector<Pass> pipeline() {
  return {
      // What does not depend on the tile is then moved out of the loop with everything else.
      {"loop_over_tiles", "a block of a persistent grid computes one tile after another", loop_over_tiles, std::nullopt,
       false},
      // Sema emits naive code: fold first, so that the others see constants and few ops.
      {"fold_constants", "constants and identities", fold_constants},
      {"widen_products", "fp8 products in f16 where tensor cores have no fp8", widen_products},
      {"common_subexpressions", "equal pure ops once", common_subexpressions},
      {"fuse_product_sum", "mma(a, b) + c becomes mma(a, b, c)", fuse_product_sum},
      {"hoist_invariants", "what a loop does not change, before it", hoist_invariants},
      {"dead_code", "ops without users or effects", dead_code},
      // Bounds and divisibility of accesses, from the grid and the `where` facts; the layout costs ask for them.
      {"annotate_accesses", "which accesses need no mask, and how wide they may be", annotate_accesses},
      // Decide and write the layout of every tile; products get their instruction and tiling. From here on every tile
      // has a layout, and only conversions inside a warp are left as convert_layout.
      {"infer_layouts", "layouts by cost: products, loads, loop-carried tiles", infer_layouts, ir::Stage::laid_out,
       false},
      {"sink_fragments", "operands of products from shared memory instead of registers", sink_fragments},
      {"check_registers", "tiles that no thread has the registers for", check_registers, std::nullopt, false},
      // What roles push and pop gets its slots and counters: their layouts are known now.
      {"lower_rings", "items of rings become slots and counters", lower_rings, std::nullopt, false},
      {"place_shared", "buffers made by hand get their layouts, copies by hand their pieces", place_shared,
       std::nullopt, false},
      // Loads of loops run ahead of their iteration through rings in shared memory.
      {"pipeline_loops", "loads of a loop go through a ring", pipeline_loops},
      {"pair_products", "independent products side by side", pair_products},
      // Shared memory by live range; needs all scratch to be explicit.
      {"allocate_shared", "offsets in shared memory", allocate_shared, std::nullopt, false},
      // Needs the offsets: two buffers conflict where their bytes do.
      {"place_barriers", "order accesses of different warps", place_barriers, ir::Stage::allocated, false},
      // After all other barriers: it counts the barriers that are there already.
      {"order_memory", "order accesses of different threads to tensors that are written", order_memory, std::nullopt,
       false},
      // Behind everything that moves accesses.
      {"wait_for_launches", "kernels that start early wait before they touch memory", wait_for_launches, std::nullopt,
       false},
      // Nothing may change the IR between this and code generation.
      {"prove_protocol", "asynchronous copies are safe in every run", prove_protocol_pass, std::nullopt, false},
  };
}

} // namespace tkc::passes

#include "passes/ahead_of_time.h"
#include "passes/loads_ahead.h"
#include "passes/modulo_schedule.h"
#include "passes/sink_fragments.h"
#include <algorithm>
#include <cmath>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

constexpr int64_t kMostAhead = 4;

constexpr int64_t kSpare = 40; // registers for addresses, counters, temporaries

// Whether a wait can be told by a test of the iteration before: its item is numbered by a counter that the loop
// carries, and the next iteration's number is known where this one ends.
bool can_ask(const Op &wait, const Op &loop) {
  const Value *counter = wait.operand(1);
  if (wait.operands.size() != 2 || wait.block != loop.regions[0] || !counter->is_arg() ||
      counter->block != loop.regions[0] || counter->index == 0)
    return false;
  const Value *next = wait.block->terminator()->operand(size_t(counter->index) - 1);
  while (next->op && next->op->kind == OpKind::Add && constant_int(next->op->operand(1))) next = next->op->operand(0);
  return next == counter;
}

} // namespace

bool asks_ahead(const Op &loop, int64_t warps) { return loop.attrs.i_or("@asks", warps <= kTestWarps) != 0; }

std::vector<RoleLoop> schedule_roles(ir::Function &f, const PassContext &context) {
  std::vector<RoleLoop> out;
  Writes writes(f);
  int64_t budget = register_budget(ir::block_warps(f)) - kSpare;
  ir::walk(f.body, [&](Op *op) {
    if (op->kind != OpKind::For) return;
    RoleLoop l;
    l.loop = op;
    AheadOfTime ahead(*op, writes);
    bool loads = false, items = false;
    for (Op *o : op->regions[0]->ops) {
      items |= o->kind == OpKind::RingWait;
      if (o->kind == OpKind::RingWait && can_ask(*o, *op) && asks_ahead(*op, ir::warps_of(op->block)))
        l.asks.push_back(o);
      if (o->kind != OpKind::Load || o->result()->type.is_scalar()) continue;
      loads = true;
      std::string why = ahead.reason(*o);
      if (why.empty() && !has_small_step(*op)) why = "the loop's step is not a constant below 2^24";
      if (why.empty() && op->attrs.has("@no_pipeline")) why = "@no_pipeline";
      if (why.empty() && context.options.most_stages < 2 && context.options.unproven.empty())
        why = "loops without slots were asked for";
      if (why.empty())
        l.ahead.push_back({o, 1});
      else
        l.left.push_back({tensor_name(*o), why, {}});
    }
    if (!loads && !items) return;
    if (has_modulo_schedule(*op)) {
      OpWork work(context.target, context.part, ir::warps_of(op->block));
      for (const LoadAhead &a : l.ahead) work.copied(a.load);
      ModuloSchedule m = modulo_schedule(*op, work);
      l.modulo = m.to_string();
      ir::Uses uses(f);
      int64_t registers = m.registers;
      for (LoadAhead &a : l.ahead) {
        const ModuloOp &load = m.of(a.load);
        double first = load.start + load.latency;
        for (const ir::Use &u : uses.of(a.load->result()))
          if (u.op->block == op->regions[0] && u.op != u.op->block->terminator())
            first = std::min(first, m.of(u.op).start);
        int64_t wanted = std::max<int64_t>(1, std::llround(std::ceil((first - load.start) / m.ii)));
        int64_t each = tile_registers(a.load->result());
        wanted = std::min(wanted, kMostAhead);
        while (wanted > 1 && registers + (wanted - 1) * each > budget) wanted--;
        if (int64_t forced = a.load->attrs.i_or("@ahead", 0)) wanted = forced;
        a.distance = wanted;
        registers += (wanted - 1) * each;
      }
    }
    out.push_back(std::move(l));
  });
  return out;
}

LoopPlan RoleLoop::plan(LoopPlan place) const {
  LoopPlan out = std::move(place);
  out.synchronous.value = "the kernel has roles of its own";
  for (const LoadAhead &a : ahead) out.ahead.push_back({tensor_name(*a.load), a.distance, {}});
  out.left = left;
  if (!asks.empty()) out.asks_ahead.value = true;
  out.modulo = modulo;
  return out;
}

} // namespace tkc::passes

// Schedules and the IR: naming loops, reading what was decided, forcing what a text says.
//
// A text is forced by annotations, as a source has them (sema/annotations.h); loads and loops get some of their own:
//
//   load {@sync = 1}         it does not go through the ring
//   load {@swizzle = 64}     of its tile in the slot; 0: rows
//   load {@ahead = 2}        of a loop in a role: so many iterations ahead
//   for {@asks = 1}          whether it asks for items an iteration ahead
//   for {@unroll = 4}        by how much it is unrolled
//
// schedule_loops then does what the annotations ask for or says why it cannot. Statements that follow from the others,
// such as the bytes of a slot, are compared once the kernel is compiled.
#include "passes/effects.h"
#include "passes/schedule.h"
#include "support/diag_kinds.h"
#include <algorithm>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {
bool takes_item(const Op *op) { return op->kind == OpKind::RingPop || op->kind == OpKind::RingWait; }
bool loads_tile(const Op *op) { return op->kind == OpKind::Load && !op->result()->type.is_scalar(); }

std::string names(const std::vector<LoopPlan> &loops) {
  std::string out;
  for (const LoopPlan &l : loops) out += (out.empty() ? "" : ", ") + l.name();
  return out.empty() ? "it has no loop with loads of tiles" : "its loops with loads of tiles are " + out;
}

const LoopPlan *find(const std::vector<LoopPlan> &loops, const std::string &name) {
  for (const LoopPlan &l : loops)
    if (l.name() == name) return &l;
  return nullptr;
}

void force_loads(Op &loop, const LoopPlan &plan, const KernelPlan &k, Diagnostics &diags) {
  // The statements of a tensor stand for its loads in their order.
  std::vector<bool> used(plan.fields.size() + plan.left.size(), false);
  for (Op *load : loop.regions[0]->ops) {
    if (!loads_tile(load)) continue;
    std::string tensor = tensor_name(*load);
    size_t i = 0;
    while (i < used.size() &&
           (used[i] ||
            tensor != (i < plan.fields.size() ? plan.fields[i].tensor : plan.left[i - plan.fields.size()].tensor)))
      i++;
    if (i < used.size()) used[i] = true;
    if (i < plan.fields.size()) {
      if (auto swizzle = plan.fields[i].swizzle()) load->attrs.set("@swizzle", *swizzle);
    } else if (i < used.size() || !plan.fields.empty()) {
      load->attrs.set("@sync", int64_t(1));
    }
  }
  for (size_t i = 0; i < used.size(); i++) {
    if (used[i]) continue;
    bool field = i < plan.fields.size();
    const SynchronousLoad *left = field ? nullptr : &plan.left[i - plan.fields.size()];
    diags.report(
        field ? plan.fields[i].loc : left->loc, DiagKind::forced_pipeline, k.kernel,
        fmt::format("loop `{}` has no such load of `{}`", plan.name(), field ? plan.fields[i].tensor : left->tensor));
  }
}

// The statements of a tensor stand for its loads in their order; one without a statement does not run ahead.
void force_ahead(Op &loop, const LoopPlan &plan, const KernelPlan &k, Diagnostics &diags) {
  std::vector<bool> used(plan.ahead.size(), false);
  for (Op *load : loop.regions[0]->ops) {
    if (!loads_tile(load)) continue;
    size_t i = 0;
    while (i < used.size() && (used[i] || plan.ahead[i].tensor != tensor_name(*load))) i++;
    if (i < used.size()) {
      used[i] = true;
      load->attrs.set("@ahead", plan.ahead[i].distance);
    } else {
      load->attrs.set("@sync", int64_t(1));
    }
  }
  for (size_t i = 0; i < used.size(); i++)
    if (!used[i])
      diags.report(plan.ahead[i].loc, DiagKind::forced_pipeline, k.kernel,
                   fmt::format("loop `{}` has no such load of `{}`", plan.name(), plan.ahead[i].tensor));
}
} // namespace

std::string tensor_name(const Op &load) {
  const ir::Value *tensor = load.operand(0);
  bool field = tensor->op && tensor->op->kind == OpKind::RecordField;
  return root_name(load) + (field ? "." + tensor->op->attrs.s("field") : "");
}
std::string root_name(const Op &load) {
  const ir::Value *root = ir::root_tensor(load.operand(0));
  return root->name.empty() ? "_" : root->name;
}

std::vector<std::pair<Op *, LoopPlan>> schedulable_loops(const ir::Function &f, const SourceManager &sources) {
  std::vector<std::pair<Op *, LoopPlan>> out;
  auto visit = [&](auto &self, ir::Block *block) -> void {
    for (Op *op : block->ops) {
      if (op->kind == OpKind::InlinePtx) continue;
      ir::Block *body = op->kind == OpKind::For ? op->regions[0] : nullptr;
      auto counts = [](const Op *o) { return loads_tile(o) || takes_item(o); };
      if (body && std::any_of(body->ops.begin(), body->ops.end(), counts)) {
        LoopPlan plan;
        plan.variable = body->args[0]->name.empty() ? "_" : body->args[0]->name;
        if (op->loc.valid()) {
          const SourceFile &file = sources.file(op->loc.file);
          if (op->loc.file != f.loc.file) plan.file = file.name();
          plan.line = file.position(op->loc.begin).line;
        }
        for (const auto &[other, p] : out)
          if (p.variable == plan.variable && p.file == plan.file && p.line == plan.line) plan.nth++;
        out.emplace_back(op, std::move(plan));
      }
      for (ir::Block *region : op->regions) self(self, region);
    }
  };
  visit(visit, f.body);
  return out;
}

KernelPlan schedule_of(const ir::Function &f, const std::string &target) {
  KernelPlan k;
  k.kernel = f.name;
  k.target = target;
  k.shared_bytes.value = f.shared_bytes;
  ir::walk(f.body, [&](const Op *op) {
    if (op->kind == OpKind::For && op->attrs.has("schedule"))
      k.loops.push_back(parse_loop_plan(op->attrs.get<std::vector<std::string>>("schedule")));
  });
  return k;
}

std::map<const Op *, const LoopPlan *> force_schedule(ir::Function &f, const KernelPlan &k, Diagnostics &diags) {
  std::map<const Op *, const LoopPlan *> out;
  std::vector<LoopPlan> known;
  for (auto &[op, place] : schedulable_loops(f, diags.sources())) {
    known.push_back(place);
    const LoopPlan *plan = find(k.loops, place.name());
    if (!plan) continue;
    out[op] = plan;
    ir::Attrs &a = op->attrs;
    if (plan->asks_ahead.value) a.set("@asks", int64_t(*plan->asks_ahead.value));
    if (plan->unroll.value) a.set("@unroll", *plan->unroll.value);
    if (!plan->ahead.empty()) { // in a role, where no loop has a ring of its own
      a.erase("@no_pipeline");
      force_ahead(*op, *plan, k, diags);
      continue;
    }
    if (plan->synchronous.value) {
      for (const char *key : {"@pipeline", "@pipeline.stages", "@pipeline.via", "@pipeline.producer"}) a.erase(key);
      a.set("@no_pipeline", int64_t(1));
      continue;
    }
    if (plan->has_ring_statement()) a.erase("@no_pipeline");
    if (plan->stages.value) a.set("@pipeline.stages", *plan->stages.value);
    if (plan->transport.value) a.set("@pipeline.via", *plan->transport.value);
    if (!plan->plain.empty()) a.set("@plain", int64_t(1)); // it knows
    if (plan->producer.value) a.set("@pipeline.producer", *plan->producer.value);
    force_loads(*op, *plan, k, diags);
  }
  for (const LoopPlan &plan : k.loops)
    if (!find(known, plan.name()))
      diags.report(plan.loc, DiagKind::forced_pipeline, k.kernel,
                   fmt::format("there is no loop `{}`; {}", plan.name(), names(known)));
  return out;
}

void check_forced(const ir::Function &f, const KernelPlan &k, Diagnostics &diags) {
  KernelPlan have = schedule_of(f, k.target);
  auto wrong = [&](SourceLoc loc, const std::string &text) {
    diags.report(loc, DiagKind::forced_pipeline, k.kernel, text);
  };
  auto same = [&](const auto &said, const auto &got, const char *what) {
    if (said.value && said.value != got.value) wrong(said.loc, fmt::format("{} is {}", what, *got.value));
  };
  for (const LoopPlan &plan : k.loops) {
    const LoopPlan *got = find(have.loops, plan.name());
    if (!got) {
      wrong(plan.loc, fmt::format("there is no loop `{}`; {}", plan.name(), names(have.loops)));
      continue;
    }
    auto kept = [&](const AheadLoad &a) {
      return std::any_of(got->ahead.begin(), got->ahead.end(),
                         [&](const AheadLoad &g) { return g.tensor == a.tensor && g.distance == a.distance; });
    };
    for (const AheadLoad &a : plan.ahead)
      if (!kept(a))
        wrong(a.loc, fmt::format("the load of `{}` does not run {} iterations ahead", a.tensor, a.distance));
    if (plan.asks_ahead.value && *plan.asks_ahead.value != got->asks_ahead.value.value_or(false))
      wrong(plan.asks_ahead.loc, fmt::format("loop `{}` {} ahead", plan.name(),
                                             *plan.asks_ahead.value ? "has no items to ask for" : "asks"));
    if (plan.unroll.value && *plan.unroll.value != got->unroll.value.value_or(1))
      wrong(plan.unroll.loc, fmt::format("loop `{}` is unrolled by {}", plan.name(), got->unroll.value.value_or(1)));
    if (got->synchronous.value) {
      if (plan.has_ring_statement())
        wrong(plan.loc, fmt::format("loop `{}` stays synchronous: {}", plan.name(), *got->synchronous.value));
      continue;
    }
    same(plan.stages, got->stages, "the number of stages");
    same(plan.transport, got->transport, "the transport");
    same(plan.producer, got->producer, "the producer");
    if (plan.over_tiles.value && !got->over_tiles.value)
      wrong(plan.over_tiles.loc, fmt::format("the items of loop `{}` end with each tile", plan.name()));
    same(plan.stage_bytes, got->stage_bytes, "the number of bytes of a stage");
    for (const FieldPlan &field : plan.fields) {
      auto is_it = [&](const FieldPlan &g) { return g.to_string() == field.to_string(); };
      if (std::any_of(got->fields.begin(), got->fields.end(), is_it)) continue;
      std::string instead;
      for (const FieldPlan &g : got->fields)
        if (g.tensor == field.tensor)
          instead += fmt::format("{}`{}`", instead.empty() ? "it is " : ", ", g.to_string());
      for (const SynchronousLoad &l : got->left)
        if (l.tensor == field.tensor)
          instead += fmt::format("{}it stays synchronous: {}", instead.empty() ? "" : ", ", l.reason);
      wrong(field.loc, instead);
    }
    for (const SynchronousLoad &left : plan.left) // a load that force_loads has found
      if (std::none_of(got->left.begin(), got->left.end(), [&](const auto &g) { return g.tensor == left.tensor; }))
        wrong(left.loc, fmt::format("`{}` goes through the ring", left.tensor));
  }
  same(k.shared_bytes, have.shared_bytes, "the block's shared memory in bytes");
}

} // namespace tkc::passes

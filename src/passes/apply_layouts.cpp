// Writes a layout decision into the IR.
//
//   %p = mma %a, %b          ->   %a2 = convert_layout %a : .. layout(A fragment)
//                                 %p = mma %a2, %b2 {shape = "m16n8k16", tiling = [2, 2, 1], transposed = 0} layout(..)
//
// A conversion stands right after the definition of its value, so that what a loop does not change is converted outside
// it, and equal conversions of one value are shared; one that differs from another only in the order of registers comes
// from that one. Values that cost nothing to make are made again instead.
#include "ir/builder.h"
#include "passes/layout_choice.h"
#include "passes/remake.h"

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

void apply_layouts(ir::Function &f, ir::Block *program, const LayoutDecision &d) {
  if (int64_t role = ir::role_of(program); role >= 0) {
    ir::Op *roles = ir::roles_of(f);
    std::vector<int64_t> warps = roles->attrs.ints("warps");
    warps[size_t(role)] = d.variables.warps;
    roles->attrs.set("warps", warps);
  }
  f.warps = d.variables.warps; // with roles, in the end of the last one
  RegLayout scalar = replicated({}, f.warps);
  auto give = [&](Value *v) {
    if (!v->type.is_tile()) return;
    size_t id = size_t(v->id);
    bool known = id < d.plan.home.size() && d.plan.home[id];
    TKC_CHECK(known || v->type.is_scalar(), "no layout for `{}` of {}", v->name, v->type.str());
    v->layout = v->type.is_scalar() ? scalar : *d.plan.home[id];
  };
  for (Value *v : f.body->args) give(v);
  // Outside of roles stand scalars, and control flow that decides over scalars.
  if (program != f.body)
    for (Op *op : f.body->ops) {
      for (Value *v : op->results) give(v);
      if (op->kind == OpKind::Roles) continue;
      for (ir::Block *region : op->regions) {
        for (Value *v : region->args) give(v);
        ir::walk(region, [&](Op *inner) {
          for (Value *v : inner->results) give(v);
          for (ir::Block *b : inner->regions)
            for (Value *v : b->args) give(v);
        });
      }
    }
  ir::walk(program, [&](Op *op) {
    for (Value *v : op->results) give(v);
    // inline_ptx has a region that means something to the interpreter only: scalars
    for (ir::Block *region : op->regions)
      for (Value *v : region->args) give(v);
  });
  for (const auto &[op, c] : d.variables.products) {
    Op *product = const_cast<Op *>(op);
    product->attrs.set("shape", std::string(c.shape ? c.shape->name : "fma"));
    product->attrs.set("tiling", std::vector<int64_t>{c.tiling.warps_m, c.tiling.warps_n, c.tiling.warps_k});
    product->attrs.set("transposed", int64_t(c.transposed));
    if (c.tiling.wide_n || c.tiling.wide_k)
      product->attrs.set("wide", std::vector<int64_t>{c.tiling.wide_n, c.tiling.wide_k});
  }
  std::map<const Value *, Value *> staged; // what was read
  for (const StagedLoad &s : d.plan.staged) {
    Value *v = s.op->result();
    Value *read = f.new_value(v->type, v->name);
    read->op = s.op;
    read->layout = s.read;
    s.op->results = {read};
    Op *convert = f.new_op(OpKind::ConvertLayout, s.op->loc);
    convert->operands = {read};
    convert->results = {v};
    v->op = convert;
    insert_after(s.op, convert);
    staged.emplace(v, read);
  }
  std::map<std::pair<const Value *, std::string>, Value *> shared;
  for (const Conversion &c : d.plan.conversions) {
    Value *v = c.op->operand(size_t(c.operand));
    auto key = std::pair<const Value *, std::string>(v, c.to.to_string());
    auto it = shared.find(key);
    if (it == shared.end() && c.how == Conversion::How::Remade) it = shared.emplace(key, remake(f, v, c.to)).first;
    if (it == shared.end()) {
      Op *convert = f.new_op(OpKind::ConvertLayout, c.op->loc);
      if (!register_map(*v->layout, c.to))
        for (const auto &[other, converted] : shared)
          if (other.first == v && register_map(*converted->layout, c.to)) {
            v = converted;
            break;
          }
      if (c.how == Conversion::How::Reread) v = staged.at(v);
      convert->operands = {v};
      Value *r = f.new_value(v->type, v->name);
      r->op = convert;
      r->layout = c.to;
      convert->results = {r};
      if (v->op) {
        insert_after(v->op, convert);
      } else {
        convert->block = v->block;
        v->block->ops.insert(v->block->ops.begin(), convert);
      }
      it = shared.emplace(key, r).first;
    }
    c.op->operands[size_t(c.operand)] = it->second;
  }
}

} // namespace tkc::passes

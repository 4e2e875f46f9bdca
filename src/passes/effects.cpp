#include "passes/effects.h"

namespace tkc::passes {

using ir::OpKind;

namespace {

bool declared_pure(const ir::Op &op) {
  return op.kind == OpKind::InlinePtx && op.attrs.has("effects") && op.attrs.s("effects") == "pure";
}

} // namespace

bool is_pure(const ir::Op &op) { return def(op).effects.pure() || declared_pure(op); }

bool is_removable(const ir::Op &op) {
  if (is_pure(op)) return true;
  const ir::Effects &e = def(op).effects;
  for (int i = 0; i < e.count; i++)
    if (e.list[i].space == ir::Space::Control || e.list[i].access != ir::Access::Read) return false;
  return true;
}

std::optional<int64_t> constant_int(const ir::Value *v) {
  if (!v->op || v->op->kind != OpKind::Constant || is_float(v->type.dtype)) return std::nullopt;
  return v->op->attrs.i("value");
}

bool is_speculatable(const ir::Op &op) {
  if (!op.regions.empty() || !is_removable(op)) return false;
  switch (op.kind) {
  case OpKind::Div:
  case OpKind::Rem: {
    if (is_float(op.operand(0)->type.dtype)) return true;
    const ir::Value *divisor = op.operand(1);
    while (divisor->op && divisor->op->kind == OpKind::Broadcast) divisor = divisor->op->operand(0);
    return constant_int(divisor).value_or(0) != 0;
  }
  case OpKind::Subview: // an index must lie inside the tensor
    for (int64_t r : op.attrs.ints("ranges"))
      if (r == 2) return false;
    return true;
  case OpKind::DynSlice:
  case OpKind::DynUpdate:
  case OpKind::InlinePtx:
  case OpKind::ScratchLoad: return false;
  default: return true;
  }
}

Writes::Writes(const ir::Function &f) : f_(f) {
  ir::walk(f.body, [&](const ir::Op *op) {
    if (is_pure(*op)) return;
    const ir::Effects &e = def(*op).effects;
    for (int i = 0; i < e.count; i++) {
      if (e.list[i].space != ir::Space::Global || e.list[i].access == ir::Access::Read) continue;
      if (e.list[i].operand < 0)
        anything_ = true;
      else
        written_.insert(root_tensor(op->operand(size_t(e.list[i].operand))));
    }
  });
}

bool Writes::never_written(const ir::Value *tensor) const {
  const ir::Value *r = root_tensor(tensor);
  if (r->op || r->block != f_.body) return false; // a tensor that came through control flow
  int64_t arg = 0;
  for (const ir::Param &p : f_.params) {
    if (!p.present) continue;
    if (arg++ == r->index) return p.mode == ir::ParamMode::In || (!anything_ && !written_.count(r));
  }
  return false;
}

} // namespace tkc::passes

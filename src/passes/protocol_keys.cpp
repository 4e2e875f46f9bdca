#include "passes/protocol_keys.h"
#include "ir/op_def.h"
#include "ir/print.h"

namespace tkc::passes::protocol {

using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {
const Op *made_by(const Value *v, OpKind kind) { return v->op && v->op->kind == kind ? v->op : nullptr; }

const Value *without_widening(const Value *v) {
  const Op *cast = made_by(v, OpKind::Cast);
  return cast && v->type.dtype == DType::I64 ? cast->operand(0) : v;
}
} // namespace

std::optional<int64_t> constant_of(const Value *v) {
  const Op *op = made_by(v, OpKind::Constant);
  if (!op || !v->type.is_scalar() || is_float(v->type.dtype)) return std::nullopt;
  return op->attrs.i("value");
}

Keys::Keys(const ir::Function &f) {
  ir::walk(f.body, [&](const Op *op) {
    const ir::Effects &e = ir::def(*op).effects;
    for (int8_t i = 0; i < e.count; i++) {
      if (e.list[i].space != ir::Space::Global || e.list[i].access == ir::Access::Read) continue;
      if (e.list[i].operand >= 0)
        written_.insert(ir::root_tensor(op->operand(size_t(e.list[i].operand))));
      else
        writes_anything_ = true;
    }
    if (op->kind == OpKind::InlinePtx) writes_anything_ = true;
  });
}

bool Keys::is_function_of_operands(const Op &op) const {
  if (!op.regions.empty() || op.kind == OpKind::InlinePtx || op.results.size() != 1) return false;
  if (ir::def(op).effects.pure()) return true;
  return op.kind == OpKind::Load && !writes_anything_ && !written_.count(ir::root_tensor(op.operand(0)));
}

int Keys::of(const Value *v) {
  if (auto it = known_.find(v); it != known_.end()) return it->second;
  int key = -1;
  if (v->op && is_function_of_operands(*v->op)) {
    std::string text = fmt::format("{}:{}", int(v->op->kind), v->type.str());
    for (const Value *x : v->op->operands) text += fmt::format(",{}", of(x));
    for (const auto &[name, value] : v->op->attrs.list()) text += fmt::format(";{}={}", name, ir::print_attr(value));
    auto [it, added] = by_text_.emplace(std::move(text), next_);
    if (added) next_++;
    key = it->second;
  } else {
    key = next_++;
  }
  return known_[v] = key;
}

bool Keys::is_trip_count(const Value *t, const Op &loop) {
  auto step = constant_of(loop.operand(2));
  bool positive = step ? *step > 0 : made_by(loop.operand(2), OpKind::NumBlocks) != nullptr;
  if (!positive || loop.operand(0)->type.dtype == DType::U64) return false;
  // u32((max(i64(hi) - i64(lo), 0) + (i64(step) - 1)) / i64(step))
  const Op *cast = made_by(t, OpKind::Cast);
  const Op *div = cast && t->type.dtype == DType::U32 ? made_by(cast->operand(0), OpKind::Div) : nullptr;
  if (!div || div->result()->type.dtype != DType::I64) return false;
  const Op *up = made_by(div->operand(0), OpKind::Add);
  const Op *some = up ? made_by(up->operand(0), OpKind::Max) : nullptr;
  const Op *less = up ? made_by(up->operand(1), OpKind::Sub) : nullptr;
  const Op *span = some ? made_by(some->operand(0), OpKind::Sub) : nullptr;
  if (!span || !less || constant_of(some->operand(1)) != 0 || constant_of(less->operand(1)) != 1) return false;
  auto is = [&](const Value *v, size_t bound) {
    return equal(v, loop.operand(bound)) || equal(without_widening(v), loop.operand(bound));
  };
  return is(div->operand(1), 2) && is(less->operand(0), 2) && is(span->operand(0), 1) && is(span->operand(1), 0);
}

} // namespace tkc::passes::protocol

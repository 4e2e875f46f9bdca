#include "passes/ahead_of_time.h"
#include "passes/ring_slot.h"
#include <fmt/format.h>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

bool within(const Op *op, const Block *block) {
  for (; op; op = op->block->parent)
    if (op->block == block) return true;
  return false;
}

// A division that is made in any case: it does no harm to make it again elsewhere. So are those of the function's own
// block, and those that every tile makes by the same number, as a block has a tile.
static bool divides_anyway(const Op &op) {
  if (op.kind != OpKind::Div && op.kind != OpKind::Rem) return false;
  const Block *at = op.block;
  const Value *by = op.operand(1);
  if (!at->parent) return true;
  return is_tile_loop(*at->parent) && (by->op ? !within(by->op, at) : by->block != at);
}

const Value *AheadOfTime::recompute(const Value *v, const Block *scope) const {
  const Block *body = loop_.regions[0], *function = body->function->body;
  if (v == body->args[0] || (scope != body && tiles() && v == tiles()->args[0])) return nullptr;
  if (v->is_arg()) {
    if (v->block == function) return nullptr;
    return !scope || v->block == scope || within(v->block->parent, scope) ? v : nullptr;
  }
  if (scope && !within(v->op, scope)) return nullptr;
  const Block *at = v->op->block;
  if (at != body && (scope ? at != scope : at != function && at != tiles())) return v;
  bool loads = v->op->kind == OpKind::Load && v->type.is_scalar() && writes_.never_written(v->op->operand(0));
  // A part of a tensor is made for iterations that run, or its address is not used: an index outside does no harm.
  bool part = v->op->kind == OpKind::Subview;
  if (!loads && !(is_pure(*v->op) && (part || is_speculatable(*v->op) || divides_anyway(*v->op)))) return v;
  if (v->type.is_tile() && !v->type.is_scalar()) return v;
  for (const Value *x : v->op->operands)
    if (const Value *o = recompute(x, scope)) return o;
  return nullptr;
}

std::string AheadOfTime::reason(const Op &load) const {
  if (std::string why = copy_obstacle(load, writes_); !why.empty()) return why;
  for (const Value *v : load.operands)
    if (const Value *o = obstacle(v))
      return o->name.empty() ? "its place depends on a value of the iteration"
                             : fmt::format("its place depends on `{}`", o->name);
  return load.attrs.has("@sync") ? "the forced schedule says so" : "";
}

bool has_small_step(const Op &loop) {
  if (is_tile_loop(loop)) return true;
  auto step = constant_int(loop.operand(2));
  return step && *step > 0 && *step < int64_t(1) << 24;
}

} // namespace tkc::passes

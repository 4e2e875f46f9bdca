// Shared memory, mbarriers and copies by hand: how they are written, and what can be said of them before the proof.
#include "ir/by_hand.h"
#include "sema/elaborate.h"
#include <algorithm>
#include <bit>

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

namespace {
// What one thread does in `if elect()`: besides, it may compute scalars.
bool may_be_elected(const ir::Op &op) {
  return ir::by_one_thread(op.kind) || op.kind == OpKind::MbarrierArrive || op.kind == OpKind::ProxyFence;
}
} // namespace

SV Elaborator::shared_memory(const ast::Expr &e) {
  if (reference()) return error(e.loc, DiagKind::only_in_kernel, e.text);
  if (e.generics.empty() || e.generics.size() > 2 || e.generics[0].value->kind != ExprKind::Name)
    return error(e.loc, DiagKind::wrong_arity, e.text, "a type and the number of slots in <>", e.generics.size());
  auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
  auto slots =
      e.generics.size() > 1 ? const_int(*e.generics[1].value, "the number of slots") : std::optional<int64_t>(1);
  if (!t || !slots) return SV::poison();
  if (*slots < 1 || *slots > 16)
    return error(e.generics[1].value->loc, DiagKind::bad_async, e.text, fmt::format("1 to 16 slots, not {}", *slots));
  if (dtype_bits(*t) < 8) return error(e.loc, DiagKind::bad_async, e.text, "its elements are narrower than a byte");
  std::vector<int64_t> shape;
  for (const ast::ExprPtr &d : e.operands) {
    auto n = const_int(*d, fmt::format("dim {} of `shared`", shape.size()));
    if (!n) return SV::poison();
    if (*n < 1) return error(d->loc, DiagKind::bad_extent, shape.size(), *n);
    if (!std::has_single_bit(uint64_t(*n)))
      return error(d->loc, DiagKind::bad_async, e.text, fmt::format("an extent of {} is no power of two", *n));
    shape.push_back(*n);
  }
  if (!tile_fits(shape, e.text, e.loc)) return SV::poison();
  if (b_.block() != fn_.body || region_depth_)
    return error(e.loc, DiagKind::bad_async, e.text, "it is made outside of loops, branches and roles");
  ir::Attrs attrs;
  attrs.set("dtype", *t);
  attrs.set("shape", shape);
  attrs.set("slots", *slots);
  SV v = emit(OpKind::SharedAlloc, {}, std::move(attrs), e.loc);
  if (v.is(Kind::Value)) v.kind = Kind::Place;
  return v;
}

SV Elaborator::slot(const ast::Expr &e, const SV &of) {
  if (!of.elements.empty() || e.operands.size() != 2)
    return error(e.loc, DiagKind::bad_async, of.v->name, "one index says which slot, and a slot is used as a whole");
  SV at = expr(*e.operands[1]);
  if (at.is_poison()) return at;
  int64_t slots = ir::slots_of(*of.v->op);
  if (at.is(Kind::Int) && (at.i < 0 || at.i >= slots))
    return error(e.operands[1]->loc, DiagKind::index_out_of_range, at.i, slots);
  if (!at.is(Kind::Int) && !(at.is(Kind::Value) && at.v->type.is_scalar() && is_integer(at.v->type.dtype)))
    return error(e.operands[1]->loc, DiagKind::bad_index, at.describe());
  SV out = of;
  out.loc = e.loc;
  out.elements = {at};
  return out;
}

bool Elaborator::names_place(const ast::Expr &e) {
  const ast::Expr &base = e.kind == ExprKind::Index ? *e.operands[0] : e;
  Var *v = base.kind == ExprKind::Name ? lookup(base.text) : nullptr;
  return v && v->value.is(Kind::Place);
}

bool Elaborator::place_operands(const SV &v, OpKind made, SourceLoc loc, std::vector<ir::Value *> &out) {
  if (v.is_poison()) return false;
  if (!v.is(Kind::Place) || v.v->op->kind != made) {
    error(loc, DiagKind::type_mismatch, made == OpKind::SharedAlloc ? "a slot of shared memory" : "an mbarrier",
          v.describe());
    return false;
  }
  if (v.elements.empty() && ir::slots_of(*v.v->op) != 1) {
    error(loc, DiagKind::bad_async, v.v->name,
          fmt::format("it has {} slots: an index says which", ir::slots_of(*v.v->op)));
    return false;
  }
  ir::Value *at = value(v.elements.empty() ? SV::make_int(0, loc) : v.elements[0]);
  if (!at) return false;
  out.insert(out.end(), {v.v, at});
  return true;
}

SV Elaborator::by_hand(OpKind kind, std::vector<ir::Value *> operands, ir::Attrs attrs, const ast::Expr &e,
                       std::vector<SourceLoc> locs) {
  if (reference()) return error(e.loc, DiagKind::only_in_kernel, e.text);
  if (kind == OpKind::BarrierAlloc && (b_.block() != fn_.body || region_depth_))
    return error(e.loc, DiagKind::bad_async, e.text, "it is made outside of loops, branches and roles");
  SV v = emit(kind, std::move(operands), std::move(attrs), e.loc, std::move(locs));
  if (v.is(Kind::Value) && kind == OpKind::BarrierAlloc) v.kind = Kind::Place;
  if (v.is(Kind::Value) && kind == OpKind::MbarrierArrive) v.kind = Kind::State;
  return v;
}

// `if elect()` and nothing else; inside, what one thread does.
void Elaborator::check_elect(ir::Op *choice) {
  auto fail = [&](SourceLoc loc, const std::string &text) { diags_.report(loc, DiagKind::bad_async, "elect", text); };
  ir::Uses uses(fn_);
  for (const ir::Use &u : uses.of(choice->result())) {
    if (u.op->kind != OpKind::If) return fail(u.op->loc, "it is the condition of an `if` and nothing else");
    if (u.op->regions[1]->ops.size() > 1) return fail(u.op->loc, "the other threads do nothing: no `else`");
    if (!u.op->results.empty()) return fail(u.op->loc, "the other threads would not know what is assigned inside");
    for (const ir::Op *op : u.op->regions[0]->ops) {
      bool scalar = ir::def(*op).effects.pure() && op->regions.empty() &&
                    std::all_of(op->results.begin(), op->results.end(),
                                [](const ir::Value *v) { return v->type.is_scalar() || v->type.is_tensor(); });
      if (!scalar && !may_be_elected(*op) && op->kind != OpKind::Yield)
        return fail(op->loc,
                    fmt::format("`{}` is not for one thread: it stands outside of `if elect()`",
                                ir::def(*op).source.s[0] == '-' ? ir::def(*op).name.s : ir::def(*op).source.s));
    }
  }
}

void Elaborator::check_by_hand() {
  bool barriers = false;
  const ir::Op *buffer = nullptr, *ring = nullptr;
  std::vector<ir::Op *> choices, copies, accesses;
  ir::walk(fn_.body, [&](ir::Op *op) {
    if (op->kind == OpKind::ElectThread) choices.push_back(op);
    if (op->kind == OpKind::RingAlloc) ring = op;
    if (op->kind == OpKind::SharedAlloc || op->kind == OpKind::BarrierAlloc) buffer = op;
    barriers |= op->kind == OpKind::BarrierAlloc;
    if (ir::is_copy(op->kind)) copies.push_back(op);
    const ir::Effects &effects = ir::def(*op).effects;
    for (int8_t i = 0; i < effects.count; i++)
      if (effects.list[i].space == ir::Space::Global && effects.list[i].operand == 0) accesses.push_back(op);
    if (ir::by_one_thread(op->kind) && !ir::elected(*op))
      diags_.report(op->loc, DiagKind::bad_async, ir::def(*op).source.s,
                    "one thread executes it: write it in `if elect() { .. }`");
  });
  for (ir::Op *op : choices) check_elect(op);
  if (buffer && ring)
    diags_.report(ring->loc, DiagKind::bad_ring, ring->result()->name,
                  "a kernel has rings or makes its buffers and mbarriers by hand, not both");
  if (buffer && fn_.persistent)
    diags_.report(
        buffer->loc, DiagKind::bad_async, buffer->result()->name,
        "a block of a persistent grid runs the kernel for one tile after another: phases and slots would have "
        "to go on from tile to tile. Write the loop over tiles by hand, too");
  ir::Op *roles = ir::roles_of(fn_);
  bool open = !roles && fn_.warps == 0;
  if (roles) open = std::count(roles->attrs.ints("warps").begin(), roles->attrs.ints("warps").end(), 0) > 0;
  if (barriers && open)
    diags_.report(fn_.loc, DiagKind::bad_async, fn_.name,
                  "mbarriers count threads, so the kernel or each of its roles says `warps N`");
  // Copies pass by the order that the compiler keeps between accesses of one tensor.
  for (const ir::Op *copy : copies) {
    bool to_global = copy->kind == OpKind::TmaStore || copy->kind == OpKind::TmaReduce;
    for (const ir::Op *op : accesses) {
      if (ir::root_tensor(op->operand(0)) != ir::root_tensor(copy->operand(0))) continue;
      bool other_writes = op->kind != OpKind::Load &&
                          !(ir::is_copy(op->kind) && op->kind != OpKind::TmaStore && op->kind != OpKind::TmaReduce);
      if (to_global ? op->kind == copy->kind : !other_writes) continue;
      const std::string &name = ir::root_tensor(copy->operand(0))->name;
      Diagnostic &d = diags_.report(
          copy->loc, DiagKind::bad_async, ir::def(*copy).source.s,
          to_global
              ? fmt::format("nothing else in the kernel may use `{}`, which it writes by the asynchronous proxy", name)
              : fmt::format("the kernel writes `{}`: nothing orders the copy", name));
      d.notes.push_back({op->loc, "used here"});
      break;
    }
  }
}

} // namespace tkc::sema

// Facts of ops: arithmetic on integer scalars, loops, branches, parts of tensors.
#include "passes/facts.h"

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

bool is_int_scalar(const Value *v) {
  return v->type.is_scalar() && (is_integer(v->type.dtype) || is_bool(v->type.dtype));
}

// Wrapping keeps these divisors.
Int power_of_two_part(const Poly &p) {
  Int c = p.is_known() ? p.content() : Int(1);
  return c == 0 ? Int(1) : c & -c;
}

std::string name_of(const Value *v) { return v->name.empty() ? fmt::format("%{}", v->id) : "%" + v->name; }

constexpr int kMaxLoopDepth =
    5; // beyond it, values carried by a loop are not looked into: bodies are walked repeatedly

} // namespace

// A number of the dtype's range that is a multiple of `divisor`.
Poly Facts::opaque(DType t, const std::string &name, Int divisor) {
  IntRange r = int_range(t);
  int a = prover_.new_atom(name);
  prover_.lower(a, divisor, r.lo);
  prover_.upper(a, divisor, r.hi);
  return Poly::atom(a) * Poly(divisor);
}

void Facts::set_opaque(const Value *v) {
  if (is_int_scalar(v)) values_[v] = opaque(v->type.dtype, name_of(v));
}

bool Facts::fits(const Poly &p, DType t, const Block *at) const {
  IntRange r = int_range(t);
  return prover_.nonnegative(p - Poly(r.lo), at) && prover_.nonnegative(Poly(r.hi) - p, at);
}

void Facts::block(const Block &b) {
  for (const Op *o : b.ops) op(*o);
}

void Facts::op(const Op &op) {
  switch (op.kind) {
  case OpKind::For: return loop(op);
  case OpKind::If: return branch(op);
  case OpKind::Subview: return subview(op);
  case OpKind::RecordField: return record_field(op);
  case OpKind::InlinePtx: return set_opaque(op.result()); // its meaning is not run by programs
  default: break;
  }
  for (const Block *r : op.regions) { // while
    for (const Value *v : r->args) set_opaque(v);
    block(*r);
  }
  if (op.results.size() == 1 && is_int_scalar(op.result())) {
    values_[op.result()] = scalar(op);
  } else {
    for (const Value *v : op.results) set_opaque(v);
  }
}

Poly Facts::scalar(const Op &op) {
  DType t = op.result()->type.dtype;
  Poly p = exact(op);
  return fits(p, t, op.block) ? p : opaque(t, name_of(op.result()), power_of_two_part(p));
}

// The value if nothing wrapped; unknown if no rule fits.
Poly Facts::exact(const Op &op) {
  auto x = [&](size_t i) { return value(op.operand(i)); };
  const Block *at = op.block;
  auto constant = [&](size_t i) { return x(i).constant(); };
  // floor(x / 2^c), for a shift by c
  auto shifted = [&](const Poly &v, Int c) {
    return c >= 0 && c < 62 ? quotient(v, Int(1) << c, false, at) : Poly::unknown();
  };
  switch (op.kind) {
  case OpKind::Constant: {
    int64_t v = op.attrs.i("value");
    return op.result()->type.dtype == DType::U64 ? Poly(Int(uint64_t(v))) : Poly(v);
  }
  case OpKind::ProgramId: return program_[size_t(op.attrs.i("axis"))];
  case OpKind::TileCoordinate: return tile(op.operand(0))[size_t(op.attrs.i("axis"))];
  case OpKind::NumPrograms: return grid_[size_t(op.attrs.i("axis"))];
  case OpKind::Dim: return extent(op.operand(0), op.attrs.i("axis"));
  case OpKind::Neg: return Poly(0) - x(0);
  case OpKind::Add: return x(0) + x(1);
  case OpKind::Sub: return x(0) - x(1);
  case OpKind::Mul: return x(0) * x(1);
  case OpKind::Fma: return x(0) * x(1) + x(2);
  case OpKind::Div:
  case OpKind::Rem: { // truncation is rounding down where x is not negative
    Poly q = prover_.nonnegative(x(0), at) ? quotient(x(0), x(1), false, at) : Poly::unknown();
    return op.kind == OpKind::Div ? q : x(0) - x(1) * q;
  }
  case OpKind::Min:
  case OpKind::Max: return choice(op.kind == OpKind::Min, x(0), x(1), at);
  case OpKind::Abs: return choice(false, x(0), Poly(0) - x(0), at);
  case OpKind::Shl: {
    auto c = constant(1);
    return c && *c >= 0 && *c < dtype_bits(op.result()->type.dtype) ? x(0) * Poly(Int(1) << *c) : Poly::unknown();
  }
  case OpKind::Shr: {
    auto c = constant(1);
    return c && *c < dtype_bits(op.result()->type.dtype) ? shifted(x(0), *c) : Poly::unknown();
  }
  case OpKind::And: {
    if (is_bool(op.result()->type.dtype)) return Poly::unknown();
    for (size_t i = 0; i < 2; i++) {
      auto c = constant(i);
      if (!c) continue;
      Int low = *c + 1, high = -*c; // c = 2^k - 1 keeps the low bits, c = -2^k drops them
      if (*c >= 0 && (low & (low - 1)) == 0) {
        int k = 0;
        while ((Int(1) << k) < low) k++;
        return x(1 - i) - Poly(low) * shifted(x(1 - i), k);
      }
      if (*c < 0 && (high & (high - 1)) == 0) {
        int k = 0;
        while ((Int(1) << k) < high) k++;
        return Poly(high) * shifted(x(1 - i), k);
      }
    }
    return Poly::unknown();
  }
  case OpKind::Where: {
    if (!x(1).is_known() || !x(2).is_known()) return Poly::unknown();
    if (x(1) == x(2)) return x(1);
    int a = prover_.new_atom(name_of(op.result()));
    prover_.one_of(a, {x(1), x(2)});
    return Poly::atom(a);
  }
  case OpKind::Cast: return is_int_scalar(op.operand(0)) && !is_bool(op.result()->type.dtype) ? x(0) : Poly::unknown();
  case OpKind::Reshape:
  case OpKind::Broadcast:
  case OpKind::Transpose: return x(0);
  default: return Poly::unknown();
  }
}

// ---- control flow

// The counter is lo + step t, with a number t of finished iterations. A carried value to which every iteration adds the
// same amount is initial + amount t: it is exact as long as no iteration sees one that has wrapped. Of other carried
// values only a divisor is kept: a guess that the body must confirm, so the body is walked until nothing changes.
void Facts::loop(const Op &op) {
  const Block &body = *op.regions[0];
  Poly lo = value(op.operand(0)), hi = value(op.operand(1)), step = value(op.operand(2)), t = Poly::unknown();
  depth_++;
  int outside = prover_.atoms(); // earlier atoms do not change in the loop
  if (lo.is_known() && hi.is_known() && step.is_known() && prover_.nonnegative(step - Poly(1), op.block)) {
    int a = prover_.new_atom(fmt::format("t{}", depth_));
    prover_.lower(a, 1, 0);
    prover_.upper(a, step, hi - lo - Poly(1));
    t = Poly::atom(a);
    prover_.assume(hi - lo - Poly(1), &body); // the body runs only where this holds
    values_[body.args[0]] = lo + step * t;
  } else {
    set_opaque(body.args[0]);
  }

  size_t n = body.args.size() - 1;
  std::vector<Poly> growing(n, Poly::unknown()); // initial + amount t, where that is known
  std::vector<Int> divisors(n);
  for (size_t i = 0; i < n; i++) {
    Poly init = value(op.operand(i + 3));
    divisors[i] = init.is_known() && depth_ <= kMaxLoopDepth ? init.content() : Int(1);
  }
  for (int round = 0;; round++) {
    for (size_t i = 0; i < n; i++) {
      const Value *v = body.args[i + 1];
      if (!is_int_scalar(v)) continue;
      Int d = divisors[i] == 0 ? Int(1) << 20 : divisors[i];
      values_[v] = growing[i].is_known() ? growing[i] : opaque(v->type.dtype, name_of(v), d);
    }
    block(body);
    bool stable = true;
    for (size_t i = 0; i < n && depth_ <= kMaxLoopDepth; i++) {
      const Value *v = body.args[i + 1], *next = body.terminator()->operand(i);
      if (!is_int_scalar(v) || growing[i].is_known()) continue;
      if (round == 0) growing[i] = growth(op, i, t, outside);
      Poly last = value(next);
      Int d = round > 3 ? Int(1) : gcd(divisors[i], last.is_known() ? last.content() : Int(1));
      stable &= !growing[i].is_known() && d == divisors[i];
      divisors[i] = d;
    }
    if (stable) break;
  }
  depth_--;
  for (size_t i = 0; i < n; i++) {
    const Value *r = op.result(i);
    if (!is_int_scalar(r)) continue;
    Poly init = value(op.operand(i + 3)), last = value(body.terminator()->operand(i));
    Int d = init.is_known() && last.is_known() ? gcd(init.content(), last.content()) : Int(1);
    values_[r] = opaque(r->type.dtype, name_of(r), d == 0 ? Int(1) : d);
  }
}

// initial + amount t for carried value i, if the body yields the value plus an amount that does not change in the loop.
Poly Facts::growth(const Op &op, size_t i, const Poly &t, int outside) const {
  const Block &body = *op.regions[0];
  const Value *v = body.args[i + 1];
  const Op *next = body.terminator()->operand(i)->op;
  if (!next || (next->kind != OpKind::Add && next->kind != OpKind::Sub)) return Poly::unknown();
  bool swapped = next->kind == OpKind::Add && next->operand(1) == v;
  if (next->operand(swapped ? 1 : 0) != v) return Poly::unknown();
  Poly amount = value(next->operand(swapped ? 0 : 1));
  if (next->kind == OpKind::Sub) amount = Poly(0) - amount;
  if (!amount.is_known() || amount.highest_atom() >= outside) return Poly::unknown();
  Poly p = value(op.operand(i + 3)) + amount * t;
  return fits(p, v->type.dtype, &body) ? p : Poly::unknown();
}

void Facts::branch(const Op &op) {
  for (size_t i = 0; i < 2; i++) {
    condition(op.operand(0), i == 0, op.regions[i]);
    block(*op.regions[i]);
  }
  for (size_t i = 0; i < op.results.size(); i++) {
    const Value *r = op.result(i);
    if (!is_int_scalar(r)) continue;
    Poly a = value(op.regions[0]->terminator()->operand(i)), b = value(op.regions[1]->terminator()->operand(i));
    if (a == b) {
      values_[r] = a;
      continue;
    }
    values_[r] = opaque(r->type.dtype, name_of(r));
    if (a.is_known() && b.is_known()) prover_.one_of(values_[r].highest_atom(), {a, b});
  }
}

// Assumes in a scope that a bool is true, or that it is false.
void Facts::condition(const Value *c, bool holds, const Block *scope) {
  const Op *op = c->op;
  if (!op) return;
  if (op->kind == OpKind::Not) return condition(op->operand(0), !holds, scope);
  if ((op->kind == OpKind::And && holds) || (op->kind == OpKind::Or && !holds)) {
    condition(op->operand(0), holds, scope);
    condition(op->operand(1), holds, scope);
    return;
  }
  if (op->operands.size() != 2 || !is_int_scalar(op->operand(0))) return;
  Poly less = value(op->operand(1)) - value(op->operand(0)); // > 0: the first is smaller
  switch (op->kind) {
  case OpKind::Lt: return prover_.assume(holds ? less - Poly(1) : Poly(0) - less, scope);
  case OpKind::Le: return prover_.assume(holds ? less : Poly(0) - less - Poly(1), scope);
  case OpKind::Gt: return prover_.assume(holds ? Poly(0) - less - Poly(1) : less, scope);
  case OpKind::Ge: return prover_.assume(holds ? Poly(0) - less : less - Poly(1), scope);
  case OpKind::Eq:
  case OpKind::Ne:
    if ((op->kind == OpKind::Eq) != holds) return;
    prover_.assume(less, scope);
    prover_.assume(Poly(0) - less, scope);
    return;
  default: return;
  }
}

// ---- views of tensors

void Facts::record_field(const Op &op) {
  std::vector<Poly> out;
  for (int64_t d = 0; d + 1 < op.operand(0)->type.rank(); d++) out.push_back(extent(op.operand(0), d));
  for (int64_t n : op.attrs.ints("shape")) out.push_back(Poly(n));
  extents_[op.result()] = std::move(out);
}

void Facts::subview(const Op &op) {
  const std::vector<int64_t> &ranges = op.attrs.ints("ranges");
  std::vector<Poly> out;
  size_t next = 1;
  for (size_t d = 0; d < ranges.size(); d++) {
    Poly whole = extent(op.operand(0), int64_t(d));
    if (ranges[d] == 0) out.push_back(whole);
    if (ranges[d] == 2) next++;
    if (ranges[d] != 1) continue;
    Poly lo = value(op.operand(next)), hi = value(op.operand(next + 1));
    next += 2;
    // Bounds are clamped: lo to [0, whole], hi to [lo, whole].
    lo = choice(false, choice(true, lo, whole, op.block), 0, op.block);
    hi = choice(false, choice(true, hi, whole, op.block), lo, op.block);
    out.push_back(hi - lo);
  }
  extents_[op.result()] = std::move(out);
}

} // namespace tkc::passes

// Computes what is known and drops operations that change nothing.
//
//   %c = add 2, 3                            5
//   %y = mul %x, broadcast 1.0               %x
//   %z = where true, %x, %y          ->      %x
//   %b = broadcast (broadcast %s)            broadcast %s
//   %m = dim %x, 0                           %M, or a number: what the parameter list says
//   if true {..} else {..}                   the block that runs; a loop of no iterations goes
//
// Method: one walk in order of execution. Every op is looked at after its operands, with a table of what replaces which
// value, so that results of folding fold on. A tile counts as constant if it is a constant scalar spread by broadcasts
// and reshapes; a new one is a constant and one broadcast. Operands that are left without uses are dead_code's.
//
// Limits: floats fold only where the result is what every executor gives: one rounding, no approximated function. x * 0
// and x + 0 are kept for floats (NaN, infinities, -0); x + -0, x - 0, x * 1, x / 1 and x / 2^n are folded. Nothing is
// reassociated.
#include "ir/builder.h"
#include "passes/cleanup.h"
#include "passes/constant_eval.h"
#include "passes/effects.h"
#include <cmath>
#include <unordered_map>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

bool is_pointwise(OpKind kind) {
  return (kind >= OpKind::Neg && kind <= OpKind::Not) || (kind >= OpKind::Add && kind <= OpKind::Where) ||
         kind == OpKind::Cast;
}

class Fold {
public:
  Fold(ir::Function &f, Diagnostics &diags) : f_(f), b_(f, diags) {}

  bool run() {
    block(f_.body);
    return changed_;
  }

private:
  void block(Block *b) {
    for (size_t i = 0; i < b->ops.size();) {
      Op *op = b->ops[i];
      for (Value *&v : op->operands) v = resolve(v);
      if (splice(b, i)) continue; // its ops come next
      for (Block *r : op->regions) block(r);
      b_.set_before(op);
      Value *v = op->results.size() == 1 && op->regions.empty() ? simplify(*op) : nullptr;
      i = size_t(ir::position(op));
      if (v) {
        replace(op->result(), v);
        ir::erase(op); // its uses come later and are rewritten there
      } else {
        i++;
      }
    }
  }

  // What stands for a value now: a yielded value may have been replaced after the result that it became.
  Value *resolve(Value *v) const {
    for (auto it = same_.find(v); it != same_.end(); it = same_.find(v)) v = it->second;
    return v;
  }
  void replace(Value *from, Value *to) {
    same_[from] = to;
    if (to->op && to->name.empty()) to->name = from->name;
    changed_ = true;
  }

  // ---- control flow that is known
  // Puts the ops of a region in the place of op number `at`; its arguments and results become known values.
  bool splice(Block *b, size_t at) {
    Op *op = b->ops[at];
    if (op->kind == OpKind::If) {
      auto cond = constant_int(op->operand(0));
      if (!cond) return false;
      return inline_region(b, at, op->regions[*cond ? 0 : 1], {});
    }
    if (op->kind != OpKind::For) return false;
    auto lo = constant_int(op->operand(0)), hi = constant_int(op->operand(1)), step = constant_int(op->operand(2));
    std::vector<Value *> init(op->operands.begin() + 3, op->operands.end());
    if (!lo || !hi || !step || *step <= 0 || op->operand(0)->type.dtype == DType::U64) return false;
    if (*lo >= *hi) {
      for (size_t i = 0; i < init.size(); i++) replace(op->result(i), init[i]);
      ir::erase(op);
      changed_ = true;
      return true;
    }
    if (uint64_t(*hi) - uint64_t(*lo) > uint64_t(*step)) return false;
    init.insert(init.begin(), op->operand(0)); // one iteration
    return inline_region(b, at, op->regions[0], init);
  }
  bool inline_region(Block *b, size_t at, Block *region, const std::vector<Value *> &args) {
    Op *op = b->ops[at], *yield = region->terminator();
    for (size_t i = 0; i < args.size(); i++) same_[region->args[i]] = args[i];
    for (size_t i = 0; i < op->results.size(); i++) same_[op->result(i)] = yield->operand(i);
    std::vector<Op *> ops(region->ops.begin(), region->ops.end() - 1);
    for (Op *inner : ops) inner->block = b;
    b->ops.erase(b->ops.begin() + int64_t(at));
    b->ops.insert(b->ops.begin() + int64_t(at), ops.begin(), ops.end());
    op->block = nullptr;
    changed_ = true;
    return true;
  }

  // ---- values
  // The constant that every element of v is.
  std::optional<Constant> constant(const Value *v) const {
    while (v->op && (v->op->kind == OpKind::Broadcast || v->op->kind == OpKind::Reshape ||
                     v->op->kind == OpKind::ExpandDims || v->op->kind == OpKind::Transpose))
      v = v->op->operand(0);
    if (!v->op || v->op->kind != OpKind::Constant) return std::nullopt;
    DType t = v->type.dtype;
    if (is_float(t)) return Constant{t, v->op->attrs.get<double>("value"), 0};
    return Constant{t, 0, v->op->attrs.i("value")};
  }
  Value *make(const Constant &c, const Type &type, SourceLoc loc) {
    Value *v = is_float(c.dtype) ? b_.constant(c.dtype, c.f, loc) : b_.constant_int(c.dtype, c.i, loc);
    return type.is_scalar() ? v : broadcast(v, type.shape, loc);
  }
  Value *broadcast(Value *v, const std::vector<int64_t> &shape, SourceLoc loc) {
    ir::Attrs a;
    a.set("shape", shape);
    return b_.value(OpKind::Broadcast, {v}, std::move(a), loc);
  }

  Value *simplify(Op &op) {
    if (op.result()->layout) return nullptr; // new values would need layouts
    switch (op.kind) {
    case OpKind::Dim: return dim(op);
    case OpKind::NumPrograms: {
      const ir::SizeExpr &g = f_.grid[size_t(op.attrs.i("axis"))];
      return g.is_const() ? make({DType::I32, 0, wrap_to(DType::I32, g.value())}, op.result()->type, op.loc) : nullptr;
    }
    case OpKind::Broadcast:
    case OpKind::Reshape:
    case OpKind::ExpandDims:
    case OpKind::Transpose: return move(op);
    default: break;
    }
    if (!is_pointwise(op.kind)) return nullptr;
    std::vector<Constant> known;
    for (const Value *v : op.operands)
      if (auto c = constant(v)) known.push_back(*c);
    if (known.size() == op.operands.size())
      if (auto c = evaluate(op, known)) return make(*c, op.result()->type, op.loc);
    if (op.operands.size() == 1) return unary(op);
    if (op.kind == OpKind::Where) return where(op);
    return op.operands.size() == 2 ? binary(op) : nullptr;
  }

  Value *dim(Op &op) {
    const Value *t = op.operand(0);
    size_t axis = size_t(op.attrs.i("axis"));
    if (t->type.shape[axis] != ir::kDynamic)
      return make({DType::I32, 0, t->type.shape[axis]}, op.result()->type, op.loc);
    // Through parts: a whole dim of a part has the extent of the tensor's.
    while (t->op && ir::is_view(t->op->kind)) {
      if (t->op->kind == OpKind::RecordField) { // its own dims are constants
        t = t->op->operand(0);
        continue;
      }
      const std::vector<int64_t> &ranges = t->op->attrs.ints("ranges");
      size_t d = 0;
      for (size_t kept = 0;; d++) {
        if (ranges[d] == 2) continue;
        if (kept++ == axis) break;
      }
      if (ranges[d] != 0) return nullptr;
      axis = d;
      t = t->op->operand(0);
    }
    if (t->op || t->block != f_.body) return nullptr;
    int64_t arg = 0;
    for (const ir::Param &p : f_.params) {
      if (!p.present || arg++ != t->index) continue;
      if (p.dims[axis].op() != ir::SizeExpr::Op::Sym) return nullptr;
      Value *size = f_.size_value(p.dims[axis].name());
      return size && size->type == op.result()->type ? size : nullptr;
    }
    return nullptr;
  }

  // Ops that only move elements.
  Value *move(Op &op) {
    Value *x = op.operand(0);
    const Type &type = op.result()->type;
    if (op.kind == OpKind::Transpose) {
      const std::vector<int64_t> &perm = op.attrs.ints("perm");
      bool same = true;
      for (size_t d = 0; d < perm.size(); d++) same &= perm[d] == int64_t(d);
      if (same) return x;
      if (x->op && x->op->kind == OpKind::Transpose) {
        const std::vector<int64_t> &inner = x->op->attrs.ints("perm");
        std::vector<int64_t> both;
        bool back = true;
        for (int64_t d : perm) {
          both.push_back(inner[size_t(d)]);
          back &= both.back() == int64_t(both.size()) - 1;
        }
        if (back) return x->op->operand(0);
        ir::Attrs a;
        a.set("perm", both);
        return b_.value(OpKind::Transpose, {x->op->operand(0)}, std::move(a), op.loc);
      }
    } else if (type == x->type) {
      return x;
    }
    if (!x->op) return nullptr;
    Value *inner = x->op->operands.empty() ? nullptr : x->op->operand(0);
    // A scalar spread over any shape is a broadcast of it.
    if (x->op->kind == OpKind::Broadcast && inner->type.is_scalar()) return broadcast(inner, type.shape, op.loc);
    if (op.kind == OpKind::Broadcast && x->op->kind == OpKind::Broadcast) return broadcast(inner, type.shape, op.loc);
    if (op.kind == OpKind::Reshape && x->op->kind == OpKind::Reshape) {
      if (inner->type == type) return inner;
      ir::Attrs a;
      a.set("shape", type.shape);
      return b_.value(OpKind::Reshape, {inner}, std::move(a), op.loc);
    }
    return nullptr;
  }

  Value *unary(Op &op) {
    Value *x = op.operand(0);
    if (op.kind == OpKind::Cast && op.attrs.dtype("dtype") == x->type.dtype) return x;
    bool undoes = (op.kind == OpKind::Neg || op.kind == OpKind::Not) && x->op && x->op->kind == op.kind;
    return undoes ? x->op->operand(0) : nullptr;
  }

  Value *where(Op &op) {
    auto c = constant(op.operand(0));
    if (c) return op.operand(c->i ? 1 : 2);
    return op.operand(1) == op.operand(2) ? op.operand(1) : nullptr;
  }

  Value *binary(Op &op) {
    Value *x = op.operand(0), *y = op.operand(1);
    auto a = constant(x), b = constant(y);
    DType t = x->type.dtype;
    return is_float(t) ? float_binary(op, x, y, a, b) : int_binary(op, x, y, a, b);
  }

  Value *float_binary(Op &op, Value *x, Value *y, const std::optional<Constant> &a, const std::optional<Constant> &b) {
    auto is_zero = [](const std::optional<Constant> &c, bool negative) {
      return c && c->f == 0 && std::signbit(c->f) == negative;
    };
    auto is_one = [](const std::optional<Constant> &c) { return c && c->f == 1; };
    switch (op.kind) {
    case OpKind::Add:
      if (is_zero(b, true)) return x;
      if (is_zero(a, true)) return y;
      return nullptr;
    case OpKind::Sub: return is_zero(b, false) ? x : nullptr;
    case OpKind::Mul:
      if (is_one(b)) return x;
      if (is_one(a)) return y;
      return nullptr;
    case OpKind::Div: {
      if (is_one(b)) return x;
      if (!b) return nullptr;
      // A power of two whose reciprocal the dtype holds, and not as a denormal that may be flushed.
      int exponent = 0;
      bool power = std::fabs(std::frexp(b->f, &exponent)) == 0.5 &&
                   std::abs(exponent) <= (x->type.dtype == DType::F16 ? 12 : 120);
      if (!power) return nullptr;
      return b_.value(OpKind::Mul, {x, make({b->dtype, 1 / b->f, 0}, y->type, op.loc)}, {}, op.loc);
    }
    default: return nullptr;
    }
  }

  Value *int_binary(Op &op, Value *x, Value *y, const std::optional<Constant> &a, const std::optional<Constant> &b) {
    DType t = x->type.dtype;
    const Type &type = op.result()->type;
    int64_t ones = t == DType::Bool ? 1 : wrap_to(t, -1);
    auto is = [](const std::optional<Constant> &c, int64_t v) { return c && c->i == v; };
    auto number = [&](int64_t v) { return make({type.dtype, 0, v}, type, op.loc); };
    switch (op.kind) {
    case OpKind::Add:
    case OpKind::Or:
    case OpKind::Xor:
      if (is(b, 0)) return x;
      if (is(a, 0)) return y;
      if (op.kind == OpKind::Or && (x == y || is(a, ones))) return x;
      if (op.kind == OpKind::Or && is(b, ones)) return y;
      return op.kind == OpKind::Xor && x == y ? number(0) : nullptr;
    case OpKind::Sub:
      if (is(b, 0)) return x;
      return x == y ? number(0) : nullptr;
    case OpKind::Mul:
      if (is(b, 1) || is(a, 0)) return x;
      if (is(a, 1) || is(b, 0)) return y;
      return nullptr;
    case OpKind::Div: return is(b, 1) ? x : nullptr;
    case OpKind::Rem: return is(b, 1) ? number(0) : nullptr;
    case OpKind::Min:
    case OpKind::Max: return x == y ? x : nullptr;
    case OpKind::And:
      if (x == y || is(b, ones) || is(a, 0)) return x;
      return is(a, ones) || is(b, 0) ? y : nullptr;
    case OpKind::Shl:
    case OpKind::Shr: return is(b, 0) ? x : nullptr;
    case OpKind::Eq:
    case OpKind::Le:
    case OpKind::Ge: return x == y ? number(1) : nullptr;
    case OpKind::Ne:
    case OpKind::Lt:
    case OpKind::Gt: return x == y ? number(0) : nullptr;
    default: return nullptr;
    }
  }

  ir::Function &f_;
  ir::Builder b_;
  std::unordered_map<Value *, Value *> same_;
  bool changed_ = false;
};

} // namespace

bool fold_constants(ir::Function &f, PassContext &context) { return Fold(f, context.diags).run(); }

} // namespace tkc::passes

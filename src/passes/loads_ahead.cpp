// Writes into the IR what schedule_roles.cpp has decided:
//
//   for i in lo : hi step d {           %x0 = load t[lo ..]           as many as iterations ahead
//     %x = load t[i ..]                 for i, a0 .. in lo : hi step d, %x0 ..  {
//     .. %x ..                  ->        %next = load t[i + n d ..]
//   }                                     .. %a0 ..
//                                         yield a1 .., %next
//                                       }
//
// What lies behind the loop's end is loaded as anything outside of the tensor would be: not at all, or from the tensor
// without being used. Of a wait for an item whose arrival is asked for ahead, and of the test, see ops/ring.cpp.
#include "passes/loads_ahead.h"
#include "ir/builder.h"
#include "support/check.h"
#include <algorithm>
#include <map>

namespace tkc::passes {

using ir::Attrs;
using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

class Rewrite {
public:
  Rewrite(ir::Function &f, Op *loop, Diagnostics &diags)
      : f_(f), b_(f, diags), loop_(loop), body_(loop->regions[0]), scalar_(replicated({}, ir::warps_of(loop->block))) {}

  void load_ahead(const LoadAhead &a) {
    Op *load = a.load;
    Value *tile = load->result(), *step = loop_->operand(2);
    std::vector<Value *> first;
    b_.set_before(loop_);
    for (int64_t k = 0; k < a.distance; k++)
      first.push_back(load_of(*load, made(OpKind::Add, {loop_->operand(0), multiple(step, k)}, load->loc)));
    b_.set_before(body_->ops.front());
    Value *next = load_of(*load, made(OpKind::Add, {body_->args[0], multiple(step, a.distance)}, load->loc));
    std::vector<Value *> args;
    for (Value *v : first) args.push_back(carry(v, tile->name));
    args.push_back(next);
    for (size_t k = 0; k + 1 < args.size(); k++) body_->terminator()->operands.push_back(args[k + 1]);
    ir::replace_uses(body_, tile, args[0]);
    ir::erase(load);
  }

  void ask_ahead(Op *wait) {
    Value *ring = wait->operand(0), *counter = wait->operand(1);
    b_.set_before(loop_);
    Value *arrived = carry(integer(DType::Bool, 0, wait->loc), "arrived");
    wait->operands.push_back(arrived);
    // Behind everything that makes the next number, before the last product: the answer takes as long as a read.
    Op *yield = body_->terminator(), *at = yield;
    Value *next = yield->operand(size_t(counter->index) - 1);
    for (Op *op : body_->ops)
      if (op->kind == OpKind::Mma &&
          (!next->op || next->op->block != body_ || ir::position(next->op) < ir::position(op)))
        at = op;
    b_.set_before(at);
    yield->operands.push_back(made(OpKind::RingTest, {ring, next}, wait->loc));
  }

private:
  Value *made(OpKind kind, std::vector<Value *> operands, SourceLoc loc) {
    Op *op = b_.create(kind, std::move(operands), {}, loc);
    TKC_CHECK(op, "{} of a loop in a role", ir::def(kind).name.s);
    op->result()->layout = scalar_;
    return op->result();
  }
  Value *integer(DType t, int64_t v, SourceLoc loc) {
    Value *c = b_.constant_int(t, v, loc);
    c->layout = scalar_;
    return c;
  }
  Value *multiple(Value *step, int64_t k) {
    return made(OpKind::Mul, {step, integer(step->type.dtype, k, loop_->loc)}, loop_->loc);
  }

  // At the builder's place, the load as the iteration of this counter makes it, in no case of more than the tensor has.
  Value *load_of(const Op &load, Value *iv) {
    std::map<const Value *, Value *> known{{body_->args[0], iv}};
    std::vector<Value *> operands;
    for (Value *v : load.operands) operands.push_back(again(v, known));
    Op *copy = b_.create_typed(OpKind::Load, operands, {load.result()->type}, load.attrs, load.loc);
    if (load.attrs.has("in_bounds")) {
      std::vector<int64_t> in = load.attrs.ints("in_bounds");
      for (size_t d = 0; d < in.size(); d++)
        if (operands[d + 1] != load.operand(d + 1) || operands[0] != load.operand(0)) in[d] = 0;
      copy->attrs.set("in_bounds", std::move(in));
    }
    copy->result()->layout = load.result()->layout;
    copy->result()->name = load.result()->name;
    return copy->result();
  }
  Value *again(Value *v, std::map<const Value *, Value *> &known) {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (v->is_arg() || v->op->block != body_) return v;
    std::vector<Value *> operands;
    bool same = true;
    for (Value *x : v->op->operands) {
      operands.push_back(again(x, known));
      same &= operands.back() == x;
    }
    Op *copy = b_.create_typed(v->op->kind, operands, {v->type}, v->op->attrs, v->op->loc);
    if (!same) copy->attrs.erase("in_bounds");
    copy->result()->layout = v->layout;
    copy->result()->name = v->name;
    return known[v] = copy->result();
  }

  // One more carried value of the loop, whose body is yet to yield it.
  Value *carry(Value *init, const std::string &name) {
    loop_->operands.push_back(init);
    Value *arg = f_.new_value(init->type, name);
    arg->block = body_;
    arg->index = int64_t(body_->args.size());
    arg->layout = init->layout;
    body_->args.push_back(arg);
    Value *after = f_.new_value(init->type);
    after->op = loop_;
    after->index = int64_t(loop_->results.size());
    after->layout = init->layout;
    loop_->results.push_back(after);
    return arg;
  }

  ir::Function &f_;
  ir::Builder b_;
  Op *loop_;
  Block *body_;
  RegLayout scalar_;
};

} // namespace

void rewrite_role_loops(ir::Function &f, const std::vector<RoleLoop> &loops, Diagnostics &diags) {
  for (const RoleLoop &l : loops) {
    Rewrite r(f, l.loop, diags);
    for (const LoadAhead &a : l.ahead) r.load_ahead(a);
    for (Op *wait : l.asks) r.ask_ahead(wait);
  }
}

} // namespace tkc::passes

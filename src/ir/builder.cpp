#include "ir/builder.h"

namespace tkc::ir {

void InferCtx::result(Type type) {
  Value *v = function_.new_value(std::move(type));
  v->op = &op_;
  v->index = int64_t(op_.results.size());
  op_.results.push_back(v);
}

void Builder::link(Op *op) {
  if (before_) {
    insert_before(before_, op);
  } else {
    op->block = block_;
    block_->ops.push_back(op);
  }
}

Op *Builder::create(OpKind kind, std::vector<Value *> operands, Attrs attrs, SourceLoc loc,
                    std::span<const SourceLoc> locs) {
  Op *op = function_.new_op(kind, loc);
  op->operands = std::move(operands);
  op->attrs = std::move(attrs);
  InferCtx ctx(function_, *op, locs, diags_);
  def(kind).infer.f(ctx, *op);
  if (ctx.failed()) return nullptr;
  link(op);
  return op;
}

Op *Builder::create_typed(OpKind kind, std::vector<Value *> operands, std::vector<Type> results, Attrs attrs,
                          SourceLoc loc) {
  Op *op = function_.new_op(kind, loc);
  op->operands = std::move(operands);
  op->attrs = std::move(attrs);
  for (Type &t : results) {
    Value *v = function_.new_value(std::move(t));
    v->op = op;
    v->index = int64_t(op->results.size());
    op->results.push_back(v);
  }
  link(op);
  return op;
}

Value *Builder::constant(DType t, double v, SourceLoc loc) {
  Attrs attrs;
  attrs.set("dtype", t);
  attrs.set("value", round_to(t, v));
  return value(OpKind::Constant, {}, std::move(attrs), loc);
}

Value *Builder::constant_int(DType t, int64_t v, SourceLoc loc) {
  Attrs attrs;
  attrs.set("dtype", t);
  attrs.set("value", wrap_to(t, v));
  return value(OpKind::Constant, {}, std::move(attrs), loc);
}

} // namespace tkc::ir

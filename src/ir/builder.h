// Making ops: type inference runs on creation, so an op in the IR always has its result types.
#pragma once
#include "ir/op_def.h"

namespace tkc::ir {

class Builder {
public:
  Builder(Function &function, Diagnostics &diags) : function_(function), diags_(diags) {}
  void set_block(Block *block) { block_ = block, before_ = nullptr; } // append at the end
  void set_before(Op *op) { block_ = op->block, before_ = op; }
  Block *block() const { return block_; }
  Function &function() { return function_; }

  // Makes, infers and links an op. Null if inference reported an error.
  Op *create(OpKind kind, std::vector<Value *> operands, Attrs attrs, SourceLoc loc,
             std::span<const SourceLoc> locs = {});
  Value *value(OpKind kind, std::vector<Value *> operands, Attrs attrs, SourceLoc loc,
               std::span<const SourceLoc> locs = {}) {
    Op *op = create(kind, std::move(operands), std::move(attrs), loc, locs);
    return op ? op->result() : nullptr;
  }
  // Links an op with result types given by the caller (control flow, ops made by passes).
  Op *create_typed(OpKind kind, std::vector<Value *> operands, std::vector<Type> results, Attrs attrs, SourceLoc loc);

  Value *constant(DType t, double v, SourceLoc loc);      // scalar float constant
  Value *constant_int(DType t, int64_t v, SourceLoc loc); // scalar integer or bool constant

private:
  void link(Op *op);
  Function &function_;
  Diagnostics &diags_;
  Block *block_ = nullptr;
  Op *before_ = nullptr;
};

} // namespace tkc::ir

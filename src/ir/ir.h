// The tile IR: SSA values, ops with regions of one block each (structured control flow only), functions.
//
// Control ops and their regions
//   for   operands lo, hi, step, inits...   block args iv, carried...   ends with yield carried...   results carried...
//   while operands inits...   region 0: args carried..., ends with yield cond; region 1: args carried..., yield
//   carried... if    operand cond (scalar bool)   two regions without args, each ends with yield results... return ends
//   a function: no operands in a kernel, the results in a reference.
//   roles  no operands   regions without args, each ends with an empty yield: one for each role, executed at the same
//   time by warps of their own; the last region by the first warps of the block, and so on; at most one, directly in
//   the function's body
// Conditions, bounds and scalars are block-uniform (rank 0).
#pragma once
#include "ir/attr.h"
#include "ir/record.h"
#include "ir/size_expr.h"
#include "ir/type.h"
#include "support/source.h"
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tkc::ir {

struct OpDef;
struct Op;
struct Block;
struct Function;

enum class OpKind : uint16_t {
#define TKC_OP(kind, family) kind,
#include "ir/ops.def"
#undef TKC_OP
};

struct Value {
  Type type;
  Op *op = nullptr;                // the op that makes it, or null for a block argument
  Block *block = nullptr;          // of a block argument
  int64_t index = 0;               // result number or argument number
  std::string name;                // a hint from the source for printing
  int64_t id = 0;                  // unique in the function
  std::optional<RegLayout> layout; // set for every tile value from stage laid_out on

  bool is_arg() const { return op == nullptr; }
};

struct Op {
  OpKind kind;
  std::vector<Value *> operands;
  std::vector<Value *> results;
  std::vector<Block *> regions;
  Attrs attrs;
  SourceLoc loc;
  Block *block = nullptr; // that contains it

  Value *operand(size_t i) const { return operands[i]; }
  Value *result(size_t i = 0) const { return results[i]; }
};

struct Block {
  std::vector<Value *> args;
  std::vector<Op *> ops;
  Op *parent = nullptr; // the op whose region this is; null for a function's body
  Function *function = nullptr;

  Op *terminator() const { return ops.empty() ? nullptr : ops.back(); }
};

enum class ParamMode : uint8_t { In, Out, InOut };

// A kernel's or reference's parameter. Dims are over the function's sizes.
struct Param {
  std::string name;
  Type type; // tensor or scalar
  ParamMode mode = ParamMode::In;
  bool optional = false, present = true; // one variant per presence; an absent tensor has no value
  bool any_strides = false;              // else the innermost stride is 1
  std::vector<SizeExpr> dims;
  std::shared_ptr<const Record> record; // the elements are records, the last dim their words; null: numbers
  SourceLoc loc;
};

enum class FunctionKind : uint8_t { Kernel, Reference };

// One instance of a kernel or reference: every compile-time parameter is bound.
struct Function {
  FunctionKind kind = FunctionKind::Kernel;
  std::string name;
  SourceLoc loc;
  std::vector<Param> params;
  std::vector<std::string> sizes; // run-time sizes (i32), in order of first use in the parameter list
  std::vector<std::pair<std::string, std::string>> bindings; // compile-time parameters as text, for names and headers
  std::vector<SizeExpr> grid;
  std::string order;               // "" or "grouped"
  std::vector<int64_t> order_args; // grouped(8)
  bool persistent = false;
  Attrs tile_annotations; // of the loop over the tiles of a persistent grid (sema/annotations.cpp)
  bool overlaps = false;  // may start before the launch ahead has ended: it waits for it (passes/wait_for_launches.cpp)
  int64_t warps = 0;      // of the block, with roles those of the last one; 0: the layout search chooses
  std::vector<SizeExpr> facts;
  std::vector<SourceLoc> fact_locs;
  std::vector<std::string> result_names; // references
  int64_t shared_bytes = 0;              // set by allocate_shared

  // Entry block: one argument per present parameter, then one i32 scalar per size.
  Block *body = nullptr;
  Value *param_value(const std::string &name) const; // null if absent
  Value *size_value(const std::string &name) const;

  Value *new_value(Type type, std::string name = "");
  Block *new_block(Op *parent);
  Op *new_op(OpKind kind, SourceLoc loc);

private:
  std::deque<Value> values_; // stable addresses; values and ops live as long as the function
  std::deque<Op> ops_;
  std::deque<Block> blocks_;
};

// A tensor made of another one: a part of it, or a field of its records.
inline bool is_view(OpKind k) { return k == OpKind::Subview || k == OpKind::RecordField; }
// The tensor that a view is made of in the end.
inline const Value *root_tensor(const Value *tensor) {
  while (tensor->op && is_view(tensor->op->kind)) tensor = tensor->op->operand(0);
  return tensor;
}

// ---- walking and editing
// Calls f(op) for every op in order, regions after their op.
template <typename F> void walk(Block *block, F &&f) {
  for (size_t i = 0; i < block->ops.size(); i++) {
    Op *op = block->ops[i];
    f(op);
    for (Block *region : op->regions) walk(region, f);
  }
}
// The op whose regions are roles; null: all warps execute one program.
Op *roles_of(const Function &f);
// The role that an op or block belongs to: a region of roles_of(); -1: none.
int64_t role_of(const Block *b);
int64_t block_warps(const Function &f); // of all roles
int64_t warps_of(const Block *b);       // that execute this block: its role's, else Function::warps
int64_t first_warp(const Op &roles, size_t role);
int64_t position(const Op *op);         // index in its block
void insert_before(Op *anchor, Op *op); // links op into anchor's block
void insert_after(Op *anchor, Op *op);
void erase(Op *op);                                   // unlinks; results must have no uses left
void replace_uses(Block *in, Value *from, Value *to); // in a block and everything nested
// Uses of every value of a function: rebuilt on demand, valid until the next edit.
struct Use {
  Op *op;
  int64_t operand;
};
class Uses {
public:
  explicit Uses(Function &f);
  const std::vector<Use> &of(const Value *v) const;

private:
  std::vector<std::vector<Use>> by_id_;
};

} // namespace tkc::ir

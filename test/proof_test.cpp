// The proof of asynchronous protocols: it accepts what the compiler makes, and rejects every way to break it that these
// tests know. A mutant that it accepts must have a reason from a closed list, and run on the emulator.
#include "driver/verify.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/prove_protocol.h"
#include "passes/schedule_loops.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fstream>
#include <functional>
#include <set>

using namespace tkc;
using namespace tkc::passes;
using ir::Attrs;
using ir::Block;
using ir::Function;
using ir::Op;
using ir::OpKind;
using ir::Value;
using Verdict = ProtocolProof::Verdict;

namespace {

// ---- kernels

// What the schedule gives every ring, instead of what it chose.
int64_t forced_stages = 0;
bool forced_groups = false; // all threads copy

bool pipeline_forced(Function &f, PassContext &context) {
  FunctionSchedule s = schedule_loops(f, context.target);
  if (forced_groups) s.producer_warps = 0;
  for (LoopSchedule &l : s.loops) {
    if (forced_stages) l.stages = forced_stages;
    if (!forced_groups) continue;
    l.transport = "cp_async";
    for (RingField &field : l.fields) field.read = *field.load->result()->layout;
  }
  rewrite_loops(f, s, context.diags);
  return !s.loops.empty();
}

struct Sample {
  const char *file;
  std::map<std::string, std::string> params;
  bool groups; // forced
  const char *smallest_case;
};
const Sample kSamples[] = {
    {"gemm", {}, false, "tiles"},
    {"gemm", {{"BM", "64"}, {"BN", "64"}, {"BK", "32"}}, false, "tiles"},
    {"attention", {}, false, "full"},
    {"kda_chain", {}, false, "small"},
    {"kda_chain", {}, true, "small"},
};
std::string label(const Sample &s) {
  std::string out = s.file;
  for (const auto &[k, v] : s.params) out += fmt::format(" {}={}", k, v);
  return out + (s.groups ? " by groups" : "");
}

std::string read_file(const std::string &path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct Kernel {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  const ast::Function *kernel = nullptr;
  std::unique_ptr<Function> f;
  std::string problem;

  Kernel(const Sample &s, int64_t stages) {
    int32_t id = sources.add(s.file, read_file(fmt::format("{}/samples/{}.tk", TKC_SOURCE_DIR, s.file)));
    program = sema::Program::load(id, diags);
    REQUIRE(program);
    kernel = program->find(s.file, ast::FunctionKind::Kernel);
    REQUIRE(kernel);
    sema::InstanceSpec spec;
    spec.params = s.params;
    const ir::Target &target = *ir::find_target("sm_90");
    f = sema::instantiate(*program, *kernel, spec, &target, diags);
    REQUIRE(f);
    std::vector<Pass> passes = pipeline();
    for (Pass &p : passes)
      if (p.name == std::string("pipeline_loops")) p.run = pipeline_forced;
    passes.pop_back(); // the proof
    forced_stages = stages;
    forced_groups = s.groups;
    PassContext context{target, ir::default_part(target), diags};
    PassManager manager(std::move(passes));
    if (manager.run(*f, context) != PassManager::Outcome::ok) problem = manager.problem() + diags.render_all();
  }
};

// The function once more, as an independent copy with the same places in the source.
std::unique_ptr<Function> copy(const Function &f) {
  SourceManager sources;
  Diagnostics diags(sources);
  int32_t id = sources.add("copy.tkir", ir::print(f));
  auto out = ir::parse_ir(sources.file(id).text(), diags, id);
  REQUIRE_MESSAGE(out, diags.render_all());
  return out;
}

// ---- mutators: each changes one op, the n-th that it applies to; false: there is none

std::vector<Op *> all(Function &f, OpKind kind) {
  std::vector<Op *> out;
  ir::walk(f.body, [&](Op *op) {
    if (op->kind == kind) out.push_back(op);
  });
  return out;
}
size_t ring_operand(const Op &op) { return op.kind == OpKind::RingFill ? op.attrs.ints("sizes").size() + 1 : 0; }
const Op *ring_of(const Op &op) { return op.operand(ring_operand(op))->op; }
bool by_mbarrier(const Op &op) { return ring_of(op)->attrs.s("transport") == "mbarrier"; }
bool in_loop(const Op &op) { return op.block->parent && op.block->parent->kind == OpKind::For; }

void unlink(Op *op) {
  auto &ops = op->block->ops;
  ops.erase(std::find(ops.begin(), ops.end(), op));
}
void move_before(Op *op, Op *anchor) {
  unlink(op);
  insert_before(anchor, op);
}
void move_after(Op *op, Op *anchor) {
  unlink(op);
  insert_after(anchor, op);
}
Value *integer(Function &f, Op *before, DType t, int64_t v) {
  Op *c = f.new_op(OpKind::Constant, before->loc);
  c->attrs.set("dtype", t);
  c->attrs.set("value", v);
  Value *r = f.new_value(ir::Type::scalar(t));
  r->op = c;
  r->layout = replicated({}, f.warps);
  c->results = {r};
  insert_before(before, c);
  return r;
}
Value *binary(Function &f, Op *before, OpKind kind, Value *a, Value *b, DType result) {
  Op *op = f.new_op(kind, before->loc);
  op->operands = {a, b};
  Value *r = f.new_value(ir::Type::scalar(result));
  r->op = op;
  r->layout = replicated({}, f.warps);
  op->results = {r};
  insert_before(before, op);
  return r;
}
Value *plus(Function &f, Op *before, Value *v, int64_t k) {
  DType t = v->type.dtype;
  return binary(f, before, OpKind::Add, v, integer(f, before, t, k), t);
}
// Puts `op` (or a return, if `leave`) under a condition that is true for even counters.
void under_if(Function &f, Op *op, Value *counter, bool leave) {
  Value *one = integer(f, op, DType::U32, 1);
  Value *odd = binary(f, op, OpKind::And, counter, one, DType::U32);
  Value *cond = binary(f, op, OpKind::Lt, odd, one, DType::Bool);
  Op *branch = f.new_op(OpKind::If, op->loc);
  branch->operands = {cond};
  insert_before(op, branch);
  for (int k = 0; k < 2; k++) {
    Block *b = f.new_block(branch);
    branch->regions.push_back(b);
    Op *end = f.new_op(leave && k == 0 ? OpKind::Return : OpKind::Yield, op->loc);
    end->block = b;
    b->ops.push_back(end);
  }
  if (!leave) move_before(op, branch->regions[0]->ops.back());
}

// Why a mutant that the proof accepts does no harm.
enum class Reason {
  None,         // it must be rejected
  OrdersMore,   // a wait, acquire or barrier that is there twice or asks for more
  FewerPending, // an empty group more: waits end later than they must
  OrderedTwice, // another barrier or wait orders the same accesses
};

struct Mutator {
  const char *name;
  std::function<bool(Function &, size_t)> apply;
  std::function<Reason(const Function &)> accepted = {}; // null: never
};

bool has_roles(const Function &f) {
  bool roles = false;
  ir::walk(f.body, [&](const Op *op) { roles |= op->kind == OpKind::Roles; });
  return roles;
}
Reason orders_more(const Function &) { return Reason::OrdersMore; }

using Edit = std::function<bool(Function &, Op *)>; // false: does not apply to this op
std::function<bool(Function &, size_t)> nth(OpKind kind, Edit edit) {
  return [kind, edit](Function &f, size_t n) {
    for (Op *op : all(f, kind))
      if (n-- == 0) return edit(f, op);
    return false;
  };
}
// Whether there is an n-th op at all.
std::function<bool(Function &, size_t)> drop(OpKind kind) {
  return nth(kind, [](Function &, Op *op) {
    unlink(op);
    return true;
  });
}
std::function<bool(Function &, size_t)> twice(OpKind kind) {
  return nth(kind, [](Function &f, Op *op) {
    Op *again = f.new_op(op->kind, op->loc);
    again->operands = op->operands;
    again->attrs = op->attrs;
    insert_after(op, again);
    return true;
  });
}
std::function<bool(Function &, size_t)> shifted(OpKind kind, int64_t by) {
  return nth(kind, [by](Function &f, Op *op) {
    Value *&counter = op->operands[ring_operand(*op) + 1];
    counter = plus(f, op, counter, by);
    return true;
  });
}
std::function<bool(Function &, size_t)> conditional(OpKind kind) {
  return nth(kind, [](Function &f, Op *op) {
    if (!in_loop(*op)) return false;
    under_if(f, op, op->operand(ring_operand(*op) + 1), false);
    return true;
  });
}
// The last op of a kind in the block of `op`, or null.
Op *last_in(Block *b, OpKind kind) {
  Op *out = nullptr;
  for (Op *op : b->ops)
    if (op->kind == kind) out = op;
  return out;
}
Op *first_in(Block *b, OpKind kind) {
  for (Op *op : b->ops)
    if (op->kind == kind) return op;
  return nullptr;
}
Edit bound(size_t which, int64_t by) {
  return [which, by](Function &f, Op *roles) {
    Op *loop = first_in(roles->regions[0], OpKind::For);
    if (!loop) return false;
    loop->operands[which] = plus(f, loop, loop->operand(which), by);
    return true;
  };
}

} // namespace

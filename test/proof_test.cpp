// The proof of asynchronous protocols: it accepts what the compiler makes, and rejects every way to break it that these
// tests know. A mutant that it accepts must have a reason from a closed list, and run on the emulator.
#include "compile_kit.h"
#include "driver/verify.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/ring.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/prove_protocol.h"
#include "passes/schedule_loops.h"
#include "why.h"
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
enum class Force {
  Nothing,
  Groups,   // all threads copy, by cp.async
  Mbarrier, // a producer role copies, by cp.async
  Tma,      // .. by tensor copies
  TmaAlone, // a compute warp starts tensor copies
};
int64_t forced_stages = 0;
Force forced = Force::Nothing;

bool pipeline_forced(Function &f, PassContext &context) {
  if (forced == Force::Tma || forced == Force::TmaAlone)
    ir::walk(f.body, [](ir::Op *op) {
      if (op->kind == OpKind::For) op->attrs.set("@pipeline.via", std::string("tma"));
    });
  if (ir::roles_of(f)) return false;
  FunctionSchedule s = schedule_loops(f, context.target, context.part, context.options);
  if (forced == Force::Mbarrier || forced == Force::Tma) REQUIRE(s.producer_warps == 1);
  if (forced == Force::Groups || forced == Force::TmaAlone) s.producer_warps = 0;
  for (LoopSchedule &l : s.loops) {
    if (forced_stages) l.stages = forced_stages;
    if (forced == Force::Tma || forced == Force::TmaAlone) REQUIRE(l.by_tma());
    if (forced == Force::Groups) l.transport = "cp_async";
    if (forced == Force::Mbarrier) l.transport = "mbarrier";
    for (RingField &field : l.fields)
      if (!s.producer_warps) field.read = *field.load->result()->layout;
    for (RecordCopy &r : l.records)
      if (!s.producer_warps) r.read = blocked(r.words().shape, std::vector<int>{0}, 2, f.warps);
  }
  rewrite_loops(f, s, context.diags);
  return !s.loops.empty();
}

struct Sample {
  const char *file;
  std::map<std::string, std::string> params;
  Force force;
  const char *smallest_case;
  const char *kernel = nullptr; // if it is not called like the file; its case stands in the bench block
};
const Sample kChainTma{"kda_chain", {}, Force::Tma, "small"}, kChainMbarrier{"kda_chain", {}, Force::Mbarrier, "small"};
const Sample kSamples[] = {
    {"gemm", {}, Force::Nothing, "tiles"},
    {"gemm", {{"BM", "64"}, {"BN", "64"}, {"BK", "32"}}, Force::Groups, "tiles"},
    // Items that follow each other from tile to tile.
    {"gemm_persistent", {}, Force::Nothing, "tiles"},
    {"gemm_persistent", {{"BM", "64"}, {"BN", "64"}, {"BK", "32"}}, Force::Groups, "tiles"},
    {"gemm_persistent", {{"BM", "64"}, {"BN", "64"}, {"BK", "32"}, {"W", "4"}}, Force::Mbarrier, "tiles"},
    {"gemm_persistent", {{"BM", "64"}, {"BN", "64"}, {"BK", "32"}, {"W", "4"}}, Force::Tma, "tiles"},
    {"attention", {{"D", "64"}}, Force::Nothing, "d64"},
    {"attention", {{"D", "64"}}, Force::Groups, "d64"},
    kChainTma,
    kChainMbarrier,
    {"kda_chain", {}, Force::Groups, "small"},
    {"kda_chain", {}, Force::TmaAlone, "small"},
    // Fields of a record, which one copy brings, beside another tensor.
    {"kda_chain_records", {{"via", "tma"}}, Force::Tma, "two", "chain_of_records"},
    {"kda_chain_records", {{"via", "tma"}}, Force::TmaAlone, "two", "chain_of_records"},
    {"kda_chain_records", {}, Force::Mbarrier, "two", "chain_of_records"},
    {"kda_chain_records", {{"via", "cp_async"}}, Force::Groups, "two", "chain_of_records"},
    {"linear_state", {}, Force::Nothing, "tail"}, // a ring of the source, by stores and copies
};
std::string label(const Sample &s) {
  std::string out = s.file;
  for (const auto &[k, v] : s.params) out += fmt::format(" {}={}", k, v);
  const char *how[] = {"", " by groups", " by cp.async and mbarriers", " by tma", " by tma without roles"};
  return out + how[size_t(s.force)];
}

struct Subject {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  const ast::Function *kernel = nullptr;
  std::unique_ptr<Function> f;
  std::string problem;

  Subject(const Sample &s, int64_t stages) {
    int32_t id = sources.add(s.file, source_text(fmt::format("samples/{}.tk", s.file)));
    program = sema::Program::load(id, diags);
    REQUIRE(program);
    kernel = program->find(s.kernel ? s.kernel : s.file, ast::FunctionKind::Kernel);
    REQUIRE(kernel);
    sema::InstanceSpec spec;
    spec.params = s.params;
    const ir::Target &target = *ir::find_target("sm_90");
    f = sema::instantiate(*program, *kernel, spec, &target, diags);
    REQUIRE(f);
    for (Op *op : f->body->ops)
      if (op->kind == OpKind::RingAlloc && stages) op->attrs.set("stages", stages);
    std::vector<Pass> passes = pipeline();
    for (Pass &p : passes)
      if (p.name == std::string("pipeline_loops")) p.run = pipeline_forced;
    std::erase_if(passes, [](const Pass &p) { return p.name == std::string("prove_protocol"); });
    forced_stages = stages;
    forced = s.force;
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
bool copies_by_tma(const Op &op) { return ir::by_tma(*ir::ring_of(op)); }
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

// Why a mutant that the proof accepts does no harm. Nothing else is a reason.
enum class Reason {
  None,       // it must be rejected
  OrdersMore, // a wait that is there twice or leaves fewer copies pending; an acquire of one slot more
  EmptyGroup, // an empty group more: waits, which count groups, end later than they must
  IdleFence,  // a proxy fence before which the kernel has read no slot of these bytes
};

using Edit = std::function<bool(Function &, Op *)>; // false: does not apply to this op
struct Sites {
  OpKind kind;
  Edit edit;
};
struct Mutator {
  const char *name;
  Sites sites;
  Reason accepted = Reason::None;  // of kernels with roles
  Reason by_groups = Reason::None; // of kernels without
};

bool has_roles(const Function &f) {
  bool roles = false;
  ir::walk(f.body, [&](const Op *op) { roles |= op->kind == OpKind::Roles; });
  return roles;
}
Sites nth(OpKind kind, Edit edit) { return {kind, std::move(edit)}; }
Sites drop(OpKind kind) {
  return nth(kind, [](Function &, Op *op) {
    unlink(op);
    return true;
  });
}
Sites twice(OpKind kind) {
  return nth(kind, [](Function &f, Op *op) {
    Op *again = f.new_op(op->kind, op->loc);
    again->operands = op->operands;
    again->attrs = op->attrs;
    insert_after(op, again);
    return true;
  });
}
Sites shifted(OpKind kind, int64_t by) {
  return nth(kind, [by](Function &f, Op *op) {
    Value *&counter = op->operands[ring_operand(*op) + 1];
    counter = plus(f, op, counter, by);
    return true;
  });
}
Sites conditional(OpKind kind) {
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

Edit place(OpKind anchor, bool after, bool last) {
  return [=](Function &, Op *op) {
    Op *other = last ? last_in(op->block, anchor) : first_in(op->block, anchor);
    if (!other || other == op || !in_loop(*op)) return false;
    auto at = [](const Op *o) { return std::find(o->block->ops.begin(), o->block->ops.end(), o); };
    if ((at(op) > at(other)) == after) return false; // stands there already
    after ? move_after(op, other) : move_before(op, other);
    return true;
  };
}

Edit expect(int64_t more) {
  return [more](Function &, Op *op) {
    if (!copies_by_tma(*op)) return false;
    op->attrs.set("tx_bytes", op->attrs.i("tx_bytes") + more);
    return true;
  };
}

const std::vector<Mutator> &mutators() {
  static const std::vector<Mutator> list = {
      {"drop a wait", drop(OpKind::RingWait)},
      {"drop an acquire", drop(OpKind::RingAcquire)},
      {"drop a release", drop(OpKind::RingRelease)},
      {"drop a publish", drop(OpKind::RingPublish)},
      {"drop a fill", drop(OpKind::RingFill)},
      {"drop a store", drop(OpKind::RingStore)},
      {"repeat a wait", twice(OpKind::RingWait), Reason::OrdersMore, Reason::OrdersMore},
      {"repeat an acquire", twice(OpKind::RingAcquire), Reason::OrdersMore},
      {"repeat a release", twice(OpKind::RingRelease)},
      {"repeat a publish", twice(OpKind::RingPublish), Reason::None, Reason::EmptyGroup},
      {"repeat a fill", twice(OpKind::RingFill)},
      {"wait one item too far", shifted(OpKind::RingWait, 1)},
      {"wait one item too near", shifted(OpKind::RingWait, -1)},
      {"ask for one item too far", shifted(OpKind::RingTest, 1)},
      {"ask for one item too near", shifted(OpKind::RingTest, -1)},
      {"the first item counts as arrived",
       nth(OpKind::RingTest,
           [](Function &f, Op *op) {
             auto &loop = *op->block->parent;
             const auto &handed = op->block->terminator()->operands;
             size_t i = size_t(std::find(handed.begin(), handed.end(), op->result()) - handed.begin());
             loop.operands[3 + i] = integer(f, &loop, DType::Bool, 1);
             return true;
           })},
      {"every item counts as arrived", nth(OpKind::RingTest,
                                           [](Function &f, Op *op) {
                                             auto &handed = op->block->terminator()->operands;
                                             std::replace(handed.begin(), handed.end(), op->result(),
                                                          integer(f, op, DType::Bool, 1));
                                             return true;
                                           })},
      {"load one item too far", shifted(OpKind::RingLoad, 1)},
      {"load one item too near", shifted(OpKind::RingLoad, -1)},
      {"fill one item too far", shifted(OpKind::RingFill, 1)},
      {"fill one item too near", shifted(OpKind::RingFill, -1)},
      {"store one item too far", shifted(OpKind::RingStore, 1)},
      {"store one item too near", shifted(OpKind::RingStore, -1)},
      {"publish one item too far", shifted(OpKind::RingPublish, 1)},
      {"publish one item too near", shifted(OpKind::RingPublish, -1)},
      {"acquire one item too far", shifted(OpKind::RingAcquire, 1), Reason::OrdersMore},
      {"acquire one item too near", shifted(OpKind::RingAcquire, -1)},
      {"release one item too far", shifted(OpKind::RingRelease, 1)},
      {"release one item too near", shifted(OpKind::RingRelease, -1)},
      {"wait after the loads", nth(OpKind::RingWait, place(OpKind::RingLoad, true, true))},
      {"wait after the first load", nth(OpKind::RingWait, place(OpKind::RingLoad, true, false))},
      {"acquire after the fills", nth(OpKind::RingAcquire, place(OpKind::RingFill, true, true))},
      {"fill before the acquire", nth(OpKind::RingFill, place(OpKind::RingAcquire, false, false))},
      {"fill before the wait", nth(OpKind::RingFill, place(OpKind::RingWait, false, false))},
      {"fill after the publish", nth(OpKind::RingFill, place(OpKind::RingPublish, true, true))},
      {"store before the acquire", nth(OpKind::RingStore, place(OpKind::RingAcquire, false, false))},
      {"store after the publish", nth(OpKind::RingStore, place(OpKind::RingPublish, true, true))},
      {"publish before the fills", nth(OpKind::RingPublish, place(OpKind::RingFill, false, false))},
      {"publish before the acquire", nth(OpKind::RingPublish, place(OpKind::RingAcquire, false, false))},
      {"release before the loads", nth(OpKind::RingRelease, place(OpKind::RingLoad, false, false))},
      {"load after the release", nth(OpKind::RingLoad, place(OpKind::RingRelease, true, true))},
      {"load before the wait", nth(OpKind::RingLoad, place(OpKind::RingWait, false, false))},
      {"a wait leaves one more pending", nth(OpKind::RingWait,
                                             [](Function &, Op *op) {
                                               if (ir::has_producer(*ring_of(*op))) return false;
                                               op->attrs.set("pending", op->attrs.i("pending") + 1);
                                               return true;
                                             })},
      {"a wait leaves one fewer pending",
       nth(OpKind::RingWait,
           [](Function &, Op *op) {
             if (ir::has_producer(*ring_of(*op)) || op->attrs.i("pending") == 0) return false;
             op->attrs.set("pending", op->attrs.i("pending") - 1);
             return true;
           }),
       Reason::None, Reason::OrdersMore},
      {"one slot short", nth(OpKind::RingAlloc,
                             [](Function &f, Op *op) {
                               if (op->attrs.i("stages") < 2 || has_roles(f)) return false;
                               op->attrs.set("stages", op->attrs.i("stages") - 1);
                               return true;
                             })},
      {"the slots' bytes are too few", nth(OpKind::RingAlloc,
                                           [](Function &, Op *op) {
                                             op->attrs.set("stages", op->attrs.i("stages") + 1);
                                             return true;
                                           })},
      {"the producer starts later", nth(OpKind::Roles, bound(0, 1))},
      {"the producer ends later", nth(OpKind::Roles, bound(1, 1))},
      {"the producer ends earlier", nth(OpKind::Roles, bound(1, -1))},
      {"the producer takes longer steps", nth(OpKind::Roles, bound(2, 1))},
      {"a wait under `if`", conditional(OpKind::RingWait)},
      {"an acquire under `if`", conditional(OpKind::RingAcquire)},
      {"a release under `if`", conditional(OpKind::RingRelease)},
      {"a publish under `if`", conditional(OpKind::RingPublish)},
      {"a fill under `if`", conditional(OpKind::RingFill)},
      {"a store under `if`", conditional(OpKind::RingStore)},
      {"return from a loop that waits", nth(OpKind::RingWait,
                                            [](Function &f, Op *op) {
                                              under_if(f, op, op->operand(1), true);
                                              return true;
                                            })},
      {"return from a loop that acquires", nth(OpKind::RingAcquire,
                                               [](Function &f, Op *op) {
                                                 under_if(f, op, op->operand(1), true);
                                                 return true;
                                               })},
      {"a counter that stands", nth(OpKind::RingWait,
                                    [](Function &, Op *op) {
                                      Value *c = op->operand(1);
                                      c->block->terminator()->operands[size_t(c->index) - 1] = c;
                                      return true;
                                    })},
      {"a counter in steps of two", nth(OpKind::RingWait,
                                        [](Function &f, Op *op) {
                                          Value *c = op->operand(1);
                                          Op *end = c->block->terminator();
                                          end->operands[size_t(c->index) - 1] = plus(f, end, c, 2);
                                          return true;
                                        })},
      {"a counter from one", nth(OpKind::RingWait,
                                 [](Function &f, Op *op) {
                                   Value *c = op->operand(1);
                                   Op *loop = c->block->parent;
                                   loop->operands[size_t(c->index) + 2] = integer(f, loop, DType::U32, 1);
                                   return true;
                                 })},
      {"a counter that nobody knows", nth(OpKind::RingWait,
                                          [](Function &f, Op *op) {
                                            Value *&c = op->operands[1];
                                            c = binary(f, op, OpKind::Mul, c, c, DType::U32);
                                            return true;
                                          })},
      {"copies of items that do not exist", nth(OpKind::RingFill,
                                                [](Function &f, Op *op) {
                                                  if (has_roles(f)) return false;
                                                  op->operands.back() = integer(f, op, DType::Bool, 1);
                                                  return true;
                                                })},
      {"no copies", nth(OpKind::RingFill,
                        [](Function &f, Op *op) {
                          op->operands.back() = integer(f, op, DType::Bool, 0);
                          return true;
                        })},
      {"the last item is not copied", nth(OpKind::RingFill,
                                          [](Function &f, Op *op) {
                                            Op *lt = op->operands.back()->op;
                                            if (!lt || lt->kind != OpKind::Lt) return false;
                                            Value *next = plus(f, op, lt->operand(0), 1);
                                            op->operands.back() =
                                                binary(f, op, OpKind::Lt, next, lt->operand(1), DType::Bool);
                                            return true;
                                          })},
      {"drop a proxy fence in a loop", nth(OpKind::ProxyFence,
                                           [](Function &, Op *op) {
                                             if (!in_loop(*op)) return false;
                                             unlink(op);
                                             return true;
                                           })},
      {"drop a proxy fence before a loop",
       nth(OpKind::ProxyFence,
           [](Function &, Op *op) {
             if (in_loop(*op)) return false;
             unlink(op);
             return true;
           }),
       Reason::None, Reason::IdleFence},
      {"repeat a proxy fence", twice(OpKind::ProxyFence), Reason::OrdersMore, Reason::OrdersMore},
      {"fence after the wait", nth(OpKind::ProxyFence,
                                   [](Function &, Op *op) {
                                     Op *wait = in_loop(*op) ? first_in(op->block, OpKind::RingWait) : nullptr;
                                     if (!wait || ir::has_producer(*ring_of(*wait))) return false;
                                     move_after(op, wait);
                                     return true;
                                   })},
      {"fence before the loads", nth(OpKind::ProxyFence,
                                     [](Function &, Op *op) {
                                       Op *load = in_loop(*op) ? first_in(op->block, OpKind::RingLoad) : nullptr;
                                       if (!load || !ir::has_producer(*ring_of(*load))) return false;
                                       move_before(op, load);
                                       return true;
                                     })},
      {"fence after the release", nth(OpKind::ProxyFence,
                                      [](Function &, Op *op) {
                                        Op *release = in_loop(*op) ? last_in(op->block, OpKind::RingRelease) : nullptr;
                                        if (!release) return false;
                                        move_after(op, release);
                                        return true;
                                      })},
      {"expect nothing", nth(OpKind::RingPublish,
                             [](Function &, Op *op) {
                               if (!copies_by_tma(*op)) return false;
                               op->attrs.erase("tx_bytes");
                               return true;
                             })},
      {"expect more bytes", nth(OpKind::RingPublish, expect(16))},
      {"expect fewer bytes", nth(OpKind::RingPublish, expect(-16))},
      {"a copy brings other bytes", nth(OpKind::RingFill,
                                        [](Function &, Op *op) {
                                          if (!copies_by_tma(*op)) return false;
                                          if (op->attrs.has("bulk")) {
                                            op->attrs.set("bulk", op->attrs.i("bulk") / 2);
                                            return true;
                                          }
                                          std::vector<int64_t> box = op->attrs.ints("box");
                                          for (int64_t &n : box) n = n > 1 ? n + n / 2 : n; // hangs over the tile
                                          op->attrs.set("box", box);
                                          return true;
                                        })},
      {"published whether it exists or not", nth(OpKind::RingPublish,
                                                 [](Function &, Op *op) {
                                                   if (op->operands.size() < 3) return false;
                                                   op->operands.pop_back();
                                                   return true;
                                                 })},
      {"mbarriers in a slot", nth(OpKind::RingAlloc,
                                  [](Function &, Op *op) {
                                    if (!ir::has_mbarriers(*op)) return false;
                                    op->attrs.set("barrier_offset", op->attrs.i("offset"));
                                    return true;
                                  })},
      // Conversions order themselves against rings in the same bytes by barriers.
      {"drop a block barrier",
       nth(OpKind::BlockBarrier,
           [](Function &, Op *op) {
             if (op->attrs.s("scope") != "block") return false;
             unlink(op);
             return true;
           }),
       Reason::None, Reason::None},
  };
  return list;
}

// Runs an accepted mutant on the emulator, in every policy, against what the kernel itself computes.
void run_mutant(const Sample &sample, Subject &original, std::unique_ptr<Function> mutant) {
  Subject &k = original;
  const ast::Check *check = k.program->check_for(sample.kernel ? sample.kernel : sample.file, sample.kernel);
  REQUIRE(check);
  for (const ast::Case &c : check->cases) {
    if (c.name.text != sample.smallest_case) continue;
    auto spec = sema::evaluate_case(*k.program, *k.kernel, *check, c, k.diags);
    REQUIRE(spec);
    auto data = driver::make_data(*k.program, check, *k.f, *spec, {}, k.diags);
    REQUIRE_MESSAGE(data, k.diags.render_all());
    const ir::Target &target = *ir::find_target("sm_90");
    auto emit = [&](std::unique_ptr<Function> f) {
      auto out = std::make_unique<driver::CompiledKernel>();
      out->function = std::move(f);
      std::vector<codegen::Entry> entries = {{out->function.get(), out->function->name, true},
                                             {out->function.get(), out->function->name + "__any", false}};
      out->code = codegen::emit(entries, target, {});
      REQUIRE_MESSAGE(out->code.ok, out->code.error);
      return out;
    };
    driver::LaunchData want = *data;
    std::string printed;
    auto first = emit(copy(*k.f));
    Status ran = driver::run_emu(*first, want, k.sources, {}, printed);
    REQUIRE_MESSAGE(ran, why(ran));
    auto changed = emit(std::move(mutant));
    for (emu::Policy policy : {emu::Policy::Eager, emu::Policy::Lazy, emu::Policy::Random, emu::Policy::Reverse})
      for (uint64_t seed = 1; seed <= (policy == emu::Policy::Random ? 4u : 1u); seed++) {
        driver::LaunchData got = *data;
        emu::Options options;
        options.policy = policy;
        options.seed = seed;
        Status s = driver::run_emu(*changed, got, k.sources, options, printed);
        REQUIRE_MESSAGE(s, why(s));
        for (size_t i = 0; i < got.tensors.size(); i++) CHECK(got.tensors[i].bytes == want.tensors[i].bytes);
      }
  }
}

} // namespace

TEST_CASE("what the compiler makes is proven, for every number of slots") {
  for (const Sample &s : kSamples)
    for (int64_t stages = 1; stages <= 5; stages++) {
      INFO(label(s) << " " << stages);
      Subject k(s, stages);
      if (!k.problem.empty()) { // more than shared memory holds, or a ring by groups of one slot
        CHECK((stages == 1 || k.problem.find("shared") != std::string::npos));
        continue;
      }
      ProtocolProof p = prove_protocol(*k.f, &k.sources);
      bool groups = false;
      ir::walk(k.f->body, [&](const Op *op) { groups |= op->kind == OpKind::RingAlloc && !ir::has_producer(*op); });
      INFO(p.text << "\n" << p.timeline);
      // Without a producer a ring of one slot would have to be filled while it is read.
      CHECK((p.verdict == Verdict::Proven) == !(groups && stages == 1));
      MESSAGE(label(s) << ", " << stages << " slots: " << p.states << " states");
    }
}

TEST_CASE("mutants are rejected, or do no harm for a reason") {
  std::set<std::string> used;
  std::map<std::pair<const Sample *, std::string>, int> run;
  for (const Sample &s : kSamples)
    for (int64_t stages : {2, 3}) {
      Subject k(s, stages);
      REQUIRE_MESSAGE(k.problem.empty(), k.problem);
      std::string text = ir::print(*k.f);
      for (const Mutator &m : mutators())
        for (size_t n = 0; n < all(*k.f, m.sites.kind).size(); n++) {
          std::unique_ptr<Function> f = copy(*k.f);
          if (!m.sites.edit(*f, all(*f, m.sites.kind)[n]) || ir::print(*f) == text) continue;
          INFO(label(s) << ", " << stages << " slots: " << std::string(m.name) << ", " << n);
          used.insert(m.name);
          ProtocolProof p = prove_protocol(*f, nullptr);
          Reason why = has_roles(*f) ? m.accepted : m.by_groups;
          if (p.verdict == Verdict::Broken) {
            CHECK(p.condition != ' ');
            CHECK(!p.timeline.empty());
          }
          if (p.verdict != Verdict::Proven) continue;
          if (std::string(m.name) == "drop a block barrier") { // of another buffer: the verifier's
            CHECK(!ir::verify(*f, ir::Stage::allocated).empty());
            continue;
          }
          CHECK(why != Reason::None);
          if (why != Reason::None && run[{&s, m.name}]++ == 0) run_mutant(s, k, std::move(f));
        }
    }
  for (const Mutator &m : mutators()) CHECK_MESSAGE(used.count(m.name), std::string(m.name));
}

TEST_CASE("mbarriers of a wrong count are rejected") {
  using C = protocol::Counts;
  struct Row {
    Sample sample;
    std::vector<int64_t C::*> fields;
  };
  const Row rows[] = {{kChainMbarrier, {&C::full_init, &C::full_arrivals, &C::empty_init, &C::empty_arrivals}},
                      {kChainTma, {&C::tma_init, &C::tma_arrivals, &C::empty_init, &C::empty_arrivals}},
                      {kSamples[0], {&C::tma_init, &C::tma_arrivals}}};
  for (const Row &row : rows) {
    INFO(label(row.sample));
    Subject k(row.sample, 3);
    CHECK(prove_protocol(*k.f, nullptr, arrival_counts).verdict == Verdict::Proven);
    for (int64_t C::*field : row.fields)
      for (int64_t by : {-1, 1}) {
        auto wrong = [&](const protocol::Ring &ring) {
          C c = arrival_counts(ring);
          c.*field += by;
          return c;
        };
        CHECK(prove_protocol(*k.f, nullptr, wrong).verdict == Verdict::Broken);
      }
  }
  // Every warp of the role, or every lane, starts the copies.
  Subject k(kChainTma, 3);
  auto each = [](const protocol::Ring &ring) {
    C c = arrival_counts(ring);
    c.tma_arrivals = 32;
    return c;
  };
  CHECK(prove_protocol(*k.f, nullptr, each).verdict == Verdict::Broken);
}

TEST_CASE("the counter-example is the shortest one") {
  Subject k(kChainMbarrier, 2);
  std::unique_ptr<Function> f = copy(*k.f);
  unlink(all(*f, OpKind::RingRelease).at(0));
  ProtocolProof p = prove_protocol(*f, nullptr);
  CHECK(p.condition == 'l'); // with one item; with three the producer would wait for ever
  CHECK(p.text.find("slot 0 of ring 0 holds an item that was never released") != std::string::npos);
  MESSAGE(p.text << "\n" << p.timeline);
  f = copy(*k.f);
  unlink(all(*f, OpKind::RingPublish).at(0));
  p = prove_protocol(*f, nullptr);
  CHECK(p.condition == 'h');
  CHECK(p.text.find("compute: one warp waits at `wait ring 0 item 0 slot 0`") != std::string::npos);
  MESSAGE(p.text << "\n" << p.timeline);
  f = copy(*k.f);
  unlink(all(*f, OpKind::RingWait).at(0));
  p = prove_protocol(*f, nullptr);
  CHECK(p.condition == 'b');
  MESSAGE(p.text << "\n" << p.timeline);
}

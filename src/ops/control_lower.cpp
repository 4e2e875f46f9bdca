// The grid, loops and branches. What crosses control flow becomes one phi for each register that holds something.
#include "codegen/lower_ctx.h"
#include "codegen/nvvm.h"
#include "ops/lowering.h"
#include "ops/ring_slots.h"
#include "support/check.h"
#include "llvm/IR/Function.h"

namespace tkc::ops {

using codegen::LowerCtx;
using codegen::Regs;
using ir::Op;
using V = llvm::Value *;

namespace {

llvm::BasicBlock *new_block(LowerCtx &c, const char *name) {
  return llvm::BasicBlock::Create(c.b.getContext(), name, c.b.GetInsertBlock()->getParent());
}

// Phis of a value in the block at the insertion point, with the first incoming registers.
Regs make_phis(LowerCtx &c, const Regs &first, llvm::BasicBlock *from, unsigned incoming) {
  Regs out(first.size());
  for (size_t i = 0; i < first.size(); i++) {
    if (!first[i]) continue;
    llvm::PHINode *phi = c.b.CreatePHI(first[i]->getType(), incoming);
    phi->addIncoming(first[i], from);
    out[i] = phi;
  }
  return out;
}

void add_incoming(const Regs &phis, const Regs &regs, llvm::BasicBlock *from) {
  TKC_CHECK(phis.size() == regs.size(), "a value of {} registers meets one of {}", phis.size(), regs.size());
  for (size_t i = 0; i < phis.size(); i++) {
    if (!phis[i]) continue;
    TKC_CHECK(regs[i], "register {} holds nothing on one way into a block", i);
    llvm::cast<llvm::PHINode>(phis[i])->addIncoming(regs[i], from);
  }
}

const std::vector<ir::Value *> &yielded(const ir::Block *b) { return b->terminator()->operands; }

// Elements of 16 bits cross control flow in pairs, one register of the machine for two: alone each would fill one.
bool in_pairs(const ir::Value *v) { return is_float(v->type.dtype) && dtype_bits(v->type.dtype) == 16; }

Regs pair_up(LowerCtx &c, const ir::Value *v, Regs regs) {
  // What comes on one way may hold padding where that of another has nothing.
  size_t next = 0;
  const std::vector<int> live = v->type.is_scalar() ? std::vector<int>{0} : c.live_regs(v);
  for (size_t i = 0; i < regs.size(); i++) {
    bool lives = next < live.size() && size_t(live[next]) == i;
    next += lives;
    if (!lives) regs[i] = nullptr;
  }
  if (!in_pairs(v)) return regs;
  for (size_t i = 0; i + 1 < regs.size(); i += 2)
    if (regs[i] && regs[i + 1]) {
      regs[i] = codegen::nvvm::mov_pack_b32(c.b, std::array{regs[i], regs[i + 1]});
      regs[i + 1] = nullptr;
    }
  return regs;
}

// Gives the value what came through control flow.
void set_carried(LowerCtx &c, const ir::Value *v, Regs regs) {
  for (size_t i = 0; in_pairs(v) && i + 1 < regs.size(); i += 2)
    if (regs[i] && regs[i]->getType()->isIntegerTy(32)) {
      auto parts = codegen::nvvm::mov_unpack_b32(c.b, regs[i], c.type(v->type.dtype));
      regs[i] = parts[0], regs[i + 1] = parts[1];
    }
  c.set(v, std::move(regs));
}

// Only tiles have registers; tensors and tokens do not cross control flow as values of LLVM.
std::vector<Regs> registers(LowerCtx &c, const std::vector<ir::Value *> &values, size_t skip = 0) {
  std::vector<Regs> out;
  for (size_t i = skip; i < values.size(); i++) {
    TKC_CHECK(values[i]->type.is_tile(), "a {} is carried through control flow", values[i]->type.str());
    out.push_back(pair_up(c, values[i], c.regs(values[i])));
  }
  return out;
}

// ptxas unrolls loops by its own taste, which multiplies the registers of a tile program: off unless the source asks.
// `hoist` = false: what does not change is computed anew in every iteration, not kept in registers through it.
void set_hints(LowerCtx &c, llvm::BranchInst *latch, int64_t count, bool hoist) {
  llvm::LLVMContext &ctx = c.b.getContext();
  auto flag = [&](const char *name) { return llvm::MDNode::get(ctx, llvm::MDString::get(ctx, name)); };
  llvm::Metadata *unroll = count > 1
                               ? llvm::MDNode::get(ctx, {llvm::MDString::get(ctx, "llvm.loop.unroll.count"),
                                                         llvm::ConstantAsMetadata::get(c.b.getInt32(uint32_t(count)))})
                               : flag("llvm.loop.unroll.disable");
  llvm::SmallVector<llvm::Metadata *, 3> hints = {nullptr, unroll};
  if (!hoist) hints.push_back(flag("llvm.licm.disable"));
  llvm::MDNode *loop = llvm::MDNode::getDistinct(ctx, hints);
  loop->replaceOperandWith(0, loop);
  latch->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

} // namespace

void lower_ProgramId(LowerCtx &c, const Op &op) { c.set(op.result(), {c.program_id(op.attrs.i("axis"))}); }
void lower_NumPrograms(LowerCtx &c, const Op &op) { c.set(op.result(), {c.num_programs(op.attrs.i("axis"))}); }

namespace {

// A loop in the making. Tested at the end, with one test before: a body that runs has no branch on top.
//
//   before: lo < hi? --------------------------------------------> after
//   with `slots` iterations one behind the other (KnownSlots), else from `before` to `rest`:
//     enter: slots iterations left? no: rest
//     main:  the iterations; as many left? main
//     check: any left? no: after
//   rest: an iteration; any left? rest
//   after
class Loop {
public:
  Loop(LowerCtx &c, const Op &op)
      : c_(c), b_(c.b), op_(op), region_(op.regions[0]), lo_(c.scalar(op.operand(0))), hi_(c.scalar(op.operand(1))),
        step_(c.scalar(op.operand(2))), inits_(registers(c, op.operands, 3)) {}

  void run() {
    DType t = op_.operand(0)->type.dtype;
    llvm::BasicBlock *before = b_.GetInsertBlock();
    V any = is_signed(t) ? b_.CreateICmpSLT(lo_, hi_) : b_.CreateICmpULT(lo_, hi_);
    ways_.emplace_back(before, inits_);
    int64_t slots = op_.attrs.i_or("slots", 1);
    if (slots > 1)
      unrolled(any, slots);
    else
      rest(any, before);

    b_.SetInsertPoint(after_);
    std::vector<Regs> results;
    for (size_t i = 0; i < inits_.size(); i++) {
      results.push_back(make_phis(c_, inits_[i], before, unsigned(ways_.size())));
      for (size_t k = 1; k < ways_.size(); k++) add_incoming(results.back(), ways_[k].second[i], ways_[k].first);
    }
    for (size_t i = 0; i < inits_.size(); i++) set_carried(c_, op_.result(i), std::move(results[i]));
  }

private:
  // Whether more than `n` steps are left behind `iv`, which is below hi. iv + step may pass the type's range when it
  // passes hi, so the test is on what is left.
  V more(V iv, int64_t n) { return b_.CreateICmpUGT(b_.CreateSub(hi_, iv), times(n)); }
  V times(int64_t n) {
    return n == 1 ? step_ : b_.CreateMul(step_, llvm::ConstantInt::get(step_->getType(), uint64_t(n)));
  }
  void arguments(V iv, const std::vector<Regs> &carried) {
    c_.set(region_->args[0], {iv});
    for (size_t i = 0; i < carried.size(); i++) set_carried(c_, region_->args[i + 1], carried[i]);
  }
  std::vector<Regs> iteration() {
    c_.lower_block(region_);
    c_.set_location(op_.loc);
    return registers(c_, yielded(region_));
  }
  std::vector<Regs> phis(const std::vector<Regs> &first, llvm::BasicBlock *from) {
    std::vector<Regs> out;
    for (const Regs &r : first) out.push_back(make_phis(c_, r, from, 2));
    return out;
  }

  // One iteration at a time, entered from `before`, the block at hand, where `any` holds.
  void rest(V any, llvm::BasicBlock *before) {
    rest_ = new_block(c_, "for");
    after_ = new_block(c_, "for.end");
    b_.CreateCondBr(any, rest_, after_);
    rest(before, lo_, inits_);
  }
  void rest(llvm::BasicBlock *before, V first, const std::vector<Regs> &inits) {
    b_.SetInsertPoint(rest_);
    llvm::PHINode *iv = b_.CreatePHI(lo_->getType(), 2);
    iv->addIncoming(first, before);
    std::vector<Regs> carried = phis(inits, before);
    arguments(iv, carried);
    CarriedSlots slots(c_, op_, inits, before);
    std::vector<Regs> next = iteration();
    llvm::BasicBlock *end = b_.GetInsertBlock();
    slots.close(next);
    for (size_t i = 0; i < carried.size(); i++) add_incoming(carried[i], next[i], end);
    V left = more(iv, 1);
    iv->addIncoming(b_.CreateAdd(iv, step_), end);
    set_hints(c_, b_.CreateCondBr(left, rest_, after_), op_.attrs.i_or("unroll", 0), !op_.attrs.has("keep_inside"));
    ways_.emplace_back(end, next);
  }

  void unrolled(V any, int64_t n) {
    llvm::BasicBlock *enter = new_block(c_, "for.enter"), *main = new_block(c_, "for.slots"),
                     *check = new_block(c_, "for.check"), *single = new_block(c_, "for.single");
    rest_ = new_block(c_, "for");
    after_ = new_block(c_, "for.end");
    b_.CreateCondBr(any, enter, after_);
    b_.SetInsertPoint(enter);
    b_.CreateCondBr(more(lo_, n - 1), main, single);

    b_.SetInsertPoint(main);
    llvm::PHINode *iv = b_.CreatePHI(lo_->getType(), 2);
    iv->addIncoming(lo_, enter);
    std::vector<Regs> carried = phis(inits_, enter), next = carried;
    KnownSlots slots(c_, op_, n, enter);
    for (int64_t k = 0; k < n; k++) {
      arguments(k == 0 ? iv : b_.CreateAdd(iv, times(k)), next);
      slots.iteration(k);
      next = iteration();
    }
    llvm::BasicBlock *end = b_.GetInsertBlock();
    slots.close();
    for (size_t i = 0; i < carried.size(); i++) add_incoming(carried[i], next[i], end);
    V round = more(iv, 2 * n - 1), left = more(iv, n), behind = b_.CreateAdd(iv, times(n));
    iv->addIncoming(behind, end);
    set_hints(c_, b_.CreateCondBr(round, main, check), 0, !op_.attrs.has("keep_inside"));

    b_.SetInsertPoint(check);
    b_.CreateCondBr(left, single, after_);
    ways_.emplace_back(check, next);

    b_.SetInsertPoint(single);
    llvm::PHINode *first = b_.CreatePHI(lo_->getType(), 2);
    first->addIncoming(lo_, enter);
    first->addIncoming(behind, check);
    std::vector<Regs> state = phis(inits_, enter);
    for (size_t i = 0; i < state.size(); i++) add_incoming(state[i], next[i], check);
    b_.CreateBr(rest_);
    rest(single, first, state);
  }

  LowerCtx &c_;
  llvm::IRBuilder<> &b_;
  const Op &op_;
  const ir::Block *region_;
  V lo_, hi_, step_;
  std::vector<Regs> inits_;
  llvm::BasicBlock *rest_ = nullptr, *after_ = nullptr;
  std::vector<std::pair<llvm::BasicBlock *, std::vector<Regs>>> ways_; // to `after`, with what comes along
};

} // namespace

void lower_For(LowerCtx &c, const Op &op) { Loop(c, op).run(); }

void lower_While(LowerCtx &c, const Op &op) {
  llvm::IRBuilder<> &b = c.b;
  const ir::Block *condition = op.regions[0], *body = op.regions[1];
  std::vector<Regs> inits = registers(c, op.operands);
  llvm::BasicBlock *before = b.GetInsertBlock(), *head = new_block(c, "while"), *inside = new_block(c, "while.body"),
                   *after = new_block(c, "while.end");
  b.CreateBr(head);
  b.SetInsertPoint(head);
  std::vector<Regs> carried;
  for (const Regs &r : inits) carried.push_back(make_phis(c, r, before, 2));
  for (size_t i = 0; i < carried.size(); i++) {
    set_carried(c, condition->args[i], carried[i]);
    Regs regs = c.regs(condition->args[i]);
    c.set(body->args[i], regs);
    c.set(op.result(i), std::move(regs));
  }
  c.lower_block(condition);
  b.CreateCondBr(c.scalar(yielded(condition).at(0)), inside, after);
  b.SetInsertPoint(inside);
  c.lower_block(body);
  c.set_location(op.loc);
  std::vector<Regs> next = registers(c, yielded(body));
  for (size_t i = 0; i < carried.size(); i++) add_incoming(carried[i], next[i], b.GetInsertBlock());
  set_hints(c, b.CreateBr(head), 0, true);
  b.SetInsertPoint(after);
}

void lower_If(LowerCtx &c, const Op &op) {
  llvm::IRBuilder<> &b = c.b;
  llvm::BasicBlock *blocks[2] = {new_block(c, "then"), new_block(c, "else")}, *after = new_block(c, "if.end");
  llvm::BasicBlock *ends[2];
  std::vector<Regs> values[2];
  b.CreateCondBr(c.scalar(op.operand(0)), blocks[0], blocks[1]);
  for (size_t k = 0; k < 2; k++) {
    b.SetInsertPoint(blocks[k]);
    c.lower_block(op.regions[k]);
    c.set_location(op.loc);
    values[k] = registers(c, yielded(op.regions[k]));
    ends[k] = b.GetInsertBlock();
    b.CreateBr(after);
  }
  b.SetInsertPoint(after);
  std::vector<Regs> results;
  for (size_t i = 0; i < op.results.size(); i++) {
    results.push_back(make_phis(c, values[0][i], ends[0], 2));
    add_incoming(results.back(), values[1][i], ends[1]);
  }
  for (size_t i = 0; i < op.results.size(); i++) set_carried(c, op.result(i), std::move(results[i]));
}

// The op around the block takes the values.
void lower_Yield(LowerCtx &, const Op &) {}

void lower_Return(LowerCtx &c, const Op &) { c.b.CreateRetVoid(); }

} // namespace tkc::ops

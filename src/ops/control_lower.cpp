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
// And what a long body can compute anew is not kept in registers through it: `hoist` = false.
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
void lower_BlockId(LowerCtx &c, const Op &op) { c.set(op.result(), {codegen::nvvm::ctaid_x(c.b)}); }
void lower_NumBlocks(LowerCtx &c, const Op &op) { c.set(op.result(), {codegen::nvvm::nctaid_x(c.b)}); }
void lower_TileCoordinate(LowerCtx &c, const Op &op) {
  c.set(op.result(), {c.coordinates(c.scalar(op.operand(0)))[size_t(op.attrs.i("axis"))]});
}

// Tested at the end, with one test before: a body that runs has no branch on top.
void lower_For(LowerCtx &c, const Op &op) {
  llvm::IRBuilder<> &b = c.b;
  const ir::Block *region = op.regions[0];
  DType t = op.operand(0)->type.dtype;
  V lo = c.scalar(op.operand(0)), hi = c.scalar(op.operand(1)), step = c.scalar(op.operand(2));
  auto less = [&](V x, V y) { return is_signed(t) ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y); };
  std::vector<Regs> inits = registers(c, op.operands, 3);
  llvm::BasicBlock *before = b.GetInsertBlock(), *loop = new_block(c, "for"), *after = new_block(c, "for.end");
  b.CreateCondBr(less(lo, hi), loop, after);

  b.SetInsertPoint(loop);
  llvm::PHINode *iv = b.CreatePHI(lo->getType(), 2);
  iv->addIncoming(lo, before);
  c.set(region->args[0], {iv});
  std::vector<Regs> carried;
  for (const Regs &r : inits) carried.push_back(make_phis(c, r, before, 2));
  for (size_t i = 0; i < carried.size(); i++) set_carried(c, region->args[i + 1], carried[i]);
  CarriedSlots slots(c, op, inits, before);
  c.lower_block(region);
  c.set_location(op.loc);
  llvm::BasicBlock *end = b.GetInsertBlock();
  std::vector<Regs> next = registers(c, yielded(region));
  slots.close(next);
  for (size_t i = 0; i < carried.size(); i++) add_incoming(carried[i], next[i], end);
  // iv + step may pass the type's range when it passes hi, so the test is on what is left; hi - iv is positive.
  V more = b.CreateICmpUGT(b.CreateSub(hi, iv), step);
  iv->addIncoming(b.CreateAdd(iv, step), end);
  llvm::BranchInst *latch = b.CreateCondBr(more, loop, after);
  set_hints(c, latch, op.attrs.i_or("unroll", 0), !op.attrs.has("tiles") && !getenv("NOLICM"));

  b.SetInsertPoint(after);
  std::vector<Regs> results;
  for (size_t i = 0; i < inits.size(); i++) {
    results.push_back(make_phis(c, inits[i], before, 2));
    add_incoming(results.back(), next[i], end);
  }
  for (size_t i = 0; i < inits.size(); i++) set_carried(c, op.result(i), std::move(results[i]));
}

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

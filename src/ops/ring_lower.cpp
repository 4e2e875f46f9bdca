#include "codegen/access.h"
#include "ops/lowering.h"
#include "ops/ring_slots.h"
#include "support/check.h"
#include <algorithm>
#include <bit>
#include <set>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

namespace {

// Copies by the threads that own the elements. Copies of one element by several threads would be harmless but wasted.
class ThreadCopies {
public:
  ThreadCopies(LowerCtx &c, const Op &op, const Op *ring, const SmemLayout &smem, const SharedPlace &at, Value *enabled)
      : c_(c), ring_(ring), field_(op.attrs.i("field")), smem_(smem), at_(at), enabled_(enabled),
        layout_(op.attrs.get<RegLayout>("read")), access_(c, op, layout_, nullptr), tensor_(c.tensor(op.operand(0))) {}

  void run() {
    int64_t n = access_.vector_elements(16), bytes = n * dtype_bytes(tensor_.dtype);
    issue_ = both(c_, owner_predicate(c_, layout_), enabled_);
    if (bytes >= 4 && access_.alignment(n) >= bytes) {
      for (int64_t start : access_.starts(n, true))
        nvvm::cp_async(c_.b, destination(start), access_.address(start), bytes, access_.predicate(start), issue_);
      fill_padding(n, true);
    } else {
      plain_copies(n);
      fill_padding(n, false);
      c_.plain_fills.insert(ring_);
    }
  }

private:
  // Elements that are consecutive in shared memory too, and stay so under every swizzle: chunks of 16 bytes are whole.
  Value *destination(int64_t reg) { return element_address(c_, layout_, smem_, at_, reg); }

  // Zeros where a reader of the field takes padding along that no register above stands for.
  void fill_padding(int64_t n, bool async) {
    if (int64_t(layout_.live_regs().size()) == layout_.num_regs()) return;
    std::vector<bool> written(size_t(smem_.bytes), false), read = written;
    for (int r : layout_.live_regs())
      for (int64_t w = 0; w < layout_.num_warps(); w++)
        for (int64_t l = 0; l < 32; l++)
          for (int64_t k = 0; k < smem_.elem_bytes; k++)
            written[smem_.offset(layout_.linear(r, l, w)) + size_t(k)] = true;
    ir::walk(c_.function.body, [&](const Op *op) {
      if (op->kind != ir::OpKind::RingLoad || op->operand(0)->op != ring_ || op->attrs.i("field") != field_) return;
      SmemSide side = plan_smem_load(c_.layout(op->result()), smem_, ir::layout_features(c_.target));
      std::vector<bool> touched = touched_bytes(side, 0, smem_.bytes);
      for (size_t k = 0; k < read.size(); k++) read[k] = read[k] || touched[k];
    });
    std::set<int64_t> done; // first registers of vectors
    llvm::Type *word = word_type(c_, tensor_.dtype, n);
    int64_t words = n * dtype_bytes(tensor_.dtype) * 8 / int64_t(word->getIntegerBitWidth());
    for (int r : missing_padding(layout_, smem_, written, read)) {
      int64_t first = access_.vector_start(r, n);
      if (!done.insert(first).second) continue;
      if (async)
        nvvm::cp_async(c_.b, destination(first), access_.address(0), n * dtype_bytes(tensor_.dtype), c_.b.getFalse(),
                       issue_);
      else
        nvvm::st(c_.b, {nvvm::kShared, n * dtype_bytes(tensor_.dtype)}, destination(first),
                 std::vector<Value *>(size_t(words), llvm::Constant::getNullValue(word)), issue_);
    }
  }

  // Through registers, n elements at a time, where cp.async is too wide. A tile has thousands of such accesses: what
  // lies in one chunk of shared memory is a loop.
  void plain_copies(int64_t n) {
    llvm::IRBuilder<> &b = c_.b;
    int64_t size = dtype_bytes(tensor_.dtype), run = access_.run_elements(16 / size);
    std::vector<int64_t> starts = access_.starts(run, true);
    if (starts.empty()) return;
    std::vector<Value *> from, to;
    for (int64_t start : starts) {
      from.push_back(access_.address(start));
      to.push_back(destination(start));
    }
    llvm::BasicBlock *before = b.GetInsertBlock();
    llvm::Function *f = before->getParent();
    auto *body = llvm::BasicBlock::Create(b.getContext(), "copy", f);
    auto *after = llvm::BasicBlock::Create(b.getContext(), "copy.end", f);
    b.CreateBr(body);
    b.SetInsertPoint(body);
    llvm::PHINode *along = b.CreatePHI(b.getInt32Ty(), 2);
    along->addIncoming(c_.i32(0), before);
    llvm::Type *word = word_type(c_, tensor_.dtype, n), *element = storage_type(c_, tensor_.dtype);
    nvvm::Access global{nvvm::kGlobal, access_.alignment(n), tensor_.read_only, false};
    std::vector<std::vector<Value *>> words;
    for (size_t i = 0; i < starts.size(); i++) {
      Value *valid = both(c_, access_.predicate(starts[i], along), issue_);
      words.push_back(nvvm::ld(b, global, b.CreateGEP(element, from[i], along), word, 1, valid));
    }
    for (size_t i = 0; i < starts.size(); i++)
      nvvm::st(b, {nvvm::kShared, n * size}, b.CreateGEP(element, to[i], along), words[i], issue_);
    Value *next = b.CreateAdd(along, c_.i32(n));
    along->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpULT(next, c_.i32(run)), body, after);
    b.SetInsertPoint(after);
  }

  LowerCtx &c_;
  const Op *ring_;
  int64_t field_;
  const SmemLayout &smem_;
  SharedPlace at_;
  Value *enabled_, *issue_ = nullptr;
  const RegLayout &layout_;
  TileAccess access_;
  const TensorVal &tensor_;
};

// The copies of a tile by its tensor map, box by box. The tile's dims are powers of two, and where the layout of a
// field is one of TMA's, whole boxes lie where a copy to the place of their first element puts them.
void tensor_copies(LowerCtx &c, const Op &op, const SmemLayout &smem, const SharedPlace &at, Value *barrier) {
  const std::vector<int64_t> &sizes = op.attrs.ints("sizes"), &drop = op.attrs.ints("drop"),
                             &box = op.attrs.ints("box");
  auto rank = int64_t(box.size());
  std::vector<Value *> start(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; d++) {
    Value *v = position_value(c, op.operand(size_t(1 + d)));
    start[size_t(d)] = c.b.CreateSExtOrTrunc(v, c.b.getInt32Ty());
  }
  std::vector<int64_t> place(static_cast<size_t>(rank), 0); // of the box in the tile
  while (true) {
    std::vector<int64_t> coord;
    std::vector<Value *> where;
    for (int64_t d = 0; d < rank; d++)
      if (!drop[size_t(d)]) coord.push_back(place[size_t(d)]);
    for (int64_t d = rank; d-- > 0;)
      where.push_back(place[size_t(d)] ? c.b.CreateAdd(start[size_t(d)], c.i32(place[size_t(d)])) : start[size_t(d)]);
    nvvm::cp_async_bulk_tensor_g2s(c.b, shared_address(c, at.offset + smem.offset(coord), at.slot), c.tensor_map(op),
                                   where, barrier);
    int64_t d = rank - 1;
    for (; d >= 0; d--) {
      place[size_t(d)] += box[size_t(d)];
      if (place[size_t(d)] < sizes[size_t(d)]) break;
      place[size_t(d)] = 0;
    }
    if (d < 0) return;
  }
}

// One row by a bulk copy: it lies within the tensor.
void bulk_copy(LowerCtx &c, const Op &op, const SharedPlace &at, Value *barrier) {
  const TensorVal &t = c.tensor(op.operand(0));
  Value *from = nullptr; // elements
  for (size_t d = 0; d < t.strides.size(); d++) {
    Value *v = c.b.CreateSExtOrTrunc(position_value(c, op.operand(1 + d)), c.b.getInt64Ty());
    Value *term = c.b.CreateMul(v, t.strides[d]);
    from = from ? c.b.CreateAdd(from, term) : term;
  }
  Value *address = c.b.CreateGEP(storage_type(c, t.dtype), t.base, from);
  nvvm::cp_async_bulk_g2s(c.b, shared_address(c, at.offset, at.slot), address, op.attrs.i("bulk"), barrier);
}

} // namespace

void lower_RingAcquire(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  Value *counter = c.scalar(op.operand(1));
  // The phase before: its parity is the other one. A fresh barrier counts as one whose phase of parity 1 is over.
  Value *parity = c.b.CreateXor(ring.parity(c, counter), c.i32(1));
  nvvm::mbarrier_wait_parity(c.b, ring.empty(c, counter), parity, c.target);
}

void lower_RingFill(LowerCtx &c, const Op &op) {
  size_t at = ir::ring_operand(op);
  Ring ring(op.operand(at));
  int64_t field = op.attrs.i("field");
  if (ring.tensor_copies(c)) { // the ring_publish starts them
    SharedPlace place = ring.place(c, c.scalar(op.operand(at + 1)), field);
    c.started[&ring.op].push_back([&c, &op, place, smem = &ring.smem(field)](Value *barrier) {
      if (op.attrs.has("box"))
        tensor_copies(c, op, *smem, place, barrier);
      else
        bulk_copy(c, op, place, barrier);
    });
    return;
  }
  Value *enabled = c.scalar(op.operand(at + 2));
  if (auto *k = llvm::dyn_cast<llvm::ConstantInt>(enabled)) {
    if (k->isZero()) return;
    enabled = nullptr;
  }
  ThreadCopies(c, op, &ring.op, ring.smem(field), ring.place(c, c.scalar(op.operand(at + 1)), field), enabled).run();
}

void lower_RingStore(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  int64_t field = op.attrs.i("field");
  const ir::Value *x = op.operand(2);
  // The padding too, or a read in another layout meets bytes that were never written.
  RegLayout whole = c.layout(x);
  SmemLayout smem = ring.smem(field);
  for (int64_t &n : whole.shape) n = int64_t(std::bit_ceil(uint64_t(n)));
  smem.shape = whole.shape.to_vector();
  SmemSide side = plan_smem_store(whole, smem, ir::layout_features(c.target));
  store_side(c, side, ring.place(c, c.scalar(op.operand(1)), field), 0, x);
}

void lower_RingPublish(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (!ring.mbarriers(c)) return nvvm::cp_async_commit_group(c.b);
  Value *full = ring.full(c, c.scalar(op.operand(1)));
  ir::RingSides sides = ir::ring_sides(ring.op);
  if (sides.stores) {
    nvvm::bar_warp_sync(c.b); // every lane has stored
    if_first(c, c.lane(), [&] { nvvm::mbarrier_arrive(c.b, full); });
    if (!sides.copies) return;
  }
  if (ring.tensor_copies(c)) {
    Value *starts = op.operands.size() > 2 ? c.scalar(op.operand(2)) : nullptr;
    if (c.role_warps() > 1) starts = both(c, starts, c.b.CreateICmpEQ(c.warp(), c.i32(0)));
    std::vector<std::function<void(Value *)>> copies = std::move(c.started[&ring.op]);
    c.started.erase(&ring.op);
    where(c, both(c, starts, nvvm::elect_sync(c.b)), [&] {
      nvvm::mbarrier_arrive_expect_tx(c.b, full, op.attrs.i("tx_bytes"));
      for (const auto &start : copies) start(full);
    });
    return;
  }
  if (c.plain_fills.count(&ring.op)) { // plain stores are released by an arrival of the thread itself
    nvvm::cp_async_wait_all(c.b);
    nvvm::mbarrier_arrive(c.b, full);
  } else {
    nvvm::cp_async_mbarrier_arrive_noinc(c.b, full);
  }
}

void lower_RingTest(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  Value *counter = c.scalar(op.operand(1));
  c.set(op.result(), {nvvm::mbarrier_test_parity(c.b, ring.full(c, counter), ring.parity(c, counter))});
}

void lower_RingWait(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (ring.mbarriers(c)) {
    Value *counter = c.scalar(op.operand(1));
    auto wait = [&] { nvvm::mbarrier_wait_parity(c.b, ring.full(c, counter), ring.parity(c, counter), c.target); };
    if (op.operands.size() > 2)
      where(c, c.b.CreateNot(c.scalar(op.operand(2))), wait);
    else
      wait();
  } else {
    nvvm::cp_async_wait_group(c.b, op.attrs.i("pending"));
  }
  if (!ir::has_producer(ring.op)) c.role_barrier();
}

void lower_ProxyFence(LowerCtx &c, const Op &) {
  if (c.tensor_copies()) nvvm::fence_proxy_async_shared_cta(c.b);
}

void lower_RingRelease(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  if (!ir::has_producer(ring.op)) return;
  nvvm::bar_warp_sync(c.b); // every lane has read
  Value *empty = ring.empty(c, c.scalar(op.operand(1)));
  if_first(c, c.lane(), [&] { nvvm::mbarrier_arrive(c.b, empty); });
}

void lower_RingLoad(LowerCtx &c, const Op &op) {
  Ring ring(op.operand(0));
  int64_t field = op.attrs.i("field");
  const ir::Value *result = op.result();
  const RegLayout &l = c.layout(result);
  SmemSide side = plan_smem_load(l, ring.smem(field), ir::layout_features(c.target));
  Regs regs(size_t(l.num_regs()), nullptr);
  load_side(c, side, ring.place(c, c.scalar(op.operand(1)), field), 0, result->type.dtype, regs);
  for (auto [to, from] : side.copies) regs[size_t(to)] = regs[size_t(from)];
  c.set(result, std::move(regs));
}

} // namespace tkc::ops

#include "ops/global_copies.h"
#include "support/check.h"
#include <algorithm>
#include <set>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

namespace {

// Copies by the threads that own the elements. Copies of one element by several threads would be harmless but wasted.
class ThreadCopies {
public:
  ThreadCopies(LowerCtx &c, const Op &op, const SmemLayout &smem, const SharedPlace &at,
               std::span<const ir::Value *const> readers, Value *enabled)
      : c_(c), smem_(smem), at_(at), readers_(readers), enabled_(enabled), layout_(op.attrs.get<RegLayout>("read")),
        access_(c, op, layout_, nullptr), tensor_(c.tensor(op.operand(0))) {}

  bool run() {
    int64_t n = access_.vector_elements(16), bytes = n * dtype_bytes(tensor_.dtype);
    issue_ = both(c_, owner_predicate(c_, layout_), enabled_);
    if (bytes >= 4 && access_.alignment(n) >= bytes) {
      for (int64_t start : access_.starts(n, true))
        nvvm::cp_async(c_.b, destination(start), access_.address(start), bytes, access_.predicate(start),
                       both(c_, issue_, within_place(start)));
      fill_padding(n, true);
      return true;
    }
    plain_copies(n);
    fill_padding(n, false);
    return false;
  }

private:
  // Elements that are consecutive in shared memory too, and stay so under every swizzle: chunks of 16 bytes are whole.
  Value *destination(int64_t reg) { return element_address(c_, layout_, smem_, at_, reg); }

  // Where the place ends with the tile, what pads it has none (null: everywhere).
  Value *within_place(int64_t reg) {
    Value *inside = nullptr;
    TileSpace s = layout_.space();
    if (smem_.bytes >= smem_.elem_bytes << s.bits) return nullptr;
    for (int64_t d = 0; d < s.rank; d++) inside = both(c_, inside, inside_predicate(c_, layout_, reg, d));
    return inside;
  }

  // Zeros where a reader of the field takes padding along that no register above stands for.
  void fill_padding(int64_t n, bool async) {
    if (readers_.empty() || int64_t(layout_.live_regs().size()) == layout_.num_regs()) return;
    std::vector<bool> written(size_t(smem_.bytes), false), read = written;
    for (int r : layout_.live_regs())
      for (int64_t w = 0; w < layout_.num_warps(); w++)
        for (int64_t l = 0; l < 32; l++)
          for (int64_t k = 0; k < smem_.elem_bytes; k++)
            written[smem_.offset(layout_.linear(r, l, w)) + size_t(k)] = true;
    for (const ir::Value *reader : readers_) {
      SmemSide side = plan_smem_load(c_.layout(reader), smem_, ir::layout_features(c_.target));
      std::vector<bool> touched = touched_bytes(side, 0, smem_.bytes);
      for (size_t k = 0; k < read.size(); k++) read[k] = read[k] || touched[k];
    }
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
      nvvm::st(b, {nvvm::kShared, n * size}, b.CreateGEP(element, to[i], along), words[i],
               both(c_, issue_, within_place(starts[i])));
    Value *next = b.CreateAdd(along, c_.i32(n));
    along->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpULT(next, c_.i32(run)), body, after);
    b.SetInsertPoint(after);
  }

  LowerCtx &c_;
  const SmemLayout &smem_;
  SharedPlace at_;
  std::span<const ir::Value *const> readers_;
  Value *enabled_, *issue_ = nullptr;
  const RegLayout &layout_;
  TileAccess access_;
  const TensorVal &tensor_;
};

} // namespace

bool thread_copies(LowerCtx &c, const Op &op, const SmemLayout &smem, const SharedPlace &at,
                   std::span<const ir::Value *const> readers, Value *enabled) {
  return ThreadCopies(c, op, smem, at, readers, enabled).run();
}

void each_box(LowerCtx &c, const Op &op, const SmemLayout &smem, const SharedPlace &at, const BoxFn &f) {
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
    f(shared_address(c, at.offset + smem.offset(coord), at.slot), where);
    int64_t d = rank - 1;
    for (; d >= 0; d--) {
      place[size_t(d)] += box[size_t(d)];
      if (place[size_t(d)] < sizes[size_t(d)]) break;
      place[size_t(d)] = 0;
    }
    if (d < 0) return;
  }
}

Value *row_address(LowerCtx &c, const Op &op, Value *offset) {
  const TensorVal &t = c.tensor(op.operand(0));
  Value *from = offset; // elements
  for (size_t d = 0; d < t.strides.size(); d++) {
    Value *v = c.b.CreateSExtOrTrunc(position_value(c, op.operand(1 + d)), c.b.getInt64Ty());
    Value *term = c.b.CreateMul(v, t.strides[d]);
    from = from ? c.b.CreateAdd(from, term) : term;
  }
  return c.b.CreateGEP(storage_type(c, t.dtype), t.base, from ? from : c.i64(0));
}

} // namespace tkc::ops

#include "ops/global_copies.h"
#include "ops/lowering.h"
#include "ops/places.h"

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

void lower_CopyAsync(LowerCtx &c, const Op &op) {
  ir::Place to = ir::place(op);
  std::vector<const ir::Value *> readers; // slots have no padding
  if (!thread_copies(c, op, smem_of(to), slot_place(c, to), readers, nullptr)) c.plain_fills.insert(to.made);
}

void lower_CommitGroup(LowerCtx &c, const Op &) { nvvm::cp_async_commit_group(c.b); }
void lower_WaitGroup(LowerCtx &c, const Op &op) { nvvm::cp_async_wait_group(c.b, op.attrs.i("pending")); }

namespace {

// Row by row: f(shared address, global address, bytes). The slot's rows lie one behind the other, as in a tensor.
template <typename F> void each_row(LowerCtx &c, const Op &op, F &&f) {
  ir::Place to = ir::place(op);
  SharedPlace place = slot_place(c, to);
  const TensorVal &t = c.tensor(op.operand(0));
  const std::vector<int64_t> &sizes = op.attrs.ints("sizes");
  size_t rank = sizes.size();
  int64_t bytes = (rank ? sizes[rank - 1] : 1) * dtype_bytes(t.dtype), done = 0;
  std::vector<int64_t> at(rank, 0);
  while (true) {
    Value *offset = nullptr; // elements
    for (size_t d = 0; d + 1 < rank; d++) {
      if (!at[d]) continue;
      Value *term = c.b.CreateMul(c.i64(at[d]), t.strides[d]);
      offset = offset ? c.b.CreateAdd(offset, term) : term;
    }
    f(shared_address(c, place.offset + done, place.slot), row_address(c, op, offset), bytes);
    done += bytes;
    size_t d = rank ? rank - 1 : 0;
    while (d-- > 0) {
      if (++at[d] < sizes[d]) break;
      at[d] = 0;
    }
    if (d == SIZE_MAX) return;
  }
}
int64_t slot_bytes(const Op &op) {
  ir::Type t = ir::slot_type(*ir::place(op).made);
  return t.elements() * dtype_bytes(t.dtype);
}
void bulk_copies(LowerCtx &c, const Op &op) {
  Value *barrier = mbarrier_address(c, ir::place(op, 1));
  each_row(c, op, [&](Value *shared, Value *global, int64_t bytes) {
    nvvm::cp_async_bulk_g2s(c.b, shared, global, bytes, barrier);
  });
}

} // namespace

void lower_CopyAsyncBulk(LowerCtx &c, const Op &op) {
  Value *barrier = mbarrier_address(c, ir::place(op, 1));
  if (c.target.has(ir::kTma)) {
    nvvm::mbarrier_expect_tx(c.b, barrier, slot_bytes(op));
    return bulk_copies(c, op);
  }
  each_row(c, op, [&](Value *shared, Value *global, int64_t bytes) {
    llvm::Type *byte = c.b.getInt8Ty();
    for (int64_t at = 0; at < bytes; at += 16)
      nvvm::cp_async(c.b, c.b.CreateGEP(byte, shared, c.i32(at)), c.b.CreateGEP(byte, global, c.i64(at)), 16);
  });
  nvvm::cp_async_mbarrier_arrive(c.b, barrier);
}

void lower_CopyAsyncTx(LowerCtx &c, const Op &op) { bulk_copies(c, op); }

void lower_TmaLoad(LowerCtx &c, const Op &op) {
  ir::Place to = ir::place(op);
  Value *barrier = mbarrier_address(c, ir::place(op, 1));
  each_box(c, op, smem_of(to), slot_place(c, to), [&](Value *shared, std::span<Value *const> at) {
    nvvm::cp_async_bulk_tensor_g2s(c.b, shared, c.tensor_map(op), at, barrier);
  });
}

void lower_TmaStore(LowerCtx &c, const Op &op) {
  ir::Place from = ir::place(op);
  each_box(c, op, smem_of(from), slot_place(c, from), [&](Value *shared, std::span<Value *const> at) {
    nvvm::cp_async_bulk_tensor_s2g(c.b, shared, c.tensor_map(op), at);
  });
}

void lower_TmaReduce(LowerCtx &c, const Op &op) {
  ir::Place from = ir::place(op);
  const std::string &how = op.attrs.s("how");
  nvvm::BulkReduce combine = how == "add"   ? nvvm::BulkReduce::Add
                             : how == "min" ? nvvm::BulkReduce::Min
                                            : nvvm::BulkReduce::Max;
  each_box(c, op, smem_of(from), slot_place(c, from), [&](Value *shared, std::span<Value *const> at) {
    nvvm::cp_reduce_async_bulk_tensor_s2g(c.b, combine, shared, c.tensor_map(op), at);
  });
}

void lower_TmaPrefetch(LowerCtx &c, const Op &op) {
  SmemLayout rows = plain_smem(op.attrs.ints("tile"), dtype_bytes(op.operand(0)->type.dtype));
  each_box(c, op, rows, {}, [&](Value *, std::span<Value *const> at) {
    nvvm::cp_async_bulk_prefetch_tensor(c.b, c.tensor_map(op), at);
  });
}

void lower_BulkCommitGroup(LowerCtx &c, const Op &) { nvvm::cp_async_bulk_commit_group(c.b); }
void lower_BulkWaitGroup(LowerCtx &c, const Op &op) {
  nvvm::cp_async_bulk_wait_group(c.b, op.attrs.i("pending"), op.attrs.i("read"));
}

} // namespace tkc::ops

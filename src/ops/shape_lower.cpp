// Constants, and ops that move elements without computing: with the layouts that the passes chose, a register of the
// result is a register of an operand.
#include "codegen/access.h"
#include "codegen/convert_float.h"
#include "ops/lowering.h"
#include "ops/scratch.h"
#include "support/check.h"
#include <map>

namespace tkc::ops {

using codegen::LowerCtx;
using codegen::Regs;
using ir::Op;
using V = llvm::Value *;
namespace nvvm = codegen::nvvm;

void lower_Constant(LowerCtx &c, const Op &op) {
  DType t = op.attrs.dtype("dtype");
  V v = is_float(t) ? c.constant(t, op.attrs.get<double>("value"), 0) : c.constant(t, 0, op.attrs.i("value"));
  c.set(op.result(), Regs(size_t(c.layout(op.result()).num_regs()), v));
}

void lower_Iota(LowerCtx &c, const Op &op) {
  DType t = op.attrs.dtype("dtype");
  const RegLayout &l = c.layout(op.result());
  Regs integers = c.no_regs(op.result());
  for (int r : c.live_regs(op.result())) integers[size_t(r)] = c.coordinate(l, r, 0);
  c.set(op.result(), codegen::convert(c, DType::U32, t, integers));
}

// Layouts of both sides name the same places in the same order of registers, unless one side dropped register bits.
static void rename(LowerCtx &c, const Op &op, auto &&source) {
  const Regs &x = c.regs(op.operand(0));
  Regs out = c.no_regs(op.result());
  for (int r : c.live_regs(op.result())) {
    out[size_t(r)] = x[size_t(source(r))];
    TKC_CHECK(out[size_t(r)], "{}: register {} of the result comes from a register that holds nothing",
              ir::def(op).name.s, r);
  }
  c.set(op.result(), std::move(out));
}

namespace {
// The row-major number of the element in a register, in the exact shape, and whether there is one (null: everywhere).
struct ElementNumber {
  V number = nullptr, inside = nullptr;
};
ElementNumber element_number(LowerCtx &c, const RegLayout &l, int64_t reg) {
  ElementNumber out{c.i32(0), nullptr};
  int64_t stride = 1;
  for (int64_t d = int64_t(l.shape.size()); d-- > 0; stride *= l.shape[size_t(d)]) {
    out.number = c.b.CreateAdd(out.number, c.b.CreateMul(c.coordinate(l, reg, d), c.i32(stride)));
    out.inside = codegen::both(c, out.inside, codegen::inside_predicate(c, l, reg, d));
  }
  return out;
}
} // namespace

// Every element goes to its row-major place in shared memory, and from there to whom it belongs in the other shape.
static void reshape_through_memory(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0), *y = op.result();
  const RegLayout &from = c.layout(x), &to = c.layout(y);
  int64_t at = op.attrs.i("scratch_offset"), slot = scratch_bytes(x->type.dtype);
  V owner = codegen::owner_predicate(c, from);
  uint32_t copies = from.free_bits().reg;
  for (int r : c.live_regs(x)) {
    if (uint32_t(r) & copies) continue;
    ElementNumber e = element_number(c, from, r);
    codegen::store_slot(c, codegen::shared_address(c, at, e.number, slot), c.regs(x)[size_t(r)],
                        codegen::both(c, owner, e.inside));
  }
  c.role_barrier();
  Regs out = c.no_regs(y);
  for (int r : c.live_regs(y)) {
    ElementNumber e = element_number(c, to, r);
    V number = e.inside ? c.b.CreateSelect(e.inside, e.number, c.i32(0)) : e.number; // padding: any element
    out[size_t(r)] = codegen::load_slot(c, codegen::shared_address(c, at, number, slot), c.type(y->type.dtype));
  }
  c.set(y, std::move(out));
}

void lower_Reshape(LowerCtx &c, const Op &op) {
  if (op.attrs.has("scratch_offset")) return reshape_through_memory(c, op);
  TKC_CHECK(c.layout(op.operand(0)).num_regs() == c.layout(op.result()).num_regs(), "reshape changes the registers");
  rename(c, op, [](int r) { return r; });
}

void lower_Transpose(LowerCtx &c, const Op &op) {
  TKC_CHECK(c.layout(op.operand(0)).num_regs() == c.layout(op.result()).num_regs(), "transpose changes the registers");
  rename(c, op, [](int r) { return r; });
}

void lower_ExpandDims(LowerCtx &c, const Op &op) {
  const RegLayout &from = c.layout(op.operand(0)), &to = c.layout(op.result());
  if (from.num_regs() == to.num_regs()) return rename(c, op, [](int r) { return r; });
  int axis = int(op.attrs.i("axis"));
  rename(c, op, [&](int r) { return to.sliced_reg(axis, r); });
}

void lower_Broadcast(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0);
  if (x->type.is_scalar()) return rename(c, op, [](int) { return 0; });
  const RegLayout &to = c.layout(op.result());
  rename(c, op, [&](int r) { return to.broadcast_source_reg(x->type.shape, r); });
}

namespace {

// How the registers of a tile lie in those of a larger one that contains it at an offset. Both hold the element at the
// same lane and warp.
class Inset {
public:
  Inset(LowerCtx &c, const RegLayout &whole, const RegLayout &piece, std::vector<int64_t> start)
      : c_(c), whole_(whole), piece_(piece), start_(std::move(start)) {
    int rank = int(whole.shape.size());
    TileSpace small(piece.shape), large(whole.shape);
    for (int d = 0; d < rank; d++) {
      uint32_t bits = 0; // that threads move
      auto same = [&](const Basis &a, const Basis &b) {
        for (size_t i = 0; i < a.size(); i++) {
          TKC_CHECK(large.coord(a[i], d) == small.coord(b[i], d), "a part of a tile lies in other threads: {} and {}",
                    whole.to_string(), piece.to_string());
          bits |= uint32_t(large.coord(a[i], d));
        }
      };
      same(whole.lane, piece.lane);
      same(whole.warp, piece.warp);
      TKC_CHECK(bits == 0 || start_[size_t(d)] % small.padded(d) == 0, "part of a tile at {}: not a multiple of {}",
                start_[size_t(d)], small.padded(d));
    }
    for (int r = 0; r < int(piece.num_regs()); r++) by_coord_.try_emplace(coords(piece_, r), r);
  }

  // The register of the piece that holds the element of register r of the whole, if it is in the piece's padded box;
  // -1: in no thread.
  int piece_reg(int r) const {
    std::vector<int64_t> at = coords(whole_, r);
    TileSpace small(piece_.shape);
    for (size_t d = 0; d < at.size(); d++) {
      at[d] -= start_[d];
      if (at[d] < 0 || at[d] >= small.padded(int(d))) return -1;
    }
    auto it = by_coord_.find(at);
    return it == by_coord_.end() ? -1 : it->second;
  }

  // True in the threads where register r of the piece holds an element of its exact shape; null: in all.
  V inside(int r) {
    TileSpace space(piece_.shape);
    V all = nullptr;
    for (int d = 0; d < space.rank; d++) {
      if (space.extent[size_t(d)] == space.padded(d)) continue;
      V in = c_.b.CreateICmpULT(c_.coordinate(piece_, r, d), c_.i32(space.extent[size_t(d)]));
      all = all ? c_.b.CreateAnd(all, in) : in;
    }
    if (auto *known = llvm::dyn_cast_or_null<llvm::ConstantInt>(all); known && known->isOne()) return nullptr;
    return all;
  }

private:
  // The constant part of a register.
  static std::vector<int64_t> coords(const RegLayout &l, int r) { return l.coord(r, 0, 0); }

  LowerCtx &c_;
  const RegLayout &whole_, &piece_;
  std::vector<int64_t> start_;
  std::map<std::vector<int64_t>, int> by_coord_;
};

// Replaces what lies in the piece by the piece.
void put(LowerCtx &c, const ir::Value *whole, Regs &out, const ir::Value *piece, std::vector<int64_t> start) {
  Inset inset(c, c.layout(whole), c.layout(piece), std::move(start));
  const Regs &y = c.regs(piece);
  for (int r : c.live_regs(whole)) {
    int from = inset.piece_reg(r);
    if (from < 0 || !y[size_t(from)]) continue;
    V in = inset.inside(from);
    V &to = out[size_t(r)];
    to = in && to ? c.b.CreateSelect(in, y[size_t(from)], to) : y[size_t(from)];
  }
}

} // namespace

void lower_Concat(LowerCtx &c, const Op &op) {
  size_t axis = size_t(op.attrs.i("axis"));
  Regs out = c.no_regs(op.result());
  std::vector<int64_t> start(op.result()->type.shape.size(), 0);
  for (const ir::Value *x : op.operands) {
    put(c, op.result(), out, x, start);
    start[axis] += x->type.shape[axis];
  }
  for (int r : c.live_regs(op.result()))
    TKC_CHECK(out[size_t(r)], "concat: no operand holds register {} of the result", r);
  c.set(op.result(), std::move(out));
}

void lower_Slice(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0);
  Inset inset(c, c.layout(x), c.layout(op.result()), op.attrs.ints("starts"));
  Regs out = c.no_regs(op.result());
  for (int r : c.live_regs(x))
    if (int to = inset.piece_reg(r); to >= 0 && !out[size_t(to)]) out[size_t(to)] = c.regs(x)[size_t(r)];
  // Copies of a register in the result have one source.
  for (int r : c.live_regs(op.result())) {
    for (int same = 0; same < r && !out[size_t(r)]; same++)
      if (c.layout(op.result()).reg_part(same) == c.layout(op.result()).reg_part(r)) out[size_t(r)] = out[size_t(same)];
    TKC_CHECK(out[size_t(r)], "slice: no register of the operand holds register {} of the result", r);
  }
  c.set(op.result(), std::move(out));
}

void lower_Insert(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0), *y = op.operand(1);
  TKC_CHECK(c.layout(x) == c.layout(op.result()), "insert changes the layout of the tile");
  Regs out = c.regs(x);
  put(c, op.result(), out, y, op.attrs.ints("starts"));
  c.set(op.result(), std::move(out));
}

// References are interpreted, never compiled.
void lower_DynSlice(LowerCtx &, const Op &) { TKC_UNREACHABLE("dyn_slice in a kernel"); }
void lower_DynUpdate(LowerCtx &, const Op &) { TKC_UNREACHABLE("dyn_update in a kernel"); }

} // namespace tkc::ops

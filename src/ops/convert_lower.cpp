// Conversions between register layouts: by renaming, movmatrix or shuffles in one op; through shared memory as a store,
// a barrier and a load. Plans are recomputed from the layouts, on which alone they depend.
#include "codegen/access.h"
#include "layout/convert.h"
#include "ops/lowering.h"
#include "ops/shared_side.h"
#include "support/check.h"
#include <algorithm>
#include <map>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

int64_t element_bits(DType t) { return dtype_bytes(t) * 8; }

// Integers of the element's width as a type for pack_words.
DType bits_type(DType t) {
  switch (dtype_bytes(t)) {
  case 1: return DType::U8;
  case 2: return DType::U16;
  case 4: return DType::U32;
  default: return DType::U64;
  }
}

Regs to_bits(LowerCtx &c, const Regs &regs) {
  Regs out;
  for (Value *v : regs) out.push_back(v ? codegen::to_bits(c, v) : nullptr);
  return out;
}

Regs from_bits(LowerCtx &c, const Regs &bits, DType t) {
  Regs out;
  for (Value *v : bits) out.push_back(v ? codegen::from_bits(c, v, c.type(t)) : nullptr);
  return out;
}

Value *or_zero(LowerCtx &c, Value *v, DType t) { return v ? v : c.constant(t, 0, 0); }

Regs rename(const Regs &from, const std::vector<int> &map) {
  Regs out;
  for (int r : map) out.push_back(r < 0 ? nullptr : from[size_t(r)]);
  return out;
}

Regs movmatrix(LowerCtx &c, const MovMatrixPlan &plan, const Regs &from) {
  std::vector<Regs> halves;
  for (const MovMatrixPlan::Op &op : plan.ops) {
    Regs pair;
    for (int r : {op.lo, op.hi}) pair.push_back(or_zero(c, r < 0 ? nullptr : from[size_t(r)], DType::U16));
    Value *word = nvvm::movmatrix_trans(c.b, pack_words(c, DType::U16, pair)[0]);
    halves.push_back(unpack_words(c, DType::U16, {&word, 1}, 2));
  }
  Regs out;
  for (const MovMatrixPlan::Half &h : plan.result)
    out.push_back(h.op < 0 ? nullptr : halves[size_t(h.op)][size_t(h.half)]);
  return out;
}

// An array of values after some stages of selects; only what is asked for is computed. 16-bit values whose neighbours
// move together are selected two at a time.
class Selected {
public:
  Selected(LowerCtx &c, const std::vector<SelectStage> &stages, Regs values, DType t)
      : c_(c), stages_(stages), values_(std::move(values)), type_(t) {
    pairs_ = dtype_bytes(t) == 2 && !stages.empty() && values_.size() % 2 == 0;
    for (const SelectStage &s : stages) pairs_ &= s.index_xor % 2 == 0;
  }
  Regs &values() { return values_; }
  Value *operator[](int i) {
    if (!pairs_) return after(stages_.size(), i);
    Value *word = after(stages_.size(), i / 2);
    return unpack_words(c_, DType::U16, {&word, 1}, 2)[size_t(i % 2)];
  }

private:
  // Value i, or pair i, after so many stages.
  Value *after(size_t stage, int i) {
    auto [it, fresh] = memo_.try_emplace({stage, i}, nullptr);
    if (!fresh) return it->second;
    Value *v;
    if (stage == 0) {
      v = pairs_ ? pair(i) : or_zero(c_, values_[size_t(i)], type_);
    } else {
      const SelectStage &s = stages_[stage - 1];
      Value *moved = after(stage - 1, i ^ int(s.index_xor) / (pairs_ ? 2 : 1)), *kept = after(stage - 1, i);
      v = moved == kept ? kept : c_.b.CreateSelect(odd(s), moved, kept);
    }
    return memo_[{stage, i}] = v;
  }
  Value *pair(int i) {
    Regs parts;
    for (int k : {2 * i, 2 * i + 1}) parts.push_back(or_zero(c_, values_[size_t(k)], type_));
    return pack_words(c_, DType::U16, parts)[0];
  }
  Value *odd(const SelectStage &s) {
    if (s.warp_mask == 0 && std::has_single_bit(s.lane_mask))
      return c_.b.CreateICmpNE(c_.b.CreateAnd(c_.lane(), c_.i32(s.lane_mask)), c_.i32(0));
    std::vector<uint32_t> lane(size_t(lane_bits), 0), warp;
    for (size_t i = 0; i < lane.size(); i++) lane[i] = s.lane_mask >> i & 1;
    for (uint32_t left = s.warp_mask; left; left >>= 1) warp.push_back(left & 1);
    warp.resize(std::max(warp.size(), size_t(log2_ceil(std::max<int64_t>(1, c_.role_warps())))), 0);
    return c_.b.CreateICmpNE(c_.linear(lane, warp), c_.i32(0));
  }

  LowerCtx &c_;
  const std::vector<SelectStage> &stages_;
  Regs values_;
  DType type_;
  bool pairs_ = false;
  std::map<std::pair<size_t, int>, Value *> memo_;
};

Regs shuffle(LowerCtx &c, const ShufflePlan &plan, const Regs &from, DType t) {
  Selected send(c, plan.pre, from, t);
  Selected receive(c, plan.post, Regs(size_t(plan.receive_size), nullptr), t);
  Value *source = plan.is_butterfly ? nullptr : c.linear(plan.lane_map, plan.warp_map);
  for (const ShuffleRound &round : plan.rounds) {
    Regs parts;
    for (int r : round.from) parts.push_back(send[r]);
    if (round.moves) {
      size_t elements = parts.size();
      while (!std::has_single_bit(parts.size())) parts.push_back(c.constant(t, 0, 0));
      Value *word = pack_words(c, t, parts)[0];
      word = plan.is_butterfly ? nvvm::shfl_sync_bfly(c.b, word, c.i32(round.lane_xor))
                               : nvvm::shfl_sync_idx(c.b, word, c.b.CreateXor(source, c.i32(round.lane_xor)));
      parts = unpack_words(c, t, {&word, 1}, int64_t(parts.size()));
      parts.resize(elements);
    }
    for (size_t j = 0; j < round.to.size(); j++) receive.values()[size_t(round.to[j])] = parts[j];
  }
  Regs out;
  for (int r : plan.result) out.push_back(r < 0 ? nullptr : receive[r]);
  return out;
}

// ---- through shared memory

// The two sides of a scratch buffer. Where one load reads what one store wrote, both follow the conversion's own plan,
// which may give warps copies of their own and cut the tile into pieces; otherwise each side is planned by itself.
struct Sides {
  SmemSide store, load;
  int pieces = 1;
  bool warp_sync = false;
};

Sides scratch_sides(LowerCtx &c, const Op &store, const RegLayout *load) {
  const ir::Value *x = store.operand(0), *token = store.result();
  const auto &smem = store.attrs.get<SmemLayout>("smem");
  LayoutFeatures features = ir::layout_features(c.target);
  std::vector<const Op *> loads;
  ir::walk(c.function.body, [&](const Op *op) {
    if (op->kind == OpKind::ScratchLoad && op->operand(0) == token) loads.push_back(op);
  });
  const RegLayout &src = c.layout(x);
  if (loads.size() == 1) {
    SharedPlan plan = plan_shared(src, *loads[0]->result()->layout, element_bits(x->type.dtype), features);
    if (plan.layout.bases == smem.bases && plan.layout.bytes == smem.bytes)
      return {std::move(plan.store), std::move(plan.load), plan.pieces, plan.warp_sync};
  }
  Sides out;
  out.store = plan_smem_store(src, smem, features);
  if (load) out.load = plan_smem_load(*load, smem, features);
  return out;
}

} // namespace

void lower_ConvertLayout(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0), *result = op.result();
  DType t = bits_type(x->type.dtype);
  const RegLayout &src = c.layout(x), &dst = c.layout(result);
  ConversionPlan plan = plan_conversion(src, dst, element_bits(x->type.dtype), ir::layout_features(c.target));
  if (plan.kind == ConvertKind::Shared) { // other costs were assumed when the conversion was left in registers
    auto in_registers = plan_shuffle(src, dst, element_bits(x->type.dtype));
    TKC_CHECK(in_registers.has_value(), "convert_layout from {} to {} needs shared memory", src.to_string(),
              dst.to_string());
    plan.kind = ConvertKind::Shuffle;
    plan.shuffle = *in_registers;
  }
  Regs out;
  switch (plan.kind) {
  case ConvertKind::Identity:
  case ConvertKind::Registers: c.set(result, rename(c.regs(x), plan.registers)); return;
  case ConvertKind::MovMatrix: out = movmatrix(c, plan.movmatrix, to_bits(c, c.regs(x))); break;
  case ConvertKind::Shuffle: out = shuffle(c, plan.shuffle, to_bits(c, c.regs(x)), t); break;
  case ConvertKind::Shared: TKC_UNREACHABLE("convert_layout through shared memory");
  }
  c.set(result, from_bits(c, out, result->type.dtype));
}

void lower_ScratchStore(LowerCtx &c, const Op &op) {
  Sides sides = scratch_sides(c, op, nullptr);
  SharedPlace at{op.attrs.i("offset")};
  store_side(c, sides.store, at, 0, op.operand(0));
  // Padding that the loads take along.
  const RegLayout &l = c.layout(op.operand(0));
  if (sides.pieces > 1 || int64_t(l.live_regs().size()) == l.num_regs()) return;
  const auto &smem = op.attrs.get<SmemLayout>("smem");
  std::vector<bool> written = touched_bytes(sides.store, 0, smem.bytes), read(written.size(), false);
  ir::walk(c.function.body, [&](const Op *load) {
    if (load->kind != OpKind::ScratchLoad || load->operand(0) != op.result()) return;
    std::vector<bool> touched = touched_bytes(scratch_sides(c, op, &c.layout(load->result())).load, 0, smem.bytes);
    for (size_t k = 0; k < read.size(); k++) read[k] = read[k] || touched[k];
  });
  Value *owner = owner_predicate(c, l),
        *zero = llvm::Constant::getNullValue(c.b.getIntNTy(unsigned(smem.elem_bytes) * 8));
  for (int r : missing_padding(l, smem, written, read))
    nvvm::st(c.b, {nvvm::kShared, smem.elem_bytes}, element_address(c, l, smem, at, r), {&zero, 1}, owner);
}

// A tile that is larger than its scratch goes through it in pieces. The first is stored by scratch_store, the others
// here, so that to passes the whole conversion looks like one store and one load.
void lower_ScratchLoad(LowerCtx &c, const Op &op) {
  const Op *store = op.operand(0)->op;
  TKC_CHECK(store && store->kind == OpKind::ScratchStore, "a scratch_load without its scratch_store");
  const ir::Value *result = op.result();
  const RegLayout &l = c.layout(result);
  Sides sides = scratch_sides(c, *store, &l);
  SharedPlace at{store->attrs.i("offset")};
  auto barrier = [&] { sides.warp_sync ? nvvm::bar_warp_sync(c.b) : c.role_barrier(); };
  Regs regs(size_t(l.num_regs()), nullptr);
  for (int piece = 0; piece < sides.pieces; piece++) {
    if (piece > 0) {
      barrier();
      store_side(c, sides.store, at, piece, store->operand(0));
      barrier();
    }
    load_side(c, sides.load, at, piece, result->type.dtype, regs);
  }
  for (auto [to, from] : sides.load.copies) regs[size_t(to)] = regs[size_t(from)];
  c.set(result, std::move(regs));
}

} // namespace tkc::ops

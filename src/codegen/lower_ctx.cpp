#include "codegen/lower_ctx.h"
#include "codegen/abi.h"
#include "codegen/nvvm.h"
#include "support/check.h"
#include <algorithm>

namespace tkc::codegen {

using llvm::Value;

const Regs &LowerCtx::regs(const ir::Value *v) const {
  TKC_CHECK(size_t(v->id) < regs_.size() && !regs_[size_t(v->id)].empty(),
            "value %{} ({}) is used before it is lowered", v->id, v->type.str());
  return regs_[size_t(v->id)];
}

void LowerCtx::set(const ir::Value *v, Regs r) {
  if (regs_.size() <= size_t(v->id)) regs_.resize(size_t(v->id) + 1);
  regs_[size_t(v->id)] = std::move(r);
}

const TensorVal &LowerCtx::tensor(const ir::Value *v) const {
  auto it = tensors_.find(v);
  TKC_CHECK(it != tensors_.end(), "tensor %{} is used before it is lowered", v->id);
  return it->second;
}

Value *LowerCtx::tensor_map(const ir::Op &fill) const {
  std::vector<TensorMapUse> all = tensor_maps(function);
  auto it = std::find(all.begin(), all.end(), tensor_map_of(function, fill));
  TKC_CHECK(it != all.end() && tensor_maps_.size() == all.size(), "a tensor copy without its tensor map");
  return tensor_maps_[size_t(it - all.begin())];
}

void LowerCtx::set_tensor(const ir::Value *v, TensorVal t) { tensors_[v] = std::move(t); }

const RegLayout &LowerCtx::layout(const ir::Value *v) const {
  TKC_CHECK(v->layout.has_value(), "value %{} ({}) has no layout", v->id, v->type.str());
  return *v->layout;
}

const std::vector<int> &LowerCtx::live_regs(const ir::Value *v) const {
  auto [it, fresh] = live_.try_emplace(layout(v));
  if (fresh) it->second = layout(v).live_regs();
  return it->second;
}

llvm::Type *LowerCtx::type(DType t) const {
  switch (t) {
  case DType::Bool: return b.getInt1Ty();
  case DType::I8:
  case DType::U8:
  case DType::E4M3:
  case DType::E5M2:
  case DType::E2M1:
  case DType::UE8M0:
  case DType::UE4M3: return b.getInt8Ty();
  case DType::I16:
  case DType::U16: return b.getInt16Ty();
  case DType::I32:
  case DType::U32: return b.getInt32Ty();
  case DType::I64:
  case DType::U64: return b.getInt64Ty();
  case DType::F16: return b.getHalfTy();
  case DType::BF16: return b.getBFloatTy();
  case DType::TF32:
  case DType::F32: return b.getFloatTy();
  case DType::F64: return b.getDoubleTy();
  }
  TKC_UNREACHABLE("DType");
}

Value *LowerCtx::constant(DType t, double f, int64_t i) const {
  llvm::Type *type = this->type(t);
  if (type->isFloatingPointTy()) return llvm::ConstantFP::get(type, f);
  uint64_t bits = is_float(t) ? encode_float(t, round_to(t, f)) : uint64_t(i);
  return llvm::ConstantInt::get(type, llvm::APInt(type->getIntegerBitWidth(), bits, false, /*implicitTrunc=*/true));
}

// XOR of basis vectors under the bits of an index. Every bit of every vector moves one bit of the index by some
// distance: all that move by the same distance are one mask and one shift.
Value *LowerCtx::bits_part(Value *index, std::span<const uint32_t> bases) {
  std::map<int, uint32_t>
      moves; // distance (left is positive) -> mask of the index bits; a bit moves there at most once
  for (size_t i = 0; i < bases.size(); i++)
    for (int p = 0; p < 32; p++)
      if (bases[i] >> p & 1) moves[p - int(i)] |= 1u << i;
  Value *sum = nullptr;
  uint32_t used = 0;
  for (auto [distance, mask] : moves) {
    uint32_t target = distance >= 0 ? mask << distance : mask >> -distance;
    Value *part = b.CreateAnd(index, i32(mask));
    if (distance > 0) part = b.CreateShl(part, i32(distance), "", true, true);
    if (distance < 0) part = b.CreateLShr(part, i32(-distance));
    if (!sum)
      sum = part;
    else
      sum = used & target ? b.CreateXor(sum, part) : b.CreateOr(sum, part, "", /*IsDisjoint=*/true);
    used |= target;
  }
  return sum;
}

Value *LowerCtx::linear(std::span<const uint32_t> lane_bases, std::span<const uint32_t> warp_bases) {
  std::vector<uint32_t> key;
  key.push_back(uint32_t(lane_bases.size()));
  key.insert(key.end(), lane_bases.begin(), lane_bases.end());
  key.insert(key.end(), warp_bases.begin(), warp_bases.end());
  auto [it, fresh] = linear_.try_emplace(std::move(key), nullptr);
  if (!fresh) return it->second;
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_end_);
  Value *of_lane = bits_part(lane_, lane_bases), *of_warp = bits_part(warp_, warp_bases), *v = i32(0);
  uint32_t lane_mask = 0, warp_mask = 0;
  for (uint32_t x : lane_bases) lane_mask |= x;
  for (uint32_t x : warp_bases) warp_mask |= x;
  if (of_lane && of_warp)
    v = lane_mask & warp_mask ? b.CreateXor(of_lane, of_warp) : b.CreateOr(of_lane, of_warp, "", true);
  else if (of_lane || of_warp)
    v = of_lane ? of_lane : of_warp;
  it->second = v;
  return v;
}

std::vector<Value *> LowerCtx::coordinates(Value *number) {
  std::vector<Value *> out;
  size_t rank = num_programs_.size();
  Value *left = number;
  auto split = [&](Value *extent) { // takes the fastest coordinate off `left`
    Value *next = b.CreateUDiv(left, extent);
    Value *mine = b.CreateSub(left, b.CreateMul(next, extent));
    left = next;
    return mine;
  };
  size_t axis = 0;
  if (function.order == "grouped" && rank >= 2) {
    TKC_CHECK(function.order_args.size() == 1 && function.order_args[0] > 0,
              "order grouped needs one positive argument");
    // Bands of g rows of axis 0; in a band the blocks go down the rows first, so that neighbours in time share columns.
    Value *g = i32(function.order_args[0]), *n0 = num_programs_[0], *n1 = num_programs_[1];
    Value *in_plane = rank == 2 ? left : split(b.CreateMul(n0, n1));
    Value *band_blocks = b.CreateMul(g, n1);
    Value *band = b.CreateUDiv(in_plane, band_blocks);
    Value *in_band = b.CreateSub(in_plane, b.CreateMul(band, band_blocks));
    Value *first = b.CreateMul(band, g);
    Value *rows = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b.CreateSub(n0, first), g);
    Value *column = b.CreateUDiv(in_band, rows);
    Value *row = b.CreateSub(in_band, b.CreateMul(column, rows));
    out = {b.CreateAdd(first, row), column};
    axis = 2;
  }
  for (; axis < rank; axis++) out.push_back(axis + 1 == rank ? left : split(num_programs_[axis]));
  return out;
}

void LowerCtx::role_barrier() {
  if (role_warps_ == 1)
    nvvm::bar_warp_sync(b);
  else if (role_barrier_ == 0)
    nvvm::bar_sync(b, 0);
  else
    nvvm::bar_sync(b, role_barrier_, role_warps_ * 32);
}

LowerCtx::Role LowerCtx::enter_role(int64_t first, int64_t warps, int64_t barrier) {
  Role outer{role_warps_, role_barrier_, warp_, thread_, std::move(linear_)};
  role_warps_ = warps;
  role_barrier_ = barrier;
  linear_.clear();
  if (first) { // once for the role, before the kernel's body
    llvm::IRBuilderBase::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_end_);
    warp_ = warps == 1 ? i32(0) : b.CreateSub(warp_, i32(first));
    thread_ = b.CreateSub(thread_, i32(first * 32));
  }
  return outer;
}

void LowerCtx::leave_role(Role outer) {
  role_warps_ = outer.warps;
  role_barrier_ = outer.barrier;
  warp_ = outer.warp;
  thread_ = outer.thread;
  linear_ = std::move(outer.linear);
}

Value *LowerCtx::coordinate(const RegLayout &l, int64_t reg, int64_t dim) {
  TileSpace space = l.space();
  auto project = [&](const Basis &bases) {
    std::vector<uint32_t> out;
    for (uint32_t v : bases) out.push_back(uint32_t(space.coord(v, int(dim))));
    return out;
  };
  std::vector<uint32_t> lane = project(l.lane), warp = project(l.warp);
  uint32_t used = 0;
  for (uint32_t v : lane) used |= v;
  for (uint32_t v : warp) used |= v;
  Value *part = linear(lane, warp);
  auto own = uint32_t(space.coord(l.reg_part(reg), int(dim)));
  if (own == 0) return part;
  if (used == 0) return i32(own);
  return used & own ? b.CreateXor(part, i32(own)) : b.CreateAdd(part, i32(own), "", true, true);
}

void LowerCtx::set_location(SourceLoc loc) {
  if (debug_) b.SetCurrentDebugLocation(debug_->location(subprogram_, loc));
}

void LowerCtx::lower_block(const ir::Block *block) {
  for (const ir::Op *op : block->ops) {
    set_location(op->loc);
    ir::def(*op).lower.f(*this, *op);
    for (const ir::Value *v : op->results) {
      if (!v->type.is_tile()) continue;
      const Regs &r = regs(v);
      TKC_CHECK(int64_t(r.size()) == layout(v).num_regs(), "{} made {} registers of {}", ir::def(*op).name.s, r.size(),
                layout(v).num_regs());
    }
  }
}

} // namespace tkc::codegen

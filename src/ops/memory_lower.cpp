// Loads, stores and views of global memory.
#include "codegen/access.h"
#include "ops/lowering.h"
#include <algorithm>
#include <bit>

namespace tkc::ops {

using namespace codegen;
using ir::Op;
using llvm::Value;

namespace {
// 32-byte accesses came with PTX 8.8.
int64_t max_access_bytes(const LowerCtx &c) {
  return c.target.has(ir::kWideGlobal) && c.target.ptx_version >= 88 ? 32 : 16;
}

} // namespace

void lower_Dim(LowerCtx &c, const Op &op) {
  c.set(op.result(), {c.tensor(op.operand(0)).extents[size_t(op.attrs.i("axis"))]});
}

// Bounds are clamped to the tensor, so that a view never reaches outside it; a view at an index outside is empty.
void lower_Subview(LowerCtx &c, const Op &op) {
  const TensorVal &t = c.tensor(op.operand(0));
  const std::vector<int64_t> &ranges = op.attrs.ints("ranges");
  llvm::IRBuilder<> &b = c.b;
  TensorVal out = t;
  out.extents.clear();
  out.strides.clear();
  if (!ranges.empty() && ranges.back() != 0) out.inner_divisor = 1; // the innermost extent is another one
  int64_t element = dtype_bytes(t.dtype);
  Value *offset = nullptr, *inside = nullptr;
  auto move = [&](Value *position, size_t d) {
    Value *elements = b.CreateMul(b.CreateSExt(position, b.getInt64Ty()), t.strides[d]);
    offset = offset ? b.CreateAdd(offset, elements) : elements;
    if (d + 1 < t.strides.size() || t.any_strides) return;
    auto *k = llvm::dyn_cast<llvm::ConstantInt>(position);
    int64_t at = k ? k->getSExtValue() * element : element;
    if (at) out.alignment = std::min(out.alignment, at & -at);
  };
  size_t next = 1;
  for (size_t d = 0; d < ranges.size(); d++) {
    Value *extent = t.extents[d];
    if (ranges[d] == 1) {
      auto clamped = [&](Value *bound, Value *least) {
        Value *e = b.CreateSExt(extent, bound->getType());
        Value *low = b.CreateSExtOrTrunc(least, bound->getType());
        bound = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bound, low);
        return b.CreateTrunc(b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bound, e), b.getInt32Ty());
      };
      Value *lo = clamped(position_value(c, op.operand(next)), c.i32(0));
      Value *hi = clamped(position_value(c, op.operand(next + 1)), lo);
      next += 2;
      move(lo, d);
      extent = b.CreateSub(hi, lo);
    } else if (ranges[d] == 2) {
      Value *at = position_value(c, op.operand(next++));
      move(at, d);
      inside = both(c, inside, b.CreateICmpULT(at, b.CreateZExt(extent, at->getType())));
      if (d + 1 == ranges.size()) out.any_strides = true;
      continue;
    }
    out.extents.push_back(extent);
    out.strides.push_back(t.strides[d]);
  }
  if (inside)
    for (Value *&e : out.extents) e = b.CreateSelect(inside, e, c.i32(0));
  if (offset) out.base = b.CreateGEP(storage_type(c, t.dtype), t.base, offset);
  out.static_extents = op.result()->type.shape;
  c.set_tensor(op.result(), std::move(out));
}

void lower_RecordField(LowerCtx &c, const Op &op) {
  TensorVal t = c.tensor(op.operand(0));
  const std::vector<int64_t> &shape = op.attrs.ints("shape"), &pitch = op.attrs.ints("pitch");
  t.dtype = op.attrs.dtype("dtype");
  int64_t element = dtype_bytes(t.dtype), offset = op.attrs.i("offset");
  t.extents.pop_back();
  t.strides.pop_back();
  for (Value *&s : t.strides) s = c.b.CreateMul(s, c.i64(8 / element));
  auto align = [&](int64_t bytes) {
    if (bytes) t.alignment = std::min(t.alignment, bytes & -bytes);
  };
  align(offset);
  for (size_t d = 0; d < shape.size(); d++) {
    t.extents.push_back(c.i32(shape[d]));
    t.strides.push_back(c.i64(pitch[d]));
    if (d + 1 < shape.size()) align(pitch[d] * element);
  }
  if (offset) t.base = c.b.CreateGEP(c.b.getInt8Ty(), t.base, c.i64(offset));
  t.static_extents = op.result()->type.shape;
  t.inner_divisor = 1;
  t.any_strides = false;
  t.swizzle = ir::field_swizzle(t.dtype, shape, op.attrs.i("swizzle"));
  t.field_rank = t.swizzle.mask ? int64_t(shape.size()) : 0;
  c.set_tensor(op.result(), std::move(t));
}

void lower_Load(LowerCtx &c, const Op &op) {
  const ir::Value *result = op.result();
  DType t = result->type.dtype;
  RegLayout l = value_layout(c, result);
  size_t next = 1 + c.tensor(op.operand(0)).strides.size();
  const ir::Value *mask = op.attrs.i_or("has_mask", 0) ? op.operand(next++) : nullptr;
  const ir::Value *other = op.attrs.i_or("has_other", 0) ? op.operand(next++) : nullptr;
  auto other_reg = [&, map = std::vector<int>()](int64_t r) mutable -> Value * {
    if (other->type.is_scalar()) return c.scalar(other);
    if (map.empty()) {
      auto m = register_map(c.layout(other), l);
      TKC_CHECK(m.has_value(), "`other` of layout {} for a tile of {}", c.layout(other).to_string(), l.to_string());
      map = *m;
    }
    return c.regs(other)[size_t(map[size_t(r)])];
  };
  TileAccess access(c, op, l, mask);
  int64_t n = access.vector_elements(max_access_bytes(c));
  nvvm::Access how{nvvm::kGlobal, access.alignment(n), c.tensor(op.operand(0)).read_only, false};
  Regs regs(size_t(l.num_regs()), nullptr);
  for (int64_t start : access.starts(n)) {
    std::vector<int64_t> members = access.vector_regs(start, n);
    Value *predicate = access.predicate(start);
    std::vector<Value *> fallback;
    if (predicate && other) {
      std::vector<Value *> elements;
      for (int64_t r : members) elements.push_back(other_reg(r));
      fallback = pack_words(c, t, elements);
    }
    llvm::Type *word = word_type(c, t, n);
    int64_t count = std::max<int64_t>(1, n * dtype_bytes(t) * 8 / int64_t(word->getIntegerBitWidth()));
    std::vector<Value *> words = nvvm::ld(c.b, how, access.address(start), word, count, predicate, fallback);
    std::vector<Value *> elements = unpack_words(c, t, words, n);
    for (size_t i = 0; i < members.size(); i++) regs[size_t(members[i])] = elements[i];
  }
  for (int r : l.live_regs()) regs[size_t(r)] = regs[size_t(representative(l, r))];
  c.set(result, std::move(regs));
}

// Each element is stored once, by its owner.
void lower_Store(LowerCtx &c, const Op &op) {
  size_t next = 1 + c.tensor(op.operand(0)).strides.size();
  const ir::Value *value = op.operand(next++);
  const ir::Value *mask = op.attrs.i_or("has_mask", 0) ? op.operand(next) : nullptr;
  DType t = value->type.dtype;
  RegLayout l = value_layout(c, value);
  TileAccess access(c, op, l, mask);
  int64_t n = access.vector_elements(max_access_bytes(c));
  nvvm::Access how{nvvm::kGlobal, access.alignment(n), false, false};
  Value *owner = owner_predicate(c, l);
  const Regs &regs = c.regs(value);
  for (int64_t start : access.starts(n, true)) {
    std::vector<Value *> elements;
    for (int64_t r : access.vector_regs(start, n)) elements.push_back(regs[size_t(r)]);
    nvvm::st(c.b, how, access.address(start), pack_words(c, t, elements), both(c, owner, access.predicate(start)));
  }
}

} // namespace tkc::ops

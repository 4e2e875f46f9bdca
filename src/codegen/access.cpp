#include "codegen/access.h"
#include "layout/f2.h"
#include "support/check.h"
#include <algorithm>
#include <bit>

namespace tkc::codegen {

using llvm::Value;

// ---- registers
RegLayout value_layout(LowerCtx &c, const ir::Value *v) {
  return v->type.is_scalar() ? replicated({}, int64_t(std::bit_ceil(uint64_t(c.role_warps())))) : c.layout(v);
}

int64_t representative(const RegLayout &l, int64_t reg) {
  for (size_t i = 0; i < l.reg.size(); i++)
    if (l.reg[i] == 0) reg &= ~(int64_t(1) << i);
  return reg;
}

Inside inside_extent(const RegLayout &l, int64_t reg, int64_t dim) {
  TileSpace s = l.space();
  if (s.padded(int(dim)) == s.extent[size_t(dim)]) return Inside::All;
  std::vector<uint32_t> coords{uint32_t(s.coord(l.reg_part(reg), int(dim)))};
  for (const auto *part : {&l.lane, &l.warp})
    for (uint32_t v : *part) {
      auto step = uint32_t(s.coord(v, int(dim)));
      if (step == 0) continue;
      size_t n = coords.size();
      for (size_t i = 0; i < n; i++) coords.push_back(coords[i] ^ step);
    }
  auto in = std::count_if(coords.begin(), coords.end(), [&](uint32_t x) { return x < s.extent[size_t(dim)]; });
  return in == 0 ? Inside::None : in == int64_t(coords.size()) ? Inside::All : Inside::Some;
}

Value *inside_predicate(LowerCtx &c, const RegLayout &l, int64_t reg, int64_t dim) {
  if (inside_extent(l, reg, dim) == Inside::All) return nullptr;
  return c.b.CreateICmpULT(c.coordinate(l, reg, dim), c.i32(l.shape[size_t(dim)]));
}

Value *bits_clear(LowerCtx &c, uint32_t lane_bits, uint32_t warp_bits) {
  Value *bits = nullptr;
  if (lane_bits) bits = c.b.CreateAnd(c.lane(), c.i32(lane_bits));
  if (warp_bits) {
    Value *w = c.b.CreateAnd(c.warp(), c.i32(warp_bits));
    bits = bits ? c.b.CreateOr(bits, w) : w;
  }
  return bits ? c.b.CreateICmpEQ(bits, c.i32(0)) : nullptr;
}

Value *owner_predicate(LowerCtx &c, const RegLayout &l) {
  BitMasks free = l.free_bits();
  return bits_clear(c, free.lane, free.warp);
}

Value *both(LowerCtx &c, Value *p, Value *q) {
  auto always = [](Value *v) {
    auto *k = v ? llvm::dyn_cast<llvm::ConstantInt>(v) : nullptr;
    return !v || (k && k->isOne());
  };
  if (always(p)) return always(q) ? nullptr : q;
  return always(q) ? p : c.b.CreateAnd(p, q);
}

namespace {
std::vector<uint32_t> along(const TileSpace &s, const Basis &bases, int64_t dim) {
  std::vector<uint32_t> out;
  for (uint32_t v : bases) out.push_back(uint32_t(s.coord(v, int(dim))));
  return out;
}
} // namespace

Value *thread_coordinate(LowerCtx &c, const RegLayout &l, int64_t dim) {
  TileSpace s = l.space();
  return c.linear(along(s, l.lane, dim), along(s, l.warp, dim));
}

int64_t register_coordinate(const RegLayout &l, int64_t reg, int64_t dim) {
  return l.space().coord(l.reg_part(reg), int(dim));
}

// ---- words
llvm::Type *storage_type(LowerCtx &c, DType t) { return is_bool(t) ? c.b.getInt8Ty() : c.type(t); }

llvm::Type *word_type(LowerCtx &c, DType t, int64_t elements) {
  return c.b.getIntNTy(dtype_bytes(t) == 8 ? 64 : unsigned(std::min<int64_t>(4, dtype_bytes(t) * elements) * 8));
}

std::vector<Value *> pack_words(LowerCtx &c, DType t, std::span<Value *const> elements) {
  auto n = int64_t(elements.size());
  llvm::Type *word = word_type(c, t, n);
  int64_t per_word = std::max<int64_t>(1, int64_t(word->getIntegerBitWidth()) / 8 / dtype_bytes(t));
  std::vector<Value *> out;
  for (int64_t i = 0; i < n; i += per_word) {
    std::vector<Value *> parts;
    for (int64_t k = 0; k < per_word; k++) {
      Value *e = elements[size_t(i + k)];
      if (!e) e = llvm::Constant::getNullValue(c.type(t));
      parts.push_back(is_bool(t) ? c.b.CreateZExt(e, c.b.getInt8Ty()) : e);
    }
    if (per_word == 1) {
      out.push_back(c.b.CreateBitCast(parts[0], word));
    } else if (word->getIntegerBitWidth() == 32) {
      out.push_back(nvvm::mov_pack_b32(c.b, parts));
    } else { // two bytes
      Value *low = c.b.CreateZExt(parts[0], word), *high = c.b.CreateZExt(parts[1], word);
      out.push_back(c.b.CreateOr(low, c.b.CreateShl(high, 8)));
    }
  }
  return out;
}

std::vector<Value *> unpack_words(LowerCtx &c, DType t, std::span<Value *const> words, int64_t elements) {
  int64_t per_word = std::max<int64_t>(1, elements / int64_t(words.size()));
  llvm::Type *s = storage_type(c, t);
  std::vector<Value *> out;
  for (Value *w : words) {
    if (per_word == 1) {
      out.push_back(c.b.CreateBitCast(w, s));
    } else if (w->getType()->getIntegerBitWidth() == 32) {
      for (Value *e : nvvm::mov_unpack_b32(c.b, w, s)) out.push_back(e);
    } else {
      out.push_back(c.b.CreateTrunc(w, s));
      out.push_back(c.b.CreateTrunc(c.b.CreateLShr(w, 8), s));
    }
  }
  if (is_bool(t))
    for (Value *&e : out) e = c.b.CreateICmpNE(e, llvm::ConstantInt::get(s, 0));
  return out;
}

Value *to_bits(LowerCtx &c, Value *v) {
  llvm::Type *t = v->getType();
  if (t->isIntegerTy(1)) return c.b.CreateZExt(v, c.b.getInt8Ty());
  return t->isIntegerTy() ? v : c.b.CreateBitCast(v, c.b.getIntNTy(t->getPrimitiveSizeInBits()));
}

Value *from_bits(LowerCtx &c, Value *bits, llvm::Type *type) {
  if (type->isIntegerTy(1)) return c.b.CreateICmpNE(bits, llvm::ConstantInt::get(bits->getType(), 0));
  return type->isIntegerTy() ? bits : c.b.CreateBitCast(bits, type);
}

// ---- shared memory
Value *shared_address(LowerCtx &c, int64_t bytes, Value *index, int64_t scale) {
  llvm::Type *byte = c.b.getInt8Ty();
  Value *p = c.shared_base();
  if (index) p = c.b.CreateGEP(byte, p, c.b.CreateMul(index, c.i32(scale)));
  return bytes ? c.b.CreateGEP(byte, p, c.i32(bytes)) : p;
}

void store_slot(LowerCtx &c, Value *address, Value *v, Value *predicate) {
  Value *bits = to_bits(c, v);
  unsigned width = bits->getType()->getIntegerBitWidth();
  if (width < 32) bits = c.b.CreateZExt(bits, c.b.getInt32Ty());
  nvvm::Access how{nvvm::kShared, width == 64 ? 8 : 4};
  nvvm::st(c.b, how, address, {&bits, 1}, predicate);
}

void load_slots(LowerCtx &c, Value *address, llvm::Type *type, int64_t n, std::vector<Value *> &out, Value *predicate) {
  unsigned width = type->getPrimitiveSizeInBits() == 64 ? 64 : 32;
  nvvm::Access how{nvvm::kShared, width / 8 * n};
  for (Value *bits : nvvm::ld(c.b, how, address, c.b.getIntNTy(width), n, predicate)) {
    if (unsigned size = type->getPrimitiveSizeInBits(); size < 32 && size > 1)
      bits = c.b.CreateTrunc(bits, c.b.getIntNTy(size));
    out.push_back(from_bits(c, bits, type));
  }
}

Value *load_slot(LowerCtx &c, Value *address, llvm::Type *type) {
  std::vector<Value *> out;
  load_slots(c, address, type, 1, out);
  return out[0];
}

// ---- global memory
namespace {
int64_t pow2_part(int64_t n) { return n == 0 ? int64_t(1) << 30 : n & -n; }
int64_t attr_at(const ir::Op &op, const char *key, int64_t dim, int64_t fallback) {
  return op.attrs.has(key) ? op.attrs.ints(key)[size_t(dim)] : fallback;
}
} // namespace

Value *position_value(LowerCtx &c, const ir::Value *index, int64_t reg) {
  Value *v = c.regs(index)[size_t(reg)];
  int64_t bits = dtype_bits(index->type.dtype);
  bool sign = is_signed(index->type.dtype);
  llvm::Type *type = bits == 64 || (bits == 32 && !sign) ? c.b.getInt64Ty() : c.b.getInt32Ty();
  return sign ? c.b.CreateSExt(v, type) : c.b.CreateZExt(v, type);
}

TileAccess::TileAccess(LowerCtx &c, const ir::Op &op, const RegLayout &layout, const ir::Value *mask)
    : c_(c), op_(op), tensor_(c.tensor(op.operand(0))), layout_(layout), space_(layout.space()), mask_(mask) {
  element_bytes_ = dtype_bytes(tensor_.dtype);
  element_ = storage_type(c, tensor_.dtype);
  additive_ = layout_.is_additive();
  auto rank = int64_t(tensor_.strides.size());
  field_from_ = rank - tensor_.field_rank;
  llvm::IRBuilder<> &b = c.b;
  Value *offset = nullptr;
  auto add = [&](Value *v) { offset = offset ? b.CreateAdd(offset, v) : v; };
  for (int64_t d = 0; d < rank; d++) {
    bool dropped = attr_at(op, "drop", d, 0) != 0, gathered = attr_at(op, "gather", d, 0) != 0;
    Dim dim{d, gathered ? index_operand(d) : nullptr, attr_at(op, "in_bounds", d, 0) == 0};
    if (!gathered && !in_field(d)) add(term(start(d), d));
    if (!dropped) {
      if (d == rank - 1 && !gathered && !tensor_.any_strides) contiguous_ = int64_t(dims_.size());
      dims_.push_back(dim);
    } else if (dim.checked) {
      Value *at = start(d), *extent = b.CreateZExt(tensor_.extents[size_t(d)], at->getType());
      uniform_predicate_ = both(c, uniform_predicate_, b.CreateICmpULT(at, extent));
    }
  }
  TKC_CHECK(int64_t(dims_.size()) == space_.rank, "a tile of rank {} accesses {} dims of a tensor", space_.rank,
            dims_.size());
  base_ = offset ? b.CreateGEP(element_, tensor_.base, offset) : tensor_.base;
  if (contiguous_ >= 0) {
    start_divisor_ = pow2_part(attr_at(op, "divisor", rank - 1, 1));
    if (auto *k = llvm::dyn_cast<llvm::ConstantInt>(c.scalar(index_operand(rank - 1))))
      start_divisor_ = std::max(start_divisor_, pow2_part(k->getSExtValue()));
    int64_t extent = tensor_.static_extents.empty() ? ir::kDynamic : tensor_.static_extents.back();
    extent_divisor_ = pow2_part(extent != ir::kDynamic ? extent : attr_at(op, "extent_divisor", rank - 1, 1));
    if (extent == ir::kDynamic) extent_divisor_ = std::max(extent_divisor_, pow2_part(tensor_.inner_divisor));
  }
  if (additive_) {
    // Small static offsets are summed in 32 bits: the widening to 64 is then one instruction.
    Value *small = nullptr, *wide = nullptr;
    int64_t bound = 0;
    for (int64_t d = 0; d < space_.rank; d++) {
      const Dim &dim = dims_[size_t(d)];
      if (dim.gather || in_field(dim.tensor_dim) || space_.log2[size_t(d)] == 0) continue;
      Value *coord = thread_coordinate(c, layout_, d);
      auto *stride = llvm::dyn_cast<llvm::ConstantInt>(tensor_.strides[size_t(dim.tensor_dim)]);
      int64_t reach = space_.padded(int(d)) - 1;
      if (stride && stride->getSExtValue() >= 0 && stride->getSExtValue() < (int64_t(1) << 31) / (reach + 1) &&
          bound + reach * stride->getSExtValue() < int64_t(1) << 31) {
        bound += reach * stride->getSExtValue();
        Value *t = b.CreateMul(coord, c.i32(stride->getSExtValue()));
        small = small ? b.CreateAdd(small, t) : t;
      } else {
        Value *t = term(coord, dim.tensor_dim);
        wide = wide ? b.CreateAdd(wide, t) : t;
      }
    }
    if (small) small = b.CreateZExt(small, b.getInt64Ty());
    Value *sum = small && wide ? b.CreateAdd(small, wide) : small ? small : wide;
    thread_base_ = sum ? b.CreateGEP(element_, base_, sum) : base_;
  }
  if (tensor_.field_rank) field_parts();
  if (mask_ && mask_->type.is_scalar()) {
    uniform_predicate_ = both(c, uniform_predicate_, c.scalar(mask_));
    mask_ = nullptr;
  } else if (mask_) {
    auto map = register_map(c.layout(mask_), layout_);
    TKC_CHECK(map.has_value(), "a mask of layout {} for a tile of {}", c.layout(mask_).to_string(),
              layout_.to_string());
    mask_regs_ = *map;
  }
}

// A start that is a multiple of the tile's padded extent shares no bit with coordinates in the tile, and strides are
// powers of two: then bytes are a XOR of parts, and so are permuted ones.
void TileAccess::field_parts() {
  field_linear_ = additive_;
  auto stride = [&](int64_t d) { return llvm::cast<llvm::ConstantInt>(tensor_.strides[size_t(d)])->getSExtValue(); };
  auto rank = int64_t(tensor_.strides.size());
  std::vector<uint32_t> lane(layout_.lane.size(), 0), warp(layout_.warp.size(), 0);
  for (int64_t d = field_from_, tile_dim = 0; d < rank && field_linear_; d++) {
    while (tile_dim < space_.rank && dims_[size_t(tile_dim)].tensor_dim < d) tile_dim++;
    bool kept = tile_dim < space_.rank && dims_[size_t(tile_dim)].tensor_dim == d;
    bool gathered = attr_at(op_, "gather", d, 0) != 0;
    auto *k = gathered ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(c_.scalar(index_operand(d)));
    int64_t extent = tensor_.static_extents[size_t(d)], padded = kept ? space_.padded(int(tile_dim)) : 1;
    field_linear_ =
        k && k->getSExtValue() >= 0 && k->getSExtValue() + padded <= extent && k->getSExtValue() % padded == 0;
    if (!field_linear_) return;
    int64_t bytes = stride(d) * element_bytes_;
    field_start_ ^= tensor_.swizzle(k->getSExtValue() * bytes);
    if (!kept) continue;
    for (auto [from, to] : {std::pair(&layout_.lane, &lane), {&layout_.warp, &warp}})
      for (size_t i = 0; i < from->size(); i++)
        (*to)[i] ^= uint32_t(tensor_.swizzle(space_.coord((*from)[i], int(tile_dim)) * bytes));
  }
  if (!field_linear_) return;
  for (const auto &part : {lane, warp})
    for (uint32_t v : part) field_reach_ |= v;
  if (field_reach_) field_thread_ = c_.linear(lane, warp);
}

Value *TileAccess::field_address(Value *record, int64_t reg) {
  llvm::IRBuilder<> &b = c_.b;
  auto at = [&](Value *from, Value *bytes) {
    return b.CreateGEP(b.getInt8Ty(), from, b.CreateZExt(bytes, b.getInt64Ty()));
  };
  auto stride = [&](int64_t d) { return llvm::cast<llvm::ConstantInt>(tensor_.strides[size_t(d)])->getSExtValue(); };
  if (field_linear_) {
    int64_t constant = field_start_;
    for (int64_t d = 0; d < space_.rank; d++)
      if (int64_t t = dims_[size_t(d)].tensor_dim; in_field(t))
        constant ^= tensor_.swizzle(register_coordinate(layout_, reg, d) * stride(t) * element_bytes_);
    Value *thread = field_thread_ ? field_thread_ : c_.i32(0);
    if (constant & field_reach_) return at(record, b.CreateXor(thread, c_.i32(constant)));
    Value *from = field_thread_ ? at(record, thread) : record; // the constant is an immediate
    return constant ? b.CreateGEP(b.getInt8Ty(), from, c_.i64(constant)) : from;
  }
  Value *bytes = nullptr;
  for (int64_t d = field_from_, tile_dim = 0; d < int64_t(tensor_.strides.size()); d++) {
    while (tile_dim < space_.rank && dims_[size_t(tile_dim)].tensor_dim < d) tile_dim++;
    bool kept = tile_dim < space_.rank && dims_[size_t(tile_dim)].tensor_dim == d;
    Value *position = b.CreateSExtOrTrunc(kept ? index(tile_dim, reg) : start(d), b.getInt32Ty());
    Value *part = b.CreateMul(position, c_.i32(stride(d) * element_bytes_));
    bytes = bytes ? b.CreateAdd(bytes, part) : part;
  }
  Value *chunk = b.CreateAnd(b.CreateLShr(bytes, uint64_t(tensor_.swizzle.shift)), c_.i32(tensor_.swizzle.mask));
  return at(record, b.CreateXor(bytes, chunk));
}

Value *TileAccess::term(Value *position, int64_t tensor_dim) {
  Value *wide = c_.b.CreateSExt(position, c_.b.getInt64Ty());
  return c_.b.CreateMul(wide, tensor_.strides[size_t(tensor_dim)]);
}

Value *TileAccess::index(int64_t tile_dim, int64_t reg, Value *along) {
  const Dim &dim = dims_[size_t(tile_dim)];
  if (dim.gather) {
    RegLayout slice = layout_;
    auto r = int(reg);
    for (int d = space_.rank - 1; d >= 0; d--) {
      if (d == tile_dim) continue;
      r = slice.sliced_reg(d, r);
      slice = slice.slice(d);
    }
    auto map = register_map(c_.layout(dim.gather), slice);
    TKC_CHECK(map.has_value(), "index tile of layout {} where {} is needed", c_.layout(dim.gather).to_string(),
              slice.to_string());
    return position_value(c_, dim.gather, (*map)[size_t(r)]);
  }
  Value *from = start(dim.tensor_dim);
  if (along) from = c_.b.CreateAdd(from, c_.b.CreateZExt(along, from->getType()));
  auto widen = [&](Value *coord) { return c_.b.CreateZExt(coord, from->getType()); };
  if (!additive_) return c_.b.CreateAdd(from, widen(c_.coordinate(layout_, reg, tile_dim)));
  Value *at = c_.b.CreateAdd(from, widen(thread_coordinate(c_, layout_, tile_dim)));
  int64_t k = register_coordinate(layout_, reg, tile_dim);
  return k ? c_.b.CreateAdd(at, llvm::ConstantInt::get(from->getType(), uint64_t(k))) : at;
}

Value *TileAccess::address(int64_t reg) {
  llvm::IRBuilder<> &b = c_.b;
  uint32_t part = layout_.reg_part(reg);
  uint32_t inner = contiguous_ >= 0 ? space_.mask(int(contiguous_)) : 0;
  auto [it, fresh] = rows_.try_emplace(additive_ ? part & ~inner : part, nullptr);
  if (fresh) {
    Value *sum = nullptr;
    auto add = [&](Value *v) { sum = sum ? b.CreateAdd(sum, v) : v; };
    for (int64_t d = 0; d < space_.rank; d++) {
      const Dim &dim = dims_[size_t(d)];
      if (in_field(dim.tensor_dim)) continue;
      if (dim.gather) {
        add(term(index(d, reg), dim.tensor_dim));
      } else if (!additive_) {
        add(term(c_.coordinate(layout_, reg, d), dim.tensor_dim));
      } else if (int64_t k = register_coordinate(layout_, reg, d); k && d != contiguous_) {
        add(b.CreateMul(tensor_.strides[size_t(dim.tensor_dim)], c_.i64(k)));
      }
    }
    Value *from = additive_ ? thread_base_ : base_;
    it->second = sum ? b.CreateGEP(element_, from, sum) : from;
  }
  if (tensor_.field_rank) return field_address(it->second, reg);
  int64_t k = additive_ && contiguous_ >= 0 ? register_coordinate(layout_, reg, contiguous_) : 0;
  return k ? b.CreateGEP(element_, it->second, c_.i64(k)) : it->second;
}

Value *TileAccess::check(int64_t tile_dim, int64_t reg, Value *along) {
  const Dim &dim = dims_[size_t(tile_dim)];
  Value *inside = nullptr;
  if (!along) {
    inside = inside_predicate(c_, layout_, reg, tile_dim);
  } else if (int64_t extent = layout_.shape[size_t(tile_dim)]; extent != space_.padded(int(tile_dim))) {
    inside = c_.b.CreateICmpULT(c_.b.CreateAdd(c_.coordinate(layout_, reg, tile_dim), along), c_.i32(extent));
  }
  if (!dim.checked) return inside;
  // One unsigned comparison: a negative position is larger than every extent.
  Value *at = index(tile_dim, reg, along);
  Value *extent = c_.b.CreateZExt(tensor_.extents[size_t(dim.tensor_dim)], at->getType());
  return both(c_, inside, c_.b.CreateICmpULT(at, extent));
}

Value *TileAccess::predicate(int64_t reg, Value *along) {
  TKC_CHECK(!along || !mask_, "a masked access along a run");
  Value *p = uniform_predicate_;
  for (int64_t d = 0; d < space_.rank; d++) {
    if (along && d == contiguous_) {
      p = both(c_, p, check(d, reg, along));
      continue;
    }
    auto [it, fresh] = checks_.try_emplace({d, register_coordinate(layout_, reg, d)}, nullptr);
    if (fresh) it->second = check(d, reg, nullptr);
    p = both(c_, p, it->second);
  }
  return mask_ ? both(c_, p, mask_reg(reg)) : p;
}

Value *TileAccess::mask_reg(int64_t reg) const { return c_.regs(mask_)[size_t(mask_regs_[size_t(reg)])]; }

int64_t TileAccess::alignment(int64_t elements) const {
  int64_t element = element_bytes_;
  if (contiguous_ < 0) return element;
  return std::max(element, std::min({pow2_part(tensor_.alignment), start_divisor_ * element, elements * element}));
}

bool TileAccess::uniform(int64_t elements) const {
  int64_t extent = layout_.shape[size_t(contiguous_)];
  if (extent % elements && extent != space_.padded(int(contiguous_))) return false;
  if (dims_[size_t(contiguous_)].checked && extent_divisor_ < elements) return false;
  if (mask_)
    for (int64_t r : starts(elements))
      for (int64_t other : vector_regs(r, elements))
        if (mask_reg(other) != mask_reg(r)) return false;
  return true;
}

// Register bits must make up the low coordinate bits, and nothing else may move within a vector.
bool TileAccess::held_as_run(int64_t elements) const {
  if (contiguous_ < 0 || elements > space_.padded(int(contiguous_))) return false;
  uint32_t bit = uint32_t(elements / 2) << space_.shift[size_t(contiguous_)];
  int holders = 0, movers = 0;
  for (const auto *part : {&layout_.reg, &layout_.lane, &layout_.warp})
    for (uint32_t v : *part) {
      movers += (v & bit) != 0;
      holders += part == &layout_.reg && v == bit;
    }
  return holders == 1 && movers == 1;
}

int64_t TileAccess::run_elements(int64_t most) const {
  if (tensor_.field_rank) most = std::min(most, start_divisor_); // within a chunk
  int64_t n = 1;
  while (2 * n <= most && held_as_run(2 * n)) n *= 2;
  return n;
}

int64_t TileAccess::vector_elements(int64_t max_bytes) const {
  int64_t n = 1;
  if (tensor_.field_rank) max_bytes = std::min<int64_t>(max_bytes, 16); // a chunk
  while (2 * n * element_bytes_ <= max_bytes && held_as_run(2 * n) && alignment(2 * n) >= 2 * n * element_bytes_ &&
         uniform(2 * n))
    n *= 2;
  return n;
}

std::vector<int64_t> TileAccess::vector_regs(int64_t reg, int64_t elements) const {
  std::vector<int64_t> out{reg};
  for (int64_t n = 1; n < elements; n *= 2) {
    uint32_t bit = uint32_t(n) << space_.shift[size_t(contiguous_)];
    auto at = std::find(layout_.reg.begin(), layout_.reg.end(), bit) - layout_.reg.begin();
    for (int64_t i = 0; i < n; i++) out.push_back(out[size_t(i)] | int64_t(1) << at);
  }
  return out;
}

int64_t TileAccess::vector_start(int64_t reg, int64_t elements) const {
  for (size_t i = 0; i < layout_.reg.size(); i++)
    if (in_vector(layout_.reg[i], elements)) reg &= ~(int64_t(1) << i);
  return reg;
}

bool TileAccess::in_vector(uint32_t v, int64_t elements) const {
  return contiguous_ >= 0 && v && v >> space_.shift[size_t(contiguous_)] < uint32_t(elements) &&
         (v & ((1u << space_.shift[size_t(contiguous_)]) - 1)) == 0;
}

std::vector<int64_t> TileAccess::starts(int64_t elements, bool owned) const {
  int64_t skip = owned ? int64_t(layout_.free_bits().reg) : 0;
  for (size_t i = 0; i < layout_.reg.size(); i++) {
    uint32_t v = layout_.reg[i];
    if (v == 0 || in_vector(v, elements)) skip |= int64_t(1) << i;
  }
  std::vector<int64_t> out;
  for (int r : layout_.live_regs())
    if (!(r & skip)) out.push_back(r);
  return out;
}

} // namespace tkc::codegen

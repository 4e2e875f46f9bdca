// What the families share: checks of operands with their diagnostics, and loops over elements.
#pragma once
#include "interp/interp.h"
#include "ir/op_def.h"
#include "ops/lowering.h"
#include "support/diag_kinds.h"
#include <cmath>

namespace tkc::ops {

using ir::InferCtx;
using ir::Op;
using ir::OpKind;
using ir::Type;

// Sets of dtypes that an operand may have. The storage types (fp8 and the block-scale formats) are moved, converted and
// multiplied by `mma`, nothing else.
enum : unsigned {
  kFloats = 1,  // f16 bf16 tf32 f32 f64
  kInts = 2,    // i8 .. u64
  kBools = 4,   // bool
  kStorage = 8, // e4m3 e5m2 e2m1 ue8m0 ue4m3
  kNumbers = kFloats | kInts,
  kAny = kFloats | kInts | kBools | kStorage,
};
bool dtype_in(DType t, unsigned set);

// The op as the user wrote it: `+`, or the name of the call.
std::string shown(const Op &op);
// The parameter that an operand belongs to.
std::string operand_name(const Op &op, size_t i);
// "f32", "a tile of shape [4, 64]": for messages.
std::string shape_text(const Type &t);

// ---- checks; each reports at most one error and then returns false
bool has_operands(InferCtx &ctx, Op &op, size_t least, size_t most);
bool is_tile(InferCtx &ctx, Op &op, size_t i, unsigned set);
bool is_scalar(InferCtx &ctx, Op &op, size_t i, unsigned set);
bool is_tensor(InferCtx &ctx, Op &op, size_t i);
bool same_dtype(InferCtx &ctx, Op &op, size_t i, size_t j);
bool same_shape(InferCtx &ctx, Op &op, size_t i, size_t j);
// Attribute `axis`, counted from the end if negative, in [0, rank) afterwards.
bool normalise_axis(InferCtx &ctx, Op &op, int64_t rank);
// The op's one result, unless its shape cannot be.
void tile_result(InferCtx &ctx, Op &op, Type type);

inline void default_attr(Op &op, std::string_view key, ir::Attr value) {
  if (!op.attrs.has(key)) op.attrs.set(key, std::move(value));
}

// ---- interpretation
// Extents before, at and after an axis: element (o, k, i) is at (o * at + k) * after + i.
struct AxisSplit {
  int64_t before = 1, at = 1, after = 1;
  AxisSplit(const std::vector<int64_t> &shape, int64_t axis);
};

// a * b + c with one rounding to the dtype.
double fma_rounded(DType t, double a, double b, double c);
// An integer, given as its image in int64, to a float dtype with one rounding.
double int_to_float(DType from, int64_t x, DType to);
// Both signs of zero and NaN as in PTX min/max: a NaN loses against a number, -0 is below +0.
double max_number(double a, double b);
double min_number(double a, double b);
// Comparison of images of two integers of one dtype.
inline bool int_less(DType t, int64_t a, int64_t b) { return t == DType::U64 ? uint64_t(a) < uint64_t(b) : a < b; }
inline int64_t wrapping_add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
inline int64_t wrapping_mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
// Least and largest value of a dtype, as images.
int64_t int_lowest(DType t);
int64_t int_highest(DType t);

} // namespace tkc::ops

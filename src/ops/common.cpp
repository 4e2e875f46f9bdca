#include "ops/common.h"
#include <bit>
#include <cfenv>
#include <limits>

namespace tkc::ops {

bool dtype_in(DType t, unsigned set) {
  switch (dtype_kind(t)) {
  case DTypeKind::Bool: return set & kBools;
  case DTypeKind::Int:
  case DTypeKind::UInt: return set & kInts;
  case DTypeKind::Float: break;
  }
  bool storage = dtype_bits(t) <= 8;
  return set & (storage ? kStorage : kFloats);
}

static std::string set_text(unsigned set) {
  std::vector<std::string> parts;
  if (set & kFloats) parts.push_back("a float");
  if (set & kInts) parts.push_back("an integer");
  if (set & kBools) parts.push_back("bool");
  std::string out;
  for (size_t i = 0; i < parts.size(); i++) out += (i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return out;
}

std::string shown(const Op &op) {
  static constexpr std::pair<OpKind, const char *> operators[] = {
      {OpKind::Neg, "-"},  {OpKind::Not, "!"},  {OpKind::Add, "+"}, {OpKind::Sub, "-"}, {OpKind::Mul, "*"},
      {OpKind::Div, "/"},  {OpKind::Rem, "%"},  {OpKind::And, "&"}, {OpKind::Or, "|"},  {OpKind::Xor, "^"},
      {OpKind::Shl, "<<"}, {OpKind::Shr, ">>"}, {OpKind::Eq, "=="}, {OpKind::Ne, "!="}, {OpKind::Lt, "<"},
      {OpKind::Le, "<="},  {OpKind::Gt, ">"},   {OpKind::Ge, ">="}};
  for (auto [kind, text] : operators)
    if (kind == op.kind) return text;
  const ir::OpDef &d = def(op);
  return d.source.s[0] == '-' ? d.name.s : d.source.s;
}

std::string operand_name(const Op &op, size_t i) {
  size_t at = 0; // first operand of the parameter
  for (const ir::SigParam &p : ir::signature(op.kind)) {
    if (!p.is_value()) continue;
    if (p.variadic) return fmt::format("{}[{}]", p.name, i - at);
    if (i == at) return p.name;
    at++;
    if (p.kind != ir::SigParam::Kind::View) continue;
    size_t indices = size_t(op.operands[0]->type.rank()); // a view is a tensor and one index per dim
    if (i < at + indices) return fmt::format("{}[{}]", p.name, i - at);
    at += indices;
  }
  return fmt::format("operand {}", i);
}

std::string shape_text(const Type &t) { return t.is_scalar() ? "a scalar" : "shape " + ir::shape_str(t.shape); }

bool has_operands(InferCtx &ctx, Op &op, size_t least, size_t most) {
  size_t n = op.operands.size();
  if (least <= n && n <= most) return true;
  std::string want = least == most      ? std::to_string(least)
                     : most == SIZE_MAX ? fmt::format("{} or more", least)
                                        : fmt::format("{} to {}", least, most);
  ctx.error(DiagKind::operand_count, shown(op), want, n);
  return false;
}

static bool check_dtype(InferCtx &ctx, Op &op, size_t i, unsigned set) {
  DType t = op.operand(i)->type.dtype;
  if (dtype_in(t, set)) return true;
  if (dtype_in(t, kStorage) && (set & kFloats))
    ctx.error_at(i, DiagKind::storage_only_dtype, shown(op), dtype_name(t), operand_name(op, i));
  else
    ctx.error_at(i, DiagKind::operand_dtype, shown(op), set_text(set), operand_name(op, i), dtype_name(t));
  return false;
}

bool is_tile(InferCtx &ctx, Op &op, size_t i, unsigned set) {
  const Type &t = op.operand(i)->type;
  if (t.is_tile()) return check_dtype(ctx, op, i, set);
  ctx.error_at(i, DiagKind::operand_kind, shown(op), "a tile or scalar", operand_name(op, i), t.str());
  return false;
}

bool is_scalar(InferCtx &ctx, Op &op, size_t i, unsigned set) {
  const Type &t = op.operand(i)->type;
  if (t.is_scalar()) return check_dtype(ctx, op, i, set);
  ctx.error_at(i, DiagKind::operand_kind, shown(op), "a scalar", operand_name(op, i), t.str());
  return false;
}

bool is_tensor(InferCtx &ctx, Op &op, size_t i) {
  const Type &t = op.operand(i)->type;
  if (t.is_tensor()) return true;
  ctx.error_at(i, DiagKind::operand_kind, shown(op), "a tensor", operand_name(op, i), t.str());
  return false;
}

bool same_dtype(InferCtx &ctx, Op &op, size_t i, size_t j) {
  DType a = op.operand(i)->type.dtype, b = op.operand(j)->type.dtype;
  if (a == b) return true;
  ctx.error_at(j, DiagKind::operand_dtypes_differ, shown(op), operand_name(op, i), dtype_name(a), operand_name(op, j),
               dtype_name(b));
  return false;
}

bool same_shape(InferCtx &ctx, Op &op, size_t i, size_t j) {
  const Type &a = op.operand(i)->type, &b = op.operand(j)->type;
  if (a.shape == b.shape) return true;
  if (a.rank() != b.rank()) {
    ctx.error_at(j, DiagKind::operand_ranks_differ, shown(op), operand_name(op, i), shape_text(a), operand_name(op, j),
                 shape_text(b));
    return false;
  }
  size_t d = 0;
  while (a.shape[d] == b.shape[d]) d++;
  ctx.error_at(j, DiagKind::operand_shapes_differ, shown(op), operand_name(op, i), shape_text(a), operand_name(op, j),
               shape_text(b), d, a.shape[d], b.shape[d]);
  return false;
}

bool normalise_axis(InferCtx &ctx, Op &op, int64_t rank) {
  int64_t axis = op.attrs.i("axis");
  if (axis < -rank || axis >= rank) {
    ctx.error(DiagKind::axis_range, axis, shown(op), op.operand(0)->type.str(), rank);
    return false;
  }
  if (axis < 0) op.attrs.set("axis", axis + rank);
  return true;
}

// A reference's arrays live in host memory: any rank, and empty ones (a sequence of length 0) are values like any
// other.
void tile_result(InferCtx &ctx, Op &op, Type type) {
  bool kernel = ctx.function().kind == ir::FunctionKind::Kernel;
  int64_t largest = kernel ? ir::kMaxTileElements : int64_t(1) << 40, elements = 1;
  if (kernel && type.rank() > 4) return ctx.error(DiagKind::tile_rank, shown(op), type.rank());
  for (int64_t n : type.shape) {
    if (n < (kernel ? 1 : 0)) return ctx.error(DiagKind::tile_extent, shown(op), ir::shape_str(type.shape));
    if (__builtin_mul_overflow(elements, n, &elements) || elements > largest)
      return ctx.error(DiagKind::tile_too_large, shown(op), ir::shape_str(type.shape), largest);
  }
  ctx.result(std::move(type));
}

AxisSplit::AxisSplit(const std::vector<int64_t> &shape, int64_t axis) : at(shape[size_t(axis)]) {
  for (int64_t d = 0; d < axis; d++) before *= shape[size_t(d)];
  for (int64_t d = axis + 1; d < int64_t(shape.size()); d++) after *= shape[size_t(d)];
}

// `rounded` is the nearest double of an exact value and `error` what it lacks: rounded to odd, so that a second
// rounding to at most 51 bits gives what one rounding of the exact value would.
static double to_odd(double rounded, double error) {
  if (error == 0 || !std::isfinite(rounded) || !std::isfinite(error)) return rounded;
  if (std::bit_cast<uint64_t>(rounded) & 1) return rounded;
  return std::nextafter(rounded,
                        error > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
}

double fma_rounded(DType t, double a, double b, double c) {
  if (t == DType::F64) return std::fma(a, b, c);
  double product = a * b, sum = product + c; // the product of two floats of at most 24 bits is exact
  double back = sum - product;
  double error = (product - (sum - back)) + (c - back);
  return round_to(t, to_odd(sum, error));
}

double int_to_float(DType from, int64_t x, DType to) {
  if (to == DType::F64) return from == DType::U64 ? double(uint64_t(x)) : double(x);
  if (from == DType::U64 && x < 0) {
    uint64_t u = uint64_t(x);
    return round_to(to, double(u >> 11 << 11 | uint64_t((u & 0x7ff) != 0) << 11));
  }
  // Up to 2^53 a double holds it; above, the low bits only say whether the value lies above a tie.
  bool wide = x > (int64_t(1) << 53) || x < -(int64_t(1) << 53);
  if (!wide) return round_to(to, double(x));
  uint64_t m = x < 0 ? 0 - uint64_t(x) : uint64_t(x);
  double magnitude = double((m >> 11 | uint64_t((m & 0x7ff) != 0)) << 11);
  return round_to(to, x < 0 ? -magnitude : magnitude);
}

double max_number(double a, double b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

double min_number(double a, double b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

int64_t int_lowest(DType t) {
  if (t == DType::Bool || !is_signed(t)) return 0;
  return dtype_bits(t) == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t(1) << (dtype_bits(t) - 1));
}

int64_t int_highest(DType t) {
  if (t == DType::Bool) return 1;
  if (!is_signed(t)) return dtype_bits(t) == 64 ? -1 : (int64_t(1) << dtype_bits(t)) - 1;
  return dtype_bits(t) == 64 ? std::numeric_limits<int64_t>::max() : (int64_t(1) << (dtype_bits(t) - 1)) - 1;
}

} // namespace tkc::ops

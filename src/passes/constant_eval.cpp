#include "passes/constant_eval.h"
#include <algorithm>
#include <cmath>

namespace tkc::passes {

using ir::OpKind;

namespace {

constexpr int64_t kExact = int64_t(1) << 53;

std::optional<Constant> cast(DType to, const Constant &x) {
  bool from_float = is_float(x.dtype);
  if (from_float && is_float(to)) return Constant{to, round_to(to, x.f), 0};
  if (from_float) return Constant{to, 0, float_to_int(to, x.f)};
  if (!is_float(to)) return Constant{to, 0, wrap_to(to, x.i)};
  bool exact = x.i >= -kExact && x.i <= kExact && !(x.dtype == DType::U64 && x.i < 0);
  if (!exact) return std::nullopt;
  return Constant{to, round_to(to, double(x.i)), 0};
}

std::optional<double> float_op(OpKind kind, double a, double b) {
  switch (kind) {
  case OpKind::Add: return a + b;
  case OpKind::Sub: return a - b;
  case OpKind::Mul: return a * b;
  case OpKind::Div: return b == 0 ? std::nullopt : std::optional(a / b);
  case OpKind::Min: return std::isnan(a) || std::isnan(b) || a == b ? std::nullopt : std::optional(std::min(a, b));
  case OpKind::Max: return std::isnan(a) || std::isnan(b) || a == b ? std::nullopt : std::optional(std::max(a, b));
  default: return std::nullopt;
  }
}

std::optional<int64_t> int_op(OpKind kind, DType t, int64_t a, int64_t b) {
  bool is_u64 = t == DType::U64;
  auto less = [&](int64_t x, int64_t y) { return is_u64 ? uint64_t(x) < uint64_t(y) : x < y; };
  bool too_far = b < 0 || b >= dtype_bits(t); // of shifts: the amount counts as unsigned
  switch (kind) {
  case OpKind::Add: return int64_t(uint64_t(a) + uint64_t(b));
  case OpKind::Sub: return int64_t(uint64_t(a) - uint64_t(b));
  case OpKind::Mul: return int64_t(uint64_t(a) * uint64_t(b));
  case OpKind::Div:
  case OpKind::Rem: {
    bool quotient = kind == OpKind::Div;
    if (b == 0) return std::nullopt;
    if (is_u64) return int64_t(quotient ? uint64_t(a) / uint64_t(b) : uint64_t(a) % uint64_t(b));
    if (b == -1) return quotient ? int64_t(0 - uint64_t(a)) : 0;
    return quotient ? a / b : a % b;
  }
  case OpKind::Min: return less(b, a) ? b : a;
  case OpKind::Max: return less(a, b) ? b : a;
  case OpKind::And: return a & b;
  case OpKind::Or: return a | b;
  case OpKind::Xor: return a ^ b;
  case OpKind::Shl: return too_far ? 0 : int64_t(uint64_t(a) << b);
  case OpKind::Shr:
    if (is_u64) return too_far ? 0 : int64_t(uint64_t(a) >> b);
    return too_far ? (a < 0 ? -1 : 0) : a >> b;
  default: return std::nullopt;
  }
}

std::optional<bool> compare(OpKind kind, const Constant &a, const Constant &b) {
  bool less, equal, unordered = false;
  if (is_float(a.dtype)) {
    less = a.f < b.f;
    equal = a.f == b.f;
    unordered = std::isnan(a.f) || std::isnan(b.f);
  } else {
    less = a.dtype == DType::U64 ? uint64_t(a.i) < uint64_t(b.i) : a.i < b.i;
    equal = a.i == b.i;
  }
  switch (kind) {
  case OpKind::Eq: return equal;
  case OpKind::Ne: return !equal;
  case OpKind::Lt: return less;
  case OpKind::Le: return less || equal;
  case OpKind::Gt: return !less && !equal && !unordered;
  case OpKind::Ge: return !less && !unordered;
  default: return std::nullopt;
  }
}

} // namespace

std::optional<Constant> evaluate(const ir::Op &op, std::span<const Constant> x) {
  if (x.empty()) return std::nullopt;
  DType t = x[0].dtype;
  bool f = is_float(t);
  switch (op.kind) {
  case OpKind::Cast: return cast(op.attrs.dtype("dtype"), x[0]);
  case OpKind::Where: return x[0].i ? x[1] : x[2];
  case OpKind::Neg:
    if (f) return Constant{t, -x[0].f, 0};
    return Constant{t, 0, wrap_to(t, int64_t(0 - uint64_t(x[0].i)))};
  case OpKind::Abs:
    if (f) return Constant{t, std::fabs(x[0].f), 0};
    if (!is_signed(t)) return x[0];
    return Constant{t, 0, wrap_to(t, x[0].i < 0 ? int64_t(0 - uint64_t(x[0].i)) : x[0].i)};
  case OpKind::Not:
    return f ? std::nullopt : std::optional(Constant{t, 0, t == DType::Bool ? int64_t(!x[0].i) : wrap_to(t, ~x[0].i)});
  default: break;
  }
  if (x.size() != 2) return std::nullopt;
  if (auto c = compare(op.kind, x[0], x[1])) return Constant{DType::Bool, 0, *c};
  if (f) {
    auto v = float_op(op.kind, x[0].f, x[1].f);
    return v ? std::optional(Constant{t, round_to(t, *v), 0}) : std::nullopt;
  }
  auto v = int_op(op.kind, t, x[0].i, x[1].i);
  return v ? std::optional(Constant{t, 0, wrap_to(t, *v)}) : std::nullopt;
}

} // namespace tkc::passes

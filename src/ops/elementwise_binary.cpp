// Two-operand functions of each element: arithmetic, bits, comparisons.
#include "ops/adjoint.h"
#include "ops/common.h"

namespace tkc::ops {

namespace {

template <unsigned kSet> bool check_pair(InferCtx &ctx, Op &op) {
  return has_operands(ctx, op, 2, 2) && is_tile(ctx, op, 0, kSet) && is_tile(ctx, op, 1, kSet) &&
         same_dtype(ctx, op, 0, 1) && same_shape(ctx, op, 0, 1);
}

template <unsigned kSet> void infer_binary(InferCtx &ctx, Op &op) {
  if (check_pair<kSet>(ctx, op)) tile_result(ctx, op, op.operand(0)->type);
}

void infer_div(InferCtx &ctx, Op &op) {
  default_attr(op, "precise", int64_t(0));
  infer_binary<kNumbers>(ctx, op);
}

void infer_pow(InferCtx &ctx, Op &op) {
  default_attr(op, "precise", int64_t(0));
  infer_binary<kFloats>(ctx, op);
}

template <unsigned kSet> void infer_compare(InferCtx &ctx, Op &op) {
  if (check_pair<kSet>(ctx, op)) tile_result(ctx, op, op.operand(0)->type.with_dtype(DType::Bool));
}

// F::f for floats (rounded afterwards), F::i for images of integers (wrapped afterwards).
template <typename F> void interp_binary(interp::Ctx &ctx, const Op &op) {
  interp::Tile a = ctx.take_tile(op, 0);
  // An operand that is used twice has not been moved out.
  const interp::Tile &b = ctx.tile(op.operand(1));
  if constexpr (requires { F::f(0.0, 0.0); })
    for (size_t k = 0; k < a.f.size(); k++) a.f[k] = round_to(a.dtype, F::f(a.f[k], b.f[k]));
  if constexpr (requires { F::i(DType::I32, int64_t(0), int64_t(0)); })
    for (size_t k = 0; k < a.i.size(); k++) a.i[k] = wrap_to(a.dtype, F::i(a.dtype, a.i[k], b.i[k]));
  ctx.set(op.result(), std::move(a));
}

// Division and remainder of integers: only a zero divisor has no result; lowest / -1 wraps.
template <bool kRemainder> void interp_div(interp::Ctx &ctx, const Op &op) {
  interp::Tile a = ctx.take_tile(op, 0);
  const interp::Tile &b = ctx.tile(op.operand(1));
  for (size_t k = 0; k < a.f.size(); k++) a.f[k] = round_to(a.dtype, a.f[k] / b.f[k]);
  for (size_t k = 0; k < a.i.size(); k++) {
    int64_t x = a.i[k], y = b.i[k];
    if (y == 0) return ctx.trap(op, kRemainder ? "remainder of a division by zero" : "division by zero");
    if (a.dtype == DType::U64)
      a.i[k] = int64_t(kRemainder ? uint64_t(x) % uint64_t(y) : uint64_t(x) / uint64_t(y));
    else if (y == -1)
      a.i[k] = kRemainder ? 0 : wrap_to(a.dtype, int64_t(0 - uint64_t(x)));
    else
      a.i[k] = kRemainder ? x % y : x / y;
  }
  ctx.set(op.result(), std::move(a));
}

template <typename F> void interp_compare(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &a = ctx.tile(op.operand(0)), &b = ctx.tile(op.operand(1));
  interp::Tile t(DType::Bool, a.shape);
  for (size_t k = 0; k < a.f.size(); k++) t.i[k] = F::f(a.f[k], b.f[k]);
  for (size_t k = 0; k < a.i.size(); k++) t.i[k] = F::i(a.dtype, a.i[k], b.i[k]);
  ctx.set(op.result(), std::move(t));
}

struct AddF {
  static double f(double a, double b) { return a + b; }
  static int64_t i(DType, int64_t a, int64_t b) { return wrapping_add(a, b); }
};
struct SubF {
  static double f(double a, double b) { return a - b; }
  static int64_t i(DType, int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
};
struct MulF {
  static double f(double a, double b) { return a * b; }
  static int64_t i(DType, int64_t a, int64_t b) { return wrapping_mul(a, b); }
};
struct PowF {
  static double f(double a, double b) { return std::pow(a, b); }
};
struct MinF {
  static double f(double a, double b) { return min_number(a, b); }
  static int64_t i(DType t, int64_t a, int64_t b) { return int_less(t, b, a) ? b : a; }
};
struct MaxF {
  static double f(double a, double b) { return max_number(a, b); }
  static int64_t i(DType t, int64_t a, int64_t b) { return int_less(t, a, b) ? b : a; }
};
struct AndF {
  static int64_t i(DType, int64_t a, int64_t b) { return a & b; }
};
struct OrF {
  static int64_t i(DType, int64_t a, int64_t b) { return a | b; }
};
struct XorF {
  static int64_t i(DType, int64_t a, int64_t b) { return a ^ b; }
};
// As shl and shr of PTX: the amount is unsigned, and one past the width shifts everything out.
bool shifts_out(DType t, int64_t amount) { return amount < 0 || amount >= dtype_bits(t); }
struct ShlF {
  static int64_t i(DType t, int64_t a, int64_t b) { return shifts_out(t, b) ? 0 : int64_t(uint64_t(a) << b); }
};
struct ShrF {
  static int64_t i(DType t, int64_t a, int64_t b) {
    if (t == DType::U64) return shifts_out(t, b) ? 0 : int64_t(uint64_t(a) >> b);
    return shifts_out(t, b) ? (a < 0 ? -1 : 0) : a >> b;
  }
};
struct EqF {
  static bool f(double a, double b) { return a == b; }
  static bool i(DType, int64_t a, int64_t b) { return a == b; }
};
struct NeF {
  static bool f(double a, double b) { return a != b; }
  static bool i(DType, int64_t a, int64_t b) { return a != b; }
};
struct LtF {
  static bool f(double a, double b) { return a < b; }
  static bool i(DType t, int64_t a, int64_t b) { return int_less(t, a, b); }
};
struct LeF {
  static bool f(double a, double b) { return a <= b; }
  static bool i(DType t, int64_t a, int64_t b) { return !int_less(t, b, a); }
};
struct GtF {
  static bool f(double a, double b) { return a > b; }
  static bool i(DType t, int64_t a, int64_t b) { return int_less(t, b, a); }
};
struct GeF {
  static bool f(double a, double b) { return a >= b; }
  static bool i(DType t, int64_t a, int64_t b) { return !int_less(t, a, b); }
};

constexpr ir::LayoutRule kPointwise = {ir::LayoutKind::Pointwise};

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kAdd = {.name = "add",
                        .source = "-",
                        .signature = "add(a: tile, b: tile)",
                        .doc = "a + b, rounded once; integers wrap.",
                        .example = "let a = load(x[:, :]) + 1.0;\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Add),
                        .infer = infer_binary<kNumbers>,
                        .interp = interp_binary<AddF>,
                        .lower = lower_Add};

constexpr OpDef kSub = {.name = "sub",
                        .source = "-",
                        .signature = "sub(a: tile, b: tile)",
                        .doc = "a - b, rounded once; integers wrap.",
                        .example =
                            "let t = load(x[:, :]);\nlet a = t - max(t, axis = 1)[:, None];\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Sub),
                        .infer = infer_binary<kNumbers>,
                        .interp = interp_binary<SubF>,
                        .lower = lower_Sub};

constexpr OpDef kMul = {
    .name = "mul",
    .source = "-",
    .signature = "mul(a: tile, b: tile)",
    .doc = "a * b, rounded once; integers wrap. The compiled code may fuse it with an addition, which rounds less.",
    .example = "let a = load(x[:, :]) * 0.125;\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Mul, kX | kY),
    .infer = infer_binary<kNumbers>,
    .interp = interp_binary<MulF>,
    .lower = lower_Mul};

constexpr OpDef kDiv = {
    .name = "div",
    .source = "div",
    .signature = "div(a: tile, b: tile, precise: bool = false)",
    .doc =
        "a / b. Floats: a times the reciprocal for f32 and narrower (2 ulp), correctly rounded with `precise`, which "
        "the call div(a, b, precise = true) asks for. Integers: the quotient truncates towards zero; a zero divisor "
        "is an error of the program (the interpreter stops, the compiled code gives any value).",
    .example = "let t = load(x[:, :]);\nlet a = t / (abs(t) + 1.0);\nlet b = div(t, abs(t) + 1.0, precise = true);\n"
               "# store(y[:, :], a - b);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Div, kY | kResult),
    .infer = infer_div,
    .interp = interp_div<false>,
    .lower = lower_Div};

constexpr OpDef kRem = {
    .name = "rem",
    .source = "-",
    .signature = "rem(a: tile, b: tile)",
    .doc =
        "a % b of integers: a - b * trunc(a / b), so its sign is that of a. A zero divisor is an error of the program.",
    .example =
        "let columns = iota(N) % 4;\nlet a = where(columns[None, :] == 0, load(x[:, :]), 0.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts>,
    .interp = interp_div<true>,
    .lower = lower_Rem};

constexpr OpDef kPow = {
    .name = "pow",
    .source = "pow",
    .signature = "pow(a: tile, b: tile, precise: bool = false)",
    .doc = "a to the power b for floats; a negative base needs a whole exponent, else the result is NaN.",
    .example = "let a = pow(abs(load(x[:, :])), 1.5);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = adjoint(adjoint_Pow, kX | kY | kResult),
    .infer = infer_pow,
    .interp = interp_binary<PowF>,
    .lower = lower_Pow};

constexpr OpDef kMin = {.name = "min",
                        .source = "min",
                        .signature = "min(a: tile, b: tile)",
                        .doc = "The smaller of a and b in each element. A NaN loses against a number; -0 is below +0.",
                        .example = "let a = min(load(x[:, :]), 1.0);\n# store(y[:, :], a);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Min, kX | kY),
                        .infer = infer_binary<kNumbers>,
                        .interp = interp_binary<MinF>,
                        .lower = lower_Min};

constexpr OpDef kMax = {.name = "max",
                        .source = "max",
                        .signature = "max(a: tile, b: tile)",
                        .doc = "The larger of a and b in each element. A NaN loses against a number; -0 is below +0.",
                        .example = "let relu = max(load(x[:, :]), 0.0);\n# store(y[:, :], relu);",
                        .layout = kPointwise,
                        .derivative = adjoint(adjoint_Max, kX | kY),
                        .infer = infer_binary<kNumbers>,
                        .interp = interp_binary<MaxF>,
                        .lower = lower_Max};

constexpr OpDef kAnd = {
    .name = "and",
    .source = "-",
    .signature = "and(a: tile, b: tile)",
    .doc = "a & b: of bools, or bit by bit of integers.",
    .example = "let t = load(x[:, :]);\nlet a = where((t > -1.0) & (t < 1.0), t, 0.0);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts | kBools>,
    .interp = interp_binary<AndF>,
    .lower = lower_And};

constexpr OpDef kOr = {
    .name = "or",
    .source = "-",
    .signature = "or(a: tile, b: tile)",
    .doc = "a | b: of bools, or bit by bit of integers.",
    .example = "let t = load(x[:, :]);\nlet a = where((t < -1.0) | (t > 1.0), 0.0, t);\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts | kBools>,
    .interp = interp_binary<OrF>,
    .lower = lower_Or};

constexpr OpDef kXor = {
    .name = "xor",
    .source = "-",
    .signature = "xor(a: tile, b: tile)",
    .doc = "a ^ b: of bools (they differ), or bit by bit of integers.",
    .example = "let odd = (iota(M)[:, None] ^ iota(N)[None, :]) & 1;\nlet a = where(odd == 1, load(x[:, :]), 0.0);\n"
               "# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts | kBools>,
    .interp = interp_binary<XorF>,
    .lower = lower_Xor};

constexpr OpDef kShl = {
    .name = "shl",
    .source = "-",
    .signature = "shl(a: tile, b: tile)",
    .doc = "a << b of integers: a * 2^b, wrapped. b counts as unsigned; an amount of the width or more gives 0.",
    .example = "let powers = f32(1 << iota(N) % 8);\nlet a = load(x[:, :]) * powers[None, :];\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts>,
    .interp = interp_binary<ShlF>,
    .lower = lower_Shl};

constexpr OpDef kShr = {
    .name = "shr",
    .source = "-",
    .signature = "shr(a: tile, b: tile)",
    .doc =
        "a >> b of integers: floor(a / 2^b). b counts as unsigned; an amount of the width or more leaves 0, or -1 of "
        "a negative number.",
    .example = "let group = f32(iota(N) >> 2);\nlet a = load(x[:, :]) + group[None, :];\n# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_binary<kInts>,
    .interp = interp_binary<ShrF>,
    .lower = lower_Shr};

constexpr OpDef kEq = {
    .name = "eq",
    .source = "-",
    .signature = "eq(a: tile, b: tile)",
    .doc = "a == b, a bool tile. NaN equals nothing; -0 equals +0.",
    .example = "let diagonal = iota(M)[:, None] == iota(N)[None, :];\nlet a = where(diagonal, load(x[:, :]), 0.0);\n"
               "# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_compare<kNumbers | kBools>,
    .interp = interp_compare<EqF>,
    .lower = lower_Eq};

constexpr OpDef kNe = {.name = "ne",
                       .source = "-",
                       .signature = "ne(a: tile, b: tile)",
                       .doc = "a != b, a bool tile; true wherever an operand is NaN.",
                       .example = "let t = load(x[:, :]);\nlet a = where(t != 0.0, 1.0, 0.0);\n# store(y[:, :], a);",
                       .layout = kPointwise,
                       .derivative = kNoFloats,
                       .infer = infer_compare<kNumbers | kBools>,
                       .interp = interp_compare<NeF>,
                       .lower = lower_Ne};

constexpr OpDef kLt = {.name = "lt",
                       .source = "-",
                       .signature = "lt(a: tile, b: tile)",
                       .doc = "a < b, a bool tile; false wherever an operand is NaN.",
                       .example = "let t = load(x[:, :]);\nlet a = where(t < 0.0, -t, t);\n# store(y[:, :], a);",
                       .layout = kPointwise,
                       .derivative = kNoFloats,
                       .infer = infer_compare<kNumbers>,
                       .interp = interp_compare<LtF>,
                       .lower = lower_Lt};

constexpr OpDef kLe = {
    .name = "le",
    .source = "-",
    .signature = "le(a: tile, b: tile)",
    .doc = "a <= b, a bool tile; false wherever an operand is NaN.",
    .example = "let upper = iota(M)[:, None] <= iota(N)[None, :];\nlet a = where(upper, load(x[:, :]), 0.0);\n"
               "# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_compare<kNumbers>,
    .interp = interp_compare<LeF>,
    .lower = lower_Le};

constexpr OpDef kGt = {.name = "gt",
                       .source = "-",
                       .signature = "gt(a: tile, b: tile)",
                       .doc = "a > b, a bool tile; false wherever an operand is NaN.",
                       .example = "let t = load(x[:, :]);\nlet a = where(t > 1.0, 1.0, t);\n# store(y[:, :], a);",
                       .layout = kPointwise,
                       .derivative = kNoFloats,
                       .infer = infer_compare<kNumbers>,
                       .interp = interp_compare<GtF>,
                       .lower = lower_Gt};

constexpr OpDef kGe = {
    .name = "ge",
    .source = "-",
    .signature = "ge(a: tile, b: tile)",
    .doc = "a >= b, a bool tile; false wherever an operand is NaN.",
    .example = "let lower = iota(M)[:, None] >= iota(N)[None, :];\nlet a = where(lower, load(x[:, :]), 0.0);\n"
               "# store(y[:, :], a);",
    .layout = kPointwise,
    .derivative = kNoFloats,
    .infer = infer_compare<kNumbers>,
    .interp = interp_compare<GeF>,
    .lower = lower_Ge};

} // namespace tkc::ir

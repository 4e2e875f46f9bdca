#include "sema/number_expr.h"
#include "support/check.h"
#include <cmath>

namespace tkc::sema {

using Op = NumberExpr::Op;

const char *NumberExpr::json_name(Op op) {
  switch (op) {
#define TKC_NUMBER(name, operands, json)                                                                               \
  case Op::name: return json;
    TKC_NUMBERS
#undef TKC_NUMBER
  case Op::Const:
  case Op::Scalar:
  case Op::Integer: break;
  }
  TKC_UNREACHABLE("NumberExpr::Op");
}

std::optional<Op> number_op(ir::OpKind kind) {
  switch (kind) {
#define TKC_NUMBER(name, ...)                                                                                          \
  case ir::OpKind::name: return Op::name;
    TKC_NUMBERS
#undef TKC_NUMBER
  default: return std::nullopt;
  }
}

static double compute(Op op, const std::vector<double> &x) {
  switch (op) {
  case Op::Neg: return -x[0];
  case Op::Abs: return std::fabs(x[0]);
  case Op::Not: return x[0] == 0;
  case Op::Exp: return std::exp(x[0]);
  case Op::Exp2: return std::exp2(x[0]);
  case Op::Log: return std::log(x[0]);
  case Op::Log2: return std::log2(x[0]);
  case Op::Sqrt: return std::sqrt(x[0]);
  case Op::Rsqrt: return 1 / std::sqrt(x[0]);
  case Op::Rcp: return 1 / x[0];
  case Op::Tanh: return std::tanh(x[0]);
  case Op::Floor: return std::floor(x[0]);
  case Op::Ceil: return std::ceil(x[0]);
  case Op::Cast: return x[0];
  case Op::Add: return x[0] + x[1];
  case Op::Sub: return x[0] - x[1];
  case Op::Mul: return x[0] * x[1];
  case Op::Div: return x[0] / x[1];
  case Op::Min: return x[1] < x[0] ? x[1] : x[0];
  case Op::Max: return x[1] > x[0] ? x[1] : x[0];
  case Op::Eq: return x[0] == x[1];
  case Op::Ne: return x[0] != x[1];
  case Op::Lt: return x[0] < x[1];
  case Op::Le: return x[0] <= x[1];
  case Op::Gt: return x[0] > x[1];
  case Op::Ge: return x[0] >= x[1];
  case Op::And: return x[0] != 0 && x[1] != 0;
  case Op::Or: return x[0] != 0 || x[1] != 0;
  case Op::Where:
  case Op::Const:
  case Op::Scalar:
  case Op::Integer: break;
  }
  TKC_UNREACHABLE("NumberExpr::Op");
}

std::optional<double> NumberExpr::eval(const std::function<std::optional<double>(const std::string &)> &scalar,
                                       const ir::SizeExpr::Lookup &size) const {
  if (op == Op::Const) return value;
  if (op == Op::Scalar) return scalar(name);
  if (op == Op::Integer) {
    auto n = integer.eval(size);
    return n ? std::optional(double(*n)) : std::nullopt;
  }
  std::vector<double> x;
  double out = 0;
  if (op == Op::Where) { // only the side that counts
    auto condition = args[0].eval(scalar, size);
    if (!condition) return std::nullopt;
    auto v = args[*condition != 0 ? 1 : 2].eval(scalar, size);
    if (!v) return std::nullopt;
    out = *v;
  } else {
    for (const NumberExpr &a : args) {
      auto v = a.eval(scalar, size);
      if (!v) return std::nullopt;
      x.push_back(*v);
    }
    out = compute(op, x);
  }
  return is_float(dtype) ? round_to(dtype, out) : out;
}

} // namespace tkc::sema

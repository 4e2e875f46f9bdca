// Floating-point scalars that a program computes at launch: expressions over its scalars and sizes, evaluated by every
// loader as this says. Each operation is computed in f64 and rounded to the dtype that its value has in the source, f32
// or f64.
#pragma once
#include "ir/ir.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tkc::sema {

// TKC_NUMBER(enumerator, operands, name in JSON). The ops of the IR with the same names; comparisons and logic give 0
// or 1.
#define TKC_NUMBERS                                                                                                    \
  TKC_NUMBER(Neg, 1, "neg")                                                                                            \
  TKC_NUMBER(Abs, 1, "abs")                                                                                            \
  TKC_NUMBER(Not, 1, "!")                                                                                              \
  TKC_NUMBER(Exp, 1, "exp")                                                                                            \
  TKC_NUMBER(Exp2, 1, "exp2")                                                                                          \
  TKC_NUMBER(Log, 1, "log")                                                                                            \
  TKC_NUMBER(Log2, 1, "log2")                                                                                          \
  TKC_NUMBER(Sqrt, 1, "sqrt")                                                                                          \
  TKC_NUMBER(Rsqrt, 1, "rsqrt")                                                                                        \
  TKC_NUMBER(Rcp, 1, "rcp")                                                                                            \
  TKC_NUMBER(Tanh, 1, "tanh")                                                                                          \
  TKC_NUMBER(Floor, 1, "floor")                                                                                        \
  TKC_NUMBER(Ceil, 1, "ceil")                                                                                          \
  TKC_NUMBER(Cast, 1, "round")                                                                                         \
  TKC_NUMBER(Add, 2, "+")                                                                                              \
  TKC_NUMBER(Sub, 2, "-")                                                                                              \
  TKC_NUMBER(Mul, 2, "*")                                                                                              \
  TKC_NUMBER(Div, 2, "/")                                                                                              \
  TKC_NUMBER(Min, 2, "min")                                                                                            \
  TKC_NUMBER(Max, 2, "max")                                                                                            \
  TKC_NUMBER(Eq, 2, "==")                                                                                              \
  TKC_NUMBER(Ne, 2, "!=")                                                                                              \
  TKC_NUMBER(Lt, 2, "<")                                                                                               \
  TKC_NUMBER(Le, 2, "<=")                                                                                              \
  TKC_NUMBER(Gt, 2, ">")                                                                                               \
  TKC_NUMBER(Ge, 2, ">=")                                                                                              \
  TKC_NUMBER(And, 2, "&&")                                                                                             \
  TKC_NUMBER(Or, 2, "||")                                                                                              \
  TKC_NUMBER(Where, 3, "?")

struct NumberExpr {
  enum class Op : uint8_t {
    Const,   // value
    Scalar,  // name: a floating-point parameter of the program
    Integer, // integer
#define TKC_NUMBER(name, ...) name,
    TKC_NUMBERS
#undef TKC_NUMBER
  } op = Op::Const;
  DType dtype = DType::F32; // of the value
  double value = 0;
  std::string name;
  ir::SizeExpr integer;
  std::vector<NumberExpr> args;

  // Nothing where an integer has no value. `scalar` gives the value of a parameter, `size` that of a symbol.
  std::optional<double> eval(const std::function<std::optional<double>(const std::string &)> &scalar,
                             const ir::SizeExpr::Lookup &size) const;
  static const char *json_name(Op op);
};
std::optional<NumberExpr::Op> number_op(ir::OpKind kind);

} // namespace tkc::sema

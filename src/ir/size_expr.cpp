#include "ir/size_expr.h"
#include "support/check.h"
#include <algorithm>

namespace tkc::ir {

using Op = SizeExpr::Op;

SizeExpr SizeExpr::constant(int64_t v) { return SizeExpr(std::make_shared<const Node>(Node{Op::Const, v, "", {}})); }
SizeExpr SizeExpr::symbol(std::string name) {
  return SizeExpr(std::make_shared<const Node>(Node{Op::Sym, 0, std::move(name), {}}));
}

static std::optional<int64_t> apply(Op op, int64_t a, int64_t b) {
  int64_t out;
  switch (op) {
  case Op::Const:
  case Op::Sym:
  case Op::Select: break;
  case Op::Add: return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Op::Sub: return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Op::Mul: return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Op::Div:
  case Op::CDiv:
  case Op::Rem:
    if (b == 0 || (b == -1 && a == INT64_MIN)) return std::nullopt;
    if (op == Op::Rem) return a % b;
    return a / b + (op == Op::CDiv && a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
  case Op::Min: return std::min(a, b);
  case Op::Max: return std::max(a, b);
  case Op::Eq: return a == b;
  case Op::Ne: return a != b;
  case Op::Lt: return a < b;
  case Op::Le: return a <= b;
  case Op::Gt: return a > b;
  case Op::Ge: return a >= b;
  case Op::And: return a && b;
  case Op::Or: return a || b;
  case Op::Not: return !a;
  }
  TKC_UNREACHABLE("SizeExpr::apply");
}

SizeExpr SizeExpr::make(Op op, SizeExpr a, SizeExpr b) {
  if (a.is_const() && (op == Op::Not || b.is_const()))
    if (auto v = apply(op, a.value(), op == Op::Not ? 0 : b.value())) return constant(*v);
  if (op == Op::Not) b = constant(0);
  bool one = b.is_const() && b.value() == 1;
  if (one && (op == Op::Mul || op == Op::Div || op == Op::CDiv)) return a;
  if (a.is_const() && a.value() == 1 && op == Op::Mul) return b;
  if (b.is_const() && b.value() == 0 && (op == Op::Add || op == Op::Sub)) return a;
  if (a.is_const() && a.value() == 0 && op == Op::Add) return b;
  return SizeExpr(std::make_shared<const Node>(Node{op, 0, "", {std::move(a), std::move(b)}}));
}

SizeExpr SizeExpr::select(SizeExpr cond, SizeExpr yes, SizeExpr no) {
  if (cond.is_const()) return cond.value() ? yes : no;
  return SizeExpr(
      std::make_shared<const Node>(Node{Op::Select, 0, "", {std::move(cond), std::move(yes), std::move(no)}}));
}

SizeExpr SizeExpr::substitute(const std::function<std::optional<SizeExpr>(const std::string &)> &by) const {
  if (is_const()) return *this;
  if (op() == Op::Sym) return by(name()).value_or(*this);
  if (op() == Op::Select) return select(a().substitute(by), b().substitute(by), c().substitute(by));
  return make(op(), a().substitute(by), b().substitute(by));
}

std::optional<int64_t> SizeExpr::eval(const Lookup &lookup) const {
  if (is_const()) return value();
  if (op() == Op::Sym) return lookup(name());
  auto x = a().eval(lookup);
  if (op() == Op::Select) return x ? (*x ? b() : c()).eval(lookup) : std::nullopt;
  auto y = b().eval(lookup);
  if (!x || !y) return std::nullopt;
  return apply(op(), *x, *y);
}

void SizeExpr::symbols(std::vector<std::string> &out) const {
  if (op() == Op::Sym) {
    if (std::find(out.begin(), out.end(), name()) == out.end()) out.push_back(name());
    return;
  }
  for (const SizeExpr &e : node_->args) e.symbols(out);
}

namespace {
struct Spelling {
  const char *text;
  int precedence; // 0: a call
};
Spelling spelling(Op op) {
  switch (op) {
  case Op::Const:
  case Op::Sym: return {"", 9};
  case Op::Add: return {"+", 5};
  case Op::Sub: return {"-", 5};
  case Op::Mul: return {"*", 6};
  case Op::Div: return {"/", 6};
  case Op::Rem: return {"%", 6};
  case Op::CDiv: return {"cdiv", 0};
  case Op::Min: return {"min", 0};
  case Op::Max: return {"max", 0};
  case Op::Eq: return {"==", 3};
  case Op::Ne: return {"!=", 3};
  case Op::Lt: return {"<", 4};
  case Op::Le: return {"<=", 4};
  case Op::Gt: return {">", 4};
  case Op::Ge: return {">=", 4};
  case Op::And: return {"&&", 2};
  case Op::Or: return {"||", 1};
  case Op::Not: return {"!", 8};
  case Op::Select: return {"?", 0};
  }
  return {"", 9};
}
} // namespace

std::string SizeExpr::str() const {
  if (is_const()) return std::to_string(value());
  if (op() == Op::Sym) return name();
  if (op() == Op::Select) return fmt::format("({} ? {} : {})", a().str(), b().str(), c().str());
  Spelling s = spelling(op());
  if (s.precedence == 0) return fmt::format("{}({}, {})", s.text, a().str(), b().str());
  auto wrap = [&](const SizeExpr &e, bool right) {
    int inner = spelling(e.op()).precedence;
    bool parens = inner != 0 && inner != 9 && (inner < s.precedence || (right && inner == s.precedence));
    return parens ? "(" + e.str() + ")" : e.str();
  };
  if (op() == Op::Not) return "!" + wrap(a(), true);
  return fmt::format("{} {} {}", wrap(a(), false), s.text, wrap(b(), true));
}

} // namespace tkc::ir

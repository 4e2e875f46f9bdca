#include "ir/size_expr.h"
#include "support/check.h"
#include <algorithm>

namespace tkc::ir {

using Operator = SizeExpr::Op;

SizeExpr SizeExpr::constant(int64_t v) {
  return SizeExpr(std::make_shared<const Node>(Node{Operator::Const, v, "", {}}));
}
SizeExpr SizeExpr::symbol(std::string name) {
  return SizeExpr(std::make_shared<const Node>(Node{Operator::Sym, 0, std::move(name), {}}));
}

static std::optional<int64_t> apply(Operator op, int64_t a, int64_t b) {
  int64_t out;
  switch (op) {
  case Operator::Const:
  case Operator::Sym:
  case Operator::Select: break;
  case Operator::Add: return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Operator::Sub: return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Operator::Mul: return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case Operator::Div:
  case Operator::CDiv:
  case Operator::Rem:
    if (b == 0 || (b == -1 && a == INT64_MIN)) return std::nullopt;
    if (op == Operator::Rem) return a % b;
    return a / b + (op == Operator::CDiv && a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
  case Operator::Min: return std::min(a, b);
  case Operator::Max: return std::max(a, b);
  case Operator::Eq: return a == b;
  case Operator::Ne: return a != b;
  case Operator::Lt: return a < b;
  case Operator::Le: return a <= b;
  case Operator::Gt: return a > b;
  case Operator::Ge: return a >= b;
  case Operator::And: return a && b;
  case Operator::Or: return a || b;
  case Operator::Not: return !a;
  }
  TKC_UNREACHABLE("SizeExpr::apply");
}

SizeExpr SizeExpr::make(Operator op, SizeExpr a, SizeExpr b) {
  if (a.is_const() && (op == Operator::Not || b.is_const()))
    if (auto v = apply(op, a.value(), op == Operator::Not ? 0 : b.value())) return constant(*v);
  if (op == Operator::Not) b = constant(0);
  bool one = b.is_const() && b.value() == 1;
  if (one && (op == Operator::Mul || op == Operator::Div || op == Operator::CDiv)) return a;
  if (a.is_const() && a.value() == 1 && op == Operator::Mul) return b;
  if (b.is_const() && b.value() == 0 && (op == Operator::Add || op == Operator::Sub)) return a;
  if (a.is_const() && a.value() == 0 && op == Operator::Add) return b;
  if (a.is_const() && a.value() == 0 && op == Operator::And) return constant(0); // whatever b is
  if (a.is_const() && a.value() != 0 && op == Operator::Or) return constant(1);
  return SizeExpr(std::make_shared<const Node>(Node{op, 0, "", {std::move(a), std::move(b)}}));
}

SizeExpr SizeExpr::select(SizeExpr cond, SizeExpr yes, SizeExpr no) {
  if (cond.is_const()) return cond.value() ? yes : no;
  return SizeExpr(
      std::make_shared<const Node>(Node{Operator::Select, 0, "", {std::move(cond), std::move(yes), std::move(no)}}));
}

SizeExpr SizeExpr::substitute(const std::function<std::optional<SizeExpr>(const std::string &)> &by) const {
  if (is_const()) return *this;
  if (op() == Operator::Sym) return by(name()).value_or(*this);
  if (op() == Operator::Select) return select(a().substitute(by), b().substitute(by), c().substitute(by));
  return make(op(), a().substitute(by), b().substitute(by));
}

std::optional<int64_t> SizeExpr::eval(const Lookup &lookup) const {
  if (is_const()) return value();
  if (op() == Operator::Sym) return lookup(name());
  auto x = a().eval(lookup);
  if (op() == Operator::Select) return x ? (*x ? b() : c()).eval(lookup) : std::nullopt;
  auto y = b().eval(lookup);
  if (!x || !y) return std::nullopt;
  return apply(op(), *x, *y);
}

void SizeExpr::symbols(std::vector<std::string> &out) const {
  if (op() == Operator::Sym) {
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
Spelling spelling(Operator op) {
  switch (op) {
  case Operator::Const:
  case Operator::Sym: return {"", 9};
  case Operator::Add: return {"+", 5};
  case Operator::Sub: return {"-", 5};
  case Operator::Mul: return {"*", 6};
  case Operator::Div: return {"/", 6};
  case Operator::Rem: return {"%", 6};
  case Operator::CDiv: return {"cdiv", 0};
  case Operator::Min: return {"min", 0};
  case Operator::Max: return {"max", 0};
  case Operator::Eq: return {"==", 3};
  case Operator::Ne: return {"!=", 3};
  case Operator::Lt: return {"<", 4};
  case Operator::Le: return {"<=", 4};
  case Operator::Gt: return {">", 4};
  case Operator::Ge: return {">=", 4};
  case Operator::And: return {"&&", 2};
  case Operator::Or: return {"||", 1};
  case Operator::Not: return {"!", 8};
  case Operator::Select: return {"?", 0};
  }
  return {"", 9};
}
} // namespace

std::string SizeExpr::str() const {
  if (is_const()) return std::to_string(value());
  if (op() == Operator::Sym) return name();
  if (op() == Operator::Select) return fmt::format("({} ? {} : {})", a().str(), b().str(), c().str());
  Spelling s = spelling(op());
  if (s.precedence == 0) return fmt::format("{}({}, {})", s.text, a().str(), b().str());
  auto wrap = [&](const SizeExpr &e, bool right) {
    int inner = spelling(e.op()).precedence;
    bool parens = inner != 0 && inner != 9 && (inner < s.precedence || (right && inner == s.precedence));
    return parens ? "(" + e.str() + ")" : e.str();
  };
  if (op() == Operator::Not) return "!" + wrap(a(), true);
  return fmt::format("{} {} {}", wrap(a(), false), s.text, wrap(b(), true));
}

} // namespace tkc::ir

// Expressions of a wanted type. Choices are made one a statement: the order in which arguments of a call are evaluated
// differs between compilers, and a seed means one program everywhere. Every function gives nothing where the type does
// not allow it; expr() then takes a leaf.
#include "generator.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tkc::fuzz {

Val Generator::clamp(const Val &v, double most) {
  Val out = v;
  out.text = fmt::format("min(max({}, {}), {})", v.text,
                         number(v.dtype, is_float(v.dtype) || is_signed(v.dtype) ? -most : 0), number(v.dtype, most));
  if (is_float(v.dtype)) {
    out.bound.most = std::min(v.bound.most, most);
    out.bound.grid = std::min(v.bound.grid, 0);
  } else {
    out.bound = integers_between(is_signed(v.dtype) ? std::max(v.bound.low, -most) : std::max(v.bound.low, 0.0),
                                 std::min(v.bound.high, most));
  }
  return out;
}

Val Generator::fit(const Val &v, double most) {
  if (!is_float(v.dtype) || v.bound.most <= most) return v;
  return clamp(v, std::max(1.0, std::floor(most)));
}

Val Generator::arithmetic(const char *op, DType t, Val a, Val b, const Shape &s, bool exact) {
  auto result = [&] { return *op == '*' ? multiply(t, a.bound, b.bound) : add(t, a.bound, b.bound, *op == '-'); };
  Bound r = result();
  if (is_float(t)) {
    // Numbers of few bits: integers of this size and the grid below them add and multiply exactly.
    bool both = a.bound.exact() && b.bound.exact();
    if (exact && !r.exact()) {
      if (a.bound.grid < 0) a = {fmt::format("floor({})", a.text), t, a.shape, floats_upto(a.bound.most + 1, 0)};
      if (b.bound.grid < 0) b = {fmt::format("round({})", b.text), t, b.shape, floats_upto(b.bound.most + 1, 0)};
      int bits = format_of(t).precision;
      double most = std::ldexp(1, *op == '*' ? bits / 2 : bits - 1) - 1;
      a = fit(a, most), b = fit(b, most);
      r = result();
    } else if (r.most > format_of(t).largest || (!both && r.most > 1e4)) {
      a = fit(a, 8), b = fit(b, 8);
      r = result();
    }
  }
  return {fmt::format("({} {} {})", a.text, op, b.text), t, s, r};
}

Val Generator::broadcast_of(DType t, const Shape &s, int depth, bool exact) {
  if (s.size() < 2 || !c_.chance(25)) return expr(t, s, depth, exact);
  Shape part = s;
  size_t d = c_.pick(uint32_t(s.size()));
  if (s.size() == 2 || c_.chance(50)) { // one dim less, and an index that puts it back
    part.erase(part.begin() + std::ptrdiff_t(d));
    Val v = expr(t, part, depth, exact);
    std::vector<std::string> index(s.size(), ":");
    index[d] = "None";
    v.text = fmt::format("{}[{}]", v.text, fmt::join(index, ", "));
    v.shape = s;
    v.shape[d] = 1;
    return v;
  }
  part[d] = 1;
  return expr(t, part, depth, exact);
}

std::optional<Val> Generator::convert(DType t, const Shape &s, int depth, bool exact) {
  DType from = any_dtype(false);
  if (is_float(t) && c_.chance(20)) from = c_.chance(50) ? DType::E4M3 : DType::E5M2;
  if (from == t) from = t == DType::F32 ? DType::BF16 : DType::F32;
  bool eight = from == DType::E4M3 || from == DType::E5M2;
  Val v;
  if (eight) { // to 8 bits and back
    v = expr(DType::F32, s, depth, exact);
    if (v.bound.most > 400) v = clamp(v, 400);
    v = {fmt::format("{}({})", dtype_name(from), v.text), from, s, cast(DType::F32, from, v.bound)};
  } else {
    v = expr(from, s, depth, exact || !is_float(t));
  }
  if (is_float(t)) {
    double most = format_of(t).largest;
    if (is_float(from) && v.bound.most > most) v = clamp(v, most);
    if (is_integer(from) && std::max(v.bound.high, -v.bound.low) > most)
      v = clamp(v, is_signed(from) && dtype_bits(from) == 8 ? 127 : most);
  }
  // Half a unit of a narrow type is much beside small numbers.
  Bound b = cast(from, t, v.bound);
  std::string text = c_.chance(80) || is_bool(t) ? fmt::format("{}({})", dtype_name(t), v.text)
                                                 : fmt::format("cast({}, {})", v.text, dtype_name(t));
  if (is_bool(t)) text = fmt::format("({} != {})", v.text, is_bool(from) ? "false" : "0");
  return Val{text, t, s, b};
}

std::optional<Val> Generator::float_op(DType t, const Shape &s, int depth, bool exact) {
  uint32_t way = c_.pick(exact ? 9 : 14);
  if (way == 0) {
    Val v = expr(t, s, depth, exact);
    v.text = c_.chance(50) ? fmt::format("abs({})", v.text) : fmt::format("(-{})", v.text);
    return v;
  }
  if (way <= 3) {
    Val a = expr(t, s, depth, exact), b = broadcast_of(t, s, depth, exact);
    if (c_.chance(30)) std::swap(a, b);
    const char *ops[] = {"+", "*", "-"};
    return arithmetic(ops[way - 1], t, a, b, s, exact);
  }
  if (way <= 5) {
    Val a = expr(t, s, depth, exact), b = broadcast_of(t, s, depth, exact);
    return Val{fmt::format("{}({}, {})", way == 4 ? "max" : "min", a.text, b.text), t, s, either(t, a.bound, b.bound)};
  }
  if (way == 6) {
    Val cond = broadcast_of(DType::Bool, s, depth, true), a = expr(t, s, depth, exact), b = expr(t, s, depth, exact);
    const char *form = c_.chance(50) ? "where({}, {}, {})" : "({} ? {} : {})";
    return Val{fmt::format(fmt::runtime(form), cond.text, a.text, b.text), t, s, either(t, a.bound, b.bound)};
  }
  if (way == 7) {
    static const std::vector<const char *> list = {"floor", "ceil", "round", "trunc"};
    Val v = expr(t, s, depth, true);
    return Val{fmt::format("{}({})", c_.of(list), v.text), t, s,
               rounded(t, floats_upto(std::ceil(v.bound.most), std::max(0, std::min(v.bound.grid, 0))))};
  }
  if (way == 8) {
    Val a = expr(t, s, depth, exact), b = expr(t, s, depth, exact), d = expr(t, s, depth, exact);
    double most = std::ldexp(1, format_of(t).precision / 2 - 2);
    auto whole = [&](Val v) {
      if (v.bound.grid < 0 && exact) v = {fmt::format("round({})", v.text), t, s, floats_upto(v.bound.most + 1, 0)};
      return fit(v, most);
    };
    a = whole(a), b = whole(b), d = whole(d);
    Bound p = multiply(t, a.bound, b.bound);
    return Val{fmt::format("fma({}, {}, {})", a.text, b.text, d.text), t, s, add(t, p, d.bound)};
  }
  // Approximate functions on arguments of moderate size, away from their poles; their error is that of the op's doc.
  Val v = expr(t, s, depth, false);
  if (v.bound.most > 4) v = clamp(v, 4);
  if (v.bound.error > 0.05) return v;
  double most = v.bound.most, error = v.bound.error;
  double approx = t == DType::F64 ? 1e-11 : 1e-5, half = t == DType::F16 || t == DType::BF16 ? 2e-3 : 0;
  auto result = [&](const std::string &text, double size, double slope) {
    return Val{text, t, s, rounded(t, floats_upto(size, -2000, error * slope + (approx + half) * (1 + size)))};
  };
  switch (way) {
  case 9: {
    static const std::vector<const char *> list = {"exp", "exp2", "expm1"};
    return result(fmt::format("{}({})", c_.of(list), v.text), std::exp(most), 2 * std::exp(most));
  }
  case 10: {
    static const std::vector<const char *> list = {"tanh", "sigmoid", "erf", "sin", "cos"};
    size_t k = c_.pick(5);
    const char *precise = c_.chance(20) ? ", precise = true" : "";
    return result(fmt::format("{}({}{})", list[k], v.text, precise), 1.01, 1.2);
  }
  case 11: {
    static const std::vector<const char *> list = {"sqrt", "rsqrt", "log", "log2", "log1p", "rcp"};
    error = add(t, v.bound, floats_upto(1, 0)).error;
    return result(fmt::format("{}((abs({}) + 1.0))", c_.of(list), v.text), most + 1, 1.5);
  }
  default: {
    Val by = expr(t, s, depth, false);
    if (by.bound.most > 8) by = clamp(by, 8);
    double other = add(t, by.bound, floats_upto(1, 0)).error;
    if (other > 0.05) return v;
    const char *form = c_.chance(70) ? "({} / (abs({}) + 1.0))" : "div({}, abs({}) + 1.0, precise = true)";
    error += most * other;
    return result(fmt::format(fmt::runtime(form), v.text, by.text), most, 1.2);
  }
  }
}

std::optional<Val> Generator::integer_op(DType t, const Shape &s, int depth) {
  uint32_t way = c_.pick(10);
  if (way == 0) {
    Val v = expr(t, s, depth, true);
    const char *form = c_.chance(33) ? "abs({})" : c_.chance(50) ? "(~{})" : "(-{})";
    return Val{fmt::format(fmt::runtime(form), v.text), t, s, wrapped(t, -1e30, 1e30)};
  }
  if (way <= 3) {
    Val a = expr(t, s, depth, true), b = broadcast_of(t, s, depth, true);
    const char *ops[] = {"+", "*", "-"};
    return arithmetic(ops[way - 1], t, a, b, s, true);
  }
  if (way == 4) {
    Val a = expr(t, s, depth, true), b = broadcast_of(t, s, depth, true);
    return Val{fmt::format("{}({}, {})", c_.chance(50) ? "max" : "min", a.text, b.text), t, s,
               either(t, a.bound, b.bound)};
  }
  if (way == 5) {
    static const std::vector<const char *> list = {"&", "|", "^"};
    Val a = expr(t, s, depth, true), b = broadcast_of(t, s, depth, true);
    return Val{fmt::format("({} {} {})", a.text, c_.of(list), b.text), t, s, wrapped(t, -1e30, 1e30)};
  }
  if (way == 6) {
    Val a = expr(t, s, depth, true);
    Val by = c_.chance(60) ? constant(t, {}) : expr(t, s, depth, true);
    if (by.shape.empty()) by.text = std::to_string(c_.pick(uint32_t(dtype_bits(t))));
    return Val{fmt::format("({} {} {})", a.text, c_.chance(50) ? ">>" : "<<", by.text), t, s, wrapped(t, -1e30, 1e30)};
  }
  if (way == 7) { // a positive divisor
    Val a = expr(t, s, depth, true);
    std::string by = std::to_string(1 + c_.pick(17));
    if (c_.chance(30)) by = fmt::format("max({}, {})", expr(t, s, depth, true).text, by);
    bool remainder = c_.chance(50);
    return Val{fmt::format("({} {} {})", a.text, remainder ? "%" : "/", by), t, s,
               integers_between(std::min(a.bound.low, 0.0), std::max(a.bound.high, 0.0))};
  }
  if (way == 8) {
    Val cond = broadcast_of(DType::Bool, s, depth, true), a = expr(t, s, depth, true), b = expr(t, s, depth, true);
    return Val{fmt::format("where({}, {}, {})", cond.text, a.text, b.text), t, s, either(t, a.bound, b.bound)};
  }
  DType other = t == DType::I32   ? DType::U32
                : t == DType::U32 ? DType::I32
                : t == DType::I64 ? DType::U64
                : t == DType::U64 ? DType::I64
                : t == DType::I16 ? DType::U16
                : t == DType::U16 ? DType::I16
                : t == DType::I8  ? DType::U8
                                  : DType::I8;
  Val v = expr(other, s, depth, true);
  return Val{fmt::format("bitcast({}, {})", v.text, dtype_name(t)), t, s, wrapped(t, -1e30, 1e30)};
}

std::optional<Val> Generator::bool_op(const Shape &s, int depth) {
  uint32_t way = c_.pick(6);
  if (way <= 3) {
    static const std::vector<const char *> list = {"<", "<=", "==", "!=", ">", ">="};
    DType t = any_dtype();
    Val a = expr(t, s, depth, true);
    if (way <= 1) {
      const char *op = c_.of(list);
      return Val{fmt::format("({} {} {})", a.text, op, number(t, c_.pick(4))), DType::Bool, s, integers_between(0, 1)};
    }
    Val b = broadcast_of(t, s, depth, true);
    return Val{fmt::format("({} {} {})", a.text, c_.of(list), b.text), DType::Bool, s, integers_between(0, 1)};
  }
  Val a = expr(DType::Bool, s, depth, true);
  if (way == 4) return Val{fmt::format("(!{})", a.text), DType::Bool, s, integers_between(0, 1)};
  static const std::vector<const char *> list = {"&", "|", "^"};
  Val b = broadcast_of(DType::Bool, s, depth, true);
  return Val{fmt::format("({} {} {})", a.text, c_.of(list), b.text), DType::Bool, s, integers_between(0, 1)};
}

Val Generator::expr(DType t, const Shape &s, int depth, bool exact) {
  Choices::Scope scope(c_);
  if (depth <= 0 || --budget_ <= 0) return leaf(t, s, exact);
  std::optional<Val> v;
  switch (c_.pick(12)) {
  case 0: return leaf(t, s, exact);
  case 1:
  case 2: v = convert(t, s, depth - 1, exact); break;
  case 3: v = shape_op(t, s, depth - 1, exact); break;
  case 4: v = reduction(t, s, depth - 1, exact); break;
  case 5: v = scan(t, s, depth - 1, exact); break;
  case 6:
  case 7: v = product(t, s, depth - 1, exact); break;
  default:
    v = is_float(t)  ? float_op(t, s, depth - 1, exact)
        : is_bool(t) ? bool_op(s, depth - 1)
                     : integer_op(t, s, depth - 1);
    break;
  }
  if (!v || (exact && !v->bound.exact()) || (is_float(t) && !(v->bound.error < 1e3))) return leaf(t, s, exact);
  if (is_float(t) && v->bound.most > format_of(t).largest) return clamp(*v, 1000);
  return *v;
}

Val Generator::scalar(DType t, int depth) {
  if (depth > 0 && c_.chance(40)) { // of a tile
    Shape s = any_shape(1, 2);
    Val v = expr(t, s, depth - 1, true);
    const char *op = is_bool(t) ? (c_.chance(50) ? "any" : "all") : c_.chance(50) ? "max" : "min";
    return {fmt::format("{}({})", op, v.text), t, {}, v.bound};
  }
  return leaf(t, {}, true);
}
Val Generator::condition(int depth) {
  if (c_.chance(20)) return scalar(DType::Bool, depth);
  DType t = c_.chance(60) ? DType::I32 : any_dtype();
  Val v = scalar(t, depth);
  bool divides = t == DType::I32 && c_.chance(50);
  uint32_t by = 2 + c_.pick(2), to = c_.pick(4);
  if (divides) return {fmt::format("{} % {} == {}", v.text, by, to % 2), DType::Bool, {}, integers_between(0, 1)};
  return {
      fmt::format("{} {} {}", v.text, by == 2 ? ">" : "<=", number(t, to)), DType::Bool, {}, integers_between(0, 1)};
}

} // namespace tkc::fuzz

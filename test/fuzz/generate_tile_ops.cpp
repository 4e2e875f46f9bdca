// Expressions that move elements or combine them: shapes, reductions, scans, products.
#include "generator.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace tkc::fuzz {

std::optional<Val> Generator::shape_op(DType t, const Shape &s, int depth, bool exact) {
  if (s.empty()) return std::nullopt;
  size_t d = c_.pick(uint32_t(s.size()));
  switch (c_.pick(6)) {
  case 0: { // transpose
    if (s.size() < 2) return std::nullopt;
    std::vector<int64_t> perm(s.size());
    std::iota(perm.begin(), perm.end(), 0);
    for (size_t k = perm.size(); k-- > 1;) std::swap(perm[k], perm[c_.pick(uint32_t(k) + 1)]);
    if (s.size() == 2) perm = {1, 0};
    Shape from(s.size());
    for (size_t k = 0; k < s.size(); k++) from[size_t(perm[k])] = s[k];
    Val v = expr(t, from, depth, exact);
    v.text = s.size() == 2 ? v.text + ".T" : fmt::format("transpose({}, {})", v.text, shape_text(perm));
    v.shape = s;
    return v;
  }
  case 1: { // a part of something larger
    Shape from = s;
    from[d] += c_.chance(50) ? s[d] : 1 + c_.pick(8);
    if (elements(from) > kMostElements) return std::nullopt;
    Val v = expr(t, from, depth, exact);
    int64_t at = c_.chance(50) ? from[d] - s[d] : c_.pick(uint32_t(from[d] - s[d]) + 1);
    std::vector<std::string> index(s.size(), ":");
    index[d] = fmt::format("{} : {}", at, at + s[d]);
    v.text = fmt::format("{}[{}]", v.text, fmt::join(index, ", "));
    v.shape = s;
    return v;
  }
  case 2: { // two parts
    if (s[d] < 2) return std::nullopt;
    Shape a = s, b = s;
    a[d] = s[d] % 2 == 0 && c_.chance(70) ? s[d] / 2 : 1 + c_.pick(uint32_t(s[d] - 1));
    b[d] = s[d] - a[d];
    Val x = expr(t, a, depth, exact), y = expr(t, b, depth, exact);
    return Val{fmt::format("concat({}, {}, axis = {})", x.text, y.text, d), t, s, either(t, x.bound, y.bound)};
  }
  case 3: { // reshape
    Shape from;
    if (s.size() >= 2 && c_.chance(50)) { // two dims made of one
      from = s;
      size_t k = c_.pick(uint32_t(s.size() - 1));
      from[k] *= from[k + 1];
      from.erase(from.begin() + std::ptrdiff_t(k) + 1);
    } else {
      std::vector<int64_t> factors;
      for (int64_t f : {2, 3, 4, 5, 8, 16})
        if (s[d] % f == 0 && s[d] > f) factors.push_back(f);
      if (factors.empty() || s.size() >= 3) return std::nullopt;
      int64_t f = c_.of(factors);
      from = s;
      from[d] = s[d] / f;
      from.insert(from.begin() + std::ptrdiff_t(d) + 1, f);
    }
    Val v = expr(t, from, depth, exact);
    v.text = fmt::format("reshape({}, {})", v.text, shape_text(s));
    v.shape = s;
    return v;
  }
  case 4: { // broadcast
    Shape from = s;
    from[d] = 1;
    Val v = expr(t, from, depth, exact);
    v.text = fmt::format("broadcast({}, {})", v.text, shape_text(s));
    v.shape = s;
    return v;
  }
  default: { // one row of more
    if (s.size() >= 3) return std::nullopt;
    int64_t n = 2 + c_.pick(3);
    Shape from = s;
    from.insert(from.begin() + std::ptrdiff_t(d), n);
    if (elements(from) > kMostElements) return std::nullopt;
    Val v = expr(t, from, depth, exact);
    std::vector<std::string> index(from.size(), ":");
    index[d] = std::to_string(c_.pick(uint32_t(n)));
    v.text = fmt::format("{}[{}]", v.text, fmt::join(index, ", "));
    v.shape = s;
    return v;
  }
  }
}

std::optional<Val> Generator::reduction(DType t, const Shape &s, int depth, bool exact) {
  if (s.size() >= 3) return std::nullopt;
  size_t d = c_.pick(uint32_t(s.size()) + 1);
  Shape from = s;
  int64_t n = dim();
  from.insert(from.begin() + std::ptrdiff_t(d), n);
  if (elements(from) > kMostElements) return std::nullopt;
  if (is_bool(t)) {
    Val v = expr(t, from, depth, true);
    return Val{fmt::format("{}({}, axis = {})", c_.chance(50) ? "any" : "all", v.text, d), t, s, v.bound};
  }
  uint32_t way = c_.pick(6);
  if (t == DType::I32 && way == 5) {
    Val v = expr(any_dtype(), from, depth, true);
    return Val{fmt::format("{}({}, axis = {})", c_.chance(50) ? "argmax" : "argmin", v.text, d), t, s,
               integers_between(0, double(n - 1))};
  }
  Val v = expr(t, from, depth, exact);
  if (way <= 1) return Val{fmt::format("{}({}, axis = {})", way == 0 ? "max" : "min", v.text, d), t, s, v.bound};
  if (way == 2 && is_integer(t))
    return Val{fmt::format("prod({}, axis = {})", v.text, d), t, s, wrapped(t, -1e30, 1e30)};
  DType wide = t == DType::F64 ? DType::F64 : DType::F32;
  if (is_float(t)) {
    double most = std::min(std::ldexp(1, format_of(wide).precision - 2) / double(n), format_of(t).largest / double(n));
    if (exact && v.bound.grid < 0) v = {fmt::format("round({})", v.text), t, from, floats_upto(v.bound.most + 1, 0)};
    if (v.bound.most > most) v = fit(v, most);
  }
  return Val{fmt::format("sum({}, axis = {})", v.text, d), t, s, sum(t, wide, v.bound, double(n))};
}

std::optional<Val> Generator::scan(DType t, const Shape &s, int depth, bool exact) {
  if (s.empty() || is_bool(t)) return std::nullopt;
  size_t d = c_.pick(uint32_t(s.size()));
  Val v = expr(t, s, depth, exact);
  uint32_t way = c_.pick(4);
  std::string options = fmt::format("axis = {}", d);
  if (c_.chance(40)) options += ", reverse = true";
  bool exclusive = way < 2 && c_.chance(40);
  if (exclusive) options += ", exclusive = true";
  if (way == 3 && is_integer(t))
    return Val{fmt::format("cumprod({}, {})", v.text, options), t, s, wrapped(t, -1e30, 1e30)};
  if (way >= 2) return Val{fmt::format("{}({}, {})", way == 2 ? "cummax" : "cummin", v.text, options), t, s, v.bound};
  DType wide = t == DType::F64 ? DType::F64 : DType::F32;
  if (is_float(t)) {
    double most =
        std::min(std::ldexp(1, format_of(wide).precision - 2) / double(s[d]), format_of(t).largest / double(s[d]));
    if (exact && v.bound.grid < 0) v = {fmt::format("round({})", v.text), t, s, floats_upto(v.bound.most + 1, 0)};
    if (v.bound.most > most) v = fit(v, most);
  }
  Bound b = sum(t, wide, v.bound, double(s[d]));
  if (!is_float(t)) b = either(t, b, integers_between(0, 0));
  return Val{fmt::format("cumsum({}, {})", v.text, options), t, s, b};
}

std::optional<Val> Generator::product(DType t, const Shape &s, int depth, bool exact) {
  if (s.size() != 2) return std::nullopt;
  // Operands of products that accumulate in t.
  std::vector<DType> list;
  if (t == DType::F32) list = {DType::BF16, DType::F16, DType::F32, DType::TF32};
  if (t == DType::F16) list = {DType::F16};
  if (t == DType::F64) list = {DType::F64};
  if (t == DType::I32) list = {DType::I8};
  if (has_fp8() && t == DType::F32) list.insert(list.end(), {DType::E4M3, DType::E5M2});
  if (list.empty()) return std::nullopt;
  DType from = c_.of(list);
  int64_t k = dim();
  if (std::max(s[0], s[1]) * k > kMostElements || s[0] * s[1] * k > 300000) return std::nullopt;
  bool precise = from == DType::F32 && c_.chance(30);
  int bits = from == DType::I8 ? 0 : from == DType::F32 && !precise ? 11 : format_of(from).precision;
  double whole = t == DType::I32 ? 0 : std::ldexp(1, std::min(format_of(t).precision, 20));
  auto operand = [&](Shape shape) {
    bool turned = c_.chance(40);
    if (turned) std::swap(shape[0], shape[1]);
    bool storage = from == DType::TF32 || from == DType::E4M3 || from == DType::E5M2;
    Val v;
    if (storage && c_.chance(60) && params_.size() < kMostParams) {
      v = load(from, shape);
    } else if (storage) {
      v = expr(DType::F32, shape, depth, exact);
      if (v.bound.most > 16) v = clamp(v, 16);
      v = {fmt::format("{}({})", dtype_name(from), v.text), from, shape, cast(DType::F32, from, v.bound)};
    } else {
      v = expr(from, shape, depth, exact || t == DType::I32);
    }
    // Few bits, so that products and their sum are exact.
    if (is_float(from)) {
      double most = std::min(std::ldexp(1, bits) - 1, std::floor(std::sqrt(whole / double(k))));
      bool coarse = v.bound.exact() && v.bound.grid >= -2 && v.bound.most * std::ldexp(1, -2 * v.bound.grid) <= most;
      if (exact && !coarse && !storage) {
        if (v.bound.grid < 0) v = {fmt::format("round({})", v.text), from, shape, floats_upto(v.bound.most + 1, 0)};
        v = fit(v, most);
      }
      if (v.bound.most > 64 && !storage && !v.bound.exact()) v = clamp(v, 64);
      if (v.bound.most > 100 && !storage && t == DType::F16) v = clamp(v, 8);
    }
    if (turned) v.text += ".T", std::swap(v.shape[0], v.shape[1]);
    return v;
  };
  Val a = operand({s[0], k}), b = operand({k, s[1]});
  std::string options;
  Bound sum_bound;
  if (t == DType::I32) {
    double most = std::max(std::fabs(a.bound.low), std::fabs(a.bound.high)) *
                  std::max(std::fabs(b.bound.low), std::fabs(b.bound.high)) * double(k);
    sum_bound = wrapped(t, -most, most);
  } else {
    // tf32 keeps 11 bits of an f32 operand.
    auto taken = [&](Bound x) {
      bool fits = from != DType::F32 || precise || x.most <= std::ldexp(1, x.grid + 11);
      if (!fits) x.error += x.most * std::ldexp(1, -10);
      return x;
    };
    Bound x = taken(a.bound), y = taken(b.bound);
    double n = double(k), most = x.most * y.most * n;
    double error = n * (x.error * y.most + y.error * x.most + x.error * y.error);
    bool fits = error == 0 && most <= std::ldexp(whole, x.grid + y.grid);
    // Tensor cores may truncate where IEEE arithmetic rounds.
    if (!fits)
      error += 2 * (n + 4) * std::ldexp(1, -format_of(t).precision + 1) * (most + error) +
               n * std::ldexp(1, format_of(t).quantum);
    sum_bound = floats_upto(most + error, x.grid + y.grid, error);
    if (most > format_of(t).largest) return std::nullopt;
  }
  if (t == DType::F16) options = ", acc = f16";
  if (precise) options += c_.chance(50) ? ", precision = ieee" : ", precision = tf32x3";
  if (precise && !sum_bound.exact()) sum_bound.error += 4e-6 * sum_bound.most;
  sum_bound.terms = double(k) + 8;
  Val out{fmt::format("mma({}, {}{})", a.text, b.text, options), t, s, sum_bound};
  if (!c_.chance(35)) return out;
  Val acc = expr(t, s, depth, exact); // c + a b
  Bound bound = add(t, acc.bound, sum_bound);
  if (exact && !bound.exact()) return arithmetic("+", t, acc, out, s, exact);
  out.bound = bound;
  if (is_float(t) && bound.most > format_of(t).largest) return std::nullopt;
  out.text = c_.chance(50) ? fmt::format("mma({}, {}, {}{})", a.text, b.text, acc.text, options)
                           : fmt::format("(mma({}, {}{}) + {})", a.text, b.text, options, acc.text);
  return out;
}

} // namespace tkc::fuzz

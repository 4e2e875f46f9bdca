#include "passes/facts.h"
#include <numeric>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::SizeExpr;
using ir::Value;

namespace {

constexpr int64_t kMaxSize = INT32_MAX; // run-time sizes and extents are i32

} // namespace

IntRange int_range(DType t) {
  if (is_bool(t)) return {0, 1};
  Int one = 1, bits = dtype_bits(t);
  return is_signed(t) ? IntRange{-(one << (bits - 1)), (one << (bits - 1)) - 1} : IntRange{0, (one << bits) - 1};
}

Facts::Facts(const ir::Function &f) : f_(f) {
  symbols();
  block(*f.body);
}

// ---- sizes, extents, the grid

// The divisor that `where` facts give a symbol: M % 16 == 0, alone or joined by &&.
static void divisibility(const SizeExpr &e, std::map<std::string, int64_t> &out) {
  using O = SizeExpr::Op;
  if (e.op() == O::And) {
    divisibility(e.a(), out);
    divisibility(e.b(), out);
  }
  if (e.op() != O::Eq) return;
  bool left = e.b().is_const() && e.b().value() == 0;
  const SizeExpr &rem = left ? e.a() : e.b(), &zero = left ? e.b() : e.a();
  if (!zero.is_const() || zero.value() != 0 || rem.op() != O::Rem || rem.a().op() != O::Sym || !rem.b().is_const())
    return;
  int64_t c = std::abs(rem.b().value()), &d = out.try_emplace(rem.a().name(), 1).first->second;
  if (c >= 1 && c <= kMaxSize && std::lcm(c, d) <= kMaxSize) d = std::lcm(c, d);
}

void Facts::symbols() {
  std::map<std::string, int64_t> divisors;
  for (const SizeExpr &e : f_.facts) divisibility(e, divisors);
  // A size that is a multiple of d is d times a number, so that divisibility shows in coefficients.
  auto symbol = [&](const std::string &name, IntRange range) {
    auto it = divisors.find(name);
    Int d = it == divisors.end() ? 1 : it->second;
    int a = prover_.new_atom(d == 1 ? name : fmt::format("({}/{})", name, int64_t(d)));
    prover_.lower(a, d, range.lo);
    prover_.upper(a, d, range.hi);
    symbols_.emplace(name, Poly::atom(a) * Poly(d));
  };
  size_t arg = 0;
  for (const std::string &s : f_.sizes) symbol(s, {0, kMaxSize});
  for (const ir::Param &p : f_.params)
    if (p.type.is_scalar() && is_integer(p.type.dtype)) symbol(p.name, int_range(p.type.dtype));
  for (const ir::Param &p : f_.params) {
    if (!p.present) continue;
    const Value *v = f_.body->args[arg++];
    if (p.type.is_tensor())
      for (const SizeExpr &d : p.dims) {
        Poly e = size(d);
        prover_.assume(e);
        prover_.assume(Poly(kMaxSize) - e);
        extents_[v].push_back(e);
      }
    else if (auto it = symbols_.find(p.name); it != symbols_.end())
      values_[v] = it->second;
    else
      set_opaque(v);
  }
  for (const std::string &s : f_.sizes) values_[f_.body->args[arg++]] = symbols_.at(s);
  for (const SizeExpr &e : f_.facts) assume(e);
  for (const SizeExpr &g : f_.grid) {
    grid_.push_back(size(g));
    prover_.assume(grid_.back() - Poly(1));
  }
  program_ = new_program();
  prover_.settle(); // the body has loops, of which facts are guessed and then checked
}

std::vector<Poly> Facts::new_program() {
  std::vector<Poly> out;
  for (size_t axis = 0; axis < grid_.size(); axis++) {
    int a = prover_.new_atom(fmt::format("pid{}", axis));
    prover_.lower(a, 1, 0);
    prover_.upper(a, 1, kMaxSize);
    prover_.upper(a, 1, grid_[axis] - Poly(1));
    out.push_back(Poly::atom(a));
  }
  return out;
}

const std::vector<Poly> &Facts::tile(const ir::Value *number) {
  auto it = tiles_.find(number);
  if (it == tiles_.end()) it = tiles_.emplace(number, tiles_.empty() ? program_ : new_program()).first;
  return it->second;
}

void Facts::assume(const SizeExpr &e) {
  using O = SizeExpr::Op;
  auto at_least = [&](const SizeExpr &x, const SizeExpr &y, int64_t by) {
    prover_.assume(size(x) - size(y) - Poly(by));
  };
  switch (e.op()) {
  case O::And: assume(e.a()), assume(e.b()); return;
  case O::Eq: at_least(e.a(), e.b(), 0), at_least(e.b(), e.a(), 0); return;
  case O::Lt: return at_least(e.b(), e.a(), 1);
  case O::Le: return at_least(e.b(), e.a(), 0);
  case O::Gt: return at_least(e.a(), e.b(), 1);
  case O::Ge: return at_least(e.a(), e.b(), 0);
  case O::Const:
  case O::Sym:
  case O::Add:
  case O::Sub:
  case O::Mul:
  case O::Div:
  case O::CDiv:
  case O::Rem:
  case O::Min:
  case O::Max:
  case O::Ne:
  case O::Or:
  case O::Select:
  case O::Not: return;
  }
}

Poly Facts::size(const SizeExpr &e) {
  using O = SizeExpr::Op;
  switch (e.op()) {
  case O::Const: return Poly(e.value());
  case O::Sym: {
    auto it = symbols_.find(e.name());
    return it == symbols_.end() ? Poly::unknown() : it->second;
  }
  case O::Add: return size(e.a()) + size(e.b());
  case O::Sub: return size(e.a()) - size(e.b());
  case O::Mul: return size(e.a()) * size(e.b());
  case O::Div:
  case O::CDiv: {
    // Truncation is rounding down, and the two ways of rounding up agree, where nothing is negative.
    Poly x = size(e.a()), d = size(e.b());
    return prover_.nonnegative(x, nullptr) ? quotient(x, d, e.op() == O::CDiv, nullptr) : Poly::unknown();
  }
  case O::Rem: {
    Poly x = size(e.a()), d = size(e.b());
    return prover_.nonnegative(x, nullptr) ? x - d * quotient(x, d, false, nullptr) : Poly::unknown();
  }
  case O::Min: return choice(true, size(e.a()), size(e.b()), nullptr);
  case O::Max: return choice(false, size(e.a()), size(e.b()), nullptr);
  case O::Eq:
  case O::Ne:
  case O::Lt:
  case O::Le:
  case O::Gt:
  case O::Ge:
  case O::Select:
  case O::And:
  case O::Or:
  case O::Not: return atom_in("(" + e.str() + ")", 0, 1);
  }
  TKC_UNREACHABLE("size expression");
}

Poly Facts::atom_in(const std::string &name, Int lo, Int hi) {
  int a = prover_.new_atom(name);
  prover_.lower(a, 1, lo);
  prover_.upper(a, 1, hi);
  return Poly::atom(a);
}

// q with d q <= x < d q + d, or x <= d q < x + d. Unknown unless d is certainly positive.
Poly Facts::quotient(const Poly &x, const Poly &d, bool up, const Block *at) {
  if (!x.is_known() || !d.is_known() || !prover_.nonnegative(d - Poly(1), at)) return Poly::unknown();
  if (auto c = d.constant())
    if (auto q = x.divided_by(*c)) return *q;
  std::string key = fmt::format("{} / {} {}", x.str(), d.str(), up);
  auto it = known_.find(key);
  if (it == known_.end()) {
    int a = prover_.new_atom(fmt::format("{}(({}) / ({}))", up ? "ceil" : "floor", prover_.str(x), prover_.str(d)));
    prover_.lower(a, d, up ? x : x - d + Poly(1));
    prover_.upper(a, d, up ? x + d - Poly(1) : x);
    it = known_.emplace(key, Poly::atom(a)).first;
  }
  // Not to be had from the bounds above where d is a size: d q >= x - d + 1 says q > -1, which no proof concludes.
  int q = it->second.highest_atom();
  if (prover_.nonnegative(x, nullptr))
    prover_.lower(q, 1, 0);
  else if (prover_.nonnegative(x, at))
    prover_.lower(q, 1, 0, at);
  return it->second;
}

Poly Facts::choice(bool smaller, const Poly &a, const Poly &b, const Block *at) {
  if (!a.is_known() || !b.is_known()) return Poly::unknown();
  if (prover_.at_most(a, b, at)) return smaller ? a : b;
  if (prover_.at_most(b, a, at)) return smaller ? b : a;
  std::string key = fmt::format("{} {} {}", smaller, a.str(), b.str());
  auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  int m = prover_.new_atom(fmt::format("{}({}, {})", smaller ? "min" : "max", prover_.str(a), prover_.str(b)));
  for (const Poly &p : {a, b})
    if (smaller)
      prover_.upper(m, 1, p);
    else
      prover_.lower(m, 1, p);
  prover_.one_of(m, {a, b});
  return known_.emplace(key, Poly::atom(m)).first->second;
}

// ---- queries

Poly Facts::value(const Value *v) const {
  auto it = values_.find(v);
  return it == values_.end() ? Poly::unknown() : it->second;
}

Poly Facts::extent(const Value *tensor, int64_t dim) const {
  auto it = extents_.find(tensor);
  return it == extents_.end() ? Poly::unknown() : it->second[size_t(dim)];
}

int64_t Facts::divisor(const Poly &p) const {
  if (!p.is_known()) return 1;
  Int d = p.content();
  if (d == 0) return kAny;
  return d <= INT64_MAX ? int64_t(d) : 1;
}

bool Facts::in_bounds(const Op &access, int64_t dim) const {
  Poly start = value(access.operand(size_t(dim) + 1)), end = start + Poly(access.attrs.ints("sizes")[size_t(dim)]);
  return nonnegative(start, &access) && at_most(end, extent(access.operand(0), dim), &access);
}

} // namespace tkc::passes

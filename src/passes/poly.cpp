#include "passes/poly.h"
#include <algorithm>

namespace tkc::passes {

namespace {
constexpr size_t kMaxTerms = 64;
constexpr size_t kMaxDegree = 6;
} // namespace

Int gcd(Int a, Int b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  while (b != 0) {
    Int r = a % b;
    a = b;
    b = r;
  }
  return a;
}

void Poly::add(const Monomial &m, Int c) {
  Int &x = terms_[m];
  unknown_ |= __builtin_add_overflow(x, c, &x);
  if (x == 0) terms_.erase(m);
  unknown_ |= terms_.size() > kMaxTerms || m.size() > kMaxDegree;
}

Poly Poly::operator+(const Poly &o) const {
  Poly out = *this;
  for (const auto &[m, c] : o.terms_) {
    if (out.unknown_) break;
    out.add(m, c);
  }
  return out.unknown_ || o.unknown_ ? unknown() : out;
}

Poly Poly::operator*(const Poly &o) const {
  Poly out;
  for (const auto &[m, c] : terms_)
    for (const auto &[n, d] : o.terms_) {
      Monomial both;
      std::merge(m.begin(), m.end(), n.begin(), n.end(), std::back_inserter(both));
      Int product;
      out.unknown_ |= __builtin_mul_overflow(c, d, &product);
      if (out.unknown_) return unknown();
      out.add(both, product);
    }
  return out.unknown_ || unknown_ || o.unknown_ ? unknown() : out;
}

std::optional<Int> Poly::constant() const {
  if (unknown_ || terms_.size() > 1) return std::nullopt;
  if (terms_.empty()) return Int(0);
  return terms_.begin()->first.empty() ? std::optional(terms_.begin()->second) : std::nullopt;
}

Int Poly::constant_term() const {
  auto it = terms_.find({});
  return it == terms_.end() ? Int(0) : it->second;
}

int Poly::highest_atom() const {
  int a = -1;
  for (const auto &[m, c] : terms_)
    if (!m.empty()) a = std::max(a, m.back());
  return a;
}

Int Poly::content() const {
  Int g = 0;
  for (const auto &[m, c] : terms_) g = gcd(g, c);
  return g;
}

std::optional<Poly> Poly::divided_by(Int d) const {
  Poly out;
  for (const auto &[m, c] : terms_) {
    if (c % d != 0) return std::nullopt;
    out.terms_[m] = c / d;
  }
  return unknown_ ? std::nullopt : std::optional(out);
}

std::optional<Poly::Split> Poly::split(int atom) const {
  Split s;
  for (const auto &[m, c] : terms_) {
    auto at = std::find(m.begin(), m.end(), atom);
    if (at == m.end()) {
      s.rest.terms_[m] = c;
      continue;
    }
    Monomial without = m;
    without.erase(without.begin() + (at - m.begin()));
    if (std::find(without.begin(), without.end(), atom) != without.end()) return std::nullopt;
    s.coefficient.terms_[without] = c;
  }
  return unknown_ ? std::nullopt : std::optional(s);
}

Poly Poly::replace(int atom, const Poly &by) const {
  Poly out = unknown_ ? unknown() : Poly();
  for (const auto &[m, c] : terms_) {
    Poly term(c);
    for (int a : m) term = term * (a == atom ? by : Poly::atom(a));
    out = out + term;
  }
  return out;
}

std::string Poly::str() const {
  if (unknown_) return "?";
  std::string out;
  for (const auto &[m, c] : terms_) {
    bool negative = c < 0;
    if (!out.empty())
      out += negative ? " - " : " + ";
    else if (negative)
      out += "-";
    Int v = negative ? -c : c;
    std::string digits;
    for (; v != 0 || digits.empty(); v /= 10) digits.insert(digits.begin(), char('0' + int(v % 10)));
    if (m.empty() || digits != "1") out += digits + (m.empty() ? "" : "*");
    for (size_t i = 0; i < m.size(); i++) out += (i ? "*a" : "a") + std::to_string(m[i]);
  }
  return out.empty() ? "0" : out;
}

} // namespace tkc::passes

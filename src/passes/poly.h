// Polynomials with integer coefficients over atoms (numbers known only at run time). The exact value of an index,
// before any wrapping, is one of these: pid * 64 + k, M - 64 * pid, h + H * b.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tkc::passes {

using Int = __int128;

class Poly {
public:
  using Monomial = std::vector<int>; // atoms in ascending order, repeated for powers; empty: the constant

  Poly() = default; // 0
  Poly(int64_t c) : Poly(Int(c)) {}
  Poly(int c) : Poly(Int(c)) {}
  Poly(Int c) {
    if (c != 0) terms_[{}] = c;
  }
  static Poly atom(int a) {
    Poly p;
    p.terms_[{a}] = 1;
    return p;
  }
  static Poly unknown() {
    Poly p;
    p.unknown_ = true;
    return p;
  }

  // Coefficients that leave 128 bits, or more terms than anyone's index has, make the result unknown; so does an
  // unknown operand.
  Poly operator+(const Poly &o) const;
  Poly operator-(const Poly &o) const { return *this + o * Poly(-1); }
  Poly operator*(const Poly &o) const;
  bool operator==(const Poly &o) const = default;

  bool is_known() const { return !unknown_; }
  std::optional<Int> constant() const; // the value, if it depends on no atom
  const std::map<Monomial, Int> &terms() const { return terms_; }
  Int constant_term() const;
  int highest_atom() const;                    // -1 if there is none
  Int content() const;                         // the greatest common divisor of the coefficients; 0 for 0
  std::optional<Poly> divided_by(Int c) const; // exact division of every coefficient
  // coefficient * atom + rest; nullopt if a higher power of the atom occurs.
  struct Split;
  std::optional<Split> split(int atom) const;
  Poly replace(int atom, const Poly &by) const; // every occurrence
  std::string str() const;                      // for debugging: atoms as a0, a1

private:
  void add(const Monomial &m, Int c);
  std::map<Monomial, Int> terms_; // no zero coefficients
  bool unknown_ = false;
};

struct Poly::Split {
  Poly coefficient, rest;
};

Int gcd(Int a, Int b); // not negative; gcd(0, b) = |b|

} // namespace tkc::passes

// Proofs of e >= 0 for polynomials over atoms with known bounds.
//
// An atom is an integer with a place in an order; its bounds are polynomials over earlier atoms, so a proof that
// replaces the latest atom by a bound, again and again, ends at a number. What makes the proofs strong enough for tiles
// is integrality: every value of e is a multiple of the gcd g of its coefficients, so e >= 0 if e + g - 1 >= 0. That
// turns `64 t <= M - 1` and 64 | M into 64 t + 64 <= M.
#pragma once
#include "passes/poly.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tkc::ir {
struct Block;
}

namespace tkc::passes {

class Prover {
public:
  // A number of which nothing is known yet. `name` is for debugging.
  int new_atom(std::string name);
  int atoms() const { return int(atoms_.size()); }
  // Later atoms may stand for guesses that turn out wrong, and whose bounds are then of no use. Earlier ones are
  // settled.
  void settle() { settled_ = atoms(); }

  // scale * atom >= value, or <=, wherever control is in `scope` (null: everywhere). `scale` must be at least 1, and
  // `scale` and `value` made of earlier atoms.
  void lower(int atom, Poly scale, Poly value, const ir::Block *scope = nullptr);
  void upper(int atom, Poly scale, Poly value, const ir::Block *scope = nullptr);
  // The atom equals one of these in every run; which one is not known. They are made of earlier atoms.
  void one_of(int atom, std::vector<Poly> choices);
  // e >= 0 in a scope: becomes a bound of its latest atom, if that stands alone with a number before it. If that atom
  // is settled, bounds of earlier atoms may follow. From a product of atoms that are not negative, a * b >= 1, follow
  // bounds of each.
  void assume(const Poly &e, const ir::Block *scope = nullptr);

  // Whether e >= 0 is certain where control is in `at`. No is no proof of the opposite.
  bool nonnegative(const Poly &e, const ir::Block *at) const;
  bool at_most(const Poly &a, const Poly &b, const ir::Block *at) const { return nonnegative(b - a, at); }

  std::string str(const Poly &e) const; // with the names of atoms

private:
  struct Bound {
    Poly scale, value;
    const ir::Block *scope;
    bool operator==(const Bound &) const = default;
  };
  struct Atom {
    std::string name;
    std::vector<Bound> lower, upper;
    std::vector<Poly> choices;
  };
  static void tighten(Bound &b, bool upper);
  static bool add(std::vector<Bound> &list, Bound b, bool upper); // false: it was there
  void assume(const Poly &e, const ir::Block *scope, int depth);
  bool prove(const Poly &e, const ir::Block *at, int &budget) const;
  bool holds(const Bound &b, const ir::Block *at) const;
  std::vector<Atom> atoms_;
  int settled_ = INT32_MAX;
};

} // namespace tkc::passes

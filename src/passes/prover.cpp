#include "passes/prover.h"
#include "ir/ir.h"
#include "support/check.h"
#include <algorithm>

namespace tkc::passes {

namespace {
constexpr int kBudget = 400; // steps of one proof; those of real kernels take fewer than thirty
constexpr int kDerived = 3;  // atoms that are eliminated from one fact in turn
} // namespace

int Prover::new_atom(std::string name) {
  atoms_.push_back({std::move(name), {}, {}, {}});
  return atoms() - 1;
}

// Rounds a bound to what integers can reach: 64 t <= 64 k - 1 says t <= k - 1. Both sides but for the constant of the
// value are multiples of g.
void Prover::tighten(Bound &b, bool upper) {
  Int constant = b.value.constant_term();
  Poly rest = b.value - Poly(constant);
  Int g = gcd(b.scale.content(), rest.content());
  auto scale = g > 1 ? b.scale.divided_by(g) : std::nullopt, value = g > 1 ? rest.divided_by(g) : std::nullopt;
  if (!scale || !value) return;
  Int down = constant / g - (constant % g < 0), up = constant / g + (constant % g > 0);
  b.scale = *scale;
  b.value = *value + Poly(upper ? down : up);
}

// A condition may be met again and again, where the body of a loop is looked at several times.
bool Prover::add(std::vector<Bound> &list, Bound b, bool upper) {
  if (!b.scale.is_known() || !b.value.is_known()) return false;
  tighten(b, upper);
  if (std::find(list.begin(), list.end(), b) != list.end()) return false;
  list.push_back(std::move(b));
  return true;
}

void Prover::lower(int atom, Poly scale, Poly value, const ir::Block *scope) {
  TKC_CHECK(scale.highest_atom() < atom && value.highest_atom() < atom, "a bound over later atoms");
  add(atoms_[size_t(atom)].lower, {std::move(scale), std::move(value), scope}, false);
}

void Prover::upper(int atom, Poly scale, Poly value, const ir::Block *scope) {
  TKC_CHECK(scale.highest_atom() < atom && value.highest_atom() < atom, "a bound over later atoms");
  add(atoms_[size_t(atom)].upper, {std::move(scale), std::move(value), scope}, true);
}

void Prover::one_of(int atom, std::vector<Poly> choices) {
  for (const Poly &c : choices) {
    TKC_CHECK(c.highest_atom() < atom, "a choice over later atoms");
    if (!c.is_known()) return;
  }
  atoms_[size_t(atom)].choices = std::move(choices);
}

void Prover::assume(const Poly &e, const ir::Block *scope) { assume(e, scope, kDerived); }

// A fact bounds its latest atom. Between that bound and one on the other side, what remains is a fact about earlier
// atoms: K >= 1 and K <= M give M >= 1, which no proof about M would find among the bounds of K.
void Prover::assume(const Poly &e, const ir::Block *scope, int depth) {
  int a = e.highest_atom();
  if (!e.is_known() || a < 0) return;
  auto s = e.split(a);
  auto factor = s ? s->coefficient.constant() : std::nullopt;
  if (factor) {
    Atom &atom = atoms_[size_t(a)];
    bool is_upper = *factor < 0;
    Bound b{is_upper ? -*factor : *factor, is_upper ? s->rest : Poly(0) - s->rest, scope};
    tighten(b, is_upper);
    // Not from a guess: what it seems to say about atoms that exist would outlive it.
    if (add(is_upper ? atom.upper : atom.lower, b, is_upper) && depth > 0 && a < settled_)
      for (const Bound &o : is_upper ? atom.lower : atom.upper) {
        if (!holds(o, scope) || !o.scale.constant()) continue;
        Poly between = b.scale * o.value - o.scale * b.value; // of a lower bound b
        assume(is_upper ? Poly(0) - between : between, scope, depth - 1);
      }
  }
  // c * a * b - d >= 0 with positive c and d: no factor is zero, and none is negative.
  Int d = -e.constant_term();
  if (d <= 0 || e.terms().size() != 2) return;
  const auto &[product, c] = *e.terms().rbegin();
  if (product.size() < 2 || c <= 0) return;
  for (int factor : product)
    if (!nonnegative(Poly::atom(factor), scope)) return;
  for (int factor : product) lower(factor, 1, 1, scope);
}

bool Prover::holds(const Bound &b, const ir::Block *at) const {
  if (!b.scope) return true;
  for (const ir::Block *x = at; x; x = x->parent ? x->parent->block : nullptr)
    if (x == b.scope) return true;
  return false;
}

bool Prover::nonnegative(const Poly &e, const ir::Block *at) const {
  int budget = kBudget;
  return prove(e, at, budget);
}

bool Prover::prove(const Poly &e, const ir::Block *at, int &budget) const {
  if (!e.is_known() || budget-- <= 0) return false;
  if (auto c = e.constant()) return *c >= 0;
  int a = e.highest_atom();
  const Atom &atom = atoms_[size_t(a)];
  if (!atom.choices.empty()) {
    bool all = true;
    for (const Poly &choice : atom.choices) all = all && prove(e.replace(a, choice), at, budget);
    if (all) return true;
  }
  auto s = e.split(a);
  if (!s) return false;
  bool up = prove(s->coefficient, at, budget); // e grows with the atom, so a lower bound of it gives one of e
  bool down = !up && prove(Poly(0) - s->coefficient, at, budget);
  if (!up && !down) return false;
  Int g = e.content();
  for (const Bound &b : up ? atom.lower : atom.upper) {
    if (!holds(b, at)) continue;
    // scale * e >= coefficient * value + scale * rest, and scale * e is a multiple of scale * g.
    if (prove(s->coefficient * b.value + b.scale * s->rest + b.scale * Poly(g) - Poly(1), at, budget)) return true;
  }
  return false;
}

std::string Prover::str(const Poly &e) const {
  std::string text = e.str(), out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != 'a') {
      out += text[i];
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') end++;
    out += atoms_[size_t(std::stoi(text.substr(i + 1, end - i - 1)))].name;
    i = end - 1;
  }
  return out;
}

} // namespace tkc::passes

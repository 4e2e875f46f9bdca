#include "passes/prover.h"
#include "ir/ir.h"
#include "support/check.h"
#include <algorithm>

namespace tkc::passes {

namespace {
constexpr int kBudget = 400; // steps of one proof; those of real kernels take fewer than thirty
} // namespace

int Prover::new_atom(std::string name) {
  atoms_.push_back({std::move(name), {}, {}, {}});
  return atoms() - 1;
}

// A condition may be met again and again, where the body of a loop is looked at several times.
void Prover::add(std::vector<Bound> &list, Bound b) {
  if (!b.scale.is_known() || !b.value.is_known()) return;
  if (std::find(list.begin(), list.end(), b) == list.end()) list.push_back(std::move(b));
}

void Prover::lower(int atom, Poly scale, Poly value, const ir::Block *scope) {
  TKC_CHECK(scale.highest_atom() < atom && value.highest_atom() < atom, "a bound over later atoms");
  add(atoms_[size_t(atom)].lower, {std::move(scale), std::move(value), scope});
}

void Prover::upper(int atom, Poly scale, Poly value, const ir::Block *scope) {
  TKC_CHECK(scale.highest_atom() < atom && value.highest_atom() < atom, "a bound over later atoms");
  add(atoms_[size_t(atom)].upper, {std::move(scale), std::move(value), scope});
}

void Prover::one_of(int atom, std::vector<Poly> choices) {
  for (const Poly &c : choices) {
    TKC_CHECK(c.highest_atom() < atom, "a choice over later atoms");
    if (!c.is_known()) return;
  }
  atoms_[size_t(atom)].choices = std::move(choices);
}

void Prover::assume(const Poly &e, const ir::Block *scope) {
  int a = e.highest_atom();
  if (!e.is_known() || a < 0) return;
  auto s = e.split(a);
  if (s)
    if (auto c = s->coefficient.constant()) {
      if (*c > 0) lower(a, *c, Poly(0) - s->rest, scope);
      if (*c < 0) upper(a, -*c, s->rest, scope);
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

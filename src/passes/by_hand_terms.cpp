#include "passes/by_hand_terms.h"
#include "passes/protocol_keys.h"
#include <algorithm>
#include <numeric>

namespace tkc::passes::protocol {

using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {
bool arithmetic(OpKind k) {
  switch (k) {
  case OpKind::Add:
  case OpKind::Sub:
  case OpKind::Mul:
  case OpKind::Div:
  case OpKind::Rem:
  case OpKind::Min:
  case OpKind::Max:
  case OpKind::And:
  case OpKind::Or:
  case OpKind::Xor:
  case OpKind::Shl:
  case OpKind::Shr:
  case OpKind::Not:
  case OpKind::Neg:
  case OpKind::Eq:
  case OpKind::Ne:
  case OpKind::Lt:
  case OpKind::Le:
  case OpKind::Gt:
  case OpKind::Ge:
  case OpKind::Where: return true;
  default: return false;
  }
}
bool integral(const Value *v) { return v->type.is_scalar() && !is_float(v->type.dtype); }
} // namespace

std::vector<const Value *> sources(const Value *v) {
  if (!integral(v)) return {};
  size_t i = size_t(v->index);
  if (v->is_arg() && v->block->parent) {
    const Op &loop = *v->block->parent;
    if (loop.kind == OpKind::For && i == 0) {
      auto step = constant_of(loop.operand(2));
      return step && *step > 0 ? std::vector<const Value *>{loop.operand(0)} : std::vector<const Value *>{};
    }
    if (loop.kind == OpKind::For) return {loop.operand(2 + i), loop.regions[0]->terminator()->operand(i - 1)};
    if (loop.kind == OpKind::While && v->block == loop.regions[0])
      return {loop.operand(i), loop.regions[1]->terminator()->operand(i)};
    if (loop.kind == OpKind::While) return {loop.regions[0]->args[i]};
  } else if (v->op) {
    if (v->op->kind == OpKind::For) return {v->op->regions[0]->args[i + 1]};
    if (v->op->kind == OpKind::While) return {v->op->regions[0]->args[i]};
    if (v->op->kind == OpKind::If)
      return {v->op->regions[0]->terminator()->operand(i), v->op->regions[1]->terminator()->operand(i)};
  }
  return {};
}

bool Terms::know(const Value *v, std::set<const Value *> &open) {
  if (unknown_.count(v) || !integral(v)) return false;
  if (constant_of(v) || open.count(v)) return true;
  if (auto it = known_.find(v); it != known_.end()) return it->second;
  std::vector<const Value *> from = sources(v);
  bool carried = !from.empty();
  bool bits = v->op && v->op->kind == OpKind::Not && !is_bool(v->type.dtype);
  if (!carried && !bits && v->op && (arithmetic(v->op->kind) || v->op->kind == OpKind::Cast))
    from.assign(v->op->operands.begin(), v->op->operands.end());
  bool all = !from.empty();
  open.insert(v);
  for (size_t i = 0; i < from.size() && all; i++) all = know(from[i], open);
  open.erase(v);
  if (!all) unknown_.insert(v);
  return all;
}

bool Terms::known(const Value *v) {
  // A carried value counts as known while what flows into it is looked at: once more for those that hoped in vain.
  while (true) {
    size_t before = unknown_.size();
    std::set<const Value *> open;
    bool is = know(v, open);
    if (unknown_.size() == before) return is;
  }
}

int Terms::constant(int64_t k) {
  out_.terms.push_back({Term::Op::Const, k, OpKind::Constant, {-1, -1, -1}});
  return int(out_.terms.size()) - 1;
}
int Terms::sum(int a, int64_t k) {
  int c = constant(k);
  out_.terms.push_back({Term::Op::Arith, 0, OpKind::Add, {a, c, -1}});
  return int(out_.terms.size()) - 1;
}

std::optional<int> Terms::variable(const Value *v) const {
  auto it = vars_.find(v);
  return it == vars_.end() ? std::nullopt : std::optional(it->second);
}

int Terms::of(const Value *v) {
  if (auto it = terms_.find(v); it != terms_.end()) return it->second;
  if (!known(v)) return -1;
  if (auto k = constant_of(v)) return terms_[v] = constant(*k);
  std::vector<const Value *> from = sources(v);
  if (!from.empty()) {
    int var = int(out_.vars.size());
    out_.vars.emplace_back();
    vars_[v] = var;
    out_.terms.push_back({Term::Op::Var, var, OpKind::Constant, {-1, -1, -1}});
    int term = terms_[v] = int(out_.terms.size()) - 1;
    for (const Value *s : from) of(s);
    return term;
  }
  if (v->op->kind == OpKind::Cast) return terms_[v] = of(v->op->operand(0));
  Term t{Term::Op::Arith, 0, v->op->kind, {-1, -1, -1}};
  for (size_t i = 0; i < v->op->operands.size() && i < 3; i++) t.args[i] = of(v->op->operand(i));
  out_.terms.push_back(t);
  return terms_[v] = int(out_.terms.size()) - 1;
}

// ---- groups

bool Terms::counters_in(int term, std::set<int> &vars) const {
  const Term &t = out_.terms[size_t(term)];
  if (t.op == Term::Op::Var && counter_[size_t(t.k)]) vars.insert(int(t.k));
  for (int a : t.args)
    if (a >= 0) counters_in(a, vars);
  return !vars.empty();
}

Terms::Form Terms::form(int term) {
  const Term &t = out_.terms[size_t(term)];
  if (t.op == Term::Op::Const) return {true};
  if (t.op == Term::Op::Arith) return arith(t);
  if (!counter_[size_t(t.k)]) return {true};
  return {true, true, int(t.k), 0, 1};
}

Terms::Form Terms::arith(const Term &t) {
  Form a = form(t.args[0]), b = t.args[1] >= 0 ? form(t.args[1]) : Form{true},
       c = t.args[2] >= 0 ? form(t.args[2]) : Form{true};
  if (!a.ok || !b.ok || !c.ok) return {};
  if (!a.linear && !b.linear && !c.linear) return {true};
  const Term &second = out_.terms[size_t(t.args[1] >= 0 ? t.args[1] : t.args[0])],
             &first = out_.terms[size_t(t.args[0])];
  auto constant = [](const Term &x) { return x.op == Term::Op::Const; };
  // From `least` on the counter is so large that the quotient counts up without a sign.
  auto at_least = [&](const Form &f, int64_t value) {
    int64_t &least = least_[size_t(f.var)];
    least = std::max(least, value * f.div - f.add);
  };
  auto modulo = [&](const Form &f, int64_t m) -> Form {
    if (m < 1 || m > 1024 || f.div > 1024) return {};
    at_least(f, 0);
    int64_t &period = period_[size_t(f.var)];
    period = std::lcm(period, f.div * m);
    return period > 4096 ? Form{} : Form{true};
  };
  switch (t.how) {
  case OpKind::Add:
    if (a.linear && constant(second)) return {true, true, a.var, a.add + second.k * a.div, a.div};
    if (b.linear && constant(first)) return {true, true, b.var, b.add + first.k * b.div, b.div};
    return {};
  case OpKind::Sub:
    if (a.linear && constant(second)) return {true, true, a.var, a.add - second.k * a.div, a.div};
    return {};
  case OpKind::Div:
    if (!a.linear || !constant(second) || second.k < 1 || second.k > 1024) return {};
    at_least(a, 0);
    return {true, true, a.var, a.add, a.div * second.k};
  case OpKind::Shr:
    if (!a.linear || !constant(second) || second.k < 0 || second.k > 10) return {};
    at_least(a, 0);
    return {true, true, a.var, a.add, a.div << second.k};
  case OpKind::Rem: return a.linear && constant(second) ? modulo(a, second.k) : Form{};
  case OpKind::And:
    if (a.linear && constant(second) && (second.k & (second.k + 1)) == 0) return modulo(a, second.k + 1);
    if (b.linear && constant(first) && (first.k & (first.k + 1)) == 0) return modulo(b, first.k + 1);
    return {};
  case OpKind::Eq:
  case OpKind::Ne:
  case OpKind::Lt:
  case OpKind::Le:
  case OpKind::Gt:
  case OpKind::Ge:
    if (a.linear && b.linear) return a.var == b.var && a.div == 1 && b.div == 1 ? Form{true} : Form{};
    if (a.linear && constant(second)) return at_least(a, second.k + 1), Form{true};
    if (b.linear && constant(first)) return at_least(b, first.k + 1), Form{true};
    return {};
  default: return {};
  }
}

void Terms::group() {
  size_t n = out_.vars.size();
  counter_.assign(n, true);
  for (size_t v = 0; v < n; v++) counter_[v] = !out_.vars[v].state;
  std::vector<size_t> parent(n);
  auto find = [&](size_t x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  for (bool changed = true; changed;) {
    changed = false;
    period_.assign(n, 1);
    least_.assign(n, 0);
    std::iota(parent.begin(), parent.end(), size_t(0));
    // What is looked at through something that tells every value apart is followed as it is.
    auto finite = [&](int term) {
      if (term < 0) return;
      Form f = form(term);
      if (f.ok && !f.linear) return;
      std::set<int> vars;
      counters_in(term, vars);
      for (int v : vars) counter_[size_t(v)] = false, changed = true;
    };
    for (const ByHandRole &role : out_.roles)
      for (const Step &s : role.code) {
        finite(s.slot), finite(s.barrier), finite(s.value);
        for (auto [to, from] : s.assign) {
          if (from < 0 || out_.vars[size_t(to)].state) continue;
          const Term &t = out_.terms[size_t(from)];
          Form f = form(from);
          bool counts = f.ok && f.linear && f.div == 1;
          if (counter_[size_t(to)] && counts)
            parent[find(size_t(to))] = find(size_t(f.var));
          else if (counter_[size_t(to)] && t.op != Term::Op::Const)
            counter_[size_t(to)] = false, changed = true;
          else if (!counter_[size_t(to)])
            finite(from);
        }
      }
  }
  std::map<size_t, int> groups;
  for (size_t v = 0; v < n; v++) {
    if (!counter_[v]) continue;
    auto [it, fresh] = groups.try_emplace(find(v), int(out_.groups.size()));
    if (fresh) out_.groups.emplace_back();
    out_.vars[v].group = it->second;
    ByHandProgram::Group &g = out_.groups[size_t(it->second)];
    g.period = std::lcm(g.period, period_[v]);
    g.least = std::max(g.least, least_[v]);
  }
}

std::optional<int64_t> evaluate(const std::vector<Term> &terms, int term, const int32_t *vars) {
  const Term &t = terms[size_t(term)];
  if (t.op == Term::Op::Const) return t.k;
  if (t.op == Term::Op::Var) return vars[t.k] == kNoValue ? std::nullopt : std::optional<int64_t>(vars[t.k]);
  int64_t x[3] = {};
  for (int i = 0; i < 3; i++) {
    if (t.args[i] < 0) continue;
    auto v = evaluate(terms, t.args[i], vars);
    if (!v) return std::nullopt;
    x[i] = *v;
  }
  switch (t.how) {
  case OpKind::Add: return x[0] + x[1];
  case OpKind::Sub: return x[0] - x[1];
  case OpKind::Mul: return x[0] * x[1];
  case OpKind::Div: return x[1] ? std::optional(x[0] / x[1]) : std::nullopt;
  case OpKind::Rem: return x[1] ? std::optional(x[0] % x[1]) : std::nullopt;
  case OpKind::Min: return std::min(x[0], x[1]);
  case OpKind::Max: return std::max(x[0], x[1]);
  case OpKind::And: return x[0] & x[1];
  case OpKind::Or: return x[0] | x[1];
  case OpKind::Xor: return x[0] ^ x[1];
  case OpKind::Shl: return x[1] >= 0 && x[1] < 32 ? std::optional(x[0] << x[1]) : std::nullopt;
  case OpKind::Shr: return x[1] >= 0 && x[1] < 63 ? std::optional(x[0] >> x[1]) : std::nullopt;
  case OpKind::Not: return x[0] == 0;
  case OpKind::Neg: return -x[0];
  case OpKind::Eq: return x[0] == x[1];
  case OpKind::Ne: return x[0] != x[1];
  case OpKind::Lt: return x[0] < x[1];
  case OpKind::Le: return x[0] <= x[1];
  case OpKind::Gt: return x[0] > x[1];
  case OpKind::Ge: return x[0] >= x[1];
  case OpKind::Where: return x[0] ? x[1] : x[2];
  default: return std::nullopt;
  }
}

} // namespace tkc::passes::protocol

#include "ir/activity.h"
#include <algorithm>

namespace tkc::ir {

namespace {

bool is_float_tile(const Value *v) { return v->type.is_tile() && is_float(v->type.dtype); }
bool flows(const Op &op) { return def(op).derivative.kind != Derivative::Kind::Zero; }

// Calls f(from, to) for every way in which a control op hands a value on: into a region, round a loop, and out. False
// for other ops.
template <typename F> bool edges(const Op &op, F &&f) {
  auto end = [&](size_t region) -> const Op & { return *op.regions[region]->terminator(); };
  switch (op.kind) {
  case OpKind::For:
    for (size_t i = 0; i < op.results.size(); i++) {
      const Value *arg = op.regions[0]->args[i + 1], *init = op.operand(i + 3), *next = end(0).operand(i);
      f(init, arg), f(next, arg), f(init, op.result(i)), f(next, op.result(i));
    }
    return true;
  case OpKind::While: // the condition sees what the body will
    for (size_t i = 0; i < op.results.size(); i++) {
      const Value *init = op.operand(i), *next = end(1).operand(i);
      for (const Value *to : {op.regions[0]->args[i], op.regions[1]->args[i], op.results[i]}) f(init, to), f(next, to);
    }
    return true;
  case OpKind::If:
    for (size_t r = 0; r < 2; r++)
      for (size_t i = 0; i < op.results.size(); i++) f(end(r).operand(i), op.result(i));
    return true;
  default: return false;
  }
}

// Values that the regions of an op use, their own included.
template <typename F> void used_inside(const Op &op, F &&f) {
  for (Block *r : op.regions)
    walk(r, [&](const Op *inner) {
      for (const Value *v : inner->operands) f(v);
    });
}

} // namespace

bool Activity::add(Set &s, const Value *v) {
  if (s.size() <= size_t(v->id)) s.resize(size_t(v->id) + 1);
  if (s[size_t(v->id)]) return false;
  s[size_t(v->id)] = true;
  return true;
}

bool Activity::active_results(const Op &op) const {
  return std::any_of(op.results.begin(), op.results.end(), [&](const Value *v) { return active(v); });
}

bool Activity::executes(const Op &op) const {
  return op.kind == OpKind::Yield || forced_.count(&op) ||
         std::any_of(op.results.begin(), op.results.end(), [&](const Value *v) { return live(v); });
}

Activity::Activity(const Op &grad) : grad_(grad) {
  const Block *body = grad.regions[0];
  auto repeat = [&](auto &&pass) {
    do {
      changed_ = false;
      pass();
    } while (changed_);
  };
  for (const Value *v : body->args)
    if (is_float_tile(v)) add(varied_, v);
  repeat([&] { vary(body); });
  Set useful;
  for (const Value *v : body->terminator()->operands) {
    add(reaching_, v);
    if (is_float_tile(v)) add(useful, v);
  }
  repeat([&] { use(body, useful, false); });
  repeat([&] { use(body, reaching_, true); });
  active_ = varied_;
  for (size_t i = 0; i < active_.size(); i++) active_[i] = active_[i] && i < useful.size() && useful[i];
  find_fault(body);
  repeat([&] { need(body); });
}

void Activity::vary(const Block *block) {
  auto mark = [&](const Value *v) {
    if (is_float_tile(v)) changed_ |= add(varied_, v);
  };
  for (const Op *op : block->ops) {
    bool control = edges(*op, [&](const Value *from, const Value *to) {
      if (has(varied_, from)) mark(to);
    });
    if (control) {
      for (const Block *r : op->regions) vary(r);
      continue;
    }
    bool any = std::any_of(op->operands.begin(), op->operands.end(), [&](const Value *v) { return has(varied_, v); });
    used_inside(*op, [&](const Value *v) { any |= has(varied_, v); });
    if (any && flows(*op))
      for (const Value *v : op->results) mark(v);
  }
}

// What the values in `set` depend on joins it: along derivatives, or along everything.
void Activity::use(const Block *block, Set &set, bool everything) {
  auto mark = [&](const Value *v) {
    if (everything || is_float_tile(v)) changed_ |= add(set, v);
  };
  for (size_t i = block->ops.size(); i-- > 0;) {
    const Op &op = *block->ops[i];
    bool control = edges(op, [&](const Value *from, const Value *to) {
      if (has(set, to)) mark(from);
    });
    if (control) {
      for (const Block *r : op.regions) use(r, set, everything);
      continue;
    }
    bool any = std::any_of(op.results.begin(), op.results.end(), [&](const Value *v) { return has(set, v); });
    if (!any || !(everything || flows(op))) continue;
    for (const Value *v : op.operands) mark(v);
    used_inside(op, mark);
  }
}

void Activity::find_fault(const Block *block) {
  for (const Op *op : block->ops) {
    if (edges(*op, [](const Value *, const Value *) {})) {
      for (const Block *r : op->regions) find_fault(r);
      continue;
    }
    if (fault_ || def(*op).derivative.kind != Derivative::Kind::None) continue;
    bool from = std::any_of(op->operands.begin(), op->operands.end(), [&](const Value *v) { return has(varied_, v); });
    used_inside(*op, [&](const Value *v) { from |= has(varied_, v); });
    bool to = std::any_of(op->results.begin(), op->results.end(), [&](const Value *v) { return has(reaching_, v); });
    if (from && to) fault_ = op;
  }
}

// An op that runs whatever comes of it, and the control flow around it.
void Activity::force(const Op *op) {
  for (; op && op != &grad_; op = op->block->parent) changed_ |= forced_.insert(op).second;
}

void Activity::need_captured(const Op &op) {
  used_inside(op, [&](const Value *v) { need(v); });
  for (Block *r : op.regions) {
    for (const Value *v : r->args) need(v);
    walk(r, [&](const Op *inner) {
      for (const Value *v : inner->results) need(v);
    });
  }
}

void Activity::need(const Op &op) {
  const Derivative &d = def(op).derivative;
  bool reversed = d.kind == Derivative::Kind::Rule && active_results(op);
  if (reversed) {
    for (size_t i = 0; i < op.operands.size(); i++)
      if (d.reads_operand(i)) need(op.operand(i));
    if (d.reads_results())
      for (const Value *v : op.results) need(v);
  }
  // A branch that is reversed looks at what the forward run left in it.
  if (op.kind == OpKind::Assert || (op.kind == OpKind::If && reversed)) force(&op);
  bool runs = executes(op) || reversed;
  switch (op.kind) {
  case OpKind::For:
  case OpKind::While:
  case OpKind::If:
    edges(op, [&](const Value *from, const Value *to) {
      if (live(to)) need(from);
    });
    if (runs && op.kind == OpKind::For)
      for (size_t i = 0; i < 3; i++) need(op.operand(i));
    if (runs && op.kind == OpKind::While) need(op.regions[0]->terminator()->operand(0));
    if (runs && op.kind == OpKind::If) need(op.operand(0));
    for (size_t r = op.regions.size(); r-- > 0;) need(op.regions[r]);
    return;
  case OpKind::Yield: return;
  default:
    if (!executes(op)) return;
    for (const Value *v : op.operands) need(v);
    need_captured(op);
  }
}

void Activity::need(const Block *block) {
  for (size_t i = block->ops.size(); i-- > 0;) need(*block->ops[i]);
}

} // namespace tkc::ir

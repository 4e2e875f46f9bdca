// Statements: bindings, assignment, structured control flow.
#include "sema/elaborate.h"
#include <array>

namespace tkc::sema {

using ast::StmtKind;
using ir::OpKind;
using Kind = SV::Kind;

void Elaborator::note_calls(Diagnostic &d) {
  for (size_t i = calls_.size(); i-- > 0;) {
    bool itself = calls_[i].loc.file == d.loc.file && calls_[i].loc.begin == d.loc.begin;
    if (!itself) d.notes.push_back({calls_[i].loc, fmt::format("in this call of `{}`", calls_[i].function->name.text)});
  }
}

void Elaborator::note_calls_since(int64_t errors) {
  if (diags_.error_count() > errors && !calls_.empty()) note_calls(diags_.last());
}

void Elaborator::define(const ast::Name &name, SV value, bool is_var) {
  if (name.text == "_") return;
  auto &scope = scopes_.back();
  if (auto it = scope.find(name.text); it != scope.end()) {
    Diagnostic &d = diags_.report(name.loc, DiagKind::duplicate_name, name.text);
    d.notes.push_back({it->second.loc, "first declared here"});
    return;
  }
  if ((value.is(Kind::Value) || value.is(Kind::Item) || value.is(Kind::Place) || value.is(Kind::State)) &&
      value.v->name.empty())
    value.v->name = name.text;
  scope[name.text] = Var{std::move(value), is_var, true, name.loc, std::nullopt};
}

Elaborator::Var *Elaborator::lookup(const std::string &name) {
  for (size_t i = scopes_.size(); i-- > scope_base_;)
    if (auto it = scopes_[i].find(name); it != scopes_[i].end()) return &it->second;
  return nullptr;
}

std::optional<std::vector<SV>> Elaborator::body(const std::vector<ast::StmtPtr> &stmts) {
  returned_.reset();
  push_scope();
  block(stmts);
  pop_scope();
  return std::move(returned_);
}

Elaborator::Flow Elaborator::block(const std::vector<ast::StmtPtr> &stmts) {
  for (size_t i = 0; i < stmts.size();) {
    bool is_return = stmts[i]->kind == StmtKind::Return;
    if (statement(stmts, i).returned) {
      // After a compile-time `if` that returns, the rest belongs to another variant.
      if (is_return && i < stmts.size())
        error(stmts[i]->loc, DiagKind::misplaced_return, "comes before this statement, which is never reached");
      return {true};
    }
  }
  return {};
}

Elaborator::Flow Elaborator::statement(const std::vector<ast::StmtPtr> &stmts, size_t &index) {
  const ast::Stmt &s = *stmts[index];
  if (s.kind == StmtKind::If) return if_stmt(stmts, index);
  index++;
  if (s.kind != StmtKind::For || s.unrolled) annotate(s, nullptr);
  switch (s.kind) {
  case StmtKind::Let: let(s); return {};
  case StmtKind::Assign: assign(s); return {};
  case StmtKind::Expr: {
    SV v = expr(*s.value);
    bool acts = v.is(Kind::Effect); // or an op that changes something and has a result too: an atomic
    if ((v.is(Kind::Value) || v.is(Kind::State)) && v.v->op)
      for (int8_t k = 0; k < def(*v.v->op).effects.count; k++)
        acts |= def(*v.v->op).effects.list[k].access != ir::Access::Read;
    if (!acts && !v.is_poison()) error(s.value->loc, DiagKind::unused_value);
    return {};
  }
  case StmtKind::If: return {};
  case StmtKind::For: for_stmt(s); return {};
  case StmtKind::While: while_stmt(s); return {};
  case StmtKind::Return: return return_stmt(s);
  case StmtKind::Launch:
  case StmtKind::Parallel:
    error(s.loc, DiagKind::only_in_program, s.kind == StmtKind::Launch ? "launch" : "parallel");
    return {};
  case StmtKind::Ring: ring_stmt(s); return {};
  case StmtKind::Role: role_stmt(s); return {};
  case StmtKind::Block: {
    push_scope();
    Flow f = block(s.body);
    pop_scope();
    return f;
  }
  }
  return {};
}

void Elaborator::let(const ast::Stmt &s) {
  std::optional<ir::Type> declared;
  if (s.type) {
    declared = type(*s.type);
    if (!declared) {
      for (const ast::Name &n : s.targets) define(n, SV::poison(), s.is_var);
      return;
    }
  }
  if (!s.value) {
    for (const ast::Name &n : s.targets) {
      define(n, SV::poison(), true);
      if (Var *v = lookup(n.text)) v->initialised = false, v->declared = declared;
    }
    return;
  }
  SV v = expr(*s.value);
  if (v.is(Kind::Effect)) v = error(s.value->loc, DiagKind::not_a_value, "this call");
  if ((v.is(Kind::Item) || v.is(Kind::Ring) || v.is(Kind::Place) || v.is(Kind::State)) && (s.is_var || declared))
    v = error(s.value->loc, DiagKind::not_a_value, v.describe());
  if (declared && !v.is_poison()) {
    // A declared scalar constant stays a compile-time value unless it is a variable.
    v = SV::make_value(value_as(v, *declared, "the value"), s.value->loc);
  }
  if (s.targets.size() == 1) {
    define(s.targets[0], std::move(v), s.is_var);
    if (Var *var = lookup(s.targets[0].text)) var->declared = declared;
    return;
  }
  if (!v.is(Kind::Tuple) || v.elements.size() != s.targets.size()) {
    if (!v.is_poison())
      error(s.loc, DiagKind::wrong_tuple, counted(int64_t(s.targets.size()), "name"),
            counted(v.is(Kind::Tuple) ? int64_t(v.elements.size()) : 1, "value"));
    for (const ast::Name &n : s.targets) define(n, SV::poison(), s.is_var);
    return;
  }
  for (size_t i = 0; i < s.targets.size(); i++) define(s.targets[i], v.elements[i], s.is_var);
}

void Elaborator::assign(const ast::Stmt &s) {
  SV v = expr(*s.value);
  if (v.is(Kind::Effect)) v = error(s.value->loc, DiagKind::not_a_value, "this call");
  if (s.assign_op) v = binary(*s.assign_op, expr(*s.target), std::move(v), s.loc);
  assign_to(*s.target, std::move(v));
}

void Elaborator::assign_to(const ast::Expr &target, SV v) {
  if (target.kind == ast::ExprKind::Tuple) {
    if (v.is_poison()) return;
    if (!v.is(Kind::Tuple) || v.elements.size() != target.operands.size()) {
      error(target.loc, DiagKind::wrong_tuple, counted(int64_t(target.operands.size()), "name"),
            counted(v.is(Kind::Tuple) ? int64_t(v.elements.size()) : 1, "value"));
      return;
    }
    for (size_t i = 0; i < target.operands.size(); i++) assign_to(*target.operands[i], v.elements[i]);
    return;
  }
  const ast::Expr &base = target.kind == ast::ExprKind::Index ? *target.operands[0] : target;
  if (base.kind != ast::ExprKind::Name) {
    error(target.loc, DiagKind::not_assignable, "this expression", "only names and parts of named tiles are");
    return;
  }
  Var *var = lookup(base.text);
  if (!var) {
    name(base); // reports the unknown name
    return;
  }
  if (outside_role(base.text)) {
    error(target.loc, DiagKind::role_capture, base.text, "each role would change a copy of its own");
    return;
  }
  if (!var->is_var) {
    const char *why = var->value.is(Kind::Tensor) ? "a tensor is written by store(...)" : "declare it with `var`";
    error(target.loc, DiagKind::not_assignable, base.text, why);
    return;
  }
  if (target.kind == ast::ExprKind::Name) {
    if (var->declared && !v.is_poison()) v = SV::make_value(value_as(v, *var->declared, "the value"), target.loc);
    if (v.is(Kind::Value) && v.v->name.empty()) v.v->name = base.text;
    var->value = std::move(v);
    var->initialised = true;
    var->assigned = target.loc;
    return;
  }
  if (!var->initialised) {
    error(base.loc, DiagKind::uninitialised_variable, base.text);
    return;
  }
  if (v.is_poison() || var->value.is_poison()) return;
  if (!var->value.is(Kind::Value)) {
    error(target.loc, DiagKind::not_indexable, var->value.describe());
    return;
  }
  ir::Value *whole = var->value.v;
  TileAccess a = tile_access(target, whole, false);
  if (!a.ok) return;
  ir::Value *part = value_as(v, ir::Type::tile(whole->type.dtype, a.result_shape), "the value");
  if (!part) return;
  if (a.result_shape != a.sizes) {
    ir::Attrs attrs;
    attrs.set("shape", a.sizes);
    part = b_.value(OpKind::Reshape, {part}, attrs, target.loc);
  }
  ir::Attrs attrs;
  std::vector<ir::Value *> operands = {whole, part};
  if (a.dynamic.empty()) {
    attrs.set("starts", a.starts);
  } else {
    operands.insert(operands.end(), a.dynamic.begin(), a.dynamic.end());
  }
  var = lookup(base.text); // evaluating the index may have grown the scopes
  var->value = emit(a.dynamic.empty() ? OpKind::Insert : OpKind::DynUpdate, operands, attrs, target.loc);
  if (var->value.is(Kind::Value)) var->value.v->name = base.text;
}

void assigned_names(const std::vector<ast::StmtPtr> &stmts, std::set<std::string> &out) {
  auto target = [&](const ast::Expr &e, auto &self) -> void {
    if (e.kind == ast::ExprKind::Name) out.insert(e.text);
    if (e.kind == ast::ExprKind::Index) self(*e.operands[0], self);
    if (e.kind == ast::ExprKind::Tuple)
      for (const ast::ExprPtr &x : e.operands) self(*x, self);
  };
  for (const ast::StmtPtr &s : stmts) {
    if (s->kind == StmtKind::Assign) target(*s->target, target);
    assigned_names(s->body, out);
    assigned_names(s->else_body, out);
  }
}

std::vector<std::string> Elaborator::carried(std::initializer_list<const std::vector<ast::StmtPtr> *> bodies) {
  std::set<std::string> names;
  for (const auto *b : bodies) assigned_names(*b, names);
  std::vector<std::string> out;
  for (const std::string &n : names) {
    Var *v = lookup(n);
    if (v && v->is_var && v->initialised && !v->value.is_poison()) out.push_back(n);
  }
  return out;
}

std::vector<std::string> Elaborator::unset(std::initializer_list<const std::vector<ast::StmtPtr> *> bodies) {
  std::set<std::string> names;
  for (const auto *b : bodies) assigned_names(*b, names);
  std::vector<std::string> out;
  for (const std::string &n : names)
    if (Var *v = lookup(n); v && v->is_var && !v->initialised) out.push_back(n);
  return out;
}

void Elaborator::forget(const std::vector<std::string> &names) {
  for (const std::string &n : names) {
    Var *v = lookup(n);
    if (v->initialised && v->value.is_poison()) continue; // an error was reported; uses stay silent
    v->initialised = false;
    v->value = SV::poison();
  }
}

ir::Value *Elaborator::carried_value(const std::string &name) {
  Var *v = lookup(name);
  ir::Value *x = v->declared ? value_as(v->value, *v->declared, "the value") : value(v->value);
  return x;
}

void Elaborator::yield(const std::vector<std::string> &names, const std::vector<ir::Value *> &entry, const char *what,
                       SourceLoc loc) {
  std::vector<ir::Value *> out;
  for (size_t i = 0; i < names.size(); i++) {
    Var *var = lookup(names[i]);
    ir::Value *x = entry[i];
    if (var->value.is_poison()) {
      out.push_back(entry[i]); // reported already
      continue;
    }
    if (var->value.is_number()) {
      x = value_as(var->value, entry[i]->type, "the value");
    } else if (var->value.is(Kind::Value)) {
      x = var->value.v;
      if (x->type != entry[i]->type) {
        error(var->assigned.valid() ? var->assigned : loc, DiagKind::carried_type, names[i], what, entry[i]->type.str(),
              x->type.str());
        x = nullptr;
      }
    } else {
      error(var->assigned.valid() ? var->assigned : loc, DiagKind::carried_type, names[i], what, entry[i]->type.str(),
            var->value.describe());
      x = nullptr;
    }
    out.push_back(x ? x : entry[i]);
  }
  b_.create_typed(OpKind::Yield, out, {}, {}, loc);
}

Elaborator::Flow Elaborator::if_stmt(const std::vector<ast::StmtPtr> &stmts, size_t &index) {
  const ast::Stmt &s = *stmts[index++];
  SV cond = expr(*s.value);
  if (cond.is_poison()) { // both branches are still checked
    std::vector<std::string> fresh = unset({&s.body, &s.else_body});
    for (const auto *branch : {&s.body, &s.else_body}) {
      push_scope();
      block(*branch);
      pop_scope();
    }
    for (const std::string &n : fresh) lookup(n)->value = SV::poison(), lookup(n)->initialised = true;
    return {};
  }
  if (cond.is_number()) {
    push_scope();
    Flow f = block(cond.i != 0 || (cond.is(Kind::Float) && cond.f != 0) ? s.body : s.else_body);
    pop_scope();
    return f;
  }
  if (!cond.is(Kind::Value) || !cond.v->type.is_scalar() || !is_bool(cond.v->type.dtype)) {
    error(s.value->loc, DiagKind::not_uniform, "the condition of `if`", "bool", cond.describe());
    return {};
  }
  // `if c { return; } rest` becomes `if c {} else { rest }`: a kernel's early exit.
  bool exits = !s.body.empty() && s.body.back()->kind == StmtKind::Return && !s.has_else;
  bool swallow = exits && fn_.kind == ir::FunctionKind::Kernel && calls_.empty() && region_depth_ == exits_;
  std::vector<std::string> names = swallow ? std::vector<std::string>{} : carried({&s.body, &s.else_body});
  std::vector<std::string> fresh = swallow ? std::vector<std::string>{} : unset({&s.body, &s.else_body});
  std::vector<ir::Value *> entry;
  std::vector<ir::Type> types;
  for (const std::string &n : names) {
    ir::Value *v = carried_value(n);
    if (!v) return {};
    entry.push_back(v);
    types.push_back(v->type);
  }
  ir::Op *op = b_.create_typed(OpKind::If, {cond.v}, types, {}, s.loc);
  ir::Block *outer = b_.block();
  std::vector<SV> before;
  for (const std::string &n : names) before.push_back(lookup(n)->value);
  region_depth_++;
  std::vector<std::array<ir::Value *, 2>> given(fresh.size(), {nullptr, nullptr});
  std::set<std::string> failed; // of `fresh`: assigned by an expression with an error
  for (int branch = 0; branch < 2; branch++) {
    ir::Block *region = fn_.new_block(op);
    op->regions.push_back(region);
    b_.set_block(region);
    for (size_t i = 0; i < names.size(); i++) lookup(names[i])->value = SV::make_value(entry[i], s.loc);
    for (const std::string &n : fresh) lookup(n)->initialised = false;
    push_scope();
    if (branch == 0) {
      for (size_t i = 0; i < s.body.size();) {
        if (swallow && i + 1 == s.body.size()) break; // its `return`
        if (statement(s.body, i).returned)
          error(s.body[i - 1]->loc, DiagKind::misplaced_return, "cannot leave run-time control flow here");
      }
    } else if (swallow) {
      exits_++;
      while (index < stmts.size())
        if (statement(stmts, index).returned) break;
    } else {
      for (size_t i = 0; i < s.else_body.size();)
        if (statement(s.else_body, i).returned)
          error(s.else_body[i - 1]->loc, DiagKind::misplaced_return, "cannot leave run-time control flow here");
    }
    pop_scope();
    for (size_t i = 0; i < fresh.size(); i++) {
      Var *v = lookup(fresh[i]);
      if (!v->initialised) continue;
      given[i][size_t(branch)] = v->value.is_poison() ? nullptr : carried_value(fresh[i]);
      if (!given[i][size_t(branch)]) failed.insert(fresh[i]);
    }
    yield(names, entry, "`if`", s.loc);
  }
  region_depth_--;
  if (swallow) exits_--;
  b_.set_block(outer);
  for (size_t i = 0; i < names.size(); i++) {
    op->results[i]->name = names[i];
    lookup(names[i])->value = SV::make_value(op->results[i], s.loc);
  }
  for (size_t i = 0; i < fresh.size(); i++) {
    auto [a, b] = given[i];
    Var *var = lookup(fresh[i]);
    if (a && b && a->type != b->type)
      var->value =
          error(var->assigned, DiagKind::type_mismatch, a->type.str() + " as in the other branch", b->type.str());
    if (!a || !b || a->type != b->type) {
      var->value = SV::poison();
      var->initialised = failed.count(fresh[i]) || (a && b);
      continue;
    }
    for (size_t branch = 0; branch < 2; branch++)
      op->regions[branch]->terminator()->operands.push_back(given[i][branch]);
    ir::Value *result = fn_.new_value(a->type, fresh[i]);
    result->op = op;
    result->index = int64_t(op->results.size());
    op->results.push_back(result);
    var->value = SV::make_value(result, s.loc);
    var->initialised = true;
  }
  return {};
}

void Elaborator::check_only(const ast::Stmt &s) {
  std::vector<std::string> fresh = unset({&s.body});
  push_scope();
  for (const ast::Name &n : s.targets) define(n, SV::poison());
  block(s.body);
  pop_scope();
  for (const std::string &n : fresh) lookup(n)->value = SV::poison(), lookup(n)->initialised = true;
}

void Elaborator::for_stmt(const ast::Stmt &s) {
  SV r = expr(*s.value);
  if (r.is_poison()) return check_only(s);
  if (!r.is(Kind::Range) || !r.range->lo || (!r.range->hi && !r.range->length)) {
    error(s.value->loc, DiagKind::type_mismatch, "a range `lo : hi`", r.describe());
    return;
  }
  SV lo = *r.range->lo;
  SV hi = r.range->hi ? *r.range->hi : binary(ast::BinaryOp::Add, lo, *r.range->length, s.value->loc);
  SV step = s.step ? expr(*s.step) : SV::make_int(1, s.loc);
  if (hi.is_poison() || step.is_poison()) return check_only(s);
  if (s.unrolled) {
    if (!lo.is(Kind::Int) || !hi.is(Kind::Int) || !step.is(Kind::Int)) {
      error(s.value->loc, DiagKind::not_constant, "the range of `unroll for`");
      return;
    }
    if (step.i == 0) {
      error(s.step->loc, DiagKind::bad_step);
      return;
    }
    constexpr int64_t kMost = 4096;
    // In 128 bits: the ends may lie at both ends of the range of int64.
    __int128 span = step.i > 0 ? __int128(hi.i) - lo.i : __int128(lo.i) - hi.i;
    __int128 width = step.i > 0 ? __int128(step.i) : -__int128(step.i), trips = (span + width - 1) / width;
    if (trips > kMost) {
      error(s.value->loc, DiagKind::unrolled_too_far, uint64_t(trips), kMost);
      return;
    }
    for (int64_t i = lo.i; step.i > 0 ? i < hi.i : i > hi.i; i += step.i) {
      push_scope();
      define(s.targets[0], SV::make_int(i, s.targets[0].loc));
      if (block(s.body).returned) error(s.loc, DiagKind::misplaced_return, "cannot leave a loop");
      pop_scope();
    }
    return;
  }
  // The induction variable is i32, or i64 in a reference or if a bound is.
  DType t = reference() ? DType::I64 : DType::I32;
  for (const SV *x : {&lo, &hi, &step}) {
    if (x->is(Kind::Value) && (!x->v->type.is_scalar() || !is_integer(x->v->type.dtype))) {
      error(s.value->loc, DiagKind::not_uniform, "a loop bound", "integer", x->describe());
      return;
    }
    if (x->is(Kind::Value) && x->v->type.dtype == DType::I64) t = DType::I64;
  }
  if (step.is(Kind::Int) && step.i <= 0) {
    error(s.step->loc, DiagKind::bad_step);
    return;
  }
  std::vector<ir::Value *> operands;
  for (SV *x : {&lo, &hi, &step}) {
    ir::Value *v = value(*x, t);
    if (v && v->type.dtype != t) v = emit(OpKind::Cast, {v}, ir::Attrs::one("dtype", t), s.loc).v;
    if (!v) return;
    operands.push_back(v);
  }
  std::vector<std::string> names = carried({&s.body}), fresh = unset({&s.body});
  std::vector<ir::Value *> entry;
  std::vector<ir::Type> types;
  for (const std::string &n : names) {
    ir::Value *v = carried_value(n);
    if (!v) return;
    operands.push_back(v);
    types.push_back(v->type);
  }
  ir::Op *op = b_.create_typed(OpKind::For, operands, types, {}, s.loc);
  annotate(s, &op->attrs);
  ir::Block *outer = b_.block(), *region = fn_.new_block(op);
  op->regions.push_back(region);
  auto arg = [&](ir::Type type, const std::string &name) {
    ir::Value *v = fn_.new_value(std::move(type), name);
    v->block = region;
    v->index = int64_t(region->args.size());
    region->args.push_back(v);
    return v;
  };
  ir::Value *iv = arg(ir::Type::scalar(t), s.targets[0].text);
  for (size_t i = 0; i < names.size(); i++) {
    entry.push_back(arg(types[i], names[i]));
    lookup(names[i])->value = SV::make_value(entry[i], s.loc);
  }
  b_.set_block(region);
  region_depth_++;
  push_scope();
  define(s.targets[0], SV::make_value(iv, s.targets[0].loc));
  for (size_t i = 0; i < s.body.size();)
    if (statement(s.body, i).returned) error(s.body[i - 1]->loc, DiagKind::misplaced_return, "cannot leave a loop");
  pop_scope();
  region_depth_--;
  yield(names, entry, "loop", s.loc);
  forget(fresh);
  b_.set_block(outer);
  for (size_t i = 0; i < names.size(); i++) {
    op->results[i]->name = names[i];
    lookup(names[i])->value = SV::make_value(op->results[i], s.loc);
  }
}

void Elaborator::while_stmt(const ast::Stmt &s) {
  std::vector<std::string> names = carried({&s.body}), fresh = unset({&s.body});
  std::vector<ir::Value *> operands;
  std::vector<ir::Type> types;
  for (const std::string &n : names) {
    ir::Value *v = carried_value(n);
    if (!v) return;
    operands.push_back(v);
    types.push_back(v->type);
  }
  ir::Op *op = b_.create_typed(OpKind::While, operands, types, {}, s.loc);
  ir::Block *outer = b_.block();
  region_depth_++;
  for (int part = 0; part < 2; part++) {
    ir::Block *region = fn_.new_block(op);
    op->regions.push_back(region);
    std::vector<ir::Value *> entry;
    for (size_t i = 0; i < names.size(); i++) {
      ir::Value *v = fn_.new_value(types[i], names[i]);
      v->block = region;
      v->index = int64_t(i);
      region->args.push_back(v);
      entry.push_back(v);
      lookup(names[i])->value = SV::make_value(v, s.loc);
    }
    b_.set_block(region);
    push_scope();
    if (part == 0) {
      SV cond = expr(*s.value);
      ir::Value *c = cond.is_poison() ? nullptr : value(cond);
      if (c && (!c->type.is_scalar() || !is_bool(c->type.dtype))) {
        error(s.value->loc, DiagKind::not_uniform, "the condition of `while`", "bool", cond.describe());
        c = nullptr;
      }
      for (const ir::Op *op : region->ops)
        if (op->kind == OpKind::RingPop)
          error(s.value->loc, DiagKind::bad_ring, op->operand(0)->name, "a condition pops no items");
      b_.create_typed(OpKind::Yield, {c ? c : b_.constant_int(DType::Bool, 0, s.loc)}, {}, {}, s.loc);
    } else {
      for (size_t i = 0; i < s.body.size();)
        if (statement(s.body, i).returned) error(s.body[i - 1]->loc, DiagKind::misplaced_return, "cannot leave a loop");
      yield(names, entry, "loop", s.loc);
    }
    pop_scope();
  }
  region_depth_--;
  forget(fresh);
  b_.set_block(outer);
  for (size_t i = 0; i < names.size(); i++) {
    op->results[i]->name = names[i];
    lookup(names[i])->value = SV::make_value(op->results[i], s.loc);
  }
}

Elaborator::Flow Elaborator::return_stmt(const ast::Stmt &s) {
  if (region_depth_ > 0 && !calls_.empty()) {
    error(s.loc, DiagKind::misplaced_return, "cannot leave run-time control flow of an inlined function");
    return {};
  }
  std::vector<SV> values;
  if (s.value) {
    SV v = expr(*s.value);
    if (v.is(Kind::Tuple))
      values = v.elements;
    else
      values.push_back(v);
    if (calls_.empty() && fn_.kind == ir::FunctionKind::Kernel)
      error(s.value->loc, DiagKind::misplaced_return, "of a kernel has no value: results are stored");
  }
  returned_ = std::move(values);
  return {true};
}

} // namespace tkc::sema

// Statements, host scalars and tensors of a program.
#include "ir/op_def.h"
#include "sema/host_instance.h"
#include "syntax/walk_ast.h"
#include <algorithm>

namespace tkc::sema {

using ast::ExprKind;
using ast::StmtKind;
using ir::SizeExpr;
using Kind = SV::Kind;

bool TensorView::whole() const {
  return std::all_of(dims.begin(), dims.end(), [](const Dim &d) { return d.whole; });
}

std::vector<SizeExpr> TensorView::extents() const {
  std::vector<SizeExpr> out;
  for (const Dim &d : dims)
    if (d.kept) out.push_back(d.extent);
  return out;
}

std::unique_ptr<HostProgram> instantiate_program(Program &program, const ast::Function &ast, const InstanceSpec &spec,
                                                 const ir::Target *target, Diagnostics &diags) {
  TKC_CHECK(ast.kind == ast::FunctionKind::Program, "`{}` is a {}", ast.name.text, spelling(ast.kind));
  return ProgramInstance(program, ast, spec, target, diags).run();
}

static std::unique_ptr<HostProgram> new_program(const ast::Function &ast) {
  auto out = std::make_unique<HostProgram>();
  out->ast = &ast;
  out->header = std::make_shared<ir::Function>();
  return out;
}

// No op of a kernel stands in a program itself: its elaborator has no target.
ProgramInstance::ProgramInstance(Program &program, const ast::Function &ast, const InstanceSpec &spec,
                                 const ir::Target *target, Diagnostics &diags, const ProgramInstance *caller)
    : program_(program), ast_(ast), target_(target), diags_(diags), out_(new_program(ast)),
      e_(program, *out_->header, diags, nullptr), signature_(program, ast, spec, *out_->header, e_),
      effects_(*out_->header, diags), caller_(caller) {
  e_.host_size = [this](const ast::Expr &e, std::optional<SizeExpr> &size) { return host_size(e, size); };
}

std::unique_ptr<HostProgram> ProgramInstance::run() {
  int64_t errors = diags_.error_count();
  ir::Function &header = *out_->header;
  signature_.begin();
  signature_.bind_generics();
  signature_.declare_params();
  for (size_t i = 0; i < header.params.size(); i++) {
    const ir::Param &p = header.params[i];
    if (!p.type.is_tensor()) {
      if (is_bool(p.type.dtype)) e_.size_symbols.insert(p.name);
      continue;
    }
    TensorView v{false, i, p.name, p.type.dtype, p.record, {}};
    for (const SizeExpr &d : p.dims) v.dims.push_back({SizeExpr::constant(0), d, true, true, p.loc});
    if (p.present) views_[header.param_value(p.name)] = std::move(v);
  }
  symbols_.insert(e_.size_symbols.begin(), e_.size_symbols.end());
  signature_.facts();
  e_.push_scope();
  block(ast_.body, out_->body);
  e_.pop_scope();
  effects_.finish(diags_.error_count() != errors, ast_.body);
  return diags_.error_count() == errors ? std::move(out_) : nullptr;
}

// ---- statements

void ProgramInstance::block(const std::vector<ast::StmtPtr> &stmts, std::vector<HostStmt> &out) {
  for (const ast::StmtPtr &s : stmts) statement(*s, out);
}

void ProgramInstance::statement(const ast::Stmt &s, std::vector<HostStmt> &out) {
  for (const ast::Annotation &a : s.annotations)
    if (s.kind != StmtKind::Launch) diags_.report(a.name.loc, DiagKind::not_in_program, quoted("@" + a.name.text));
  switch (s.kind) {
  case StmtKind::Let: return let(s, out);
  case StmtKind::If: return if_statement(s, out);
  case StmtKind::For: return for_statement(s, out);
  case StmtKind::Launch: return launch(s, out);
  case StmtKind::Block:
    e_.push_scope();
    block(s.body, out);
    return e_.pop_scope();
  case StmtKind::Parallel: {
    if (in_parallel_) diags_.report(s.loc, DiagKind::not_in_program, "`parallel` in `parallel`");
    HostStmt p;
    p.kind = HostStmt::Kind::Parallel;
    p.loc = s.loc;
    e_.push_scope();
    bool outer = std::exchange(in_parallel_, true);
    effects_.enter_parallel();
    block(s.body, p.body);
    effects_.leave_parallel();
    in_parallel_ = outer;
    e_.pop_scope();
    out.push_back(std::move(p));
    return;
  }
  case StmtKind::Assign: diags_.report(s.loc, DiagKind::not_in_program, "an assignment"); return;
  case StmtKind::Ring: diags_.report(s.loc, DiagKind::not_in_program, "`ring`"); return;
  case StmtKind::Role: diags_.report(s.loc, DiagKind::not_in_program, "`role`"); return;
  case StmtKind::While: diags_.report(s.loc, DiagKind::not_in_program, "`while`"); return;
  case StmtKind::Return: diags_.report(s.loc, DiagKind::not_in_program, "`return`"); return;
  case StmtKind::Expr: diags_.report(s.loc, DiagKind::not_in_program, "an expression alone"); return;
  }
}

void ProgramInstance::let(const ast::Stmt &s, std::vector<HostStmt> &out) {
  if (s.is_var) diags_.report(s.loc, DiagKind::not_in_program, "`var`");
  if (s.type) diags_.report(s.type->loc, DiagKind::not_in_program, "the type of a `let`");
  bool tuple = s.value && s.value->kind == ExprKind::Tuple && s.value->operands.size() == s.targets.size();
  if (s.targets.size() > 1 && !tuple)
    diags_.report(
        s.loc, DiagKind::wrong_tuple, counted(int64_t(s.targets.size()), "name"),
        counted(s.value && s.value->kind == ExprKind::Tuple ? int64_t(s.value->operands.size()) : 1, "value"));
  for (size_t i = 0; i < s.targets.size(); i++) {
    const ast::Name &name = s.targets[i];
    if (!s.value || (s.targets.size() > 1 && !tuple)) {
      e_.define(name, SV::poison());
      continue;
    }
    const ast::Expr &e = tuple ? *s.value->operands[i] : *s.value;
    if (e.kind == ExprKind::Shaped && e.text == "alloc") {
      alloc(name, e, out);
      continue;
    }
    if (Elaborator::Var *whole = absent_tensor(e)) {
      e_.define(name, whole->value);
      continue;
    }
    bool is_tensor = false;
    std::optional<TensorView> v = view(e, is_tensor);
    if (v) v->name = name.text;
    if (is_tensor) {
      e_.define(name, v ? define_view(std::move(*v), e.loc) : SV::poison());
      continue;
    }
    SV number = scalar(e);
    if (number.is(Kind::Size)) number.size = std::make_shared<SizeExpr>(named(*number.size, name.text, name.loc, out));
    e_.define(name, std::move(number));
  }
}

void ProgramInstance::alloc(const ast::Name &name, const ast::Expr &e, std::vector<HostStmt> &out) {
  ProgramAlloc a;
  a.name = name.text;
  a.loc = name.loc;
  bool ok = e.generics.size() == 1 && !e.generics[0].name && e.generics[0].value->kind == ExprKind::Name;
  if (!ok) {
    diags_.report(e.loc, DiagKind::type_mismatch, "`alloc<T>[...]` with one dtype T",
                  quoted(std::string(diags_.sources().text(e.loc))));
  } else if (const ast::Expr &element = *e.generics[0].value; e_.record_named(element.text)) {
    a.record = e_.record_type({element.text, element.name_loc}, element.generics);
    a.dtype = ir::kRecordWord;
    ok = a.record != nullptr;
  } else if (!element.generics.empty()) {
    diags_.report(element.loc, DiagKind::bad_record, element.text, "no record has this name");
    ok = false;
  } else if (auto t = e_.dtype_of({e.generics[0].value->text, e.generics[0].value->loc})) {
    a.dtype = *t;
    if (dtype_bits(*t) < 8) {
      diags_.report(e.generics[0].value->loc, DiagKind::wrong_parameter_type, name.text, "program",
                    fmt::format("a tensor of whole bytes: allocate packed {} as u8", dtype_name(*t)));
      ok = false;
    }
  } else {
    ok = false;
  }
  for (const ast::ExprPtr &d : e.operands) {
    auto size = e_.size(*d);
    if (size && size->is_const() && size->value() < 0) {
      diags_.report(d->loc, DiagKind::bad_extent, a.dims.size(), size->value());
      size.reset();
    }
    ok &= size.has_value();
    a.dims.push_back(size.value_or(SizeExpr::constant(1)));
  }
  if (!ok) return e_.define(name, SV::poison());
  if (a.record) a.dims.push_back(SizeExpr::constant(a.record->words()));
  HostStmt stmt;
  stmt.kind = HostStmt::Kind::Alloc;
  stmt.loc = e.loc;
  stmt.alloc = out_->allocs.size();
  TensorView v{true, out_->allocs.size(), a.name, a.dtype, a.record, {}};
  for (const SizeExpr &d : a.dims) v.dims.push_back({SizeExpr::constant(0), d, true, true, a.loc});
  effects_.add_alloc(a);
  out_->allocs.push_back(std::move(a));
  out.push_back(std::move(stmt));
  e_.define(name, define_view(std::move(v), name.loc));
}

void ProgramInstance::if_statement(const ast::Stmt &s, std::vector<HostStmt> &out) {
  HostStmt stmt;
  stmt.kind = HostStmt::Kind::If;
  stmt.loc = s.loc;
  bool run_time = at_launch(*s.value);
  if (run_time) {
    auto cond = e_.size(*s.value);
    if (cond) stmt.cond = *cond;
    run_time = !cond || !cond->is_const();
  } else {
    auto cond = e_.const_bool(*s.value, "the condition");
    if (!cond) return;
    stmt.cond = SizeExpr::constant(*cond);
  }
  auto side = [&](const std::vector<ast::StmtPtr> &stmts, std::vector<HostStmt> &to) {
    e_.push_scope();
    block(stmts, to);
    e_.pop_scope();
  };
  if (!run_time) return side(stmt.cond.value() ? s.body : s.else_body, out); // one variant
  HostEffects::Written before = effects_.written();
  side(s.body, stmt.body);
  HostEffects::Written after = effects_.written();
  effects_.set_written(before);
  side(s.else_body, stmt.else_body);
  effects_.join(after);
  out.push_back(std::move(stmt));
}

void ProgramInstance::for_statement(const ast::Stmt &s, std::vector<HostStmt> &out) {
  const ast::Expr &range = *s.value;
  auto lo = e_.size(*range.operands[0]);
  auto hi = e_.size(*range.operands[1]);
  auto step = s.step ? e_.size(*s.step) : std::optional(SizeExpr::constant(1));
  if (lo && hi && range.has_length) hi = SizeExpr::make(SizeExpr::Op::Add, *lo, *hi);
  if (step && step->is_const() && (step->value() == 0 || (step->value() < 0 && !s.unrolled))) {
    diags_.report(s.step->loc, DiagKind::bad_step);
    step.reset();
  }
  bool ok = lo && hi && step;
  e_.push_scope();
  effects_.enter_loop();
  if (s.unrolled) { // the counter is a compile-time integer: each iteration may launch another variant
    constexpr int64_t kMost = 256;
    bool constant = ok && lo->is_const() && hi->is_const() && step->is_const();
    if (ok && !constant) diags_.report(range.loc, DiagKind::not_constant, "the range of an `unroll for`");
    int64_t n = 0;
    if (constant) {
      int64_t by = step->value(), length = by > 0 ? hi->value() - lo->value() : lo->value() - hi->value();
      n = length <= 0 ? 0 : (length - 1) / std::abs(by) + 1;
    }
    if (n > kMost) diags_.report(range.loc, DiagKind::unrolled_too_far, n, kMost);
    for (int64_t i = 0; i < n && n <= kMost; i++) {
      e_.push_scope();
      e_.define(s.targets[0], SV::make_int(lo->value() + i * step->value(), range.loc));
      block(s.body, out);
      e_.pop_scope();
    }
  } else {
    HostStmt stmt;
    stmt.kind = HostStmt::Kind::For;
    stmt.loc = s.loc;
    if (ok) stmt.lo = *lo, stmt.hi = *hi, stmt.step = *step;
    stmt.counter = fresh_symbol(s.targets[0].text);
    e_.define(s.targets[0], SV::make(Kind::Size, s.targets[0].loc, [&](SV &v) {
                v.size = std::make_shared<SizeExpr>(SizeExpr::symbol(stmt.counter));
              }));
    block(s.body, stmt.body);
    if (ok) out.push_back(std::move(stmt));
  }
  effects_.leave_loop();
  e_.pop_scope();
}

// ---- scalars

std::string ProgramInstance::fresh_symbol(const std::string &name) {
  std::string out = name;
  for (int64_t n = 2; !symbols_.insert(out).second; n++) out = fmt::format("{}_{}", name, n);
  return out;
}

// Nodes of an expression, counted up to `most`.
static int64_t node_count(const SizeExpr &e, int64_t most) {
  using Op = SizeExpr::Op;
  int64_t n = 1;
  if (e.op() == Op::Const || e.op() == Op::Sym || most <= 1) return n;
  n += node_count(e.a(), most - n);
  if (e.op() != Op::Not && n < most) n += node_count(e.b(), most - n);
  if (e.op() == Op::Select && n < most) n += node_count(e.c(), most - n);
  return n;
}

SizeExpr ProgramInstance::named(const SizeExpr &e, const std::string &name, SourceLoc loc, std::vector<HostStmt> &out) {
  constexpr int64_t kMostNodes = 7;
  if (node_count(e, kMostNodes + 1) <= kMostNodes) return e;
  HostStmt s;
  s.kind = HostStmt::Kind::Let;
  s.loc = loc;
  s.counter = fresh_symbol(name);
  s.lo = e;
  out.push_back(s);
  return SizeExpr::symbol(s.counter);
}

bool ProgramInstance::at_launch(const ast::Expr &e) {
  bool found = false;
  ast::walk(e, [&](const ast::Expr &x) {
    if (x.kind == ExprKind::Name) {
      Elaborator::Var *v = e_.lookup(x.text);
      found |= v ? v->value.is(Kind::Size) || v->value.is(Kind::Value) : e_.size_symbols.count(x.text) > 0;
    }
    found |= x.kind == ExprKind::Call && x.text == "dim" && x.operands.empty();
    found |= x.kind == ExprKind::Member && x.operands[0]->kind == ExprKind::Name && x.operands[0]->text == "device" &&
             !e_.lookup("device");
  });
  return found;
}

bool ProgramInstance::host_size(const ast::Expr &e, std::optional<SizeExpr> &out) {
  switch (e.kind) {
  case ExprKind::Name: {
    Elaborator::Var *v = e_.lookup(e.text);
    if (!v || !v->value.is(Kind::Size)) return false;
    out = *v->value.size;
    return true;
  }
  case ExprKind::Member: {
    if (e.operands[0]->kind != ExprKind::Name || e.operands[0]->text != "device" || e_.lookup("device")) return false;
    std::vector<std::string> names(std::begin(kDeviceProperties), std::end(kDeviceProperties));
    if (std::find(names.begin(), names.end(), e.text) != names.end()) {
      out = SizeExpr::symbol("device." + e.text);
    } else {
      std::string near = nearest_name(e.text, names);
      diags_.report(e.name_loc, DiagKind::unknown_name, "device." + e.text,
                    near.empty() ? fmt::format("; there are {}", fmt::join(names, ", "))
                                 : "; did you mean `device." + near + "`?");
    }
    return true;
  }
  case ExprKind::Call: {
    if (needs_computing(e) && at_launch(e)) {
      SV v = computed(e);
      if (v.is(Kind::Size)) out = *v.size;
      if (v.is(Kind::Int)) out = SizeExpr::constant(v.i);
      if (!out && !v.is_poison()) diags_.report(e.loc, DiagKind::bad_size);
      return true;
    }
    if (e.text != "dim" || !e.operands.empty() || e.args.size() != 2) return false;
    bool is_tensor = false;
    std::optional<TensorView> v = view(*e.args[0].value, is_tensor);
    if (!is_tensor) return false;
    auto axis = e_.const_int(*e.args[1].value, "the axis");
    if (!v || !axis) return true;
    std::vector<SizeExpr> extents = v->extents();
    if (*axis < 0 || *axis >= int64_t(extents.size()))
      diags_.report(e.args[1].value->loc, DiagKind::axis_range, *axis, "dim", v->name, extents.size());
    else
      out = extents[size_t(*axis)];
    return true;
  }
  case ExprKind::Ternary: {
    auto cond = e_.size(*e.operands[0]);
    if (!cond) return true;
    if (cond->is_const()) {
      out = e_.size(*e.operands[cond->value() ? 1 : 2]);
      return true;
    }
    auto yes = e_.size(*e.operands[1]), no = e_.size(*e.operands[2]);
    if (yes && no) out = SizeExpr::select(*cond, *yes, *no);
    return true;
  }
  default: return false;
  }
}

SV ProgramInstance::scalar(const ast::Expr &e) {
  if (at_launch(e)) {
    if (e.kind == ExprKind::Name) // a floating-point parameter by another name
      if (Elaborator::Var *v = e_.lookup(e.text); v && v->value.is(Kind::Value) && !e_.size_symbols.count(e.text))
        return v->value;
    if (needs_computing(e)) return computed(e);
    auto size = e_.size(e);
    if (!size) return SV::poison();
    if (size->is_const()) return SV::make_int(size->value(), e.loc);
    return SV::make(Kind::Size, e.loc, [&](SV &v) { v.size = std::make_shared<SizeExpr>(*size); });
  }
  SV v = e_.expr(e);
  if (v.is(Kind::Value) && v.v->op && v.v->op->kind == ir::OpKind::Constant) { // f32(0.5): a number
    DType t = v.v->type.dtype;
    const ir::Attrs &a = v.v->op->attrs;
    if (is_float(t)) return SV::make_float(a.get<double>("value"), e.loc);
    return is_bool(t) ? SV::make_bool(a.i("value") != 0, e.loc) : SV::make_int(a.i("value"), e.loc);
  }
  if (v.is_number() || v.is(Kind::DType) || v.is(Kind::Enum) || v.is(Kind::Tuple) || v.is_poison()) return v;
  diags_.report(e.loc, DiagKind::host_scalar, v.describe());
  return SV::poison();
}

// ---- tensors

SV ProgramInstance::define_view(TensorView v, SourceLoc loc) {
  std::vector<int64_t> shape;
  for (const SizeExpr &d : v.extents()) shape.push_back(d.is_const() ? d.value() : ir::kDynamic);
  ir::Value *value = out_->header->new_value(ir::Type::tensor(v.dtype, shape), v.name);
  views_[value] = std::move(v);
  return SV::make_tensor(value, loc);
}

Elaborator::Var *ProgramInstance::absent_tensor(const ast::Expr &e) {
  const ast::Expr *whole = &e;
  while (whole->kind == ExprKind::Index) whole = whole->operands[0].get();
  Elaborator::Var *v = whole->kind == ExprKind::Name ? e_.lookup(whole->text) : nullptr;
  return v && v->value.is(Kind::Absent) ? v : nullptr;
}

std::optional<TensorView> ProgramInstance::view(const ast::Expr &e, bool &is_tensor) {
  if (e.kind == ExprKind::Name) {
    Elaborator::Var *v = e_.lookup(e.text);
    is_tensor = v && (v->value.is(Kind::Tensor) || v->value.is(Kind::Absent));
    if (!is_tensor) return std::nullopt;
    if (v->value.is(Kind::Absent)) {
      diags_.report(e.loc, DiagKind::absent_tensor, e.text, e.text);
      return std::nullopt;
    }
    return views_.at(v->value.v);
  }
  if (e.kind == ExprKind::Shaped && e.text == "alloc") {
    is_tensor = true;
    diags_.report(e.loc, DiagKind::not_in_program, "`alloc` outside of a `let`");
    return std::nullopt;
  }
  if (e.kind != ExprKind::Index) return std::nullopt;
  std::optional<TensorView> base = view(*e.operands[0], is_tensor);
  return base ? part(std::move(*base), e) : std::nullopt;
}

std::optional<TensorView> ProgramInstance::part(TensorView v, const ast::Expr &index) {
  using Op = SizeExpr::Op;
  int64_t rank = int64_t(v.extents().size()) - (v.record ? 1 : 0);
  if (int64_t(index.operands.size()) - 1 > rank) {
    diags_.report(index.loc, DiagKind::too_many_indices, counted(int64_t(index.operands.size()) - 1, "index position"),
                  quoted(v.name), rank);
    return std::nullopt;
  }
  size_t d = 0;
  bool ok = true;
  for (size_t i = 1; i < index.operands.size(); i++, d++) {
    while (!v.dims[d].kept) d++;
    TensorView::Dim &dim = v.dims[d];
    const ast::Expr &item = *index.operands[i];
    bool range = item.kind == ExprKind::Range;
    if (item.kind == ExprKind::None || item.kind == ExprKind::Tuple || item.kind == ExprKind::List) {
      diags_.report(item.loc, DiagKind::bad_view, quoted(std::string(diags_.sources().text(item.loc))));
      ok = false;
      continue;
    }
    if (range && !item.operands[0] && !item.operands[1]) continue;
    auto lo = !range ? e_.size(item) : item.operands[0] ? e_.size(*item.operands[0]) : SizeExpr::constant(0);
    std::optional<SizeExpr> extent = SizeExpr::constant(1);
    if (range) {
      auto end = item.operands[1] ? e_.size(*item.operands[1]) : dim.extent;
      extent = item.has_length || !lo || !end ? end : SizeExpr::make(Op::Sub, *end, *lo);
    }
    if (!lo || !extent) {
      ok = false;
      continue;
    }
    // What is known now; the rest is checked when the sizes are.
    SizeExpr end = SizeExpr::make(Op::Add, *lo, *extent);
    std::string wrong;
    if (lo->is_const() && lo->value() < 0)
      wrong = lo->str();
    else if (extent->is_const() && extent->value() < 0)
      wrong = fmt::format("{} (the end of a range that begins at {})", end.str(), lo->str());
    else if (end.is_const() && dim.extent.is_const() && end.value() > dim.extent.value())
      wrong = range ? end.str() : lo->str();
    if (!wrong.empty()) {
      diags_.report(item.loc, DiagKind::index_out_of_range, wrong, dim.extent.str());
      ok = false;
      continue;
    }
    dim.lo = SizeExpr::make(Op::Add, dim.lo, *lo);
    dim.extent = *extent;
    dim.whole = false;
    dim.kept = range;
    dim.loc = item.loc;
  }
  return ok ? std::optional(std::move(v)) : std::nullopt;
}

} // namespace tkc::sema

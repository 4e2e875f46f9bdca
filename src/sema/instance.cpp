#include "sema/instance.h"
#include "ir/target.h"
#include "syntax/walk_ast.h"
#include <algorithm>
#include <cmath>

namespace tkc::sema {

using Kind = SV::Kind;

namespace {

// The value of a compile-time parameter from its text.
SV parse_setting(const ast::GenericParam &g, const std::string &text, Scope &scope, Diagnostics &diags) {
  SourceLoc loc = g.name.loc;
  std::string type = g.type ? g.type->name.text : "int";
  if (type == "int") {
    char *end = nullptr;
    errno = 0;
    int64_t v = std::strtoll(text.c_str(), &end, 0);
    if (!text.empty() && !*end && errno == 0) return SV::make_int(v, loc);
  } else if (type == "bool") {
    if (text == "true" || text == "1") return SV::make_bool(true, loc);
    if (text == "false" || text == "0") return SV::make_bool(false, loc);
  } else if (type == "type") {
    if (auto t = parse_dtype(text)) return SV::make(Kind::DType, loc, [&](SV &s) { s.dtype = *t; });
  } else if (auto it = scope.enums.find(type); it != scope.enums.end()) {
    std::string name = text.substr(text.find('.') == text.npos ? 0 : text.find('.') + 1);
    for (size_t i = 0; i < it->second.first->values.size(); i++)
      if (it->second.first->values[i].text == name)
        return SV::make(Kind::Enum, loc, [&](SV &s) { s.s = type + "." + name, s.i = int64_t(i); });
  }
  diags.report(loc, DiagKind::type_mismatch, fmt::format("{} for `{}`", type, g.name.text), fmt::format("`{}`", text));
  return SV::poison();
}

std::string setting_text(const SV &v) {
  switch (v.kind) {
  case Kind::Int: return fmt::format("{}", v.i);
  case Kind::Bool: return v.i ? "true" : "false";
  case Kind::Float: return fmt::format("{}", v.f);
  case Kind::DType: return std::string(dtype_name(v.dtype));
  case Kind::Enum: return v.s;
  default: return v.describe();
  }
}

// The names in an expression, in order.
void used_names(const ast::Expr &e, std::vector<std::string> &out) {
  if (e.kind == ast::ExprKind::Name) out.push_back(e.text);
  for (const ast::ExprPtr &x : e.operands)
    if (x) used_names(*x, out);
  for (const auto *list : {&e.generics, &e.args})
    for (const ast::Arg &a : *list) used_names(*a.value, out);
}

class KernelInstance {
public:
  KernelInstance(Program &program, const ast::Function &ast, const InstanceSpec &spec, const ir::Target *target,
                 Diagnostics &diags)
      : program_(program), ast_(ast), spec_(spec), diags_(diags), fn_(std::make_unique<ir::Function>()),
        e_(program, *fn_, diags, target) {}

  std::unique_ptr<ir::Function> run() {
    int64_t errors = diags_.error_count();
    fn_->name = ast_.name.text;
    fn_->loc = ast_.name.loc;
    fn_->body = fn_->new_block(nullptr);
    e_.builder().set_block(fn_->body);
    // What has an error in the header is poison in the body, whose own errors come out in the same run.
    bind_generics();
    declare_params();
    clauses();
    e_.body(ast_.body);
    failed_ = diags_.error_count() != errors;
    e_.builder().set_block(fn_->body);
    e_.builder().create_typed(ir::OpKind::Return, {}, {}, {}, ast_.loc);
    check_outputs();
    return diags_.error_count() == errors ? std::move(fn_) : nullptr;
  }

private:
  void bind_generics() {
    for (const ast::GenericParam &g : ast_.generics) {
      SV v;
      if (auto it = spec_.params.find(g.name.text); it != spec_.params.end())
        v = parse_setting(g, it->second, program_.root(), diags_);
      else if (g.default_value)
        v = e_.expr(*g.default_value);
      else
        diags_.report(g.name.loc, DiagKind::missing_parameter, g.name.text, ast_.name.text, g.name.text);
      if (!v.is_poison()) fn_->bindings.emplace_back(g.name.text, setting_text(v));
      e_.define(g.name, v);
    }
  }

  void declare_params() {
    // Names in extents that mean nothing else are run-time sizes.
    for (const ast::Param &p : ast_.params)
      if (p.type && p.type->kind == ast::TypeKind::Tensor)
        for (const ast::ExprPtr &d : p.type->dims) {
          std::vector<std::string> names;
          used_names(*d, names);
          for (const std::string &n : names)
            if (!e_.lookup(n) && !program_.root().consts.count(n) && !parameter_named(n) &&
                e_.size_symbols.insert(n).second)
              fn_->sizes.push_back(n);
        }
    for (const ast::Param &p : ast_.params)
      if (p.type && p.type->kind == ast::TypeKind::Named)
        if (auto t = parse_dtype(p.type->name.text); t && is_integer(*t)) e_.size_symbols.insert(p.name.text);
    std::set<std::string> failed;
    for (const ast::Param &p : ast_.params)
      if (!declare(p)) failed.insert(p.name.text);
    for (const ir::Param &p : fn_->params)
      if (p.present) argument(p.type, p.name);
    for (const std::string &s : fn_->sizes) argument(ir::Type::scalar(DType::I32), s);
    for (const std::string &name : failed)
      if (!e_.lookup(name)) e_.define({name, ast_.name.loc}, SV::poison());
    for (const ir::Param &p : fn_->params) {
      if (failed.count(p.name)) continue; // declared twice
      ir::Value *v = fn_->param_value(p.name);
      ast::Name name{p.name, p.loc};
      if (!p.present)
        e_.define(name, SV::make(Kind::Absent, p.loc, [&](SV &s) { s.s = p.name; }));
      else
        e_.define(name, p.type.is_tensor() ? SV::make_tensor(v, p.loc) : SV::make_value(v, p.loc));
    }
    for (const std::string &s : fn_->sizes) {
      SourceLoc loc = ast_.name.loc;
      e_.define({s, loc}, SV::make_value(fn_->size_value(s), loc));
    }
  }

  void argument(ir::Type type, const std::string &name) {
    ir::Value *v = fn_->new_value(std::move(type), name);
    v->block = fn_->body;
    v->index = int64_t(fn_->body->args.size());
    fn_->body->args.push_back(v);
  }

  bool parameter_named(const std::string &name) const {
    return std::any_of(ast_.params.begin(), ast_.params.end(),
                       [&](const ast::Param &p) { return p.name.text == name; });
  }

  bool declare(const ast::Param &p) {
    if (!p.type) {
      diags_.report(p.name.loc, DiagKind::wrong_parameter_type, p.name.text, "kernel", "a tensor or a scalar type");
      return false;
    }
    ir::Param out;
    out.name = p.name.text;
    out.loc = p.name.loc;
    out.mode = p.mode == ast::ParamMode::In    ? ir::ParamMode::In
               : p.mode == ast::ParamMode::Out ? ir::ParamMode::Out
                                               : ir::ParamMode::InOut;
    for (const ir::Param &q : fn_->params)
      if (q.name == out.name) {
        diags_.report(p.name.loc, DiagKind::duplicate_name, out.name).notes.push_back({q.loc, "first declared here"});
        return false;
      }
    if (p.type->kind == ast::TypeKind::Named) {
      auto t = e_.type(*p.type);
      if (!t) return false;
      if (out.mode != ir::ParamMode::In) {
        diags_.report(p.name.loc, DiagKind::wrong_parameter_type, out.name, "kernel", "a tensor to be written");
        return false;
      }
      out.type = *t;
      fn_->params.push_back(out);
      return true;
    }
    if (p.type->kind != ast::TypeKind::Tensor) {
      diags_.report(p.type->loc, DiagKind::wrong_parameter_type, out.name, "kernel", "a tensor or a scalar type");
      return false;
    }
    auto dtype = e_.dtype_of(p.type->element);
    if (!dtype) return false;
    if (dtype_bits(*dtype) < 8) { // two elements share a byte, which no two threads can write
      diags_.report(p.type->element.loc, DiagKind::wrong_parameter_type, out.name, "kernel",
                    fmt::format("a tensor of whole bytes: pass packed {} as u8", dtype_name(*dtype)));
      return false;
    }
    std::vector<int64_t> shape;
    for (const ast::ExprPtr &d : p.type->dims) {
      auto s = e_.size(*d);
      if (!s) return false;
      if (s->is_const() && s->value() < 0) {
        diags_.report(d->loc, DiagKind::bad_extent, shape.size(), s->value());
        return false;
      }
      out.dims.push_back(*s);
      shape.push_back(s->is_const() ? s->value() : ir::kDynamic);
    }
    out.type = ir::Type::tensor(*dtype, shape);
    out.optional = p.type->optional;
    out.any_strides = p.type->any_strides;
    out.present = !(out.optional && spec_.absent.count(out.name));
    fn_->params.push_back(out);
    return true;
  }

  void clauses() {
    if (!ast_.has_grid) diags_.report(ast_.name.loc, DiagKind::missing_clause, ast_.name.text, "grid (...)");
    for (const ast::ExprPtr &g : ast_.grid) fn_->grid.push_back(e_.size(*g).value_or(ir::SizeExpr::constant(1)));
    fn_->persistent = ast_.persistent;
    if (ast_.order) {
      fn_->order = ast_.order->text;
      if (fn_->order != "grouped")
        diags_.report(ast_.order->loc, DiagKind::bad_choice, "order", ast_.name.text, "grouped(n)", fn_->order);
      for (const ast::ExprPtr &a : ast_.order_args)
        if (auto v = e_.const_int(*a, "the argument of `order`")) {
          fn_->order_args.push_back(*v);
          if (*v < 1)
            diags_.report(a->loc, DiagKind::bad_choice, "order", ast_.name.text, "grouped(n) with n of at least 1", *v);
        }
      if (ast_.order_args.size() != 1)
        diags_.report(ast_.order->loc, DiagKind::wrong_arity, "order " + fn_->order, "1 argument",
                      ast_.order_args.size());
    }
    if (ast_.warps) {
      auto w = e_.const_int(*ast_.warps, "the number of warps");
      if (w && (*w < 1 || *w > 32 || (*w & (*w - 1))))
        diags_.report(ast_.warps->loc, DiagKind::bad_warps, *w);
      else if (w)
        fn_->warps = *w;
    }
    for (const ast::ExprPtr &f : ast_.facts) {
      auto s = e_.size(*f);
      if (!s) continue;
      fn_->facts.push_back(*s);
      fn_->fact_locs.push_back(f->loc);
    }
  }

  void check_outputs() {
    // A store to a sub-view writes the tensor it comes from.
    std::map<const ir::Value *, SourceLoc> written;
    for (const auto &[tensor, loc] : e_.written) {
      const ir::Value *v = tensor;
      while (v->op && v->op->kind == ir::OpKind::Subview) v = v->op->operand(0);
      auto [it, fresh] = written.emplace(v, loc);
      if (!fresh && loc.begin < it->second.begin) it->second = loc;
    }
    for (const ir::Param &p : fn_->params) {
      if (!p.type.is_tensor() || !p.present) continue;
      auto write = written.find(fn_->param_value(p.name));
      bool writes = write != written.end();
      // A store that has an error may be the one that writes it.
      bool unknown = failed_ && ast::mentions(ast_.body, p.name);
      if (p.mode == ir::ParamMode::Out && !writes && !unknown)
        diags_.report(p.loc, DiagKind::out_never_written, p.name);
      if (p.mode == ir::ParamMode::In && writes)
        diags_.report(write->second, DiagKind::write_to_input, p.name).notes.push_back({p.loc, "declared here"});
    }
  }

  Program &program_;
  const ast::Function &ast_;
  const InstanceSpec &spec_;
  Diagnostics &diags_;
  std::unique_ptr<ir::Function> fn_;
  Elaborator e_;
  bool failed_ = false;
};

// A reference function over named tiles, with the block's `let`s and the case's numbers in scope.
class HostBuilder {
public:
  HostBuilder(Program &program, const ast::Check &check, const Numbers &numbers, const std::vector<HostArg> &args,
              Diagnostics &diags) {
    out.fn = std::make_unique<ir::Function>();
    out.fn->kind = ir::FunctionKind::Reference;
    out.fn->name = check.kernel.text;
    out.fn->body = out.fn->new_block(nullptr);
    e = std::make_unique<Elaborator>(program, *out.fn, diags, nullptr);
    e->builder().set_block(out.fn->body);
    for (const auto &[name, v] : numbers) {
      SV number = v == std::floor(v) && std::fabs(v) < 9e15 ? SV::make_int(int64_t(v), check.kernel.loc)
                                                            : SV::make_float(v, check.kernel.loc);
      e->define({name, check.kernel.loc}, number);
    }
    const ast::Function *kernel = program.find(check.kernel.text, ast::FunctionKind::Kernel);
    for (const HostArg &a : args) {
      if (!a.word.empty()) {
        for (const ast::GenericParam &g : kernel->generics)
          if (g.name.text == a.name)
            e->define({a.name, check.kernel.loc}, parse_setting(g, a.word, program.root(), diags));
        continue;
      }
      if (a.absent) {
        e->define({a.name, check.kernel.loc}, SV::make(Kind::Absent, check.kernel.loc, [&](SV &s) { s.s = a.name; }));
        continue;
      }
      ir::Param p;
      p.name = a.name;
      p.type = ir::Type::tile(a.dtype, a.shape);
      out.fn->params.push_back(p);
      ir::Value *v = out.fn->new_value(p.type, a.name);
      v->block = out.fn->body;
      v->index = int64_t(out.fn->body->args.size());
      out.fn->body->args.push_back(v);
      e->define({a.name, check.kernel.loc}, SV::make_value(v, check.kernel.loc));
    }
  }
  // Those `let`s of the block that an expression needs: one may speak of tensors that do not exist yet for another.
  void lets(const ast::Check &check, const ast::Expr &needed_by) {
    std::vector<std::string> names;
    used_names(needed_by, names);
    std::vector<const ast::Stmt *> wanted;
    for (size_t i = check.lets.size(); i-- > 0;) {
      const ast::Stmt &s = *check.lets[i];
      bool used = std::any_of(s.targets.begin(), s.targets.end(), [&](const ast::Name &n) {
        return std::find(names.begin(), names.end(), n.text) != names.end();
      });
      if (!used || !evaluated_.insert(&s).second) continue;
      used_names(*s.value, names);
      wanted.insert(wanted.begin(), &s);
    }
    for (const ast::Stmt *s : wanted) {
      SV v = e->expr(*s->value);
      if (s->targets.size() == 1)
        e->define(s->targets[0], v);
      else
        for (size_t i = 0; i < s->targets.size(); i++)
          e->define(s->targets[i], v.is(Kind::Tuple) && i < v.elements.size() ? v.elements[i] : SV::poison());
    }
  }
  void finish(std::vector<ir::Value *> results, SourceLoc loc) {
    e->builder().set_block(out.fn->body);
    e->builder().create_typed(ir::OpKind::Return, std::move(results), {}, {}, loc);
  }
  HostFunction out;
  std::unique_ptr<Elaborator> e;

private:
  std::set<const ast::Stmt *> evaluated_;
};

} // namespace

std::unique_ptr<ir::Function> instantiate(Program &program, const ast::Function &kernel, const InstanceSpec &spec,
                                          const ir::Target *target, Diagnostics &diags) {
  return KernelInstance(program, kernel, spec, target, diags).run();
}

std::optional<CaseSpec> evaluate_case(Program &program, const ast::Function &kernel, const ast::Check &check,
                                      const ast::Case &c, Diagnostics &diags) {
  CaseSpec out;
  out.name = c.name.text;
  out.gpu_only = c.gpu_only;
  HostBuilder h(program, check, {}, {}, diags);
  bool ok = true;
  for (const ast::CaseSetting &s : c.settings) {
    const ast::Expr &value = *s.value;
    bool tensor = false, generic = false;
    for (const ast::Param &p : kernel.params)
      tensor |= p.name.text == s.name.text && p.type && p.type->kind == ast::TypeKind::Tensor;
    for (const ast::GenericParam &g : kernel.generics) generic |= g.name.text == s.name.text;
    if (tensor) {
      if (value.kind == ast::ExprKind::None || (value.kind == ast::ExprKind::Name && value.text == "none")) {
        out.spec.absent.insert(s.name.text);
      } else {
        diags.report(value.loc, DiagKind::bad_check,
                     fmt::format("`{}` is a tensor: a case can only say `{} = none`", s.name.text, s.name.text));
        ok = false;
      }
      continue;
    }
    if (generic && value.kind == ast::ExprKind::Name && !h.e->lookup(value.text)) { // a type or an enum value
      bool is_type = parse_dtype(value.text).has_value();
      bool is_enum = false;
      for (const ast::GenericParam &g : kernel.generics)
        is_enum |= g.name.text == s.name.text && g.type && program.root().enums.count(g.type->name.text);
      if (is_type || is_enum) {
        out.spec.params[s.name.text] = value.text;
        continue;
      }
    }
    SV v = h.e->expr(value);
    if (v.is_poison()) {
      ok = false;
      continue;
    }
    if (v.is(Kind::Enum)) {
      out.spec.params[s.name.text] = v.s;
      continue;
    }
    if (!v.is_number()) {
      diags.report(value.loc, DiagKind::not_constant, "a setting of a case");
      ok = false;
      continue;
    }
    h.e->define(s.name, v);
    out.numbers[s.name.text] = v.is(Kind::Float) ? v.f : double(v.i);
    out.spec.params[s.name.text] = setting_text(v);
  }
  return ok ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<HostFunction> build_input(Program &program, const ast::Check &check, const ast::Input &input,
                                        const Numbers &numbers, const std::vector<HostArg> &args, const HostArg &result,
                                        Diagnostics &diags) {
  int64_t errors = diags.error_count();
  HostBuilder h(program, check, numbers, args, diags);
  h.e->collect_generators(&h.out.generators, result.shape, result.dtype);
  h.lets(check, *input.value);
  SV v = h.e->expr(*input.value);
  if (v.is_poison()) return std::nullopt;
  ir::Value *x = h.e->value(v, result.dtype);
  if (x && x->type.dtype != result.dtype) {
    ir::Attrs a;
    a.set("dtype", result.dtype);
    x = h.e->builder().value(ir::OpKind::Cast, {x}, a, input.value->loc);
  }
  if (x)
    x = h.e->value_as(SV::make_value(x, input.value->loc), ir::Type::tile(result.dtype, result.shape), "the input");
  if (!x || diags.error_count() != errors) return std::nullopt;
  h.finish({x}, input.value->loc);
  h.out.outputs = {input.name.text};
  return std::move(h.out);
}

std::optional<HostFunction> build_expected(Program &program, const ast::Check &check, const ast::Binding &binding,
                                           const Numbers &numbers, const std::vector<HostArg> &args,
                                           Diagnostics &diags) {
  int64_t errors = diags.error_count();
  HostBuilder h(program, check, numbers, args, diags);
  h.lets(check, *binding.value);
  SV v = h.e->expr(*binding.value);
  if (v.is_poison()) return std::nullopt;
  std::vector<SV> values = v.is(Kind::Tuple) ? v.elements : std::vector<SV>{v};
  if (values.size() != binding.targets.size()) {
    diags.report(binding.value->loc, DiagKind::wrong_tuple, counted(int64_t(binding.targets.size()), "name"),
                 counted(int64_t(values.size()), "value"));
    return std::nullopt;
  }
  std::vector<ir::Value *> results;
  for (const SV &x : values) results.push_back(h.e->value(x));
  if (diags.error_count() != errors) return std::nullopt;
  h.finish(results, binding.value->loc);
  for (const ast::Name &n : binding.targets) h.out.outputs.push_back(n.text);
  return std::move(h.out);
}

std::map<std::string, double> evaluate_counts(Program &program, const ast::Check &check, const Numbers &numbers,
                                              Diagnostics &diags) {
  std::map<std::string, double> out;
  HostBuilder h(program, check, numbers, {}, diags);
  for (const ast::Binding &b : check.bindings) {
    h.lets(check, *b.value);
    SV v = h.e->expr(*b.value);
    if (v.is_poison()) continue;
    if (!v.is_number() || b.targets.size() != 1) {
      diags.report(b.value->loc, DiagKind::not_constant, "a count of a bench block");
      continue;
    }
    h.e->define(b.targets[0], v);
    out[b.targets[0].text] = v.is(Kind::Float) ? v.f : double(v.i);
  }
  return out;
}

} // namespace tkc::sema

#include "sema/instance.h"
#include "ir/target.h"
#include "sema/signature.h"
#include "syntax/walk_ast.h"
#include <algorithm>
#include <cmath>

namespace tkc::sema {

using Kind = SV::Kind;

namespace {

class KernelInstance {
public:
  KernelInstance(Program &program, const ast::Function &ast, const InstanceSpec &spec, const ir::Target *target,
                 Diagnostics &diags)
      : ast_(ast), diags_(diags), fn_(std::make_unique<ir::Function>()), e_(program, *fn_, diags, target),
        signature_(program, ast, spec, *fn_, e_) {
    fn_->overlaps = spec.overlaps;
  }

  std::unique_ptr<ir::Function> run() {
    int64_t errors = diags_.error_count();
    signature_.begin();
    // What has an error in the header is poison in the body, whose own errors come out in the same run.
    signature_.bind_generics();
    signature_.declare_params();
    clauses();
    signature_.facts();
    e_.body(ast_.body);
    failed_ = diags_.error_count() != errors;
    e_.builder().set_block(fn_->body);
    e_.builder().create_typed(ir::OpKind::Return, {}, {}, {}, ast_.loc);
    if (diags_.error_count() == errors) e_.check_roles(ast_.warps ? ast_.warps->loc : SourceLoc());
    if (diags_.error_count() == errors) e_.check_by_hand();
    check_outputs();
    return diags_.error_count() == errors ? std::move(fn_) : nullptr;
  }

private:
  void clauses() {
    if (!ast_.has_grid) diags_.report(ast_.name.loc, DiagKind::missing_clause, ast_.name.text, "grid (...)");
    for (const ast::ExprPtr &g : ast_.grid) fn_->grid.push_back(e_.size(*g).value_or(ir::SizeExpr::constant(1)));
    fn_->persistent = ast_.persistent;
    e_.annotate(ast_.annotations, false, ast_.persistent ? &fn_->tile_annotations : nullptr);
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
  }

  void check_outputs() {
    // A store to a sub-view writes the tensor it comes from.
    std::map<const ir::Value *, SourceLoc> written;
    for (const auto &[tensor, loc] : e_.written) {
      auto [it, fresh] = written.emplace(ir::root_tensor(tensor), loc);
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

  const ast::Function &ast_;
  Diagnostics &diags_;
  std::unique_ptr<ir::Function> fn_;
  Elaborator e_;
  Signature signature_;
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
    const ast::Function *kernel = program.find_entry(check.kernel.text);
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
      argument({a.name, check.kernel.loc}, ir::Type::tile(a.dtype, a.shape));
    }
  }
  void argument(const ast::Name &name, const ir::Type &type) {
    ir::Param p;
    p.name = name.text;
    p.type = type;
    out.fn->params.push_back(p);
    ir::Value *v = out.fn->new_value(p.type, p.name);
    v->block = out.fn->body;
    v->index = int64_t(out.fn->body->args.size());
    out.fn->body->args.push_back(v);
    e->define(name, SV::make_value(v, name.loc));
  }
  // Those `let`s of the block that an expression needs: one may speak of tensors that do not exist yet for another.
  void lets(const ast::Check &check, const ast::Expr &needed_by) {
    std::vector<std::string> names;
    std::vector<const ast::Stmt *> wanted = wanted_lets(check, needed_by, names);
    for (const ast::Stmt *s : wanted) {
      SV v = e->expr(*s->value);
      if (s->targets.size() == 1)
        e->define(s->targets[0], v);
      else
        for (size_t i = 0; i < s->targets.size(); i++)
          e->define(s->targets[i], v.is(Kind::Tuple) && i < v.elements.size() ? v.elements[i] : SV::poison());
    }
  }
  // The same `let`s in order, each once in the life of the builder, and in `names` all that they and the expression
  // name.
  std::vector<const ast::Stmt *> wanted_lets(const ast::Check &check, const ast::Expr &needed_by,
                                             std::vector<std::string> &names) {
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
    return wanted;
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
      } else if (value.kind == ast::ExprKind::Call && value.text == "strides" && value.operands.empty()) {
        out.strides[s.name.text] = &value;
      } else {
        diags.report(value.loc, DiagKind::bad_check,
                     fmt::format("`{0}` is a tensor: a case says `{0} = none` or `{0} = strides(..)`", s.name.text));
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

std::optional<std::vector<int64_t>> evaluate_strides(Program &program, const ast::Check &check,
                                                     const ast::Expr &strides, size_t rank, bool unit,
                                                     const Numbers &numbers, Diagnostics &diags) {
  if (strides.args.size() != rank || !strides.generics.empty()) {
    diags.report(strides.loc, DiagKind::wrong_arity, "strides", counted(int64_t(rank), "argument"),
                 strides.args.size());
    return std::nullopt;
  }
  std::vector<int64_t> out;
  HostBuilder h(program, check, numbers, {}, diags);
  for (const ast::Arg &a : strides.args) {
    if (a.name) {
      diags.report(a.name->loc, DiagKind::unknown_argument, "strides", a.name->text, "");
      return std::nullopt;
    }
    h.lets(check, *a.value);
    auto v = h.e->const_int(*a.value, "a stride");
    if (!v) return std::nullopt;
    bool last = out.size() + 1 == rank;
    if (*v < 0 || (last && unit && *v != 1)) {
      diags.report(a.value->loc, DiagKind::bad_check,
                   *v < 0 ? fmt::format("a stride of {}: strides count elements, from 0", *v)
                          : fmt::format("the last stride is 1, not {}, unless the tensor has `strides(any)`", *v));
      return std::nullopt;
    }
    out.push_back(*v);
  }
  return out;
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

std::optional<HostFunction> build_location(Program &program, const ast::Check &check, const ast::Locate &locate,
                                           const std::vector<ast::Name> &dims, const Numbers &numbers,
                                           const std::vector<HostArg> &args, Diagnostics &diags) {
  int64_t errors = diags.error_count();
  HostBuilder h(program, check, numbers, args, diags);
  for (const ast::CaseSetting &item : locate.items) h.lets(check, *item.value); // there a dim's name is its extent
  h.e->push_scope();
  for (const ast::Name &d : dims) h.argument(d, ir::Type::tile(DType::I64, {}));
  std::vector<ir::Value *> results;
  for (const ast::CaseSetting &item : locate.items) {
    SV v = h.e->expr(*item.value);
    if (v.is_poison()) return std::nullopt;
    ir::Value *x = h.e->value(v, DType::I64);
    if (x && (x->type.dtype != DType::I64 || x->type.rank() != 0)) {
      diags.report(item.value->loc, DiagKind::bad_check,
                   fmt::format("`{}` must be an integer, it is {}", item.name.text, x->type.str()));
      return std::nullopt;
    }
    if (!x || diags.error_count() != errors) return std::nullopt;
    h.e->define(item.name, SV::make_value(x, item.value->loc));
    results.push_back(x);
    h.out.outputs.push_back(item.name.text);
  }
  h.finish(results, locate.outputs[0].loc);
  return std::move(h.out);
}

std::optional<HostFunction> build_gradient(Program &program, const ast::Check &check, const ast::Binding &binding,
                                           const Numbers &numbers, const std::vector<HostArg> &args,
                                           Diagnostics &diags) {
  int64_t errors = diags.error_count();
  std::vector<std::string> names;
  HostBuilder(program, check, numbers, args, diags).wanted_lets(check, *binding.value, names);
  HostBuilder h(program, check, numbers, args, diags);
  h.e->collect_generators(&h.out.generators, {}, DType::F64);
  std::vector<std::pair<ast::Name, SV>> wrt;
  for (const ir::Param &p : h.out.fn->params)
    if (is_float(p.type.dtype) && std::find(names.begin(), names.end(), p.name) != names.end())
      wrt.emplace_back(ast::Name{p.name, binding.value->loc}, h.e->lookup(p.name)->value);
  if (wrt.empty()) return std::nullopt;
  auto expression = [&] {
    h.lets(check, *binding.value);
    return h.e->expr(*binding.value);
  };
  auto cotangents = [&](const std::vector<SV> &values) {
    std::vector<SV> out;
    for (const SV &v : values) {
      GeneratorCall g{fmt::format("random{}", h.out.generators.size()), "normal", {0, 1}};
      SV c = SV::make(Kind::None, v.loc, [](SV &) {});
      if (is_float(v.v->type.dtype)) c = SV::make_value(h.e->generated(g, v.v->type.with_dtype(DType::F64)), v.loc);
      out.push_back(c);
    }
    return out;
  };
  std::vector<SV> gradient = h.e->differentiate(wrt, binding.value->loc, expression, cotangents);
  if (gradient.empty() || diags.error_count() != errors) return std::nullopt;
  std::vector<ir::Value *> results;
  for (size_t i = 0; i < wrt.size(); i++) {
    results.push_back(gradient[i].v);
    h.out.outputs.push_back(wrt[i].first.text);
  }
  h.finish(results, binding.value->loc);
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

// Launches of a program: arguments against the signature of the kernel, its instance, its sizes.
#include "sema/host_instance.h"
#include <algorithm>

namespace tkc::sema {

using ast::ExprKind;
using ir::SizeExpr;
using Kind = SV::Kind;
using Op = SizeExpr::Op;

static bool is_tensor_param(const ast::Param &p) { return p.type && p.type->kind == ast::TypeKind::Tensor; }

void ProgramInstance::launch(const ast::Stmt &s, std::vector<HostStmt> &out) {
  const ast::Expr &call = *s.value;
  const auto &functions = program_.scope_of(ast_).functions;
  auto found = functions.find(call.text);
  auto can_launch = [](const ast::Function &f) {
    return f.kind == ast::FunctionKind::Kernel || f.kind == ast::FunctionKind::Program;
  };
  if (found == functions.end() || !can_launch(*found->second.first)) {
    std::vector<std::string> names;
    for (const auto &[name, f] : functions)
      if (can_launch(*f.first)) names.push_back(name);
    std::string near = nearest_name(call.text, names);
    if (found != functions.end())
      diags_.report(call.name_loc, DiagKind::not_callable, call.text,
                    fmt::format("a launch names a kernel or program, not a {}", spelling(found->second.first->kind)));
    else
      diags_.report(call.name_loc, DiagKind::unknown_kernel, call.text,
                    near.empty() ? "" : "; did you mean `" + near + "`?");
    return;
  }
  const ast::Function &callee = *found->second.first;
  bool inner = callee.kind == ast::FunctionKind::Program, overlap = false;
  for (const ast::Annotation &a : s.annotations) {
    overlap |= a.name.text == "overlap";
    if (a.name.text != "overlap" || !a.args.empty() || inner || in_parallel_)
      diags_.report(a.name.loc, DiagKind::not_in_program,
                    quoted("@" + a.name.text) + (a.name.text != "overlap" ? ""
                                                 : inner                  ? " of a program"
                                                 : in_parallel_           ? " in `parallel`"
                                                                          : " with arguments"));
  }
  if (inner && in_parallel_) {
    diags_.report(call.loc, DiagKind::not_in_program, "a program in `parallel`");
    return;
  }
  std::vector<Given> given;
  std::map<std::string, SizeExpr> sizes;
  InstanceSpec spec;
  if (!bind_arguments(callee, call, given, sizes) || !bind_generics(callee, call, given, spec)) return;
  HostStmt stmt;
  stmt.kind = HostStmt::Kind::Launch;
  stmt.loc = call.loc;
  std::shared_ptr<ir::Function> signature;
  std::shared_ptr<HostProgram> program;
  if (inner) {
    program = program_instance(callee, spec, call.name_loc);
    if (program) signature = program->header;
  } else {
    spec.overlaps = overlap;
    std::optional<size_t> instance = kernel_instance(callee, std::move(spec));
    if (!instance) return;
    stmt.kernel = *instance;
    signature = out_->kernels[*instance].typed;
  }
  if (!signature) return;
  const ir::Function &f = *signature;
  bool ok = true;
  for (size_t i = 0; i < f.params.size(); i++) {
    const ir::Param &p = f.params[i];
    LaunchArgument a;
    a.loc = given[i].expr ? given[i].expr->loc : call.loc;
    if (!p.type.is_tensor()) {
      ok &= scalar_argument(f, p, *given[i].expr, a);
    } else if (given[i].view) {
      a.kind = LaunchArgument::Kind::Tensor;
      a.view = *given[i].view;
      ok &= check_tensor(f, p, a.view, a.loc);
    }
    stmt.args.push_back(std::move(a));
  }
  if (!ok || !bind_sizes(f, stmt.args, sizes, call, stmt.sizes)) return;
  std::vector<HostEffects::Use> uses;
  for (size_t i = 0; i < f.params.size(); i++)
    if (stmt.args[i].kind == LaunchArgument::Kind::Tensor)
      uses.push_back({&stmt.args[i].view, f.params[i].name, f.params[i].mode != ir::ParamMode::Out,
                      f.params[i].mode != ir::ParamMode::In, stmt.args[i].loc});
  effects_.launch(callee.name.text, uses);
  if (inner)
    inline_program(*program, stmt, out);
  else
    out.push_back(std::move(stmt));
}

bool ProgramInstance::bind_arguments(const ast::Function &kernel, const ast::Expr &call, std::vector<Given> &given,
                                     std::map<std::string, SizeExpr> &sizes) {
  const std::string &name = kernel.name.text;
  given.resize(kernel.params.size());
  size_t next = 0;
  bool ok = true;
  for (const ast::Arg &a : call.args) {
    size_t slot = next;
    if (a.name) {
      for (slot = 0; slot < given.size() && kernel.params[slot].name.text != a.name->text; slot++) {}
      if (slot == given.size()) { // a size that no argument has
        auto v = e_.size(*a.value);
        if (v && !sizes.emplace(a.name->text, *v).second)
          diags_.report(a.name->loc, DiagKind::repeated_argument, a.name->text, name), ok = false;
        ok &= v.has_value();
        continue;
      }
    } else if (next++ >= given.size()) {
      diags_.report(call.loc, DiagKind::wrong_arity, name, counted(int64_t(given.size()), "argument"),
                    call.args.size());
      return false;
    }
    if (given[slot].expr) {
      diags_.report(a.value->loc, DiagKind::repeated_argument, kernel.params[slot].name.text, name);
      ok = false;
    }
    given[slot].expr = a.value.get();
  }
  for (size_t i = 0; i < given.size(); i++) {
    const ast::Param &p = kernel.params[i];
    Given &g = given[i];
    bool optional = is_tensor_param(p) && p.type->optional;
    if (!g.expr) {
      g.absent = optional;
      if (!optional) diags_.report(call.loc, DiagKind::missing_argument, name, p.name.text), ok = false;
      continue;
    }
    if (!is_tensor_param(p)) continue;
    g.absent = absent_tensor(*g.expr) != nullptr;
    if (g.expr->kind == ExprKind::Name) {
      Elaborator::Var *v = e_.lookup(g.expr->text);
      g.absent |= !v && g.expr->text == "none";
      if (v && v->value.is_poison()) { // reported where it was declared
        ok = false;
        continue;
      }
    }
    if (g.absent && optional) continue;
    if (g.absent && g.expr->text == "none") {
      diags_.report(g.expr->loc, DiagKind::launch_argument, p.name.text, name, "not optional", "`none`");
      ok = false;
      continue;
    }
    bool is_tensor = false;
    g.view = view(*g.expr, is_tensor);
    if (!is_tensor)
      diags_.report(g.expr->loc, DiagKind::launch_argument, p.name.text, name, "a tensor",
                    quoted(std::string(diags_.sources().text(g.expr->loc))));
    ok &= g.view.has_value();
  }
  return ok;
}

// From < >, else from the shapes and dtypes of the arguments, else the default.
bool ProgramInstance::bind_generics(const ast::Function &kernel, const ast::Expr &call, const std::vector<Given> &given,
                                    InstanceSpec &spec) {
  const std::string &name = kernel.name.text;
  bool ok = true;
  std::set<std::string> said;
  size_t next = 0;
  for (const ast::Arg &a : call.generics) {
    size_t slot = next;
    if (a.name) {
      std::vector<std::string> names;
      for (const ast::GenericParam &g : kernel.generics) names.push_back(g.name.text);
      slot = size_t(std::find(names.begin(), names.end(), a.name->text) - names.begin());
      if (slot == names.size()) {
        std::string near = nearest_name(a.name->text, names);
        diags_.report(a.name->loc, DiagKind::unknown_parameter, name, a.name->text,
                      near.empty() ? "" : "; did you mean `" + near + "`?");
        ok = false;
        continue;
      }
    } else if (next++ >= kernel.generics.size()) {
      diags_.report(call.loc, DiagKind::wrong_arity, name,
                    counted(int64_t(kernel.generics.size()), "compile-time parameter"), call.generics.size());
      return false;
    }
    const std::string &param = kernel.generics[slot].name.text;
    SV v = scalar(*a.value);
    ok &= !v.is_poison();
    if (!said.insert(param).second) diags_.report(a.value->loc, DiagKind::repeated_argument, param, name), ok = false;
    if (v.is(Kind::Size) || v.is(Kind::Value) || v.is(Kind::Tuple)) {
      diags_.report(a.value->loc, DiagKind::not_constant, fmt::format("`{}` of `{}`", param, name));
      ok = false;
    } else if (!v.is_poison()) {
      spec.params[param] = setting_text(v);
    }
  }
  for (size_t i = 0; i < given.size(); i++) {
    if (given[i].absent) spec.absent.insert(kernel.params[i].name.text);
    if (given[i].view) ok &= deduce(kernel, kernel.params[i], given[i], spec, said);
  }
  for (const ast::GenericParam &g : kernel.generics)
    if (ok && !spec.params.count(g.name.text) && !g.default_value) {
      diags_.report(call.name_loc, DiagKind::not_deduced, g.name.text, name, name);
      ok = false;
    }
  return ok;
}

bool ProgramInstance::deduce(const ast::Function &kernel, const ast::Param &p, const Given &g, InstanceSpec &spec,
                             const std::set<std::string> &said) {
  auto is_generic = [&](const std::string &name) {
    return !said.count(name) && std::any_of(kernel.generics.begin(), kernel.generics.end(),
                                            [&](const ast::GenericParam &x) { return x.name.text == name; });
  };
  // tensor<Rec<C, K>>: what the record of the argument was made with.
  const std::vector<ast::Arg> &args = p.type->element_args;
  for (size_t i = 0; g.view->record && i < args.size() && i < g.view->record->args.size(); i++)
    if (const ast::Expr &a = *args[i].value;
        !args[i].name && a.kind == ExprKind::Name && is_generic(a.text) && g.view->record->name == p.type->element.text)
      spec.params.emplace(a.text, g.view->record->args[i]);
  if (is_generic(p.type->element.text)) spec.params.emplace(p.type->element.text, dtype_name(g.view->dtype));
  std::vector<SizeExpr> extents = g.view->extents();
  for (size_t d = 0; d < extents.size() && d < p.type->dims.size(); d++) {
    const ast::Expr &dim = *p.type->dims[d];
    if (dim.kind != ExprKind::Name || !is_generic(dim.text)) continue;
    if (!extents[d].is_const()) {
      diags_.report(g.expr->loc, DiagKind::run_time_parameter, dim.text, kernel.name.text, d, p.name.text,
                    extents[d].str(),
                    fmt::format("make it a compile-time parameter of `{}`, or write `{}<{} = ...>`", ast_.name.text,
                                kernel.name.text, dim.text));
      return false;
    }
    spec.params.emplace(dim.text, std::to_string(extents[d].value())); // another extent is found by bind_sizes()
  }
  return true;
}

// "__BM_64", "__act_relu", "__no_bias": what an identifier of PTX may hold.
static std::string mangled(const std::string &name, std::string text) {
  if (size_t dot = text.find('.'); dot != text.npos && !std::isdigit(static_cast<unsigned char>(text[0])))
    text = text.substr(dot + 1); // Act.relu
  for (char &c : text) c = c == '-' ? 'm' : std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return fmt::format("__{}_{}", name, text);
}

// A default that is written as a value, as instances spell it; "" for a computed one.
static std::string default_text(const ast::GenericParam &g) {
  if (!g.default_value) return "";
  const ast::Expr &e = *g.default_value;
  switch (e.kind) {
  case ExprKind::Int: return std::to_string(e.int_value);
  case ExprKind::Bool: return e.int_value ? "true" : "false";
  case ExprKind::Name: return e.text;
  case ExprKind::Member: return e.operands[0]->text + "." + e.text;
  default: return "";
  }
}

std::string ProgramInstance::instance_key(const ast::Function &ast, const InstanceSpec &spec) {
  std::string key = fmt::format("{}", fmt::ptr(&ast));
  for (const auto &[name, text] : spec.params) key += fmt::format(" {}={}", name, text);
  for (const std::string &name : spec.absent) key += " no " + name;
  return spec.overlaps ? key + " overlap" : key;
}

std::optional<size_t> ProgramInstance::kernel_instance(const ast::Function &kernel, InstanceSpec spec) {
  std::string key = instance_key(kernel, spec);
  if (auto it = instances_.find(key); it != instances_.end()) return it->second;
  std::optional<size_t> &slot = instances_[key];
  std::shared_ptr<ir::Function> typed = instantiate(program_, kernel, spec, target_, diags_);
  if (!typed) return std::nullopt;
  ProgramKernel k;
  k.ast = &kernel;
  k.name = kernel.name.text;
  for (const auto &[name, text] : typed->bindings) {
    spec.params[name] = text;
    for (const ast::GenericParam &g : kernel.generics)
      if (g.name.text == name && default_text(g) != text) k.name += mangled(name, text);
  }
  for (const std::string &name : spec.absent) k.name += "__no_" + name;
  if (spec.overlaps) k.name += "__overlap";
  // A default that was also written out is the same instance.
  for (size_t i = 0; i < out_->kernels.size(); i++)
    if (out_->kernels[i].ast == &kernel && out_->kernels[i].name == k.name) return slot = i;
  k.spec = std::move(spec);
  k.typed = std::move(typed);
  slot = out_->kernels.size();
  out_->kernels.push_back(std::move(k));
  return slot;
}

bool ProgramInstance::check_tensor(const ir::Function &f, const ir::Param &p, const TensorView &v, SourceLoc loc) {
  int64_t rank = int64_t(v.extents().size());
  auto text = [](DType t, const std::shared_ptr<const ir::Record> &record, int64_t rank) {
    return record ? fmt::format("tensor<{}> of rank {}", record->title(), rank - 1)
                  : fmt::format("tensor<{}> of rank {}", dtype_name(t), rank);
  };
  bool records = bool(v.record) == bool(p.record) && (!v.record || *v.record == *p.record);
  if (v.dtype != p.type.dtype || rank != p.type.rank() || !records) {
    diags_.report(loc, DiagKind::launch_argument, p.name, f.name, text(p.type.dtype, p.record, p.type.rank()),
                  text(v.dtype, v.record, rank));
    return false;
  }
  const ir::Param *whole = v.alloc ? nullptr : &out_->header->params[v.index];
  bool unit = rank == 0 || (v.dims.back().kept && !(whole && whole->any_strides));
  if (!unit && !p.any_strides) {
    diags_.report(loc, DiagKind::launch_argument, p.name, f.name, "of stride 1 along its last dim",
                  whole && whole->any_strides ? fmt::format("`{}` of any strides", whole->name)
                                              : fmt::format("a part of `{}` without its last dim", v.name));
    return false;
  }
  if (whole && whole->mode == ir::ParamMode::In && p.mode != ir::ParamMode::In) {
    diags_.report(loc, DiagKind::write_to_input, whole->name).notes.push_back({whole->loc, "declared here"});
    return false;
  }
  return true;
}

// The one size of an extent `S`, `S + c` or `S - c` whose value is `found`.
static std::optional<std::pair<std::string, SizeExpr>> solve(const SizeExpr &dim, const SizeExpr &found) {
  if (dim.is_const()) return std::nullopt;
  if (dim.op() == Op::Sym) return std::pair(dim.name(), found);
  bool sum = (dim.op() == Op::Add || dim.op() == Op::Sub) && dim.a().op() == Op::Sym && dim.b().is_const();
  if (!sum) return std::nullopt;
  // N + 1 found for S + 1 is N, not N + 1 - 1.
  if (found.op() == dim.op() && found.b().is_const() && found.b().value() == dim.b().value())
    return std::pair(dim.a().name(), found.a());
  return std::pair(dim.a().name(), SizeExpr::make(dim.op() == Op::Add ? Op::Sub : Op::Add, found, dim.b()));
}

bool ProgramInstance::bind_sizes(const ir::Function &f, const std::vector<LaunchArgument> &args,
                                 std::map<std::string, SizeExpr> &sizes, const ast::Expr &call,
                                 std::vector<SizeExpr> &out) {
  for (const ast::Arg &a : call.args)
    if (a.name && sizes.count(a.name->text) &&
        std::find(f.sizes.begin(), f.sizes.end(), a.name->text) == f.sizes.end()) {
      std::vector<std::string> names = f.sizes;
      for (const ir::Param &p : f.params) names.push_back(p.name);
      std::string near = nearest_name(a.name->text, names);
      diags_.report(a.name->loc, DiagKind::unknown_argument, f.name, a.name->text,
                    near.empty() ? "" : "; did you mean `" + near + "`?");
      return false;
    }
  for (bool plain : {true, false}) // extents that are a size alone say most
    for (size_t i = 0; i < args.size(); i++) {
      if (args[i].kind != LaunchArgument::Kind::Tensor) continue;
      std::vector<SizeExpr> found = args[i].view.extents();
      for (size_t d = 0; d < found.size(); d++)
        if (const SizeExpr &dim = f.params[i].dims[d]; (dim.op() == Op::Sym) == plain)
          if (auto s = solve(dim, found[d])) sizes.emplace(s->first, s->second);
    }
  // Integer scalars of the kernel may stand in its extents.
  std::map<std::string, SizeExpr> known = sizes;
  for (size_t i = 0; i < args.size(); i++)
    if (args[i].kind == LaunchArgument::Kind::Integer) known.emplace(f.params[i].name, args[i].integer);
  auto by = [&](const std::string &name) -> std::optional<SizeExpr> {
    auto it = known.find(name);
    return it == known.end() ? std::nullopt : std::optional(it->second);
  };
  bool ok = true;
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i].kind != LaunchArgument::Kind::Tensor) continue;
    std::vector<SizeExpr> found = args[i].view.extents();
    for (size_t d = 0; d < found.size(); d++) {
      SizeExpr want = f.params[i].dims[d].substitute(by);
      if (!want.is_const() || !found[d].is_const() || want.value() == found[d].value()) continue;
      std::string name = f.params[i].dims[d].str(), value = want.str();
      diags_.report(args[i].loc, DiagKind::launch_dims, d, f.params[i].name, f.name,
                    name == value ? value : fmt::format("{} = {}", name, value), found[d].str());
      ok = false;
    }
  }
  std::vector<std::string> needed;
  for (const auto *list : {&f.grid, &f.facts})
    for (const SizeExpr &e : *list) e.symbols(needed);
  for (size_t i = 0; i < args.size(); i++)
    if (args[i].kind == LaunchArgument::Kind::Tensor)
      for (const SizeExpr &e : f.params[i].dims) e.symbols(needed);
  for (const std::string &s : f.sizes) {
    auto it = sizes.find(s);
    if (it == sizes.end() && std::find(needed.begin(), needed.end(), s) != needed.end()) {
      diags_.report(call.loc, DiagKind::launch_size, s, f.name, s);
      ok = false;
    }
    // A size of absent tensors alone means nothing in this variant.
    out.push_back(it == sizes.end() ? SizeExpr::constant(0) : it->second);
  }
  return ok;
}

bool ProgramInstance::scalar_argument(const ir::Function &f, const ir::Param &p, const ast::Expr &e,
                                      LaunchArgument &out) {
  DType t = p.type.dtype;
  SV v = scalar(e);
  if (v.is_poison()) return false;
  auto wrong = [&](const std::string &found) {
    diags_.report(e.loc, DiagKind::launch_argument, p.name, f.name, std::string(dtype_name(t)), found);
    return false;
  };
  // A scalar parameter of the program is passed on in its own dtype.
  if (e.kind == ExprKind::Name)
    if (const ir::Value *own = out_->header->param_value(e.text); own && own->type.is_scalar()) {
      Elaborator::Var *var = e_.lookup(e.text);
      if (var && var->value.is(Kind::Value) && var->value.v == own) {
        if (own->type.dtype != t) return wrong(fmt::format("{} scalar `{}`", dtype_name(own->type.dtype), e.text));
        if (is_float(t)) {
          out.kind = LaunchArgument::Kind::Scalar;
          out.name = e.text;
          return true;
        }
      }
    }
  if (v.is(Kind::Value)) { // the same under another name, or computed
    if (v.v->type.dtype != t) return wrong(v.describe());
    out.kind = v.v->op ? LaunchArgument::Kind::Computed : LaunchArgument::Kind::Scalar;
    if (v.v->op)
      out.computed = *number_of(v.v);
    else
      out.name = v.v->name;
    return true;
  }
  if (is_float(t)) {
    if (!v.is(Kind::Int) && !v.is(Kind::Float)) return wrong(v.describe());
    out.kind = LaunchArgument::Kind::Number;
    out.number = v.is(Kind::Float) ? v.f : double(v.i);
    return true;
  }
  if (v.is(Kind::Size)) {
    out.integer = *v.size;
  } else if (v.is(Kind::Int) || v.is(Kind::Bool)) {
    bool fits = is_bool(t) ? v.i == 0 || v.i == 1 : wrap_to(t, v.i) == v.i;
    if (!fits) {
      diags_.report(e.loc, DiagKind::constant_range, v.i, dtype_name(t));
      return false;
    }
    out.integer = SizeExpr::constant(v.i);
  } else {
    return wrong(v.describe());
  }
  out.kind = LaunchArgument::Kind::Integer;
  return true;
}

} // namespace tkc::sema

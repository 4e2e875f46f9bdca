#include "sema/signature.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tkc::sema {

using Kind = SV::Kind;

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

Signature::Signature(Program &program, const ast::Function &ast, const InstanceSpec &spec, ir::Function &fn,
                     Elaborator &e)
    : scope_(program.scope_of(ast)), ast_(ast), spec_(spec), diags_(e.diags()), fn_(fn), e_(e) {}

void Signature::begin() {
  fn_.name = ast_.name.text;
  fn_.loc = ast_.name.loc;
  fn_.body = fn_.new_block(nullptr);
  e_.enter_file(&scope_);
  e_.builder().set_block(fn_.body);
}

void Signature::bind_generics() {
  for (const ast::GenericParam &g : ast_.generics) {
    SV v;
    if (auto it = spec_.params.find(g.name.text); it != spec_.params.end())
      v = parse_setting(g, it->second, scope_, diags_);
    else if (g.default_value)
      v = e_.expr(*g.default_value);
    else
      diags_.report(g.name.loc, DiagKind::missing_parameter, g.name.text, ast_.name.text, g.name.text);
    if (!v.is_poison()) fn_.bindings.emplace_back(g.name.text, setting_text(v));
    e_.define(g.name, v);
  }
}

void Signature::declare_params() {
  // Names in extents that mean nothing else are run-time sizes.
  for (const ast::Param &p : ast_.params)
    if (p.type && p.type->kind == ast::TypeKind::Tensor)
      for (const ast::ExprPtr &d : p.type->dims) {
        std::vector<std::string> names;
        used_names(*d, names);
        for (const std::string &n : names)
          if (!e_.lookup(n) && !scope_.consts.count(n) && !parameter_named(n) && e_.size_symbols.insert(n).second)
            fn_.sizes.push_back(n);
      }
  for (const ast::Param &p : ast_.params)
    if (p.type && p.type->kind == ast::TypeKind::Named)
      if (auto t = parse_dtype(p.type->name.text); t && is_integer(*t)) e_.size_symbols.insert(p.name.text);
  std::set<std::string> failed;
  for (const ast::Param &p : ast_.params)
    if (!declare(p)) failed.insert(p.name.text);
  for (const ir::Param &p : fn_.params)
    if (p.present) argument(p.type, p.name);
  for (const std::string &s : fn_.sizes) argument(ir::Type::scalar(DType::I32), s);
  for (const std::string &name : failed)
    if (!e_.lookup(name)) e_.define({name, ast_.name.loc}, SV::poison());
  for (const ir::Param &p : fn_.params) {
    if (failed.count(p.name)) continue; // declared twice
    ir::Value *v = fn_.param_value(p.name);
    ast::Name name{p.name, p.loc};
    if (!p.present)
      e_.define(name, SV::make(Kind::Absent, p.loc, [&](SV &s) { s.s = p.name; }));
    else
      e_.define(name, p.type.is_tensor() ? SV::make_tensor(v, p.loc) : SV::make_value(v, p.loc));
  }
  for (const std::string &s : fn_.sizes) {
    SourceLoc loc = ast_.name.loc;
    e_.define({s, loc}, SV::make_value(fn_.size_value(s), loc));
  }
}

void Signature::argument(ir::Type type, const std::string &name) {
  ir::Value *v = fn_.new_value(std::move(type), name);
  v->block = fn_.body;
  v->index = int64_t(fn_.body->args.size());
  fn_.body->args.push_back(v);
}

bool Signature::parameter_named(const std::string &name) const {
  return std::any_of(ast_.params.begin(), ast_.params.end(), [&](const ast::Param &p) { return p.name.text == name; });
}

bool Signature::declare(const ast::Param &p) {
  if (!p.type) {
    diags_.report(p.name.loc, DiagKind::wrong_parameter_type, p.name.text, spelling(ast_.kind),
                  "a tensor or a scalar type");
    return false;
  }
  if (p.default_value) {
    diags_.report(p.default_value->loc, DiagKind::wrong_parameter_type, p.name.text, spelling(ast_.kind),
                  "given a value at launch: only compile-time parameters have defaults");
    return false;
  }
  ir::Param out;
  out.name = p.name.text;
  out.loc = p.name.loc;
  out.mode = p.mode == ast::ParamMode::In    ? ir::ParamMode::In
             : p.mode == ast::ParamMode::Out ? ir::ParamMode::Out
                                             : ir::ParamMode::InOut;
  for (const ir::Param &q : fn_.params)
    if (q.name == out.name) {
      diags_.report(p.name.loc, DiagKind::duplicate_name, out.name).notes.push_back({q.loc, "first declared here"});
      return false;
    }
  if (p.type->kind == ast::TypeKind::Named) {
    auto t = e_.type(*p.type);
    if (!t) return false;
    if (out.mode != ir::ParamMode::In) {
      diags_.report(p.name.loc, DiagKind::wrong_parameter_type, out.name, spelling(ast_.kind),
                    "a tensor to be written");
      return false;
    }
    out.type = *t;
    fn_.params.push_back(out);
    return true;
  }
  if (p.type->kind != ast::TypeKind::Tensor) {
    diags_.report(p.type->loc, DiagKind::wrong_parameter_type, out.name, spelling(ast_.kind),
                  "a tensor or a scalar type");
    return false;
  }
  std::optional<DType> dtype;
  if (e_.record_named(p.type->element.text)) {
    out.record = e_.record_type(p.type->element, p.type->element_args);
    if (out.record) dtype = ir::kRecordWord;
    if (out.record && p.type->any_strides) {
      diags_.report(p.type->loc, DiagKind::bad_record, out.record->title(),
                    "its bytes lie together: no `strides(any)`");
      return false;
    }
  } else if (!p.type->element_args.empty()) {
    diags_.report(p.type->element.loc, DiagKind::bad_record, p.type->element.text, "no record has this name");
  } else {
    dtype = e_.dtype_of(p.type->element);
  }
  if (!dtype) return false;
  if (dtype_bits(*dtype) < 8) { // two elements share a byte, which no two threads can write
    diags_.report(p.type->element.loc, DiagKind::wrong_parameter_type, out.name, spelling(ast_.kind),
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
  if (out.record) {
    out.dims.push_back(ir::SizeExpr::constant(out.record->words()));
    shape.push_back(out.record->words());
  }
  out.type = ir::Type::tensor(*dtype, shape);
  out.optional = p.type->optional;
  out.any_strides = p.type->any_strides;
  out.present = !(out.optional && spec_.absent.count(out.name));
  fn_.params.push_back(out);
  return true;
}

void Signature::facts() {
  for (const ast::ExprPtr &f : ast_.facts) {
    auto s = e_.size(*f);
    if (!s) continue;
    fn_.facts.push_back(*s);
    fn_.fact_locs.push_back(f->loc);
  }
}

} // namespace tkc::sema

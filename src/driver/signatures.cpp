#include "driver/signatures.h"
#include "syntax/print_ast.h"
#include <algorithm>

namespace tkc::driver {

namespace {

class Describer {
public:
  Describer(const sema::Scope &scope, const ast::Function &f) : scope_(scope), f_(f) {}

  Json entry() const {
    Json constants = Json::array(), arguments = Json::array();
    for (const ast::GenericParam &g : f_.generics) constants.push(constant(g));
    for (const ast::Param &p : f_.params) arguments.push(argument(p));
    Json j = Json::object();
    j.set("name", f_.name.text).set("kind", ast::spelling(f_.kind));
    return j.set("constants", std::move(constants)).set("arguments", std::move(arguments));
  }

private:
  const ast::GenericParam *generic(const std::string &name) const {
    auto it = std::find_if(f_.generics.begin(), f_.generics.end(),
                           [&](const ast::GenericParam &g) { return g.name.text == name; });
    return it == f_.generics.end() ? nullptr : &*it;
  }

  Json constant(const ast::GenericParam &g) const {
    std::string type = g.type ? g.type->name.text : "int";
    Json j = Json::object();
    j.set("name", g.name.text).set("type", type);
    if (auto it = scope_.enums.find(type); it != scope_.enums.end()) {
      Json values = Json::array();
      for (const ast::Name &v : it->second.first->values) values.push(v.text);
      j.set("values", std::move(values));
    }
    return j.set("default", g.default_value ? Json(print(*g.default_value)) : Json());
  }

  void set_dtype(Json &j, const std::string &name) const { j.set(generic(name) ? "dtypeOf" : "dtype", name); }

  Json dim(const ast::Expr &e) const {
    Json j = Json::object();
    if (e.kind == ast::ExprKind::Int) return j.set("extent", e.int_value);
    if (e.kind == ast::ExprKind::Name && generic(e.text)) return j.set("constant", e.text);
    auto is_scalar = [&](const ast::Param &p) { return p.name.text == e.text; };
    if (e.kind == ast::ExprKind::Name && !scope_.consts.count(e.text) &&
        std::none_of(f_.params.begin(), f_.params.end(), is_scalar))
      return j.set("size", e.text);
    return j.set("expression", print(e));
  }

  Json argument(const ast::Param &p) const {
    Json j = Json::object();
    j.set("name", p.name.text);
    if (!p.type || p.type->kind != ast::TypeKind::Tensor) {
      j.set("kind", "scalar");
      set_dtype(j, p.type ? p.type->name.text : "");
      return j;
    }
    j.set("kind", "tensor");
    bool records = scope_.records.count(p.type->element.text) > 0;
    if (records)
      j.set("dtype", dtype_name(ir::kRecordWord));
    else
      set_dtype(j, p.type->element.text);
    j.set("mode", p.mode == ast::ParamMode::In ? "in" : p.mode == ast::ParamMode::Out ? "out" : "inout");
    j.set("optional", p.type->optional).set("anyStrides", p.type->any_strides);
    Json dims = Json::array();
    for (const ast::ExprPtr &d : p.type->dims) dims.push(dim(*d));
    if (records) {
      ast::Type record;
      record.name = p.type->element;
      dims.push(Json::object().set("expression", fmt::format("words of {}", print(record))));
    }
    return j.set("dims", std::move(dims));
  }

  const sema::Scope &scope_;
  const ast::Function &f_;
};

} // namespace

Json signatures(const sema::Program &program, const std::vector<const ast::Function *> &entries,
                const std::string &source) {
  Json list = Json::array();
  for (const ast::Function *f : entries) list.push(Describer(program.scope_of(*f), *f).entry());
  Json j = Json::object();
  j.set("format", "tkc-signatures").set("version", 1).set("source", source);
  return j.set("entries", std::move(list));
}

} // namespace tkc::driver

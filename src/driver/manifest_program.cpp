// Programs in `--emit json`.
#include "driver/lifetimes.h"
#include "driver/manifest.h"
#include <cmath>

namespace tkc::driver {

using sema::HostStmt;
using sema::LaunchArgument;

static Json steps(const sema::HostProgram &program, const std::vector<HostStmt> &stmts);

static Json view(const sema::HostProgram &program, const sema::TensorView &v) {
  Json j = Json::object(), dims = Json::array();
  if (v.alloc)
    j.set("temporary", int64_t(v.index));
  else
    j.set("tensor", program.header->params[v.index].name);
  for (const sema::TensorView::Dim &d : v.dims) {
    Json dim = Json::object();
    dim.set("at", expression_json(d.lo)).set("extent", expression_json(d.extent)).set("kept", d.kept);
    dims.push(std::move(dim));
  }
  return j.set("dims", std::move(dims));
}

// JSON has no infinities.
static Json number(double x) {
  if (std::isfinite(x)) return x;
  return Json::object().set("number", std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static Json computed(const sema::NumberExpr &e) {
  using Op = sema::NumberExpr::Op;
  switch (e.op) {
  case Op::Const: return number(e.value);
  case Op::Scalar: return Json::object().set("scalar", e.name);
  case Op::Integer: return Json::object().set("integer", expression_json(e.integer));
  default: break;
  }
  Json j = Json::array();
  j.push(sema::NumberExpr::json_name(e.op));
  j.push(dtype_name(e.dtype));
  for (const sema::NumberExpr &a : e.args) j.push(computed(a));
  return j;
}

static Json launch(const sema::HostProgram &program, const HostStmt &s) {
  const sema::ProgramKernel &k = program.kernels[s.kernel];
  Json j = Json::object(), tensors = Json::object(), scalars = Json::object(), sizes = Json::object();
  for (size_t i = 0; i < s.args.size(); i++) {
    const LaunchArgument &a = s.args[i];
    const std::string &name = k.typed->params[i].name;
    switch (a.kind) {
    case LaunchArgument::Kind::Absent: tensors.set(name, Json()); break;
    case LaunchArgument::Kind::Tensor: tensors.set(name, view(program, a.view)); break;
    case LaunchArgument::Kind::Integer: scalars.set(name, expression_json(a.integer)); break;
    case LaunchArgument::Kind::Number: scalars.set(name, number(a.number)); break;
    case LaunchArgument::Kind::Computed: scalars.set(name, Json::object().set("computed", computed(a.computed))); break;
    case LaunchArgument::Kind::Scalar: scalars.set(name, Json::object().set("scalar", a.name)); break;
    }
  }
  for (size_t i = 0; i < s.sizes.size(); i++) sizes.set(k.typed->sizes[i], expression_json(s.sizes[i]));
  j.set("launch", k.name).set("tensors", std::move(tensors)).set("scalars", std::move(scalars));
  return j.set("sizes", std::move(sizes));
}

static Json step(const sema::HostProgram &program, const HostStmt &s) {
  Json j = Json::object();
  switch (s.kind) {
  case HostStmt::Kind::Launch: return launch(program, s);
  case HostStmt::Kind::Alloc: return j.set("alloc", int64_t(s.alloc));
  case HostStmt::Kind::Let: return j.set("let", s.counter).set("value", expression_json(s.lo));
  case HostStmt::Kind::Require: return j.set("require", expression_json(s.cond));
  case HostStmt::Kind::If:
    j.set("if", expression_json(s.cond)).set("then", steps(program, s.body));
    return j.set("else", steps(program, s.else_body));
  case HostStmt::Kind::For:
    j.set("for", s.counter).set("from", expression_json(s.lo)).set("to", expression_json(s.hi));
    return j.set("by", expression_json(s.step)).set("do", steps(program, s.body));
  case HostStmt::Kind::Parallel: return j.set("parallel", steps(program, s.body));
  }
  TKC_UNREACHABLE("HostStmt::Kind");
}

static Json steps(const sema::HostProgram &program, const std::vector<HostStmt> &stmts) {
  Json out = Json::array();
  for (const HostStmt &s : stmts) out.push(step(program, s));
  return out;
}

Json program_json(const sema::HostProgram &program) {
  const ir::Function &f = *program.header;
  Json j = Json::object(), sizes = Json::array(), tensors = Json::array(), scalars = Json::array(),
       temporaries = Json::array();
  for (const std::string &s : f.sizes) sizes.push(s);
  for (const ir::Param &p : f.params) {
    if (p.type.is_tensor())
      tensors.push(tensor_json(p));
    else
      scalars.push(Json::object().set("name", p.name).set("dtype", dtype_name(p.type.dtype)));
  }
  std::vector<Lifetime> alive = lifetimes(program);
  for (size_t i = 0; i < program.allocs.size(); i++) {
    const sema::ProgramAlloc &a = program.allocs[i];
    Json t = Json::object();
    t.set("name", a.name).set("dtype", dtype_name(a.dtype)).set("dims", expressions_json(a.dims));
    temporaries.push(t.set("firstLaunch", alive[i].first).set("lastLaunch", alive[i].last));
  }
  j.set("name", f.name).set("constants", constants_json(f)).set("sizes", std::move(sizes));
  j.set("arguments", arguments_json(f));
  j.set("tensors", std::move(tensors)).set("scalars", std::move(scalars)).set("where", expressions_json(f.facts));
  return j.set("temporaries", std::move(temporaries)).set("steps", steps(program, program.body));
}

} // namespace tkc::driver

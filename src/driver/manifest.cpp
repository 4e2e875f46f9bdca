#include "driver/manifest.h"

namespace tkc::driver {

namespace {

using Op = ir::SizeExpr::Op;

const char *operator_name(Op op) {
  switch (op) {
  case Op::Const:
  case Op::Sym: break;
  case Op::Add: return "+";
  case Op::Sub: return "-";
  case Op::Mul: return "*";
  case Op::Div: return "/";
  case Op::CDiv: return "cdiv";
  case Op::Rem: return "%";
  case Op::Min: return "min";
  case Op::Max: return "max";
  case Op::Eq: return "==";
  case Op::Ne: return "!=";
  case Op::Lt: return "<";
  case Op::Le: return "<=";
  case Op::Gt: return ">";
  case Op::Ge: return ">=";
  case Op::And: return "&&";
  case Op::Or: return "||";
  case Op::Not: return "!";
  case Op::Select: return "?";
  }
  TKC_UNREACHABLE("a leaf has no operator");
}

const char *mode_name(ir::ParamMode m) {
  switch (m) {
  case ir::ParamMode::In: return "in";
  case ir::ParamMode::Out: return "out";
  case ir::ParamMode::InOut: return "inout";
  }
  TKC_UNREACHABLE("ParamMode");
}

// Bindings are kept as text: 64, true, bf16, Act.relu.
Json constant(const std::string &text) {
  char *end = nullptr;
  int64_t integer = std::strtoll(text.c_str(), &end, 10);
  if (!text.empty() && !*end) return Json(integer);
  double number = std::strtod(text.c_str(), &end);
  if (!text.empty() && !*end) return Json(number);
  if (text == "true" || text == "false") return Json(text == "true");
  return Json(text);
}

Json parameter(const codegen::AbiParam &p) {
  using Kind = codegen::AbiParam::Kind;
  Json j = Json::object();
  switch (p.kind) {
  case Kind::Pointer: j.set("kind", "pointer").set("tensor", p.tensor).set("written", p.written); break;
  case Kind::Stride: j.set("kind", "stride").set("tensor", p.tensor).set("dim", p.dim); break;
  case Kind::Scalar: j.set("kind", "scalar").set("name", p.name); break;
  case Kind::Size: j.set("kind", "size").set("name", p.name); break;
  case Kind::TensorMap: {
    Json box = Json::array();
    for (int64_t n : p.box) box.push(n);
    j.set("kind", "tensorMap").set("tensor", p.tensor).set("box", std::move(box)).set("swizzle", p.swizzle);
    break;
  }
  }
  return j.set("dtype", dtype_name(p.type)).set("offset", p.offset).set("bytes", p.bytes);
}

Json condition(const ir::Function &f, const codegen::AlignmentCheck &c) {
  using Kind = codegen::AlignmentCheck::Kind;
  Json j = Json::object();
  const std::string &name = f.params[c.param].name;
  switch (c.kind) {
  case Kind::Address: j.set("address", name); break;
  case Kind::Stride: j.set("stride", name).set("dim", c.dim); break;
  case Kind::Extent: j.set("extent", name).set("dim", c.dim); break;
  }
  j.set("multiple", c.multiple);
  if (c.least != INT64_MIN) j.set("least", c.least);
  if (c.below != INT64_MAX) j.set("below", c.below);
  return j;
}

Json kernel(const ir::Function &f, const codegen::KernelAbi &aligned, const codegen::KernelAbi &any) {
  Json sizes = Json::array(), tensors = Json::array(), params = Json::array();
  for (const std::string &s : f.sizes) sizes.push(s);
  for (const ir::Param &p : f.params)
    if (p.type.is_tensor()) tensors.push(tensor_json(p));
  Json maps = Json::array();
  bool any_maps = false;
  for (const codegen::AbiParam &p : aligned.params) {
    bool map = p.kind == codegen::AbiParam::Kind::TensorMap;
    any_maps |= map;
    (map ? maps : params).push(parameter(p));
  }
  ir::SizeExpr blocks = ir::SizeExpr::constant(1);
  for (const ir::SizeExpr &g : f.grid) blocks = ir::SizeExpr::make(Op::Mul, blocks, g);
  Json conditions = Json::array(), entries = Json::array();
  for (const codegen::AlignmentCheck &c : codegen::alignment_checks(f)) conditions.push(condition(f, c));
  Json first = Json::object();
  first.set("name", aligned.entry).set("requires", std::move(conditions));
  if (any_maps) first.set("tensorMaps", std::move(maps)).set("paramBytes", aligned.param_bytes());
  entries.push(std::move(first));
  entries.push(Json::object().set("name", any.entry).set("requires", Json::array()));
  Json j = Json::object();
  j.set("name", f.name).set("constants", constants_json(f)).set("sizes", std::move(sizes));
  j.set("arguments", arguments_json(f));
  j.set("tensors", std::move(tensors)).set("where", expressions_json(f.facts)).set("params", std::move(params));
  j.set("paramBytes", any.param_bytes()).set("grid", expressions_json(f.grid));
  j.set("launchBlocks", expression_json(blocks)).set("persistent", f.persistent).set("overlaps", f.overlaps);
  j.set("block", aligned.threads);
  return j.set("sharedBytes", aligned.shared_bytes).set("entries", std::move(entries));
}

} // namespace

Json expressions_json(const std::vector<ir::SizeExpr> &list) {
  Json out = Json::array();
  for (const ir::SizeExpr &e : list) out.push(expression_json(e));
  return out;
}

static Json record_json(const ir::Record &r) {
  Json fields = Json::array();
  for (const ir::RecordField &f : r.fields) {
    Json dims = Json::array(), pitch = Json::array();
    for (int64_t n : f.shape) dims.push(n);
    for (int64_t n : f.pitch) pitch.push(n);
    ir::ByteSwizzle s = ir::field_swizzle(f.dtype, f.shape, f.swizzle);
    Json j = Json::object();
    j.set("name", f.name).set("dtype", dtype_name(f.dtype)).set("dims", std::move(dims)).set("offset", f.offset);
    fields.push(j.set("pitch", std::move(pitch)).set("shift", s.shift).set("mask", s.mask));
  }
  Json j = Json::object();
  return j.set("name", r.title()).set("bytes", r.bytes).set("fields", std::move(fields));
}

Json tensor_json(const ir::Param &p) {
  Json j = Json::object();
  j.set("name", p.name).set("dtype", dtype_name(p.type.dtype)).set("mode", mode_name(p.mode));
  j.set("optional", p.optional).set("present", p.present);
  if (p.present) j.set("dims", expressions_json(p.dims)).set("innerStride", p.any_strides ? Json() : Json(1));
  if (p.record) j.set("record", record_json(*p.record));
  return j;
}

Json arguments_json(const ir::Function &f) {
  Json out = Json::array();
  for (const ir::Param &p : f.params) out.push(p.name);
  return out;
}

Json constants_json(const ir::Function &f) {
  Json out = Json::object();
  for (const auto &[name, text] : f.bindings) out.set(name, constant(text));
  return out;
}

Json expression_json(const ir::SizeExpr &e) {
  if (e.is_const()) return Json(e.value());
  if (e.op() == Op::Sym) return Json(e.name());
  Json j = Json::array();
  j.push(operator_name(e.op())).push(expression_json(e.a()));
  if (e.op() != Op::Not) j.push(expression_json(e.b()));
  if (e.op() == Op::Select) j.push(expression_json(e.c()));
  return j;
}

Json manifest(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
              const std::vector<const sema::HostProgram *> &programs, const ManifestOptions &o) {
  TKC_CHECK(abis.size() == 2 * functions.size(), "{} entries of {} kernels", abis.size(), functions.size());
  Json kernels = Json::array();
  for (size_t i = 0; i < functions.size(); i++) kernels.push(kernel(*functions[i], abis[2 * i], abis[2 * i + 1]));
  Json ptx = Json::object();
  if (o.ptx_file.empty())
    ptx.set("text", o.ptx_text);
  else
    ptx.set("file", o.ptx_file);
  Json j = Json::object();
  j.set("format", "tkc-kernels").set("version", 1).set("tkc", o.version).set("source", o.source).set("arch", o.arch);
  j.set("ptx", std::move(ptx));
  if (!o.cubin_file.empty()) j.set("cubin", Json::object().set("file", o.cubin_file));
  j.set("kernels", std::move(kernels));
  if (programs.empty()) return j;
  Json list = Json::array();
  for (const sema::HostProgram *p : programs) list.push(program_json(*p));
  return j.set("programs", std::move(list));
}

} // namespace tkc::driver

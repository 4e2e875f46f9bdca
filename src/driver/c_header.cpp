#include "driver/c_header.h"
#include "driver/c_header_text.h"
#include "support/check.h"
#include <algorithm>
#include <cmath>

namespace tkc::driver {

using ir::SizeExpr;
using Op = SizeExpr::Op;

// ---- words

std::string c_identifier(std::string_view text) {
  std::string out;
  for (char c : text) out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '_';
  return out.empty() || (out[0] >= '0' && out[0] <= '9') ? "_" + out : out;
}

std::string c_scalar_type(DType t) {
  if (t == DType::F64) return "double";
  if (t == DType::F32 || t == DType::TF32) return "float";
  return fmt::format("{}int{}_t", is_signed(t) ? "" : "u", 8 * dtype_bytes(t));
}

std::string c_number(DType t, double value) {
  value = round_to(t, value);
  if (c_scalar_type(t)[0] == 'u') return fmt::format("{}u", encode_float(t, value));
  bool wide = t == DType::F64;
  if (std::isfinite(value)) return wide ? fmt::format("{:.17e}", value) : fmt::format("{:.9e}f", value);
  return fmt::format("tkc_{}_of({:#x}u{})", wide ? "double" : "float", encode_float(t, value), wide ? "ll" : "");
}

std::string c_parameter(const std::string &name) {
  // Words of C and C++, of <cuda.h> and <stdint.h>, and the names that the functions use themselves.
  static const std::set<std::string> taken = {"alignas",
                                              "alignof",
                                              "and",
                                              "asm",
                                              "auto",
                                              "bitand",
                                              "bitor",
                                              "bool",
                                              "break",
                                              "case",
                                              "catch",
                                              "char",
                                              "class",
                                              "compl",
                                              "concept",
                                              "const",
                                              "continue",
                                              "decltype",
                                              "default",
                                              "delete",
                                              "do",
                                              "double",
                                              "else",
                                              "enum",
                                              "explicit",
                                              "export",
                                              "extern",
                                              "false",
                                              "float",
                                              "for",
                                              "friend",
                                              "goto",
                                              "if",
                                              "inline",
                                              "int",
                                              "long",
                                              "mutable",
                                              "namespace",
                                              "new",
                                              "noexcept",
                                              "not",
                                              "nullptr",
                                              "operator",
                                              "or",
                                              "private",
                                              "protected",
                                              "public",
                                              "register",
                                              "requires",
                                              "restrict",
                                              "return",
                                              "short",
                                              "signed",
                                              "sizeof",
                                              "static",
                                              "struct",
                                              "switch",
                                              "template",
                                              "this",
                                              "throw",
                                              "true",
                                              "try",
                                              "typedef",
                                              "typeid",
                                              "typename",
                                              "typeof",
                                              "union",
                                              "unsigned",
                                              "using",
                                              "virtual",
                                              "void",
                                              "volatile",
                                              "while",
                                              "xor",
                                              "NULL",
                                              "module",
                                              "stream",
                                              "workspace",
                                              "workspace_bytes",
                                              "bytes",
                                              "mode",
                                              "needed",
                                              "bad",
                                              "status",
                                              "blocks",
                                              "aligned",
                                              "params",
                                              "memset",
                                              "memcpy",
                                              "linux",
                                              "unix"};
  return taken.count(name) ? name + "_" : name;
}

std::string c_symbol(const std::string &name) {
  if (name.starts_with("device.")) return "module->" + name.substr(7);
  return "s_" + c_identifier(name);
}

std::string c_expression(const SizeExpr &e) {
  if (e.is_const()) {
    if (e.value() == INT64_MIN) return "INT64_MIN";
    return e.value() < INT32_MIN || e.value() > INT32_MAX ? fmt::format("INT64_C({})", e.value()) : e.str();
  }
  if (e.op() == Op::Sym) return c_symbol(e.name());
  std::string a = c_expression(e.a());
  if (e.op() == Op::Not) return fmt::format("(int64_t)!({})", a);
  std::string b = c_expression(e.b());
  auto checked = [&](const char *name) { return fmt::format("tkc_{}(&bad, {}, {})", name, a, b); };
  auto compared = [&](const char *text) { return fmt::format("(int64_t)({} {} {})", a, text, b); };
  switch (e.op()) {
  case Op::Add: return checked("add");
  case Op::Sub: return checked("sub");
  case Op::Mul: return checked("mul");
  case Op::Div: return checked("div");
  case Op::CDiv: return checked("cdiv");
  case Op::Rem: return checked("rem");
  case Op::Min: return fmt::format("tkc_min({}, {})", a, b);
  case Op::Max: return fmt::format("tkc_max({}, {})", a, b);
  case Op::And: return fmt::format("tkc_and({}, {})", a, b);
  case Op::Or: return fmt::format("tkc_or({}, {})", a, b);
  case Op::Eq: return compared("==");
  case Op::Ne: return compared("!=");
  case Op::Lt: return compared("<");
  case Op::Le: return compared("<=");
  case Op::Gt: return compared(">");
  case Op::Ge: return compared(">=");
  case Op::Select: return fmt::format("({} ? {} : {})", a, b, c_expression(e.c()));
  case Op::Const:
  case Op::Sym:
  case Op::Not: break;
  }
  TKC_UNREACHABLE("SizeExpr::Op");
}

std::string c_array(const std::string &type, const std::string &name, const std::vector<std::string> &values) {
  std::string list = fmt::format("{}", fmt::join(values, ", "));
  return fmt::format("{} {}[{}] = {{{}}};", type, name, std::max<size_t>(values.size(), 1),
                     values.empty() ? "0" : list);
}

// ---- arguments

CArguments::CArguments(const ir::Function &function) : f(function) {
  for (const std::string &s : f.sizes) {
    bool found = false;
    for (const ir::Param &p : f.params)
      if (p.present && p.type.is_tensor())
        for (const SizeExpr &d : p.dims) found |= d.op() == Op::Sym && d.name() == s;
    if (!found) unbound.push_back(s);
  }
}

static std::string declare(const ir::Param &p) {
  return (p.type.is_tensor() ? "const tkc_tensor *" : c_scalar_type(p.type.dtype) + " ") + c_parameter(p.name) + ", ";
}

std::string CArguments::declaration() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += declare(p);
  for (const std::string &s : unbound) out += fmt::format("int64_t {}, ", c_symbol(s));
  return out;
}

std::string CArguments::with_sizes() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += declare(p);
  for (const std::string &s : f.sizes) out += fmt::format("int64_t {}, ", c_symbol(s));
  return out;
}

std::string CArguments::pass() const {
  std::string out;
  for (const ir::Param &p : f.params)
    if (p.present) out += c_parameter(p.name) + ", ";
  for (const std::string &s : f.sizes) out += c_symbol(s) + ", ";
  return out;
}

std::string CArguments::bind() const {
  std::string out = "  if (!module";
  for (const ir::Param &p : f.params)
    if (p.present && p.type.is_tensor()) out += fmt::format(" || !{}", c_parameter(p.name));
  out += ") return TKC_NO_TENSOR;\n";
  std::set<std::string> done(unbound.begin(), unbound.end());
  for (const ir::Param &p : f.params) {
    if (!p.present || !p.type.is_tensor()) continue;
    for (size_t d = 0; d < p.dims.size(); d++)
      if (p.dims[d].op() == Op::Sym && done.insert(p.dims[d].name()).second &&
          std::find(f.sizes.begin(), f.sizes.end(), p.dims[d].name()) != f.sizes.end())
        out += fmt::format("  {} = {}->extent[{}];\n", c_symbol(p.dims[d].name()), c_parameter(p.name), d);
  }
  std::string declared;
  for (const std::string &s : f.sizes)
    if (std::find(unbound.begin(), unbound.end(), s) == unbound.end())
      declared += fmt::format("  int64_t {};\n", c_symbol(s));
  return declared + out;
}

std::string CArguments::comment() const {
  std::string out = fmt::format("\n/* {}", f.name);
  std::string constants;
  for (const auto &[name, text] : f.bindings)
    constants += fmt::format("{}{} = {}", constants.empty() ? "" : ", ", name, text);
  if (!constants.empty()) out += fmt::format("<{}>", constants);
  for (const ir::Param &p : f.params) {
    const char *mode = p.mode == ir::ParamMode::In    ? ""
                       : p.mode == ir::ParamMode::Out ? ", written"
                                                      : ", read and written";
    std::string dims;
    for (const SizeExpr &d : p.dims) dims += (dims.empty() ? "" : ", ") + d.str();
    if (!p.present)
      out += fmt::format("\n *   {}: absent in this variant", p.name);
    else if (p.type.is_tensor())
      out += fmt::format("\n *   {}: {} [{}]{}{}", p.name, dtype_name(p.type.dtype), dims, mode,
                         p.any_strides ? ", any innermost stride" : "");
    else
      out += fmt::format("\n *   {}: {}", p.name, dtype_name(p.type.dtype));
  }
  for (const std::string &s : unbound) out += fmt::format("\n *   {}: a size that no extent says", s);
  for (const SizeExpr &e : f.facts) out += fmt::format("\n *   where {}", e.str());
  return out + " */\n";
}

// ---- a kernel

namespace {

const char *map_type(DType t) {
  switch (dtype_bytes(t)) {
  case 1: return "CU_TENSOR_MAP_DATA_TYPE_UINT8";
  case 2:
    return t == DType::F16    ? "CU_TENSOR_MAP_DATA_TYPE_FLOAT16"
           : t == DType::BF16 ? "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16"
                              : "CU_TENSOR_MAP_DATA_TYPE_UINT16";
  case 4:
    return is_float(t)    ? "CU_TENSOR_MAP_DATA_TYPE_FLOAT32"
           : is_signed(t) ? "CU_TENSOR_MAP_DATA_TYPE_INT32"
                          : "CU_TENSOR_MAP_DATA_TYPE_UINT32";
  default:
    return is_float(t)    ? "CU_TENSOR_MAP_DATA_TYPE_FLOAT64"
           : is_signed(t) ? "CU_TENSOR_MAP_DATA_TYPE_INT64"
                          : "CU_TENSOR_MAP_DATA_TYPE_UINT64";
  }
}

std::string condition(const ir::Function &f, const codegen::AlignmentCheck &c) {
  using Kind = codegen::AlignmentCheck::Kind;
  std::string name = c_parameter(f.params[c.param].name), value;
  switch (c.kind) {
  case Kind::Address: value = fmt::format("(int64_t){}->data", name); break;
  case Kind::Stride: value = fmt::format("{}->stride[{}]", name, c.dim); break;
  case Kind::Extent: value = fmt::format("{}->extent[{}]", name, c.dim); break;
  }
  std::vector<std::string> parts;
  if (c.multiple != 1) parts.push_back(fmt::format("{} % {} == 0", value, c.multiple));
  if (c.least != INT64_MIN) parts.push_back(fmt::format("{} >= {}", value, c.least));
  if (c.below != INT64_MAX) parts.push_back(fmt::format("{} < INT64_C({})", value, c.below));
  return fmt::format("{}", fmt::join(parts, " && "));
}

// The integer scalars that expressions may name.
std::string scalar_symbols(const ir::Function &f) {
  std::string out;
  for (const ir::Param &p : f.params) // one may matter in another variant only
    if (p.present) out += fmt::format("  (void){};\n", c_parameter(p.name));
  for (const ir::Param &p : f.params)
    if (!p.type.is_tensor() && !is_float(p.type.dtype))
      out += fmt::format("  const int64_t {} = (int64_t){};\n  (void){};\n", c_symbol(p.name), c_parameter(p.name),
                         c_symbol(p.name));
  return out;
}

std::string checks(const ir::Function &f, const char *data) {
  std::string out;
  for (const std::string &s : f.sizes)
    out += fmt::format("  if ({0} < 0 || {0} > INT32_MAX) return TKC_RANGE;\n", c_symbol(s));
  for (const ir::Param &p : f.params) {
    if (!p.present || !p.type.is_tensor()) continue;
    std::vector<std::string> want;
    for (const SizeExpr &d : p.dims) want.push_back(c_expression(d));
    out += fmt::format("  {{\n    const {}\n    if (bad) return TKC_NO_VALUE;\n", c_array("int64_t", "want", want));
    out += fmt::format(
        "    status = tkc_check({}, {}, want, {}, {}, {});\n    if (status != TKC_OK) return status;\n  }}\n",
        c_parameter(p.name), p.dims.size(), dtype_bytes(p.type.dtype), int(p.any_strides), data);
  }
  for (const SizeExpr &e : f.facts)
    out += fmt::format("  if (!({}) || bad) return bad ? TKC_NO_VALUE : TKC_WHERE;\n", c_expression(e));
  return out;
}

} // namespace

std::string c_checks(const ir::Function &f, const char *data) { return scalar_symbols(f) + checks(f, data); }

std::string kernel_function(const std::string &stem, const ir::Function &f, size_t index,
                            const codegen::KernelAbi &aligned, const codegen::KernelAbi &any) {
  CArguments arguments(f);
  using Kind = codegen::AbiParam::Kind;
  std::string name = c_identifier(f.name);
  std::string out =
      fmt::format("\n/* mode 0: checks all but addresses; 1: checks all; 2: launches. */\n"
                  "static inline tkc_status tkc_{0}_run_{1}(const tkc_{0}_module *module, int mode, {2}CUstream "
                  "stream) {{\n  int bad = 0, aligned;\n  int64_t blocks = 1;\n  tkc_status status;\n",
                  stem, name, arguments.with_sizes());
  out += c_checks(f, "mode > 0");
  for (const SizeExpr &g : f.grid)
    out += fmt::format(
        "  {{\n    const int64_t extent = {};\n    if (bad || extent < 0) return TKC_NO_VALUE;\n"
        "    blocks = tkc_mul(&bad, blocks, extent);\n    if (bad || blocks > INT32_MAX) return TKC_GRID;\n  }}\n",
        c_expression(g));
  out += fmt::format("  if ({} > module->smem) return TKC_DEVICE;\n", aligned.shared_bytes);
  std::vector<std::string> conditions;
  for (const codegen::AlignmentCheck &c : codegen::alignment_checks(f)) conditions.push_back(condition(f, c));
  if (conditions.empty()) conditions.push_back("1");
  out += fmt::format("  aligned = {};\n  if (mode < 2 || blocks == 0) return TKC_OK;\n  {{\n",
                     fmt::join(conditions, " &&\n            "));
  std::vector<std::string> pointers;
  for (size_t i = 0; i < any.params.size(); i++) {
    const codegen::AbiParam &p = any.params[i];
    std::string type, value;
    switch (p.kind) {
    case Kind::Pointer: type = "CUdeviceptr", value = c_parameter(p.tensor) + "->data"; break;
    case Kind::Stride: type = "int64_t", value = fmt::format("{}->stride[{}]", c_parameter(p.tensor), p.dim); break;
    case Kind::Scalar: type = c_scalar_type(p.type), value = c_parameter(p.name); break;
    case Kind::Size: type = "int32_t", value = "(int32_t)" + c_symbol(p.name); break;
    case Kind::TensorMap: TKC_UNREACHABLE("the entry without alignment has a tensor map");
    }
    out += fmt::format("    {} p{} = {};\n", type, i, value);
    pointers.push_back(fmt::format("&p{}", i));
  }
  std::string encode;
  for (size_t i = any.params.size(); i < aligned.params.size(); i++) {
    const codegen::AbiParam &p = aligned.params[i];
    TKC_CHECK(p.kind == Kind::TensorMap, "the entries differ by {}", p.name);
    // C99 cannot ask for the alignment that the driver wants.
    out += fmt::format("    cuuint64_t raw{0}[16 + 7];\n    CUtensorMap *p{0} = (CUtensorMap *)(((uintptr_t)raw{0} + "
                       "63) / 64 * 64);\n",
                       i);
    pointers.push_back("0"); // not there in the entry for any tensors
    std::vector<std::string> box;
    for (int64_t n : p.box) box.push_back(std::to_string(n));
    std::string swizzle = p.swizzle ? fmt::format("{}B", p.swizzle) : "NONE";
    encode += fmt::format(
        "      {{\n        const {}\n        status = tkc_map(p{}, {}, {}, {}, {}, box, CU_TENSOR_MAP_SWIZZLE_{});\n"
        "        if (status != TKC_OK) return status;\n        params[{}] = p{};\n      }}\n",
        c_array("int64_t", "box", box), i, map_type(p.type), dtype_bytes(p.type), p.box.size(), c_parameter(p.tensor),
        swizzle, i, i);
  }
  out += "    " + c_array("void *", "params", pointers) + "\n";
  if (!encode.empty()) out += "    if (aligned) {\n" + encode + "    }\n";
  out += fmt::format(
      "    return tkc_driver_status(cuLaunchKernel(module->entry[aligned ? {} : {}], (unsigned)blocks, 1, 1, {}, "
      "1, 1, {}, stream, params, 0));\n  }}\n}}\n",
      2 * index, 2 * index + 1, aligned.threads, aligned.shared_bytes);
  out += arguments.comment();
  out += fmt::format("static inline tkc_status tkc_{0}_{1}(const tkc_{0}_module *module, {2}CUstream stream) {{\n{3}",
                     stem, name, arguments.declaration(), arguments.bind());
  out += fmt::format("  {{\n    tkc_status status = tkc_{0}_run_{1}(module, 1, {2}stream);\n    if (status != TKC_OK) "
                     "return status;\n  }}\n",
                     stem, name, arguments.pass());
  return out + fmt::format("  return tkc_{}_run_{}(module, 2, {}stream);\n}}\n", stem, name, arguments.pass());
}

// ---- the whole header

namespace {

std::string ptx_literal(std::string_view ptx) {
  std::string out;
  for (size_t at = 0; at < ptx.size();) {
    size_t end = std::min(ptx.find('\n', at), ptx.size());
    out += "\n    \"";
    for (char c : ptx.substr(at, end - at)) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '?') out += '\\'; // no trigraphs
      if (c == '\t')
        out += "\\t";
      else
        out += c;
    }
    out += "\\n\"";
    at = end + 1;
  }
  return out;
}

std::string load_function(const std::string &stem, const std::vector<codegen::KernelAbi> &abis) {
  std::string names;
  for (const codegen::KernelAbi &a : abis) names += fmt::format("\n      {{\"{}\", {}}},", a.entry, a.shared_bytes);
  return fmt::format(R"C(
/* Loads the kernels into the current context. After an error `log`, unless it is null, has what the assembler says. */
static inline tkc_status tkc_load_{0}(tkc_{0}_module *module, char *log, size_t log_bytes) {{
  static const struct {{
    const char *name;
    int shared;
  }} entries[{1}] = {{{2}
  }};
  CUjit_option options[2];
  void *values[2];
  CUdevice device;
  CUresult r;
  int sms = 0, l2 = 0, smem = 0, major = 0, minor = 0, i;
  options[0] = CU_JIT_ERROR_LOG_BUFFER;
  options[1] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
  values[0] = log;
  values[1] = (void *)(uintptr_t)log_bytes;
  memset(module, 0, sizeof *module);
  if (log && log_bytes) log[0] = 0;
  if ((r = cuCtxGetDevice(&device)) != CUDA_SUCCESS ||
      (r = cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) != CUDA_SUCCESS ||
      (r = cuDeviceGetAttribute(&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device)) != CUDA_SUCCESS ||
      (r = cuDeviceGetAttribute(&smem, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)) != CUDA_SUCCESS ||
      (r = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)) != CUDA_SUCCESS ||
      (r = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)) != CUDA_SUCCESS)
    return tkc_driver_status(r);
  module->sms = sms;
  module->l2_bytes = l2;
  module->smem = smem;
  module->arch = 10 * major + minor;
  r = cuModuleLoadDataEx(&module->handle, tkc_{0}_ptx, log && log_bytes ? 2 : 0, options, values);
  for (i = 0; i < {1} && r == CUDA_SUCCESS; i++) {{
    r = cuModuleGetFunction(&module->entry[i], module->handle, entries[i].name);
    if (r == CUDA_SUCCESS && entries[i].shared > 48 * 1024 && entries[i].shared <= smem)
      r = cuFuncSetAttribute(module->entry[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, entries[i].shared);
  }}
  if (r != CUDA_SUCCESS && module->handle) {{
    cuModuleUnload(module->handle);
    module->handle = 0;
  }}
  return tkc_driver_status(r);
}}

static inline tkc_status tkc_unload_{0}(tkc_{0}_module *module) {{
  CUresult r = module->handle ? cuModuleUnload(module->handle) : CUDA_SUCCESS;
  memset(module, 0, sizeof *module);
  return tkc_driver_status(r);
}}
)C",
                     stem, abis.size(), names);
}

} // namespace

std::string c_header(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
                     const std::vector<const sema::HostProgram *> &programs, std::string_view ptx,
                     const HeaderOptions &o) {
  TKC_CHECK(abis.size() == 2 * functions.size(), "{} entries of {} kernels", abis.size(), functions.size());
  using Kind = codegen::AbiParam::Kind;
  std::string stem = c_identifier(o.stem), guard = "TKC_HEADER_" + stem;
  bool maps = false;
  for (const codegen::KernelAbi &a : abis)
    for (const codegen::AbiParam &p : a.params) maps |= p.kind == Kind::TensorMap;
  std::string out =
      fmt::format("/* Made by tkc {} of {} for {}; how it is used: src/driver/c_header.h of tkc. */\n#ifndef {}\n"
                  "#define {}\n\n#include <cuda.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n\n",
                  o.version, o.source, o.arch, guard, guard);
  out += kHeaderCommon;
  if (maps) out += std::string("\n") + kHeaderMaps;
  // One literal longer than C99 promises; the compilers that say so take it.
  out += fmt::format(
      "\n#if defined(__GNUC__)\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
      "#endif\nstatic const char tkc_{}_ptx[] ={};\n#if defined(__GNUC__)\n#pragma GCC diagnostic pop\n#endif\n",
      stem, ptx_literal(ptx));
  out += fmt::format(
      "\ntypedef struct tkc_{0}_module {{\n  CUmodule handle;\n  CUfunction entry[{1}];\n  int64_t sms, l2_bytes, "
      "smem, "
      "arch; /* of the device; smem: bytes of shared memory that a block may have; arch: 120 */\n}} tkc_{0}_module;\n",
      stem, abis.size());
  out += load_function(stem, abis);
  for (size_t i = 0; i < functions.size(); i++)
    out += kernel_function(stem, *functions[i], i, abis[2 * i], abis[2 * i + 1]);
  for (const sema::HostProgram *p : programs) out += program_function(stem, *p);
  return out + fmt::format("\n#endif /* {} */\n", guard);
}

} // namespace tkc::driver

// A kernel in `--emit header`: its checks, the choice of the entry, its parameters.
#include "driver/c_header_text.h"
#include "support/check.h"

namespace tkc::driver {

using ir::SizeExpr;

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
  if (aligned.persistent)
    out += fmt::format("    const int64_t resident = module->resident[aligned ? {} : {}];\n"
                       "    if (resident >= 1 && resident < blocks) blocks = resident;\n",
                       2 * index, 2 * index + 1);
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

} // namespace tkc::driver

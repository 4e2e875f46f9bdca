#include "driver/c_header.h"
#include "driver/c_header_text.h"
#include "support/check.h"
#include <algorithm>
#include <functional>

namespace tkc::driver {

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

// In one line 32 bytes.
std::string byte_list(std::span<const uint8_t> bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i++) out += fmt::format("{}{},", i % 32 == 0 ? "\n    " : "", bytes[i]);
  return out;
}

std::string load_function(const std::string &stem, const char *image, const std::vector<codegen::KernelAbi> &abis) {
  std::string names, resident;
  for (const codegen::KernelAbi &a : abis) names += fmt::format("\n      {{\"{}\", {}}},", a.entry, a.shared_bytes);
  for (size_t i = 0; i < abis.size(); i++)
    if (abis[i].persistent)
      resident += fmt::format("  if (r == CUDA_SUCCESS)\n    r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&held, "
                              "module->entry[{0}], {1}, {2});\n  module->resident[{0}] = (int64_t)held * sms;\n",
                              i, abis[i].threads, abis[i].shared_bytes);
  std::string held = resident.empty() ? "" : ", held = 0";
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
  int sms = 0, l2 = 0, smem = 0, major = 0, minor = 0{4}, i;
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
  r = cuModuleLoadDataEx(&module->handle, tkc_{0}_{3}, log && log_bytes ? 2 : 0, options, values);
  for (i = 0; i < {1} && r == CUDA_SUCCESS; i++) {{
    r = cuModuleGetFunction(&module->entry[i], module->handle, entries[i].name);
    if (r == CUDA_SUCCESS && entries[i].shared > 48 * 1024 && entries[i].shared <= smem)
      r = cuFuncSetAttribute(module->entry[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, entries[i].shared);
  }}
{5}  if (r != CUDA_SUCCESS && module->handle) {{
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
                     stem, abis.size(), names, image, held, resident);
}

} // namespace

std::string c_header(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
                     const std::vector<const sema::HostProgram *> &programs, std::string_view ptx,
                     const HeaderOptions &o) {
  TKC_CHECK(abis.size() == 2 * functions.size(), "{} entries of {} kernels", abis.size(), functions.size());
  using Kind = codegen::AbiParam::Kind;
  std::string stem = c_identifier(o.stem), guard = "TKC_HEADER_" + stem;
  bool maps = false, persistent = false;
  for (const codegen::KernelAbi &a : abis) persistent |= a.persistent;
  for (const codegen::KernelAbi &a : abis)
    for (const codegen::AbiParam &p : a.params) maps |= p.kind == Kind::TensorMap;
  std::string out =
      fmt::format("/* Made by tkc {} of {} for {}; how it is used: src/driver/c_header.h of tkc. */\n#ifndef {}\n"
                  "#define {}\n\n#include <cuda.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n\n",
                  o.version, o.source, o.arch, guard, guard);
  out += kHeaderCommon;
  std::function<bool(const std::vector<sema::HostStmt> &)> computes = [&](const std::vector<sema::HostStmt> &stmts) {
    return std::any_of(stmts.begin(), stmts.end(), [&](const sema::HostStmt &s) {
      return computes(s.body) || computes(s.else_body) ||
             std::any_of(s.args.begin(), s.args.end(),
                         [](const sema::LaunchArgument &a) { return a.kind == sema::LaunchArgument::Kind::Computed; });
    });
  };
  if (std::any_of(programs.begin(), programs.end(), [&](const sema::HostProgram *p) { return computes(p->body); }))
    out += kHeaderNumbers;
  if (maps) out += std::string("\n") + kHeaderMaps;
  if (!o.cubin.empty())
    // As aligned as the driver reads an ELF file.
    out += fmt::format(
        "\n#if defined(__GNUC__)\n__attribute__((aligned(64)))\n#endif\nstatic const unsigned char tkc_{}_cubin[] "
        "= {{{}\n}};\n",
        stem, byte_list(o.cubin));
  else // one literal longer than C99 promises; the compilers that say so take it
    out += fmt::format(
        "\n#if defined(__GNUC__)\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "
        "\"-Woverlength-strings\"\n"
        "#endif\nstatic const char tkc_{}_ptx[] ={};\n#if defined(__GNUC__)\n#pragma GCC diagnostic pop\n#endif\n",
        stem, ptx_literal(ptx));
  out += fmt::format(
      "\ntypedef struct tkc_{0}_module {{\n  CUmodule handle;\n  CUfunction entry[{1}];\n  int64_t sms, l2_bytes, "
      "smem, "
      "arch; /* of the device; smem: bytes of shared memory that a block may have; arch: 120 */\n{2}}} "
      "tkc_{0}_module;\n",
      stem, abis.size(),
      persistent
          ? fmt::format("  int64_t resident[{}]; /* blocks of a persistent kernel's entry that the device holds */\n",
                        abis.size())
          : "");
  out += load_function(stem, o.cubin.empty() ? "ptx" : "cubin", abis);
  for (size_t i = 0; i < functions.size(); i++)
    out += kernel_function(stem, *functions[i], i, abis[2 * i], abis[2 * i + 1]);
  for (const sema::HostProgram *p : programs) out += program_function(stem, *p);
  return out + fmt::format("\n#endif /* {} */\n", guard);
}

} // namespace tkc::driver

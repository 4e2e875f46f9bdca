// `--emit header`: a C99 header (C++ too) with the PTX, or the cubin of one architecture, and a function for every
// kernel and program of one module, over the driver API. The user includes nothing but it, and has <cuda.h>; everything
// is `static inline`.
//
// For a file named after STEM:
//   tkc_STEM_module                          what was loaded: the entries, properties of the device
//   tkc_load_STEM(&module, log, log_bytes)   into the current context; log: the assembler's words after an error, or
//   null tkc_unload_STEM(&module) tkc_STEM_KERNEL(&module, &x, &y, scale, stream) tkc_workspace_STEM_PROGRAM(&module,
//   &x, &y, scale, &bytes) tkc_STEM_PROGRAM(&module, &x, &y, scale, workspace, workspace_bytes, stream)
// Tensors and scalars stand in the order of the source; absent tensors are left out, and a size that stands alone in no
// extent is one more argument. All checks of the launcher are made, of all launches of a program before the first one
// is queued; the result is a tkc_status. Nothing is allocated, and nothing waits. The launches of a `parallel` block
// are queued one after the other: streams of their own would be an allocation.
#pragma once
#include "codegen/abi.h"
#include "sema/host_program.h"
#include <span>

namespace tkc::driver {

struct HeaderOptions {
  std::string version, source, arch;
  std::string stem;                    // of the output: what the names begin with
  std::span<const uint8_t> cubin = {}; // if not empty: the header holds it in the place of the PTX
};
// `abis` as emit_module() gives them: two a function.
std::string c_header(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
                     const std::vector<const sema::HostProgram *> &programs, std::string_view ptx,
                     const HeaderOptions &options);

} // namespace tkc::driver

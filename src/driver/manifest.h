// `--emit json`: all that a program in another language needs to load and launch the kernels of one PTX module.
//
//   format        "tkc-kernels", version 1: fields may be added, none changes its meaning
//   tkc, source   the compiler's version; the .tk file
//   arch          target of the PTX, "sm_120"
//   ptx           {"file": name beside this one} or {"text": PTX}; cubin {"file"} if one was made
//   kernels       a list; of each
//     name
//     constants   compile-time parameters by name: numbers, booleans, strings
//     sizes       names of the run-time sizes; a launcher finds them by matching shapes with `dims`
//     tensors     name, dtype, mode "in", "out" or "inout", present; if present dims (expressions) and
//                 innerStride: 1, or null where the innermost stride is a parameter as well
//     where       expressions; a launch is refused if one is 0
//     params      the kernel's parameters in order, each at `offset` with `bytes`:
//                 kind "pointer" tensor, written | "stride" tensor, dim | "scalar" name | "size" name; dtype
//                 A pointer's dtype is that of the elements. Strides are counted in elements.
//     paramBytes  of all
//     grid        extents (expressions); the launch is one-dimensional, gridDim.x = launchBlocks, their product
//     launchBlocks expression; 0 is a launch that is left out
//     block       threads of a block; sharedBytes: dynamic shared memory
//     entries     two; the first whose `requires` holds is launched, all conditions together: {"address": tensor,
//                 "multiple": bytes}, {"stride" or "extent": tensor, "dim": d, "multiple": elements}. The last requires
//                 nothing.
//
// An expression is a number, the name of a size or of an integer scalar, or a list [op, a, b] ([op, a] of "!") with op
// one of + - * / % cdiv min max == != < <= > >= && || !. Integers of 64 bits; / and % truncate towards zero, cdiv
// rounds up, comparisons and logic give 0 or 1.
#pragma once
#include "driver/compile.h"
#include "support/json.h"

namespace tkc::driver {

struct ManifestOptions {
  std::string version, source, arch;
  std::string ptx_file, ptx_text; // one of both
  std::string cubin_file;         // "": none
};
// `abis` as emit_module() gives them: two a function.
Json manifest(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
              const ManifestOptions &options);

Json expression_json(const ir::SizeExpr &e);

} // namespace tkc::driver

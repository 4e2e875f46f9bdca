// `--emit signatures`: what the kernels and programs of a file take, before any compile-time parameter has a value. A
// loader finds the values from the arguments of a call, then asks for the instance (`--emit json`, driver/manifest.h).
//
//   format      "tkc-signatures", version 1: fields may be added, none changes its meaning
//   source      the .tk file
//   entries     a list; of each kernel and program
//     name, kind "kernel" or "program"
//     constants compile-time parameters in order: name; type "int", "bool", "type" or the name of an enum; values of
//     the
//               enum; default as text, or null: a call must say it
//     arguments in order; each has name and kind
//               "tensor": dtype, or dtypeOf, the constant that says it; mode "in", "out" or "inout"; optional;
//               anyStrides: the innermost stride may differ from 1; dims, of each {"constant": name} a compile-time
//               parameter,
//               {"size": name} a run-time size, {"extent": n}, or {"expression": text}, checked in the instance
//               of records dtype is "i64", and one more dim has the words of a record (8 bytes each)
//               "scalar": dtype or dtypeOf
#pragma once
#include "sema/program.h"
#include "support/json.h"

namespace tkc::driver {

Json signatures(const sema::Program &program, const std::vector<const ast::Function *> &entries,
                const std::string &source);

} // namespace tkc::driver

// `--emit json`: all that a loader in another language needs to launch the kernels and programs of one PTX module.
//
//   format        "tkc-kernels", version 1: fields may be added, none changes its meaning
//   tkc, source   the compiler's version; the .tk file
//   arch          target of the PTX, "sm_120"
//   ptx           {"file": name beside this one} or {"text": PTX}; cubin {"file"} if one was made
//   kernels       a list; of each
//     name
//     constants   compile-time parameters by name: numbers, booleans, strings ("bf16", "Act.relu")
//     sizes       names of the run-time sizes, 0 to 2^31 - 1; a launcher finds them by matching shapes with `dims`. One
//                 that stands alone in no extent of a present tensor is an argument of the launch.
//     arguments   names of all tensors and scalars in the order of the source, absent tensors included
//     tensors     name, dtype, mode "in", "out" or "inout"; optional; present: whether this variant has the tensor (one
//                 module has one variant of a kernel that was asked for; a program's kernels come in all the variants
//                 that it launches, named by what they lack). If present dims (expressions) and innerStride: 1, or null
//                 where the innermost stride is a parameter as well. Memory that the kernel
//                 writes overlaps no other tensor of the launch.
//                 Of records the dtype is i64, words of 8 bytes, and the last dim has those of a record; `record` has
//                 its name and bytes, and of each field name, dtype, dims, offset (bytes) and pitch (elements per dim).
//                 A byte o of a field, counted from its offset by the pitches, lies at o ^ (o >> shift & mask).
//     where       expressions; a launch is refused if one is 0
//     params      the kernel's parameters in order, each at `offset` with `bytes`:
//                 kind "pointer" tensor, written | "stride" tensor, dim | "scalar" name | "size" name; dtype
//                 A pointer's dtype is that of the elements. Strides are counted in elements. A bool is one byte.
//     paramBytes  of all
//     grid        extents (expressions); the launch is one-dimensional, gridDim.x = launchBlocks, their product, which
//                 is at most 2^31 - 1
//     launchBlocks expression; 0 is a launch that is left out
//     persistent  gridDim.x may be any number from 1 to launchBlocks: start as many blocks as the GPU holds at a time
//                 (its SMs x cuOccupancyMaxActiveBlocksPerMultiprocessor of the entry), or launchBlocks if that is less
//     overlaps    the kernel waits by griddepcontrol for the launch before it before it touches memory. As a launch of
//     a
//                 program it may have CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, if the launch before it
//                 is one of the program, in the same stream, and neither is one of several in `parallel`
//     block       threads of a block; sharedBytes: dynamic shared memory, which above 48 KiB the launcher asks for
//                 (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
//     entries     two; the first whose `requires` holds is launched, all conditions together: {"address": tensor,
//                 "multiple": bytes}, {"stride" or "extent": tensor, "dim": d, "multiple": elements}, where "least" and
//                 "below", if present, bound the value as well: least <= value < below. The last requires nothing.
//                 An entry may have tensorMaps: further parameters after `params`, each 128 bytes at `offset` (a
//                 multiple of 64), with paramBytes of all. The launcher makes each by cuTensorMapEncodeTiled from the
//                 tensor's base, extents and strides (in bytes, without that of the innermost dim), the tensor's dtype,
//                 `box` (elements, outermost dim first; the driver wants the innermost first, as of all of these) and
//                 `swizzle` (bytes, 0: none); element strides 1, no interleave, L2 promotion as one likes, out of
//                 bounds is zero. Of a tensor that spans less than 128 KiB bit 21 of the second 64-bit word is then
//                 cleared: drivers before CUDA 13.2 set it, and sm_100 and later read wrong addresses by it. Offsets
//                 are those of the PTX; on a GPU pass pointers to the parameters (kernelParams), not one buffer: the
//                 assembler may place a tensor map elsewhere.
//   programs      a list, left out if there are none; of each
//     name, constants, sizes, arguments, tensors, where   as of a kernel
//     scalars     name, dtype
//     temporaries name, dtype, dims: memory that the loader gives, aligned to 256 bytes; firstLaunch, lastLaunch:
//                 when it is alive, in launches numbered in the order of this text, loops around a use included (-1
//                 where no launch uses it): two whose lives do not overlap may have the same memory
//     steps       a list, executed in order; each one of
//                 {"alloc": i}: temporary i is new memory from here on, each time round a loop too; nothing is in it
//                 {"launch": kernel, "tensors": {parameter: view or null}, "scalars": {parameter: value},
//                   "sizes": {size: expression}}: all of the kernel; a value is an expression, a number,
//                   {"number": "inf", "-inf" or "nan"}, {"scalar": name} of the program, or {"computed": n}; a launch
//                   waits for those before it
//                   n, a floating-point number that is known at launch: a number, {"number"}, {"scalar"},
//                   {"integer": expression}, or a list [op, dtype, n..] with op one of neg abs ! exp exp2 log log2
//                   sqrt rsqrt rcp tanh floor ceil round, + - * / min max == != < <= > >= && ||, and ? with three n, of
//                   which only the side that counts needs a value. Computed in f64 and, with the dtype f32, rounded to
//                   it after every op; comparisons and logic give 0 or 1
//                 {"let": name, "value": expression}: what the name stands for in later expressions
//                 {"require": expression}: the launch of the program is refused if it is 0
//                 {"if": expression, "then": steps, "else": steps}
//                 {"for": counter, "from": expression, "to": expression, "by": expression, "do": steps}
//                   for counter = from, from + by, ... below `to`
//                 {"parallel": steps}: no launch in them depends on another one
//                 A view is {"tensor": name, "dims"} or {"temporary": i, "dims"}: of each dim of that tensor "at" and
//                 "extent" (expressions) and "kept", which is false for one position, whose dim goes away. It must lie
//                 inside the tensor, and keeps its strides.
//                 Expressions also name integer and boolean scalars, counters, names of {"let"}, and device.sms,
//                 device.l2_bytes, device.smem (bytes of shared memory that a block may have) and device.arch (120).
//                 All are known before the first launch: a loader can check and place everything, then launch.
//
// An expression is a number, the name of a size or of an integer scalar, or a list [op, a, b] ([op, a] of "!") with op
// one of + - * / % cdiv min max == != < <= > >= && || !, or ["?", cond, a, b], of which only the side that counts needs
// a value. Integers of 64 bits; / and % truncate towards zero, cdiv rounds up, comparisons and logic give 0 or 1.
// Division by zero and overflow have no value: the launch is refused.
#pragma once
#include "driver/compile.h"
#include "sema/host_program.h"
#include "support/json.h"

namespace tkc::driver {

struct ManifestOptions {
  std::string version, source, arch;
  std::string ptx_file, ptx_text; // one of both
  std::string cubin_file;         // "": none
};
// `abis` as emit_module() gives them: two a function.
Json manifest(const std::vector<const ir::Function *> &functions, const std::vector<codegen::KernelAbi> &abis,
              const std::vector<const sema::HostProgram *> &programs, const ManifestOptions &options);
Json program_json(const sema::HostProgram &program); // manifest_program.cpp

Json expression_json(const ir::SizeExpr &e);
Json expressions_json(const std::vector<ir::SizeExpr> &list);
Json tensor_json(const ir::Param &p);
Json arguments_json(const ir::Function &f);
Json constants_json(const ir::Function &f);

} // namespace tkc::driver

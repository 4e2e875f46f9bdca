// A kernel as one launch per tensor op: what a library of tensor ops would do for the same algorithm. Every tile of the
// kernel becomes a tensor in global memory, with the blocks of the grid as its outermost dim; every op that computes on
// tiles becomes a kernel of its own over the whole grid; loops around such ops run on the host, once round for the
// block with the most iterations, and blocks that have fewer do nothing.
//
// What such a library does without a launch, or inside of one, is free here too:
//   - views and casts: loads of what the kernel only reads, slices, transposes, broadcasts, reshapes and conversions
//   are
//     made again by every launch that reads them, and a store of a result is part of the launch that makes it;
//   - numbers: scalars, and tiles that are made of indices and constants alone (masks);
//   - products over a long dim: a loop that does nothing but load and accumulate products is one op, pipelined as in
//   any
//     kernel.
// Loops and branches that cannot run on the host (`while`, trip counts that only the GPU knows) stay one launch.
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include "support/diagnostics.h"

namespace tkc::passes {

struct UnfusedArgument { // of a parameter of a launched kernel
  enum class Kind : uint8_t { Param, Tile, Counter } kind = Kind::Param;
  size_t index = 0; // of the kernel's parameters; of Unfused::tiles; of the loop counter, numbered from outside
};
struct UnfusedStep {
  bool loop = false;
  SourceLoc loc;
  // A launch: kernel, arguments, and of each size of the kernel an expression of the unfused kernel's sizes.
  size_t kernel = 0;
  std::vector<UnfusedArgument> args;
  std::vector<ir::SizeExpr> sizes;
  // A loop: counter 0, 1, .. below `trips`.
  size_t counter = 0;
  ir::SizeExpr trips;
  std::vector<UnfusedStep> body;
};
struct UnfusedTile {
  DType dtype = DType::F32;
  std::vector<int64_t> shape; // of the tile; the tensor has the number of blocks before it (times the first extent)
  std::string name;
};
struct Unfused {
  std::vector<std::shared_ptr<ir::Function>> kernels; // typed; equal ones once
  std::vector<UnfusedTile> tiles;
  std::vector<UnfusedStep> steps;
  ir::SizeExpr blocks;              // of the grid
  std::vector<std::string> remarks; // what stayed together, and why; in the order of the source
};

// The extents of the tensor that holds a tile of every block.
std::vector<ir::SizeExpr> tensor_dims(const UnfusedTile &t, const ir::SizeExpr &blocks);
// `f`: typed, as sema leaves it; it is changed. Nothing if the kernel cannot be split at all: `why` says what is in it.
std::optional<Unfused> unfuse(ir::Function &f, const ir::Target &target, Diagnostics &diags, std::string &why);

} // namespace tkc::passes

// How a kernel is called: the one description that the launcher, the JSON, the C header and the comment in the PTX
// share.
//
// Kernel parameters, in this order:
//   for each present parameter of the kernel
//     tensor: its base address (64-bit global pointer), then the stride of every dim in elements (i64), outermost
//     first;
//             the innermost stride is left out unless the parameter says `strides(any)`
//     scalar: the value (bool as one byte)
//   every run-time size (i32), in the order of ir::Function::sizes
//   in the entry NAME only: the tensor maps of tensor_maps(), 128 bytes each, aligned to 64
// each at its natural alignment. Offsets count from the first parameter, as the emulator lays them out; an assembler
// for a GPU places a tensor map by its address in the constant bank, so a launcher passes an array of pointers to the
// parameters, never one buffer. Extents and the grid are expressions of the sizes. The grid is one-dimensional: blocks
// number the program coordinates with axis 0 fastest (`order grouped(g)` permutes the first two axes inside the
// kernel). A persistent kernel's grid has any number of blocks from 1 to the product of the extents: a launcher starts
// as many as the GPU holds at a time, or the product if that is less.
//
// A kernel has two entries: NAME assumes alignment_checks(), NAME__any does not. Both assume every `where` fact: a
// launcher refuses sizes that violate one.
#pragma once
#include "ir/ir.h"

namespace tkc::codegen {

// Base addresses, strides but the innermost in bytes, and run-time innermost extents in bytes are multiples of this in
// the aligned entry, for tensors that may gain by it: those in takes_neighbours().
inline constexpr int64_t kAlignedBytes = 16;

// For every parameter, whether it is a tensor that some access reads or writes several neighbours of the innermost dim
// of. Of the others (offsets of sequences, a number per head) nothing is asked, so that their sizes send no launch to
// the general entry.
std::vector<bool> takes_neighbours(const ir::Function &f);

struct AbiParam {
  enum class Kind : uint8_t { Pointer, Stride, Scalar, Size, TensorMap } kind;
  std::string name;      // x, x_stride0, M, x_map0
  std::string tensor;    // of a pointer, stride or tensor map
  int64_t dim = 0;       // of a stride
  DType type;            // of the tensor's elements, the scalar, or I64 and I32 of strides and sizes
  bool written = false;  // of a pointer: the kernel writes it
  int64_t alignment = 1; // of a pointer: the address is a multiple of so many bytes
  int64_t offset = 0, bytes = 0;
  std::vector<int64_t> box; // of a tensor map, as TensorMapUse has it
  int64_t swizzle = 0;
};

// A tensor map that the launcher makes of a tensor's base, extents and strides: tiled, without interleave, elements
// beyond the extents read as zero. The kernel's ops with attribute `box` (ring_fill, copies by hand) say which are
// needed.
struct TensorMapUse {
  size_t param = 0;         // index of ir::Function::params
  std::vector<int64_t> box; // elements of one copy, outermost dim first like the tensor's dims
  int64_t swizzle = 0;      // 0, 32, 64 or 128 bytes
  bool operator==(const TensorMapUse &) const = default;
};
// In order of first use, each once.
std::vector<TensorMapUse> tensor_maps(const ir::Function &f);
// Of an op with a `box`.
TensorMapUse tensor_map_of(const ir::Function &f, const ir::Op &fill);
inline constexpr int64_t kTensorMapBytes = 128, kTensorMapAlignment = 64;

struct KernelAbi {
  std::string entry;
  bool aligned = false;
  std::vector<AbiParam> params;
  int64_t threads = 0;      // of a block; reqntid
  int64_t shared_bytes = 0; // dynamic
  bool persistent = false;
  bool overlaps = false; // may be launched while the launch before it runs: it waits by griddepcontrol
  // Of the grid's x, with so many tiles, on a device that holds so many blocks at a time.
  int64_t blocks(int64_t tiles, int64_t resident) const {
    return persistent && resident >= 1 && resident < tiles ? resident : tiles;
  }
  int64_t param_bytes() const { return params.empty() ? 0 : params.back().offset + params.back().bytes; }
};
KernelAbi kernel_abi(const ir::Function &f, std::string entry, bool aligned);

// The predicate of the aligned entry: every value, known to the launcher, is a multiple and lies within bounds.
struct AlignmentCheck {
  enum class Kind : uint8_t { Address, Stride, Extent } kind;
  size_t param = 0;     // index of ir::Function::params: a present tensor
  int64_t dim = 0;      // of a stride or extent
  int64_t multiple = 1; // bytes of an address, elements of a stride or extent
  // What a tensor map asks for: least <= value < below.
  int64_t least = INT64_MIN, below = INT64_MAX;
  bool holds(int64_t value) const { return value % multiple == 0 && value >= least && value < below; }
};
std::vector<AlignmentCheck> alignment_checks(const ir::Function &f);

// The whole ABI as PTX comment lines: parameters, tensors with dims and strides, grid, block, shared memory.
std::string abi_comment(const ir::Function &f, const KernelAbi &abi);

} // namespace tkc::codegen

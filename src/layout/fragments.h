// Fragments of warp-wide matrix instructions as basis tables, and the tile layouts made of them. One table serves the
// layout search, code generation and the tests. Names are those of the PTX manual.
#pragma once
#include "layout/reg_layout.h"
#include "support/dtype.h"

namespace tkc {

// The dims of one mma instruction: A is m x k, B is k x n, C and D are m x n.
enum class MmaDim : uint8_t { M, N, K };
enum class Role : uint8_t { A, B, C };

struct FragBit {
  MmaDim dim;
  uint8_t bit;
};

// Element e of the operand's register vector (PTX operand order; elements narrower than 32 bits are packed from the low
// half on) in lane l lies at the XOR of reg[i], lane[j] over the set bits i of e and j of l.
struct Fragment {
  uint8_t reg_bits;
  std::array<FragBit, 4> reg;
  std::array<FragBit, lane_bits> lane;
  int elements() const { return 1 << reg_bits; }
};

struct MmaShape {
  const char *name; // "m16n8k16"
  int m, n, k;
  int elem_bits; // of A and B in a register: 16, 32 (tf32), 8, 64
  int min_sm;    // 80, 89, ..
  Fragment a, b, c;
  std::array<DType, 4> dtypes; // of A and B
  int dtype_count;
  const Fragment &fragment(Role role) const { return role == Role::A ? a : role == Role::B ? b : c; }
  int extent(MmaDim dim) const { return dim == MmaDim::M ? m : dim == MmaDim::N ? n : k; }
  bool supports(DType t) const;
};

std::span<const MmaShape> mma_shapes();
// Instruction shapes for an operand dtype, largest k first; empty if there is none.
std::vector<const MmaShape *> mma_shapes_for(DType t);
const MmaShape *find_mma_shape(std::string_view name, DType t);

// Powers of two. Warp index = (wk * warps_m + wm) * warps_n + wn. M and N are those of the tile product, also when it
// is computed transposed. A warp owns one contiguous sub-tile of each dim, the usual choice; `interleave` deals the
// instruction-sized slices of each dim out to the warps in turn instead, which balances extents that are not powers of
// two (192 rows over 4 warps: 48 rows each instead of 64, 64, 64, 0).
//   A product may number the columns of C, and the terms of its sums, in any order on which its operands agree.
// `wide_n` and `wide_k` are log2 of how many neighbours a lane holds along the tile's N (in C) and K (in A and B), as
// far as the registers of a warp's sub-tile go: 8 neighbours of 16 bits are one access of 16 bytes, where the
// instruction's own order gives 2. Zero: that order. Without effect where `interleave` is set.
struct WarpTiling {
  int64_t warps_m = 1, warps_n = 1, warps_k = 1;
  bool interleave = false;
  int64_t wide_n = 0, wide_k = 0;
  int64_t warps() const { return warps_m * warps_n * warps_k; }
  bool operator==(const WarpTiling &) const = default;
};

// The layout of one operand of C[M,N] = A[M,K] B[K,N] (`shape` is that operand's exact shape). Register bits: the
// fragment's first, then the remaining bits of the tile from low to high; warps that an operand does not depend on, or
// that find no bits left, hold copies. `transposed` computes C^T = B^T A^T: the tile's A fills the instruction's B
// fragment with n running over M, the tile's B its A fragment with m running over N, and C is held transposed.
//   Where the tile is smaller than the instruction: missing register bits are dropped (see mma_steps), missing lane
//   bits
// replicate; along k replicated lanes must be zeroed, see MmaSteps::k_lane_mask.
//   warps_k > 1: each group of warps sums its own part of K. The layout of C then says only where partial sums lie;
//   they
// are equal copies, as the layout claims, only after a sum over the warps of MmaSteps::k_warp_mask.
RegLayout mma_operand_layout(const MmaShape &mma, Role role, std::vector<int64_t> shape, const WarpTiling &tiling,
                             bool transposed);

// One instruction of a warp: register indices in the operand layouts, in PTX operand order; the roles are those of the
// INSTRUCTION (for a transposed product, `a` indexes the registers of the tile's B). -1: the element lies outside the
// exact shape in every lane; pass zero (A, B, C), drop the result (D).
struct MmaStep {
  int16_t m_tile, n_tile, k_step; // of this warp, in instruction dims
  std::array<int16_t, 16> a;
  std::array<int16_t, 8> b;
  std::array<int16_t, 4> c;
};
struct MmaSteps {
  std::vector<MmaStep> steps; // k_step outermost, so that consecutive instructions are independent
  // Lanes with one of these bits set hold copies along k because K is smaller than the instruction's k: A and B must be
  // zero there. Elements with k >= K in other lanes and registers are padding like any other.
  uint32_t k_lane_mask = 0;
  // Warp bits along which K is split: C holds partial sums that must be added over them. Zero when warps_k is 1, or
  // when K has too few instruction steps to give each warp its own (the others then repeat the same sum).
  uint32_t k_warp_mask = 0;
};
// The instructions of C[m,n] += A[m,k] B[k,n] (exact extents), without those wholly outside. The layouts must have the
// lanes and warps of mma_operand_layout, their registers may be in any order.
MmaSteps mma_steps(const MmaShape &mma, int64_t m, int64_t n, int64_t k, const WarpTiling &tiling, bool transposed,
                   const RegLayout &a, const RegLayout &b, const RegLayout &c);

// An 8x8 matrix of b16 in one b32 register per lane, as ldmatrix and stmatrix move it and movmatrix transposes it:
// element e (0: low half) of lane l lies at the XOR of the (row, column) vectors. `plain`: rows are contiguous in
// shared memory and a lane holds two neighbours of a row; `trans` (.trans, or the result of movmatrix): two of a
// column.
struct MatrixBit {
  uint8_t row, column;
};
struct MatrixFragment {
  MatrixBit pair;
  std::array<MatrixBit, lane_bits> lane;
};
extern const MatrixFragment matrix_plain, matrix_trans;

// A product without tensor cores: the thread that holds an element of C holds the whole row of A and column of B. The
// layout of an operand (exact shape [M,K] or [K,N]) for that, from C's.
RegLayout fma_operand_layout(const RegLayout &c, bool is_b, std::vector<int64_t> shape);

} // namespace tkc

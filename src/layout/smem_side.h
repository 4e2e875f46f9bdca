// How one register tile meets a shared-memory map: the step between the algebra and the list of accesses. Used by the
// access planner, the choice of a swizzle and the conversion planner.
#pragma once
#include "layout/smem_layout.h"

namespace tkc {

inline constexpr int max_reg_bits = 20;

struct SideQuery {
  const RegLayout &regs;
  std::span<const uint32_t> bases; // of the shared-memory map
  int elem_log2 = 0;               // log2 of the element's bytes
  bool store = false;
  bool private_warps = false; // stores: every warp stores what it holds, also what other warps hold
  bool matrix = true;         // ldmatrix (stmatrix for stores) may be used
  // Stores: the layout that will read, and the register combos of one of its accesses (SideShape::group). Padding that
  // these accesses touch is written too, so that nothing is read that was never written.
  const RegLayout *reader = nullptr;
  std::span<const uint32_t> reader_group = {};
};

// The instruction and how register bits are spent. Sets of register bits ("combos") are register indices; the register
// vectors they stand for are XOR sums.
struct SideShape {
  SmemInst inst = SmemInst::Vector;
  // Registers of one access (of one matrix): all sums of the first `group_bits` combos; sum i is element i of the
  // lane's bytes.
  int group_bits = 0;
  std::array<uint32_t, max_reg_bits> group{};
  // The other registers: sums of these, each with its offset.
  int rest_bits = 0;
  std::array<uint32_t, max_reg_bits> rest{}, rest_offset{};
  int matrix_bits = 0;           // at most this many rest bits may be joined in one ldmatrix/stmatrix
  std::array<uint32_t, 3> row{}; // matrices: offset of each row bit
  std::array<uint32_t, lane_bits> lane{};
  std::array<uint32_t, 10> warp{};
  uint32_t lane_mask = 0, warp_mask = 0; // as in SmemSide
  int64_t wavefronts = 0, ideal = 0;     // of one access, or of one matrix
  int pack = 0;                          // instructions that pack or unpack the elements of one access or matrix
  int64_t all_accesses() const { return int64_t(1) << (rest_bits - matrix_bits); }
  int64_t all_wavefronts() const { return wavefronts << rest_bits; }
  int64_t all_ideal() const { return ideal << rest_bits; }
  int64_t all_packs() const { return int64_t(pack) << rest_bits; }
  // Issue slots and wavefronts of one warp.
  int64_t cost() const { return all_accesses() + all_wavefronts() + all_packs(); }
  // Nothing that moves the same registers is cheaper.
  bool is_best(int elem_log2) const {
    bool widest = inst == SmemInst::Vector ? elem_log2 + group_bits == 4 || rest_bits == 0
                                           : matrix_bits == 2 || matrix_bits == rest_bits;
    return widest && wavefronts == ideal && pack == 0;
  }
};

SideShape side_shape(const SideQuery &query);
// `extra` (one per warp bit, or empty) is added to the warps' part; accesses whose offset has bits at or above
// `piece_bytes` (a power of two) lie in that piece, at the offset without those bits.
SmemSide expand_side(const SideQuery &query, const SideShape &shape, std::span<const uint32_t> extra,
                     uint32_t piece_bytes);

} // namespace tkc

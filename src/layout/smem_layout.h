// Tiles in shared memory: a linear map over F2 from the bits of an element's coordinate (packed as in reg_layout.h) to
// the bits of its byte offset. Row-major order, permuted orders, XOR swizzles and TMA's swizzle modes are all such
// maps. From the map and a register layout follow the widest access, whether ldmatrix or stmatrix (.trans) applies, and
// the exact number of shared-memory wavefronts.
#pragma once
#include "layout/reg_layout.h"

namespace tkc {

struct SmemLayout {
  std::vector<int64_t> shape;  // exact extents
  int64_t elem_bytes = 0;      // 1, 2, 4 or 8
  std::vector<uint32_t> bases; // coordinate bit -> byte offset contribution, combined by XOR
  int64_t bytes = 0;           // one past the last byte that an access may touch; by default the padded tile
  int64_t alignment = 16;      // of the base address; a power of two

  bool operator==(const SmemLayout &) const = default;
  uint32_t offset(uint32_t element) const;
  uint32_t offset(std::span<const int64_t> coord) const;
  bool is_valid() const;         // elements lie at distinct multiples of elem_bytes that fill the padded tile
  std::string to_string() const; // `smem[2,4,8]`; shape, element and sizes are not part of the text
  static std::optional<SmemLayout> parse(std::string_view text, std::vector<int64_t> shape, int64_t elem_bytes);
};

// Dims from the fastest (contiguous) to the slowest; empty: row-major. Padded extents are the pitches.
SmemLayout plain_smem(std::vector<int64_t> shape, int64_t elem_bytes, std::span<const int> order = {});
// Row-major in boxes of `swizzle` bytes (32, 64, 128) of the last dim, as TMA writes them with that swizzle mode:
// inside 1024 bytes the 16-byte chunk index is XORed with the row bits. A row wider than a box continues in the next
// box, which follows the whole first one (one TMA copy each). nullopt if a padded row is narrower than a box.
std::optional<SmemLayout> tma_swizzle(std::vector<int64_t> shape, int64_t elem_bytes, int swizzle);
// The TMA mode (0 = none) that has this map, the largest if several do; nullopt if TMA cannot write it.
std::optional<int> tma_mode(const SmemLayout &layout);

// ---- accesses of one register tile -------------------------------------------------------------------------------

enum class SmemInst : uint8_t {
  Vector,     // ld.shared / st.shared of `width` bytes a lane
  Matrix,     // ldmatrix / stmatrix: 8 rows of 16 bytes a matrix, lanes as in matrix_plain
  MatrixTrans // with .trans
};

// Which instructions a target has and how much scratch a conversion may use.
struct LayoutFeatures {
  bool ldmatrix = true, stmatrix = true, movmatrix = true; // stmatrix needs sm_90
  int64_t scratch_bytes = 64 << 10;
};

// One instruction. Its address in lane l of warp w is
//   base + (lane_part(l) ^ warp_part(w) ^ classes[cls]) + imm,
// so one register per class holds an address and `imm` is an immediate offset. `reg_offset` = classes[cls] | imm.
struct SmemAccess {
  // Registers in ascending byte order, from the lane's address on; for matrices, those of matrix 0 (the b32's elements
  // from the low half on), then of matrix 1, .. -1: the register is not live; store anything, drop what is loaded.
  std::vector<int> regs;
  uint32_t reg_offset = 0;
  int cls = 0;
  uint32_t imm = 0;
  int piece = 0; // see SharedPlan::pieces
  bool operator==(const SmemAccess &) const = default;
};

struct SmemSide {
  SmemInst inst = SmemInst::Vector;
  int width = 0;                          // bytes a lane moves in one access: 1..16
  int matrices = 0;                       // 1, 2, 4 (.x1 .x2 .x4); 0 for Vector
  std::array<uint32_t, lane_bits> lane{}; // of the lane's own address: for matrices of the row address that it supplies
  std::vector<uint32_t> warp;
  std::vector<uint32_t> classes;
  std::vector<SmemAccess> accesses;
  // Stores: a lane or warp with one of these bits set holds copies and does not store. Zero for loads and for the lanes
  // of stmatrix.
  uint32_t lane_mask = 0, warp_mask = 0;
  // Loads: registers that are copies of a loaded one: (register, loaded register).
  std::vector<std::pair<int, int>> copies;
  int64_t reach = 0;      // one past the last byte that any lane touches
  int64_t wavefronts = 0; // of one warp, all accesses; exact
  int64_t ideal = 0;      // the same without bank conflicts
  int64_t packs = 0;      // instructions of one warp that pack or unpack elements narrower than 32 bits
  uint32_t lane_part(int l) const;
  uint32_t warp_part(int w) const;
  bool operator==(const SmemSide &) const = default;
};

// Wavefronts of one access of `width` bytes (1..16) a lane: lanes are served 32, 16 (8 bytes) or 8 (16 bytes) at a
// time, lanes that want the same word share it, and each bank (4 bytes) gives one word in a wavefront. `lane` holds the
// byte offset contribution of each lane bit.
int64_t smem_wavefronts(std::span<const uint32_t, lane_bits> lane, int width);
// Of one 8x8 matrix: eight rows of 16 bytes; `row` holds the contribution of each row bit.
int64_t smem_matrix_wavefronts(std::span<const uint32_t, 3> row);

// The cheapest accesses that move every live register of the tile from or to shared memory. All lanes take part, so
// padding inside live registers moves along. Every lane of every warp must hold or want its elements: the caller puts
// the barriers. Replicated data is stored once.
SmemSide plan_smem_load(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features);
SmemSide plan_smem_store(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features);
// The bytes of the tile that the accesses of a piece touch in some lane of some warp, of `bytes` in all.
std::vector<bool> touched_bytes(const SmemSide &side, int piece, int64_t bytes);
// What the planned accesses cost at most, without making them: registers that are not live are counted.
struct SmemCost {
  SmemInst inst = SmemInst::Vector;
  int width = 0;
  int64_t accesses = 0, wavefronts = 0, ideal = 0; // of one warp
};
SmemCost smem_load_cost(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features);
SmemCost smem_store_cost(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features);

// ---- choice of a swizzle -----------------------------------------------------------------------------------------

struct SmemUse {
  bool is_store = false;
  RegLayout layout;
  double weight = 1; // how often, relative to the other uses
};
enum class SmemForm : uint8_t {
  Tma,     // a TMA mode (tma_swizzle or plain rows)
  Swizzle, // the dim order is kept and 16-byte chunks stay whole (cp.async): chunk bits XOR row bits
};
struct SmemChoice {
  SmemLayout layout;
  double wavefronts = 0, ideal = 0; // weighted sums over the uses
};
// The layout of the given form with the fewest weighted wavefronts over all uses; ties go to plain rows, then to TMA
// modes. `order` as in plain_smem (ignored by Tma). `bytes` covers what the uses touch.
SmemChoice choose_smem(const std::vector<int64_t> &shape, int64_t elem_bytes, std::span<const SmemUse> uses,
                       SmemForm form, const LayoutFeatures &features, std::span<const int> order = {});
// The layout alone, for costs; `bytes` is that of the whole tile.
SmemLayout choose_smem_layout(const std::vector<int64_t> &shape, int64_t elem_bytes, std::span<const SmemUse> uses,
                              SmemForm form, const LayoutFeatures &features, std::span<const int> order = {});

} // namespace tkc

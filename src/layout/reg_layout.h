// Register tiles: which register of which lane of which warp holds which element. The map is linear over F2, from the
// bits of (register, lane, warp) to the bits of the element's coordinate:
//
//   element(reg, lane, warp) = XOR of reg[i], lane[i], warp[i] over the set bits i of each index.
//
// A coordinate is one word: the row-major index in the PADDED shape (every extent rounded up to a power of two, last
// dim in the low bits), so [60, 100] is padded to [64, 128] and dim 1 owns bits 0..6, dim 0 bits 7..12. A zero basis
// vector means that the value is replicated along that bit. Elements outside the exact shape exist in the map
// ("padding"); registers that hold nothing else are never created (`live_regs`).
#pragma once
#include "support/inline_vector.h"
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkc {

inline constexpr int max_rank = 4;
inline constexpr int lane_bits = 5;

// ceil(log2(n)), n >= 1.
int log2_ceil(int64_t n);

// The coordinate space of a tile: exact extents and how a coordinate is packed into one word.
struct TileSpace {
  explicit TileSpace(std::span<const int64_t> shape);
  int rank = 0, bits = 0;
  std::array<int64_t, max_rank> extent{}; // exact
  std::array<int, max_rank> log2{};       // bits of each dim
  std::array<int, max_rank> shift{};      // lowest bit of each dim
  int64_t padded(int dim) const { return int64_t(1) << log2[size_t(dim)]; }
  uint32_t mask(int dim) const { return ((1u << log2[size_t(dim)]) - 1) << shift[size_t(dim)]; }
  int64_t coord(uint32_t element, int dim) const { return int64_t(element >> shift[size_t(dim)]) & (padded(dim) - 1); }
  uint32_t element(std::span<const int64_t> coord) const;
  bool inside(uint32_t element) const; // within the exact extents
};

// Masks of register, lane and warp bits.
struct BitMasks {
  uint32_t reg = 0, lane = 0, warp = 0;
  bool operator==(const BitMasks &) const = default;
};

// One place that holds an element.
struct Owner {
  int reg = 0, lane = 0, warp = 0;
  bool operator==(const Owner &) const = default;
};

struct SubTile;
using TileShape = InlineVector<int64_t, max_rank>;
using Basis = InlineVector<uint32_t, 31>; // numbers of registers are ints

struct RegLayout {
  // In place: the search for layouts copies and compares millions.
  TileShape shape; // exact extents, each >= 1; rank 0..4
  Basis reg, lane, warp;

  bool operator==(const RegLayout &) const = default;
  size_t hash() const;

  TileSpace space() const { return TileSpace(shape); }
  int64_t num_regs() const { return int64_t(1) << reg.size(); }
  int64_t num_warps() const { return int64_t(1) << warp.size(); }

  uint32_t reg_part(int64_t r) const;
  uint32_t lane_part(int64_t l) const;
  uint32_t warp_part(int64_t w) const;
  uint32_t linear(int64_t r, int64_t l, int64_t w) const { return reg_part(r) ^ lane_part(l) ^ warp_part(w); }
  std::vector<int64_t> coord(int64_t r, int64_t l, int64_t w) const;

  // Five lanes, rank <= 4, extents >= 1, at most 31 coordinate bits, no vector outside them, every element held
  // somewhere. Every other function expects a valid layout.
  bool is_valid() const;

  // Registers that hold at least one element of the exact shape in some lane of some warp, ascending.
  std::vector<int> live_regs() const;

  // Bits that are redundant: with all of them zero, (register, lane, warp) still reaches every element, and exactly
  // once. A bit is free if its vector depends on those before it in the order lane, warp, register (a zero vector
  // always is).
  BitMasks free_bits() const;
  // Every place that holds an element (in ascending warp, lane, register), and the one place with all free bits zero.
  std::vector<Owner> owners(uint32_t element) const;
  Owner owner(uint32_t element) const;

  // Bits whose vector moves along the axis; a reduction along it combines exactly these registers, lanes and warps,
  // provided that the layout is separable there: no vector moves along the axis and another dim at once, and no two of
  // the moving vectors depend on each other.
  BitMasks axis_bits(int axis) const;
  bool is_separable(int axis) const;
  // The register part and the lane/warp part of every element use disjoint bits, so XOR is addition: element coordinate
  // = coordinate of (lane, warp) + coordinate of the register, and the latter may be an immediate offset.
  bool is_additive() const;

  // Derived layouts. `slice` and `broadcast_source` drop zero register vectors, so the bits of a register index close
  // up; sliced_reg(axis, r) and broadcast_source_reg(from, r) say where register r of this layout lands.
  RegLayout slice(int axis) const; // of a reduction along the axis, or of x where x[.., None, ..] has this layout
  int sliced_reg(int axis, int r) const;
  RegLayout insert_axis(int axis) const;              // of x[.., None, ..]: extent 1 at `axis` (0..rank)
  RegLayout permute(std::span<const int> perm) const; // result dim i is dim perm[i] of this
  std::optional<RegLayout> reshape(std::span<const int64_t> to) const; // same places; nullopt if padding forbids it
  // Of x of shape `from` where x broadcast to `shape` has this layout: dims of extent 1 in `from` lose their bits.
  RegLayout broadcast_source(std::span<const int64_t> from) const;
  int broadcast_source_reg(std::span<const int64_t> from, int r) const;
  // Of x broadcast from `shape` to `to`: every lane holds its elements' copies in new registers (the top register
  // bits).
  RegLayout broadcast_to(std::span<const int64_t> to) const;
  // The same tile for more warps: new warp bits on top, replicated.
  RegLayout with_warps(int64_t warps) const;
  // The registers as the fully reduced basis of their span, ascending: two layouts have equal canonical forms iff their
  // lanes and warps agree and every thread holds the same elements, whatever the order and copies of its registers.
  RegLayout canonical() const;
  // x[o0 : o0 + e0, ...] without moving data: possible if the bits of an element that tell inside from outside are held
  // in registers only. The offset must be a multiple of each padded extent of the piece.
  std::optional<SubTile> subtile(std::span<const int64_t> offset, std::span<const int64_t> extent) const;

  // concat of `count` tiles of this layout along the axis, without moving data: register r of piece i becomes register
  // i * num_regs() + r. nullopt if the extent is not a power of two (the pieces would not lie side by side).
  std::optional<RegLayout> stack(int axis, int64_t count) const;

  // `reg[1,2] lane[4,8,16,32,64] warp[0]`; the shape is not part of the text. parse checks validity for the shape.
  std::string to_string() const;
  static std::optional<RegLayout> parse(std::string_view text, std::vector<int64_t> shape);
};

struct SubTile {
  RegLayout layout;
  std::vector<int> source_reg; // register of the piece -> register of the whole
};

// Every lane of every warp starts at the same element.
bool same_lanes(const RegLayout &a, const RegLayout &b);
// For each register of `dst` the register of `src` that holds the same element in every thread: a conversion without
// instructions. nullopt if lanes or warps differ or `dst` has elements elsewhere.
std::optional<std::vector<int>> register_map(const RegLayout &src, const RegLayout &dst);

// Coalesced global access. `order` lists the dims from the fastest (contiguous) to the slowest. The first dim gives
// `vec_elems` consecutive elements to one thread, then lanes fill it and the dims after it; warps go over the slowest
// dim that has bits left, neighbouring warps on neighbouring rows; what remains is held in registers. A tile smaller
// than the threads is replicated. `vec_elems` and `warps` are powers of two.
RegLayout blocked(std::vector<int64_t> shape, std::span<const int> order, int64_t vec_elems, int64_t warps);
// Every thread holds the whole tile.
RegLayout replicated(std::vector<int64_t> shape, int64_t warps);

} // namespace tkc

template <> struct std::hash<tkc::RegLayout> {
  size_t operator()(const tkc::RegLayout &l) const { return l.hash(); }
};

// Layouts of parts of tiles: what slice, insert and concat need so that a part's registers are registers of the whole,
// and scans along an axis.
#pragma once
#include "layout/reg_layout.h"

namespace tkc {

// Dims in `dims` held in registers only, the others spread over lanes and warps.
RegLayout register_axes_layout(std::span<const int64_t> shape, const std::vector<bool> &dims, int64_t warps);
// No lane or warp moves along the dims, and no register along one of them and another dim at once.
bool in_registers_only(const RegLayout &l, const std::vector<bool> &dims);
// The layout of a tile of another shape that differs from `whole` only in extents of `dims`, which are held in
// registers there and here.
RegLayout with_register_axes(const RegLayout &whole, std::span<const int64_t> shape, const std::vector<bool> &dims);

// Every bit of the axis' coordinate is a vector of its own: what a scan goes through one by one.
bool bit_by_bit(const RegLayout &l, int axis);

// Of the part that begins at `starts`, taken out of `whole` without moving data; nullopt if other threads hold it.
std::optional<RegLayout> part_layout(const RegLayout &whole, std::span<const int64_t> starts,
                                     std::span<const int64_t> sizes);
// Of a tile of the given shape whose part has layout `part`: one more register bit for every coordinate bit that the
// part lacks. part_layout() of it is `part` if the part begins at multiples of its padded extents, else nullopt.
std::optional<RegLayout> whole_layout(const RegLayout &part, std::span<const int64_t> shape,
                                      std::span<const int64_t> starts);

} // namespace tkc

// A tile around a part of it.
#pragma once
#include "layout/reg_layout.h"

namespace tkc {

// The layout of a tile of `shape` in which parts of the shape of `piece`, at multiples of its padded extents, lie as in
// `piece` and can be taken out and put in without moving data: every coordinate bit that the piece lacks is a new
// register bit on top.
RegLayout embed(const RegLayout &piece, std::span<const int64_t> shape);

} // namespace tkc

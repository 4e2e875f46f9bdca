// What a product's attributes say about its layouts, from stage laid_out on.
#pragma once
#include "ir/ir.h"
#include "layout/fragments.h"

namespace tkc::ir {

inline WarpTiling warp_tiling(const Op &op) {
  const std::vector<int64_t> &t = op.attrs.ints("tiling");
  WarpTiling out{t[0], t[1], t[2], op.attrs.i_or("interleave", 0) != 0};
  if (op.attrs.has("wide")) out.wide_n = op.attrs.ints("wide")[0], out.wide_k = op.attrs.ints("wide")[1];
  return out;
}

} // namespace tkc::ir

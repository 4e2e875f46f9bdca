// The iterations of a `for`.
#pragma once
#include "ops/common.h"

namespace tkc::ops {

struct Iterations {
  interp::Tile first; // the counter's type and first value
  int64_t step = 1, count = 0;
  interp::Tile at(int64_t k) const {
    interp::Tile t = first;
    t.i[0] += k * step; // below hi, so it exists in the dtype
    return t;
  }
};
// Nothing, after a trap, if the step is not positive.
std::optional<Iterations> iterations(interp::Ctx &ctx, const Op &op);

} // namespace tkc::ops

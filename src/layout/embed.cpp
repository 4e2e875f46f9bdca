#include "layout/embed.h"

namespace tkc {

RegLayout embed(const RegLayout &piece, std::span<const int64_t> shape) {
  RegLayout whole = piece;
  whole.shape.assign(shape.begin(), shape.end());
  TileSpace small(piece.shape), large(whole.shape);
  auto move = [&](uint32_t &v) {
    uint32_t out = 0;
    for (int d = 0; d < small.rank; d++) out |= uint32_t(small.coord(v, d)) << large.shift[size_t(d)];
    v = out;
  };
  for (std::vector<uint32_t> *bases : {&whole.reg, &whole.lane, &whole.warp})
    for (uint32_t &v : *bases) move(v);
  for (int d = large.rank; d-- > 0;)
    for (int bit = small.log2[size_t(d)]; bit < large.log2[size_t(d)]; bit++)
      whole.reg.push_back(uint32_t(1) << (large.shift[size_t(d)] + bit));
  return whole;
}

} // namespace tkc

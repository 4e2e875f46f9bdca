// ldmatrix, stmatrix, movmatrix of 8x8 matrices of 16-bit elements. Row r of matrix k is the 16 bytes at the address
// that lane 8k + r gives; lane l holds of each matrix the elements (l / 4, 2 (l % 4)) and the next one, lower half
// first; with .trans those of the transpose.
#include "emu/access.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include <cstring>

namespace tkc::emu {

namespace {
// mode: 0 space, 1 transposed, 2 address is 32 bits. a: addresses; n matrices; list: their registers
struct Rows {
  std::array<Place, 32> at;
};
bool find_rows(Warp &w, const Inst &i, uint32_t mask, Use use, Rows &rows) {
  if (!w.converged(mask, true)) return false;
  for (int lane = 0; lane < 8 * i.n; lane++) {
    uint64_t address = (i.mode[2] ? w.row<uint32_t>(i.a)[lane] : w.row<uint64_t>(i.a)[lane]) + uint64_t(i.imm);
    Place p = find_place(w, lane, Space(i.mode[0]), address, 16, 16, use);
    if (!p.bytes) return false;
    if (!p.shared_in) {
      w.error(ErrorKind::OutOfBounds, lane, address, "the rows must lie in shared memory");
      return false;
    }
    rows.at[size_t(lane)] = p;
  }
  return true;
}
const uint32_t *registers(Warp &w, const Inst &i) { return w.block->grid.program.lists.data() + i.list; }

void ldmatrix(Warp &w, const Inst &i, uint32_t mask) {
  Rows rows;
  if (!find_rows(w, i, mask, Use::Read, rows)) return;
  for (int k = 0; k < i.n; k++) {
    uint16_t m[8][8];
    for (int r = 0; r < 8; r++) {
      const Place &p = rows.at[size_t(8 * k + r)];
      note_shared(w, uint32_t(1) << (8 * k + r), AccessKind::Read, *p.shared_in, p.shared, 16);
      std::memcpy(m[r], p.bytes, 16);
    }
    uint32_t *d = w.row<uint32_t>(registers(w, i)[k]);
    for (int l = 0; l < 32; l++) {
      int r = l / 4, c = 2 * (l % 4);
      d[l] = i.mode[1] ? m[c][r] | uint32_t(m[c + 1][r]) << 16 : m[r][c] | uint32_t(m[r][c + 1]) << 16;
    }
  }
}

void stmatrix(Warp &w, const Inst &i, uint32_t mask) {
  Rows rows;
  if (!find_rows(w, i, mask, Use::Write, rows)) return;
  for (int k = 0; k < i.n; k++) {
    uint16_t m[8][8];
    const uint32_t *a = w.row<uint32_t>(registers(w, i)[k]);
    for (int l = 0; l < 32; l++) {
      int r = l / 4, c = 2 * (l % 4);
      for (int h = 0; h < 2; h++) (i.mode[1] ? m[c + h][r] : m[r][c + h]) = uint16_t(a[l] >> 16 * h);
    }
    for (int r = 0; r < 8; r++) {
      const Place &p = rows.at[size_t(8 * k + r)];
      note_shared(w, uint32_t(1) << (8 * k + r), AccessKind::Write, *p.shared_in, p.shared, 16);
      std::memcpy(p.bytes, m[r], 16);
    }
  }
}

void movmatrix(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(mask, true)) return;
  uint16_t m[8][8];
  const uint32_t *a = w.row<uint32_t>(i.a);
  for (int l = 0; l < 32; l++)
    for (int h = 0; h < 2; h++) m[l / 4][2 * (l % 4) + h] = uint16_t(a[l] >> 16 * h);
  uint32_t *d = w.row<uint32_t>(i.d);
  for (int l = 0; l < 32; l++) d[l] = m[2 * (l % 4)][l / 4] | uint32_t(m[2 * (l % 4) + 1][l / 4]) << 16;
}

template <bool Store> void decode(Decoder &d) {
  bool good = d.take("sync") && d.take("aligned") && d.take("m8n8");
  std::string_view count = d.take_any({"x1", "x2", "x4"});
  d.out.mode[1] = d.take("trans");
  Space space = d.take("shared") || d.take("shared::cta") ? Space::Shared : Space::Generic;
  if (!good || count.empty() || d.take_type() != Type::B16) return d.unsupported();
  d.need_operands(2);
  constexpr int kAddress = Store ? 0 : 1, kRegisters = Store ? 1 : 0;
  Decoder::Address a = d.address(d.operand(kAddress), space);
  int n = count[1] - '0';
  std::vector<const PtxOperand *> elements = d.elements(kRegisters);
  if (int(elements.size()) != n) return d.fail("{} registers for {} matrices", elements.size(), n);
  std::vector<uint32_t> rows;
  for (const PtxOperand *o : elements) rows.push_back(Store ? d.source(*o, Type::B32) : d.destination(*o, Type::B32));
  d.out.list = d.add_list(rows), d.out.n = uint8_t(n), d.out.a = a.row, d.out.imm = a.offset;
  d.out.mode[0] = uint8_t(space), d.out.mode[2] = !a.wide;
  d.out.run = Store ? stmatrix : ldmatrix;
}
void decode_movmatrix(Decoder &d) {
  bool good = d.take("sync") && d.take("aligned") && d.take("m8n8") && d.take("trans");
  if (!good || d.take_type() != Type::B16) return d.unsupported();
  d.need_operands(2);
  d.out.d = d.destination(0, Type::B32), d.out.a = d.source(1, Type::B32);
  d.out.run = movmatrix;
}
} // namespace

void register_matrix(DecodeTable &t) {
  t.insert(t.end(), {
                        {"ldmatrix", decode<false>, any_type},
                        {"stmatrix", decode<true>, any_type},
                        {"movmatrix", decode_movmatrix, any_type},
                    });
}

} // namespace tkc::emu

// mma.sync: D = A B + C of one warp. Lane l is (g = l / 4, t = l % 4); with e elements in a register of A or B:
//   A, register i: row g + 8 (i % 2) [m16; row g for m8], column 4e (i / 2) + e t + j        [m8: 4e i + e t + j]
//   B, register i: row 4e i + e t + j, column g
//   C, D, element i: row g + 8 (i / 2), column 2 t + i % 2
// Accumulation: floats as exact products added in double to C, k ascending, and rounded once to the type of D; f64 as a
// chain of fused multiply-adds from C, k ascending; integers exactly, wrapped or (.satfinite) clamped at the end.
// A tensor core keeps fewer bits between the additions and truncates, so its f32 results may differ from these by a few
// units in the last place of the largest term.
#include "emu/block.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include "support/dtype.h"
#include <algorithm>
#include <limits>

namespace tkc::emu {

namespace {
struct Shape {
  int m, n, k;
};
constexpr int kMostK = 256;

// mode: 0 m, 1 k / 4, 2 A type, 3 B type, 4 D type, 5 flags
enum Flag : uint8_t { kSatfinite = 1, kAndPopc = 2, kContainers = 4, kScaled = 8 };
// list: D registers, A registers, B registers, C registers, then for kScaled: scale A, byte A, thread A, the same of B
struct Operands {
  const uint32_t *d, *a, *b, *c, *scale;
  int na, nb, nc;
};
int element_bits(Type t, bool containers) {
  if (containers) return 8;
  return t == Type::TF32 ? 32 : type_bits(t);
}
int accumulator_registers(Type t, int m) {
  int elements = m * 8 / 32;
  return t == Type::F16 ? elements / 2 : elements;
}
Operands operands(Warp &w, const Inst &i) {
  const uint32_t *list = w.block->grid.program.lists.data() + i.list;
  int m = i.mode[0], k = i.mode[1] * 4;
  bool containers = i.mode[5] & kContainers;
  Operands o;
  o.na = m * k * element_bits(Type(i.mode[2]), containers) / 32 / 32,
  o.nb = 8 * k * element_bits(Type(i.mode[3]), containers) / 32 / 32;
  if (Type(i.mode[2]) == Type::F64) o.na /= 2, o.nb /= 2;
  o.nc = accumulator_registers(Type(i.mode[4]), m);
  o.d = list, o.a = o.d + o.nc, o.b = o.a + o.na, o.c = o.b + o.nb, o.scale = o.c + o.nc;
  return o;
}
void a_place(int m, int elements, int reg, int lane, int j, int &row, int &column) {
  bool tall = m == 16;
  row = lane / 4 + (tall ? 8 * (reg % 2) : 0);
  column = 4 * elements * (tall ? reg / 2 : reg) + elements * (lane % 4) + j;
}

// The 256 values of each 8-bit (or smaller) element type.
struct Tables {
  double value[4][256]; // e4m3, e5m2, e2m3, e3m2; the latter two of 6 bits
  double e2m1[16];
  Tables() {
    for (uint32_t c = 0; c < 256; c++) {
      value[0][c] = decode_float(DType::E4M3, c);
      value[1][c] = decode_float(DType::E5M2, c);
      value[2][c] = six_bits(c & 63, 3, 0);
      value[3][c] = six_bits(c & 63, 2, -2);
    }
    for (uint32_t c = 0; c < 16; c++) e2m1[c] = decode_float(DType::E2M1, c);
  }
  static double six_bits(uint32_t c, int mantissa, int min_exponent) {
    uint32_t e = (c & 31) >> mantissa, m = c & ((1u << mantissa) - 1);
    double x = e ? std::ldexp(double(m | 1u << mantissa), int(e) - 1 + min_exponent - mantissa)
                 : std::ldexp(double(m), min_exponent - mantissa);
    return c & 32 ? -x : x;
  }
};
const Tables &tables() {
  static const Tables t;
  return t;
}
double element_value(Type t, uint32_t bits, bool container) {
  if (t == Type::F16) return half_to_float(uint16_t(bits));
  if (t == Type::BF16) return bfloat_to_float(uint16_t(bits));
  if (t == Type::TF32) return std::bit_cast<float>(bits & 0xffffe000u);
  if (t == Type::E4M3) return tables().value[0][bits & 255];
  if (t == Type::E5M2) return tables().value[1][bits & 255];
  if (t == Type::E2M3) return tables().value[2][bits & 63];
  if (t == Type::E3M2) return tables().value[3][bits & 63];
  return tables().e2m1[container ? bits >> 2 & 15 : bits & 15]; // a container holds e2m1 in bits 5..2
}

struct FloatTile {
  double a[16][64], b[64][8], c[16][8];
};
void load_float(Warp &w, const Inst &i, const Operands &o, FloatTile &t) {
  bool containers = i.mode[5] & kContainers;
  Type ta = Type(i.mode[2]), tb = Type(i.mode[3]), td = Type(i.mode[4]);
  int m = i.mode[0], bits_a = element_bits(ta, containers), bits_b = element_bits(tb, containers);
  uint32_t mask_a = bits_a == 32 ? ~0u : (1u << bits_a) - 1, mask_b = bits_b == 32 ? ~0u : (1u << bits_b) - 1;
  for (int r = 0; r < o.na; r++) {
    const uint32_t *reg = w.row<uint32_t>(o.a[r]);
    for (int l = 0; l < 32; l++)
      for (int j = 0; j < 32 / bits_a; j++) {
        int row, column;
        a_place(m, 32 / bits_a, r, l, j, row, column);
        t.a[row][column] = element_value(ta, reg[l] >> j * bits_a & mask_a, containers);
      }
  }
  for (int r = 0; r < o.nb; r++) {
    const uint32_t *reg = w.row<uint32_t>(o.b[r]);
    int e = 32 / bits_b;
    for (int l = 0; l < 32; l++)
      for (int j = 0; j < e; j++)
        t.b[4 * e * r + e * (l % 4) + j][l / 4] = element_value(tb, reg[l] >> j * bits_b & mask_b, containers);
  }
  for (int l = 0; l < 32; l++)
    for (int k = 0; k < m / 4; k++) {
      double &c = t.c[l / 4 + 8 * (k / 2)][2 * (l % 4) + k % 2];
      c = td == Type::F16 ? half_to_float(uint16_t(w.row<uint32_t>(o.c[k / 2])[l] >> 16 * (k % 2)))
                          : double(std::bit_cast<float>(w.row<uint32_t>(o.c[k])[l]));
    }
}
void store_float(Warp &w, const Inst &i, const Operands &o, const FloatTile &t) {
  for (int l = 0; l < 32; l++) {
    uint32_t half[2] = {0, 0};
    for (int k = 0; k < i.mode[0] / 4; k++) {
      double x = t.c[l / 4 + 8 * (k / 2)][2 * (l % 4) + k % 2];
      if (Type(i.mode[4]) == Type::F16)
        half[k / 2] |= uint32_t(to_half(x)) << 16 * (k % 2);
      else
        w.row<uint32_t>(o.d[k])[l] = x != x ? kNan32 : std::bit_cast<uint32_t>(float(x));
    }
    if (Type(i.mode[4]) == Type::F16)
      for (int r = 0; r < o.nc; r++) w.row<uint32_t>(o.d[r])[l] = half[r];
  }
}

// Block scaling: the scales of row r of A come from lane 4 (r % 8) + 2 thread + r / 8, those of column n of B from lane
// 4 n + thread; the bytes from `byte` on hold the scales of successive blocks along k.
bool apply_scales(Warp &w, const Inst &i, const Operands &o, FloatTile &t) {
  int k = i.mode[1] * 4, blocks = i.n, each = k / blocks;
  bool ue4m3 = i.d != 0;
  auto scale = [&](uint32_t bits, int at) {
    return decode_float(ue4m3 ? DType::UE4M3 : DType::UE8M0, bits >> 8 * at & 255);
  };
  uint32_t byte_a = w.row<uint32_t>(o.scale[1])[0], thread_a = w.row<uint32_t>(o.scale[2])[0];
  uint32_t byte_b = w.row<uint32_t>(o.scale[4])[0], thread_b = w.row<uint32_t>(o.scale[5])[0];
  if (thread_a > 1 || thread_b > 3 || byte_a + uint32_t(blocks) > 4 || byte_b + uint32_t(blocks) > 4) {
    w.error(ErrorKind::Unsupported, 0, 0, "the selectors of the scales are out of range");
    return false;
  }
  for (int r = 0; r < 16; r++)
    for (int q = 0; q < k; q++)
      t.a[r][q] *= scale(w.row<uint32_t>(o.scale[0])[4 * (r % 8) + 2 * int(thread_a) + r / 8], int(byte_a) + q / each);
  for (int n = 0; n < 8; n++)
    for (int q = 0; q < k; q++)
      t.b[q][n] *= scale(w.row<uint32_t>(o.scale[3])[4 * n + int(thread_b)], int(byte_b) + q / each);
  return true;
}

void mma_float(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(mask, true)) return;
  Operands o = operands(w, i);
  FloatTile t;
  load_float(w, i, o, t);
  if ((i.mode[5] & kScaled) && !apply_scales(w, i, o, t)) return;
  int m = i.mode[0], k = i.mode[1] * 4;
  for (int r = 0; r < m; r++)
    for (int q = 0; q < k; q++)
      for (int n = 0; n < 8; n++) t.c[r][n] += t.a[r][q] * t.b[q][n];
  store_float(w, i, o, t);
}

void mma_f64(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(mask, true)) return;
  Operands o = operands(w, i);
  int m = i.mode[0], k = i.mode[1] * 4;
  FloatTile t;
  for (int l = 0; l < 32; l++) {
    for (int r = 0; r < o.na; r++) {
      int row, column;
      a_place(m, 1, r, l, 0, row, column);
      t.a[row][column] = w.row<double>(o.a[r])[l];
    }
    for (int r = 0; r < o.nb; r++) t.b[4 * r + l % 4][l / 4] = w.row<double>(o.b[r])[l];
    for (int q = 0; q < m / 4; q++) t.c[l / 4 + 8 * (q / 2)][2 * (l % 4) + q % 2] = w.row<double>(o.c[q])[l];
  }
  for (int r = 0; r < m; r++)
    for (int n = 0; n < 8; n++)
      for (int q = 0; q < k; q++) t.c[r][n] = std::fma(t.a[r][q], t.b[q][n], t.c[r][n]);
  for (int l = 0; l < 32; l++)
    for (int q = 0; q < m / 4; q++) w.row<double>(o.d[q])[l] = t.c[l / 4 + 8 * (q / 2)][2 * (l % 4) + q % 2];
}

void mma_int(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(mask, true)) return;
  Operands o = operands(w, i);
  Type ta = Type(i.mode[2]), tb = Type(i.mode[3]);
  int m = i.mode[0], k = i.mode[1] * 4, bits = type_bits(ta);
  static thread_local int16_t a[16][kMostK], b[kMostK][8];
  int64_t c[16][8];
  auto value = [&](Type t, uint32_t reg, int j) {
    uint32_t x = reg >> j * bits & ((1u << bits) - 1);
    bool negative = type_class(t) == TypeClass::Signed && x >> (bits - 1);
    return int16_t(negative ? int(x) - (1 << bits) : int(x));
  };
  int e = 32 / bits;
  for (int l = 0; l < 32; l++) {
    for (int j = 0; j < e; j++) {
      for (int r = 0; r < o.na; r++) {
        int row, column;
        a_place(m, e, r, l, j, row, column);
        a[row][column] = value(ta, w.row<uint32_t>(o.a[r])[l], j);
      }
      for (int r = 0; r < o.nb; r++) b[4 * e * r + e * (l % 4) + j][l / 4] = value(tb, w.row<uint32_t>(o.b[r])[l], j);
    }
    for (int q = 0; q < m / 4; q++) c[l / 4 + 8 * (q / 2)][2 * (l % 4) + q % 2] = int32_t(w.row<uint32_t>(o.c[q])[l]);
  }
  bool binary = bits == 1, conjunction = i.mode[5] & kAndPopc;
  for (int r = 0; r < m; r++)
    for (int q = 0; q < k; q++)
      for (int n = 0; n < 8; n++)
        c[r][n] += binary ? (conjunction ? a[r][q] & b[q][n] : a[r][q] ^ b[q][n]) : int32_t(a[r][q]) * b[q][n];
  for (int l = 0; l < 32; l++)
    for (int q = 0; q < m / 4; q++) {
      int64_t x = c[l / 4 + 8 * (q / 2)][2 * (l % 4) + q % 2];
      if (i.mode[5] & kSatfinite)
        x = std::clamp<int64_t>(x, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
      w.row<uint32_t>(o.d[q])[l] = uint32_t(x);
    }
}

// ---- decoding: the shapes by element type
struct Legal {
  std::string_view shape;
  Shape size;
  std::initializer_list<Type> elements, accumulators;
};
const Legal kLegal[] = {
    {"m16n8k8", {16, 8, 8}, {Type::F16}, {Type::F16, Type::F32}},
    {"m16n8k16", {16, 8, 16}, {Type::F16}, {Type::F16, Type::F32}},
    {"m16n8k8", {16, 8, 8}, {Type::BF16}, {Type::F32}},
    {"m16n8k16", {16, 8, 16}, {Type::BF16}, {Type::F32}},
    {"m16n8k4", {16, 8, 4}, {Type::TF32}, {Type::F32}},
    {"m16n8k8", {16, 8, 8}, {Type::TF32}, {Type::F32}},
    {"m16n8k16", {16, 8, 16}, {Type::E4M3, Type::E5M2}, {Type::F16, Type::F32}},
    {"m16n8k32", {16, 8, 32}, {Type::E4M3, Type::E5M2}, {Type::F16, Type::F32}},
    {"m8n8k4", {8, 8, 4}, {Type::F64}, {Type::F64}},
    {"m16n8k4", {16, 8, 4}, {Type::F64}, {Type::F64}},
    {"m16n8k8", {16, 8, 8}, {Type::F64}, {Type::F64}},
    {"m16n8k16", {16, 8, 16}, {Type::F64}, {Type::F64}},
    {"m8n8k16", {8, 8, 16}, {Type::S8, Type::U8}, {Type::S32}},
    {"m16n8k16", {16, 8, 16}, {Type::S8, Type::U8}, {Type::S32}},
    {"m16n8k32", {16, 8, 32}, {Type::S8, Type::U8}, {Type::S32}},
    {"m8n8k32", {8, 8, 32}, {Type::S4, Type::U4}, {Type::S32}},
    {"m16n8k32", {16, 8, 32}, {Type::S4, Type::U4}, {Type::S32}},
    {"m16n8k64", {16, 8, 64}, {Type::S4, Type::U4}, {Type::S32}},
    {"m8n8k128", {8, 8, 128}, {Type::B1}, {Type::S32}},
    {"m16n8k128", {16, 8, 128}, {Type::B1}, {Type::S32}},
    {"m16n8k256", {16, 8, 256}, {Type::B1}, {Type::S32}},
};
const std::initializer_list<Type> kF8f6f4 = {Type::E4M3, Type::E5M2, Type::E3M2, Type::E2M3, Type::E2M1};
bool contains(const std::initializer_list<Type> &list, Type t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

// Chooses the shape; false if the combination is not in the manual's tables.
bool choose(std::string_view shape, std::string_view kind, Type td, Type ta, Type tb, Shape &size) {
  if (kind == "kind::f8f6f4" || kind == "kind::mxf8f6f4") {
    size = {16, 8, 32};
    bool accumulates = td == Type::F32 || (td == Type::F16 && kind == "kind::f8f6f4");
    return shape == "m16n8k32" && contains(kF8f6f4, ta) && contains(kF8f6f4, tb) && accumulates;
  }
  if (kind == "kind::mxf4" || kind == "kind::mxf4nvf4") {
    size = {16, 8, 64};
    return shape == "m16n8k64" && ta == Type::E2M1 && tb == Type::E2M1 && td == Type::F32;
  }
  for (const Legal &l : kLegal) {
    if (l.shape != shape || !contains(l.elements, ta) || !contains(l.elements, tb) || !contains(l.accumulators, td))
      continue;
    bool mixes = ta != tb && (ta == Type::F16 || ta == Type::F64);
    size = l.size;
    return !mixes;
  }
  return false;
}

void decode(Decoder &d) {
  bool good = d.take("sync") && d.take("aligned");
  std::string_view shape = d.take_prefixed("m"); // m16n8k16
  good = good && d.take("row") && d.take("col");
  std::string_view kind = d.take_prefixed("kind::"), scale = d.take_prefixed("scale_vec::");
  bool scaled = d.take("block_scale"), satfinite = d.take("satfinite");
  std::string_view bit_op = d.take_any({"xor", "and"});
  bool popc = d.take("popc");
  Type td = d.take_type(), ta = d.take_type(), tb = d.take_type(), tc = d.take_type();
  std::optional<Type> ts = scaled ? d.maybe_type() : std::nullopt;
  if (d.failed()) return;
  Shape size;
  if (!good || td != tc || !choose(shape, kind, td, ta, tb, size)) return d.unsupported();
  bool binary = ta == Type::B1, integer = td == Type::S32;
  if (binary != popc || binary != !bit_op.empty() || (satfinite && (!integer || binary))) return d.unsupported();
  int blocks = 0;
  if (scaled) {
    bool eight = kind == "kind::mxf8f6f4", nvf4 = kind == "kind::mxf4nvf4";
    if (scale.empty()) scale = eight ? "scale_vec::1X" : "scale_vec::2X";
    blocks = scale == "scale_vec::1X" ? 1 : scale == "scale_vec::2X" ? 2 : scale == "scale_vec::4X" ? 4 : 0;
    bool fits = eight         ? blocks == 1 && ts == Type::UE8M0
                : blocks == 2 ? ts == Type::UE8M0
                              : nvf4 && blocks == 4 && ts == Type::UE4M3;
    if (!fits || kind == "kind::f8f6f4" || kind.empty()) return d.unsupported();
  } else if (kind.starts_with("kind::mx")) {
    return d.unsupported();
  }
  bool containers = kind == "kind::f8f6f4" || kind == "kind::mxf8f6f4";
  d.out.mode = {uint8_t(size.m),
                uint8_t(size.k / 4),
                uint8_t(ta),
                uint8_t(tb),
                uint8_t(td),
                uint8_t((satfinite ? kSatfinite : 0) | (bit_op == "and" ? kAndPopc : 0) |
                        (containers ? kContainers : 0) | (scaled ? kScaled : 0))};
  d.out.n = uint8_t(blocks), d.out.d = ts == Type::UE4M3;

  d.need_operands(scaled ? 8 : 4);
  std::vector<uint32_t> rows;
  auto add = [&](int64_t k, int count, Type t, bool destination, std::string_view what) {
    std::vector<const PtxOperand *> elements = d.elements(k);
    if (int(elements.size()) != count) d.fail("{} has {} registers, the shape needs {}", what, elements.size(), count);
    for (const PtxOperand *o : elements) rows.push_back(destination ? d.destination(*o, t) : d.source(*o, t));
  };
  bool f64 = td == Type::F64;
  int unit = f64 ? 64 : 32;
  Type reg = f64 ? Type::F64 : Type::B32, acc = f64 ? Type::F64 : td == Type::F32 ? Type::F32 : Type::B32;
  int nc = accumulator_registers(td, size.m);
  add(0, nc, acc, true, "D");
  add(1, size.m * size.k * element_bits(ta, containers) / 32 / unit, reg, false, "A");
  add(2, 8 * size.k * element_bits(tb, containers) / 32 / unit, reg, false, "B");
  add(3, nc, acc, false, "C");
  for (int64_t k = 4; scaled && k < 8; k += 2) {
    add(k, 1, Type::B32, false, "a scale");
    std::vector<const PtxOperand *> selectors = d.elements(k + 1);
    if (selectors.size() != 2) return d.fail("a scale needs {{byte, thread}}");
    for (const PtxOperand *o : selectors) rows.push_back(d.source(*o, Type::B16));
  }
  d.out.list = d.add_list(rows);
  d.out.run = f64 ? mma_f64 : integer ? mma_int : mma_float;
}
} // namespace

void register_mma(DecodeTable &t) { t.push_back({"mma", decode, any_type}); }

} // namespace tkc::emu

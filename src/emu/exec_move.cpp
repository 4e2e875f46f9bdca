// mov (values, packing and unpacking, special registers), cvta, isspacep.
#include "emu/block.h"
#include "emu/families.h"
#include "emu/lanes.h"

namespace tkc::emu {

namespace {
template <typename Row> void copy_row(Warp &w, const Inst &i, uint32_t mask) {
  Row *d = w.row<Row>(i.d);
  const Row *a = w.row<Row>(i.a);
  run_lanes(mask, [=](int l) { d[l] = a[l]; });
}
void copy_wide(Warp &w, const Inst &i, uint32_t mask) {
  uint64_t *d = w.row<uint64_t>(i.d);
  const uint64_t *a = w.row<uint64_t>(i.a);
  run_lanes(mask, [=](int l) { d[l] = a[l], d[l + 32] = a[l + 32]; });
}
void copy_predicate(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t a = w.preds[i.a] ^ (i.mode[0] ? ~uint32_t(0) : 0);
  w.preds[i.d] = (w.preds[i.d] & ~mask) | (a & mask);
}

// Packing: list holds n element rows, low first; mode[0] bits of an element, mode[1] bits of the whole.
uint64_t get(Warp &w, uint32_t row, int bits, int lane) {
  return bits == 64 ? w.row<uint64_t>(row)[lane] : w.row<uint32_t>(row)[lane];
}
void pack(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  int bits = i.mode[0];
  uint64_t field =
      bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1; // of a register never written, more may be set
  each_lane(mask, [&](int l) {
    uint64_t half[2] = {0, 0};
    for (int k = 0; k < i.n; k++) half[k * bits / 64] |= (get(w, rows[k], bits, l) & field) << k * bits % 64;
    if (i.mode[1] == 128)
      w.row<uint64_t>(i.d)[l] = half[0], w.row<uint64_t>(i.d)[l + 32] = half[1];
    else if (i.mode[1] == 64)
      w.row<uint64_t>(i.d)[l] = half[0];
    else
      w.row<uint32_t>(i.d)[l] = uint32_t(half[0]);
  });
}
void unpack(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  int bits = i.mode[0];
  uint64_t field = bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  each_lane(mask, [&](int l) {
    uint64_t half[2] = {i.mode[1] >= 64 ? w.row<uint64_t>(i.a)[l] : w.row<uint32_t>(i.a)[l], 0};
    if (i.mode[1] == 128) half[1] = w.row<uint64_t>(i.a)[l + 32];
    for (int k = 0; k < i.n; k++) {
      uint64_t x = half[k * bits / 64] >> k * bits % 64 & field;
      if (bits == 64)
        w.row<uint64_t>(rows[k])[l] = x;
      else
        w.row<uint32_t>(rows[k])[l] = uint32_t(x);
    }
  });
}

// Clocks: one tick an executed warp instruction; the timer counts the same as nanoseconds. mode[0]: upper half wanted.
void read_clock(Warp &w, const Inst &i, uint32_t mask) {
  uint64_t t = uint64_t(w.block->instructions + w.executed);
  each_lane(mask, [&](int l) {
    if (i.mode[1])
      w.row<uint64_t>(i.d)[l] = t;
    else
      w.row<uint32_t>(i.d)[l] = uint32_t(i.mode[0] ? t >> 32 : t);
  });
}

void decode_mov(Decoder &d) {
  Type t = d.take_type();
  d.need_operands(2);
  const PtxOperand &dst = d.operand(0), &src = d.operand(1);
  int bits = type_bits(t);
  if (t == Type::Pred) {
    bool negated = false;
    d.out.d = uint32_t(d.predicate_destination(dst)), d.out.a = uint32_t(d.predicate(src, negated));
    d.out.mode[0] = negated;
    d.out.run = copy_predicate;
    return;
  }
  bool packs = src.kind == PtxOperand::Kind::Vector, unpacks = dst.kind == PtxOperand::Kind::Vector;
  if (packs || unpacks) {
    size_t n = (packs ? src : dst).parts.size();
    if (packs && unpacks) return d.unsupported();
    int each = n == 2 || n == 4 || n == 8 ? bits / int(n) : 0;
    std::optional<Type> element = each == 8    ? std::optional(Type::B8)
                                  : each == 16 ? std::optional(Type::B16)
                                  : each == 32 ? std::optional(Type::B32)
                                  : each == 64 ? std::optional(Type::B64)
                                               : std::nullopt;
    if (!element) return d.fail("{} elements do not make {} bits", n, bits);
    std::vector<uint32_t> rows;
    for (const PtxOperand *o : d.elements(packs ? 1 : 0))
      rows.push_back(packs ? d.source(*o, *element) : d.destination(*o, *element));
    d.out.list = d.add_list(rows), d.out.n = uint8_t(n);
    d.out.mode[0] = uint8_t(each), d.out.mode[1] = uint8_t(bits);
    if (packs)
      d.out.d = d.destination(0, t), d.out.run = pack;
    else
      d.out.a = d.source(1, t), d.out.run = unpack;
    return;
  }
  d.out.d = d.destination(0, t);
  if (src.kind == PtxOperand::Kind::Symbol) {
    bool wide = src.name == "%clock64" || src.name == "%globaltimer",
         upper = src.name == "%clock_hi" || src.name == "%globaltimer_hi";
    if (wide || upper || src.name == "%clock" || src.name == "%globaltimer_lo") {
      if (bits != (wide ? 64 : 32)) d.fail("`{}` has {} bits", src.name, wide ? 64 : 32);
      d.out.mode[0] = upper, d.out.mode[1] = wide;
      d.out.run = read_clock;
      return;
    }
    bool special = src.name[0] == '%';
    if (special && !d.special_register(src.name)) return d.fail("unknown register `{}`", src.name);
  }
  d.out.a = d.source(1, t);
  if (bits < 16) return d.unsupported();
  d.out.run = bits == 128 ? copy_wide : bits == 64 ? copy_row<uint64_t> : copy_row<uint32_t>;
}

// ---- address spaces
std::optional<Space> take_space(Decoder &d) {
  if (d.take("global")) return Space::Global;
  if (d.take("shared") || d.take("shared::cta")) return Space::Shared;
  if (d.take("shared::cluster")) return Space::SharedCluster;
  if (d.take("const")) return Space::Const;
  if (d.take("local")) return Space::Local;
  if (d.take("param") || d.take("param::entry")) return Space::Param;
  d.fail("the state space is missing");
  return std::nullopt;
}
uint64_t window(Space s) {
  return s == Space::Shared || s == Space::SharedCluster ? kSharedWindow
         : s == Space::Local                             ? kLocalWindow
         : s == Space::Param                             ? kParamWindow
                                                         : 0;
}
void shift_window(Warp &w, const Inst &i, uint32_t mask) {
  uint64_t *d = w.row<uint64_t>(i.d), by = uint64_t(i.imm);
  const uint64_t *a = w.row<uint64_t>(i.a);
  run_lanes(mask, [=](int l) { d[l] = a[l] + by; });
}
void decode_cvta(Decoder &d) {
  bool to = d.take("to");
  std::optional<Space> space = take_space(d);
  if (d.take_type() != Type::U64) return d.unsupported();
  d.need_operands(2);
  if (d.failed()) return;
  d.out.d = d.destination(0, Type::U64), d.out.a = d.source(1, Type::U64);
  uint64_t by = window(*space);
  d.out.imm = int64_t(to ? 0 - by : by);
  d.out.run = shift_window;
}
void is_space(Warp &w, const Inst &i, uint32_t mask) {
  const uint64_t *a = w.row<uint64_t>(i.a);
  Space s = Space(i.mode[0]);
  uint32_t r = 0;
  each_lane(mask, [&](int l) {
    uint64_t base = window(s);
    bool yes = base ? a[l] - base < kWindowBytes : a[l] < kSharedWindow;
    uint64_t rank_bits = (a[l] - base) >> 24;
    if (s == Space::Shared && yes) yes = rank_bits == 0 || rank_bits == uint64_t(w.block->rank) + 1;
    if (!base) {
      const Allocation *in = w.block->grid.memory.find(a[l]);
      yes = yes && (in && in->constant) == (s == Space::Const);
    }
    r |= uint32_t(yes) << l;
  });
  w.preds[i.d] = (w.preds[i.d] & ~mask) | r;
}
void decode_isspacep(Decoder &d) {
  std::optional<Space> space = take_space(d);
  d.need_operands(2);
  if (d.failed()) return;
  d.out.d = uint32_t(d.predicate_destination(d.operand(0))), d.out.a = d.source(1, Type::U64);
  d.out.mode[0] = uint8_t(*space);
  d.out.run = is_space;
}
} // namespace

void register_move(DecodeTable &t) {
  t.insert(t.end(), {
                        {"mov", decode_mov, any_type},
                        {"cvta", decode_cvta, any_type},
                        {"isspacep", decode_isspacep, any_type},
                    });
}

} // namespace tkc::emu

// Warp-wide instructions: shfl, vote, match, redux, activemask, elect. They exchange registers only: none of them
// orders memory accesses of the lanes (bar.warp.sync does).
#include "emu/block.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/number.h"
#include <algorithm>

namespace tkc::emu {

namespace {
// The lanes that execute together may name different member masks; each set of equal masks is a group of its own.
template <typename F> void each_group(uint32_t lanes, const uint32_t *members, F f) {
  while (lanes) {
    uint32_t group = 0, name = members[first_lane(lanes)];
    each_lane(lanes, [&](int l) { group |= uint32_t(members[l] == name) << l; });
    lanes &= ~group;
    f(group);
  }
}

enum class Shuffle : uint8_t { Up, Down, Butterfly, Index };
// d (row), e (predicate, mode[1] = used), a, b, c rows; list[0]: member masks
template <Shuffle S> void shfl(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(w.block->grid.program.lists[i.list]);
  uint32_t lanes = w.warp_sync(mask, members);
  if (!lanes) return;
  uint32_t *d = w.row<uint32_t>(i.d), from[32], p = 0;
  const uint32_t *b = w.row<uint32_t>(i.b), *c = w.row<uint32_t>(i.c);
  std::copy_n(w.row<uint32_t>(i.a), 32, from);
  for (uint32_t m = lanes; m; m &= m - 1) {
    int lane = first_lane(m);
    int offset = int(b[lane] & 31), clamp = int(c[lane] & 31), segment = int(c[lane] >> 8 & 31);
    int most = (lane & segment) | (clamp & ~segment), j = lane;
    bool inside = false;
    switch (S) {
    case Shuffle::Up: j = lane - offset, inside = j >= most; break;
    case Shuffle::Down: j = lane + offset, inside = j <= most; break;
    case Shuffle::Butterfly: j = lane ^ offset, inside = j <= most; break;
    case Shuffle::Index: j = (lane & segment) | (offset & ~segment), inside = j <= most; break;
    }
    if (!inside) j = lane;
    if (!(members[lane] & lanes & uint32_t(1) << j)) {
      w.error(ErrorKind::Divergence, lane, 0,
              fmt::format("lane {} takes the value of lane {}, which does not take part", lane, j));
      return;
    }
    d[lane] = from[j];
    p |= uint32_t(inside) << lane;
  }
  if (i.mode[1]) w.preds[i.e] = (w.preds[i.e] & ~lanes) | p;
}

enum class Vote : uint8_t { All, Any, Uni, Ballot };
template <Vote V> void vote(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(i.b);
  uint32_t lanes = w.warp_sync(mask, members);
  if (!lanes) return;
  uint32_t p = w.preds[i.a] ^ (i.mode[0] ? ~uint32_t(0) : 0), r = 0;
  each_group(lanes, members, [&](uint32_t group) {
    uint32_t yes = p & group;
    if (V == Vote::Ballot) each_lane(group, [&](int l) { w.row<uint32_t>(i.d)[l] = yes; });
    bool all = V == Vote::All ? yes == group : V == Vote::Any ? yes != 0 : yes == 0 || yes == group;
    if (all) r |= group;
  });
  if (V != Vote::Ballot) w.preds[i.d] = (w.preds[i.d] & ~lanes) | r;
}

template <typename T, bool All> void match(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(i.b);
  uint32_t lanes = w.warp_sync(mask, members);
  if (!lanes) return;
  T value[32];
  std::copy_n(w.row<T>(i.a), 32, value);
  uint32_t *d = w.row<uint32_t>(i.d), p = 0;
  each_group(lanes, members, [&](uint32_t group) {
    each_lane(group, [&](int l) {
      uint32_t same = 0;
      each_lane(group, [&](int k) { same |= uint32_t(value[k] == value[l]) << k; });
      if (All && same != group) same = 0;
      d[l] = same;
      p |= uint32_t(same != 0) << l;
    });
  });
  if (i.mode[1]) w.preds[i.e] = (w.preds[i.e] & ~lanes) | p;
}

enum class Redux : uint8_t { Add, MinU, MaxU, MinS, MaxS, And, Or, Xor, MinF, MaxF };
// mode[0]: .abs, mode[1]: .NaN
template <Redux R> void redux(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(i.b);
  uint32_t lanes = w.warp_sync(mask, members);
  if (!lanes) return;
  auto combine = [&](uint32_t x, uint32_t y) -> uint32_t {
    switch (R) {
    case Redux::Add: return x + y;
    case Redux::MinU: return std::min(x, y);
    case Redux::MaxU: return std::max(x, y);
    case Redux::MinS: return uint32_t(std::min(int32_t(x), int32_t(y)));
    case Redux::MaxS: return uint32_t(std::max(int32_t(x), int32_t(y)));
    case Redux::And: return x & y;
    case Redux::Or: return x | y;
    case Redux::Xor: return x ^ y;
    case Redux::MinF:
    case Redux::MaxF: {
      float a = std::bit_cast<float>(x), b = std::bit_cast<float>(y);
      if (i.mode[0]) a = std::fabs(a), b = std::fabs(b);
      if (a != a || b != b) return i.mode[1] || (a != a && b != b) ? kNan32 : std::bit_cast<uint32_t>(a != a ? b : a);
      bool first = a == b ? std::signbit(a) == (R == Redux::MinF) : (a < b) == (R == Redux::MinF);
      return std::bit_cast<uint32_t>(first ? a : b);
    }
    }
    return x;
  };
  uint32_t *d = w.row<uint32_t>(i.d), value[32];
  std::copy_n(w.row<uint32_t>(i.a), 32, value);
  each_group(lanes, members, [&](uint32_t group) {
    uint32_t r = value[first_lane(group)];
    if (i.mode[0]) r &= 0x7fffffff;
    each_lane(group & (group - 1), [&](int l) { r = combine(r, value[l]); });
    each_lane(group, [&](int l) { d[l] = r; });
  });
}

void activemask(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t *d = w.row<uint32_t>(i.d);
  each_lane(mask, [&](int l) { d[l] = mask; });
}

// Which lane is elected is for the hardware to say, but always the same one for a member mask.
void elect(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *members = w.row<uint32_t>(i.b);
  uint32_t lanes = w.warp_sync(mask, members);
  if (!lanes) return;
  const Options &o = w.block->grid.options;
  uint32_t p = 0;
  each_group(lanes, members, [&](uint32_t group) {
    int leader = first_lane(group);
    if (o.policy == Policy::Reverse) leader = 31 - std::countl_zero(group);
    if (o.policy == Policy::Random) {
      Random r{o.seed ^ uint64_t(group) << 20};
      int skip = int(r.below(std::popcount(group)));
      uint32_t rest = group;
      for (int k = 0; k < skip; k++) rest &= rest - 1;
      leader = first_lane(rest);
    }
    p |= uint32_t(1) << leader;
    each_lane(group, [&](int l) { w.row<uint32_t>(i.d)[l] = uint32_t(leader); });
  });
  w.preds[i.e] = (w.preds[i.e] & ~lanes) | p;
}

// ---- decoding
void destination_pair(Decoder &d, bool required) {
  const PtxOperand &o = d.operand(0);
  bool pair = o.kind == PtxOperand::Kind::Pair;
  if (required && !pair) return d.fail("the destination must be d|p");
  d.out.d = d.destination(pair ? o.parts[0] : o, Type::B32);
  d.out.mode[1] = pair;
  if (pair) d.out.e = uint32_t(d.predicate_destination(o.parts[1]));
}
bool need_sync(Decoder &d) {
  if (!d.take("sync")) d.fail("only the .sync form exists on the supported targets");
  return !d.failed();
}
void decode_shfl(Decoder &d) {
  if (!need_sync(d)) return;
  std::string_view mode = d.take_any({"up", "down", "bfly", "idx"});
  if (d.take_type() != Type::B32) return d.unsupported();
  d.need_operands(5);
  destination_pair(d, false);
  d.out.a = d.source(1, Type::B32), d.out.b = d.source(2, Type::B32), d.out.c = d.source(3, Type::B32);
  d.out.list = d.add_list({d.source(4, Type::B32)});
  if (mode.empty()) return d.fail("one of .up, .down, .bfly, .idx is missing");
  d.out.run = mode == "up"     ? shfl<Shuffle::Up>
              : mode == "down" ? shfl<Shuffle::Down>
              : mode == "bfly" ? shfl<Shuffle::Butterfly>
                               : shfl<Shuffle::Index>;
}
void decode_vote(Decoder &d) {
  if (!need_sync(d)) return;
  std::string_view mode = d.take_any({"all", "any", "uni", "ballot"});
  Type t = d.take_type();
  d.need_operands(3);
  bool ballot = mode == "ballot", negated = false;
  if (mode.empty() || t != (ballot ? Type::B32 : Type::Pred)) return d.unsupported();
  d.out.d = ballot ? d.destination(0, Type::B32) : uint32_t(d.predicate_destination(d.operand(0)));
  d.out.a = uint32_t(d.predicate(d.operand(1), negated)), d.out.b = d.source(2, Type::B32);
  d.out.mode[0] = negated;
  d.out.run = ballot          ? vote<Vote::Ballot>
              : mode == "all" ? vote<Vote::All>
              : mode == "any" ? vote<Vote::Any>
                              : vote<Vote::Uni>;
}
void decode_match(Decoder &d) {
  if (!need_sync(d)) return;
  bool all = d.take("all");
  if (!all && !d.take("any")) d.fail("one of .any, .all is missing");
  Type t = d.take_type();
  d.need_operands(3);
  destination_pair(d, false);
  if (!all && d.out.mode[1]) d.fail("match.any has one destination");
  d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32);
  if (t == Type::B32)
    d.out.run = all ? match<uint32_t, true> : match<uint32_t, false>;
  else if (t == Type::B64)
    d.out.run = all ? match<uint64_t, true> : match<uint64_t, false>;
  else
    d.unsupported();
}
void decode_redux(Decoder &d) {
  if (!need_sync(d)) return;
  std::string_view op = d.take_any({"add", "min", "max", "and", "or", "xor"});
  d.out.mode[0] = d.take("abs"), d.out.mode[1] = d.take("NaN");
  Type t = d.take_type();
  d.need_operands(3);
  d.out.d = d.destination(0, t), d.out.a = d.source(1, t), d.out.b = d.source(2, Type::B32);
  if ((d.out.mode[0] || d.out.mode[1]) && t != Type::F32) return d.unsupported();
  if (t == Type::B32)
    d.out.run = op == "and"   ? redux<Redux::And>
                : op == "or"  ? redux<Redux::Or>
                : op == "xor" ? redux<Redux::Xor>
                              : nullptr;
  else if (t == Type::U32)
    d.out.run = op == "add"   ? redux<Redux::Add>
                : op == "min" ? redux<Redux::MinU>
                : op == "max" ? redux<Redux::MaxU>
                              : nullptr;
  else if (t == Type::S32)
    d.out.run = op == "add"   ? redux<Redux::Add>
                : op == "min" ? redux<Redux::MinS>
                : op == "max" ? redux<Redux::MaxS>
                              : nullptr;
  else if (t == Type::F32)
    d.out.run = op == "min" ? redux<Redux::MinF> : op == "max" ? redux<Redux::MaxF> : nullptr;
  if (!d.out.run) d.unsupported();
}
void decode_activemask(Decoder &d) {
  if (d.take_type() != Type::B32) return d.unsupported();
  d.need_operands(1);
  d.out.d = d.destination(0, Type::B32);
  d.out.run = activemask;
}
void decode_elect(Decoder &d) {
  if (!need_sync(d)) return;
  d.need_operands(2);
  destination_pair(d, true);
  d.out.b = d.source(1, Type::B32);
  d.out.run = elect;
}
} // namespace

void register_warp(DecodeTable &t) {
  t.insert(t.end(), {
                        {"shfl", decode_shfl, any_type},
                        {"vote", decode_vote, any_type},
                        {"match", decode_match, any_type},
                        {"redux", decode_redux, any_type},
                        {"activemask", decode_activemask, any_type},
                        {"elect", decode_elect, any_type},
                    });
}

} // namespace tkc::emu

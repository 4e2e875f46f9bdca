// ld and st in every space and width; prefetches and cache policies, which only check their address.
#include "emu/access.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/strength.h"
#include <cstring>

namespace tkc::emu {

namespace {
// mode: 0 space, 1 bytes of an element, 2 sign-extend, 3 strength (Strength), 4 address is 32 bits, 5 register width of
// elements: 32 or 64 or 128 (by list: all alike)
uint64_t address_of(Warp &w, const Inst &i, int lane) {
  uint64_t base = i.mode[4] ? w.row<uint32_t>(i.a)[lane] : w.row<uint64_t>(i.a)[lane];
  return base + uint64_t(i.imm);
}
AccessKind kind_of(const Inst &i, bool store) {
  if (Strength(i.mode[3]) == Strength::Weak) return store ? AccessKind::Write : AccessKind::Read;
  return store ? AccessKind::StrongStore : AccessKind::Atomic;
}

void load_elements(Warp &w, const Inst &i, int lane, const uint8_t *from) {
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  int bytes = i.mode[1];
  for (int k = 0; k < i.n; k++, from += bytes) {
    if (bytes == 16) {
      uint64_t half[2];
      std::memcpy(half, from, 16);
      w.row<uint64_t>(rows[k])[lane] = half[0], w.row<uint64_t>(rows[k])[lane + 32] = half[1];
      continue;
    }
    uint64_t x = 0;
    std::memcpy(&x, from, size_t(bytes));
    if (i.mode[2] && bytes < 8) x = uint64_t(int64_t(x << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    if (i.mode[5] == 64)
      w.row<uint64_t>(rows[k])[lane] = x;
    else
      w.row<uint32_t>(rows[k])[lane] = i.mode[5] == 16 ? uint16_t(x) : uint32_t(x);
  }
}
void store_elements(Warp &w, const Inst &i, int lane, uint8_t *to) {
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  int bytes = i.mode[1];
  for (int k = 0; k < i.n; k++, to += bytes) {
    uint64_t half[2] = {i.mode[5] >= 64 ? w.row<uint64_t>(rows[k])[lane] : w.row<uint32_t>(rows[k])[lane], 0};
    if (bytes == 16) half[1] = w.row<uint64_t>(rows[k])[lane + 32];
    std::memcpy(to, half, size_t(bytes));
  }
}

void load(Warp &w, const Inst &i, uint32_t mask) {
  Space space = Space(i.mode[0]);
  Strength strength = Strength(i.mode[3]);
  int64_t bytes = int64_t(i.mode[1]) * i.n;
  AccessKind kind = kind_of(i, false);
  // Lanes that read the same shared bytes are told to the shadow together.
  Block *in = nullptr;
  uint32_t group = 0, at = 0;
  uint64_t values = mask;
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    uint64_t address = address_of(w, i, lane);
    Place p = find_place(w, lane, space, address, bytes, bytes, Use::Read);
    if (!p.bytes) return;
    if (p.shared_in) {
      if (group && (in != p.shared_in || at != p.shared)) note_shared(w, group, kind, *in, at, bytes), group = 0;
      in = p.shared_in, at = p.shared, group |= uint32_t(1) << lane;
    } else if (p.global) {
      note_global(w, lane, p, bytes, Use::Read, strength != Strength::Weak);
    }
    load_elements(w, i, lane, p.bytes);
    if (strength == Strength::Weak) continue;
    strong_read(w, lane, strong_key(p, address), strength == Strength::Acquire);
    for (int64_t k = 0; k < bytes; k++) values = values * 31 + p.bytes[k];
  }
  if (group) note_shared(w, group, kind, *in, at, bytes);
  if (strength != Strength::Weak) note_poll(w, values);
}

// Several lanes of one store at the same shared bytes: which value stays is undefined, so they must agree.
bool same_place(Warp &w, int lane, int other, const Place &p, const uint8_t *value, int64_t bytes) {
  if (std::memcmp(p.bytes, value, size_t(bytes)) == 0) return true;
  w.error(
      ErrorKind::SharedRace, lane, generic_shared(*p.shared_in, p.shared),
      fmt::format("lanes {} and {} store different values to the same shared address {:#x}", other, lane, p.shared));
  return false;
}

void store(Warp &w, const Inst &i, uint32_t mask) {
  Space space = Space(i.mode[0]);
  Strength strength = Strength(i.mode[3]);
  int64_t bytes = int64_t(i.mode[1]) * i.n;
  AccessKind kind = kind_of(i, true);
  std::array<std::pair<uint32_t, int>, 32> seen; // shared addresses of the lanes before, while not ascending
  int count = 0;
  bool ascending = true;
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    uint64_t address = address_of(w, i, lane);
    Place p = find_place(w, lane, space, address, bytes, bytes, Use::Write);
    if (!p.bytes) return;
    uint8_t value[64];
    store_elements(w, i, lane, value);
    if (p.shared_in) {
      if (count && p.shared <= seen[size_t(count - 1)].first) ascending = false;
      int other = -1;
      if (!ascending)
        for (int k = 0; k < count; k++)
          if (seen[size_t(k)].first == p.shared) other = seen[size_t(k)].second;
      seen[size_t(count++)] = {p.shared, lane};
      if (other >= 0) {
        if (!same_place(w, lane, other, p, value, bytes)) std::memcpy(p.bytes, value, size_t(bytes));
        continue;
      }
      note_shared(w, uint32_t(1) << lane, kind, *p.shared_in, p.shared, bytes);
    } else if (p.global) {
      note_global(w, lane, p, bytes, Use::Write, strength != Strength::Weak, value);
    }
    std::memcpy(p.bytes, value, size_t(bytes));
    if (strength != Strength::Weak) strong_write(w, lane, strong_key(p, address), strength == Strength::Release, false);
  }
}

// ---- decoding
Space take_space(Decoder &d) {
  if (d.take("global")) return Space::Global;
  if (d.take("shared") || d.take("shared::cta")) return Space::Shared;
  if (d.take("shared::cluster")) return Space::SharedCluster;
  if (d.take("const")) return Space::Const;
  if (d.take("local")) return Space::Local;
  if (d.take("param") || d.take("param::entry") || d.take("param::func")) return Space::Param;
  return Space::Generic;
}
// Hints do not change what an access means; a cache policy is one more operand.
bool take_hints(Decoder &d) {
  bool policy = d.take("L2::cache_hint");
  d.take_prefixed("L1::"), d.take_prefixed("L2::"), d.take_prefixed("L2::");
  d.take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  return policy;
}

template <bool Store> void decode_access(Decoder &d) {
  Space space = take_space(d);
  Strength strength = take_strength(d, Store);
  d.take("nc"), d.take("mmio");
  bool policy = take_hints(d);
  std::string_view vector = d.take_any({"v2", "v4", "v8"});
  Type t = d.take_type();
  int n = vector.empty() ? 1 : vector[1] - '0';
  d.need_operands(policy ? 3 : 2);
  if (policy) d.source(2, Type::B64);
  int bits = type_bits(t);
  if (d.failed()) return;
  if (bits < 8 || bits * n > 256) return d.unsupported();
  constexpr int kAddress = Store ? 0 : 1, kValue = Store ? 1 : 0;
  Decoder::Address a = d.address(d.operand(kAddress), space);
  std::vector<const PtxOperand *> elements = d.elements(kValue);
  if (int(elements.size()) != n) return d.fail("{} elements, the vector has {}", elements.size(), n);
  std::vector<uint32_t> rows;
  int width = 0;
  for (const PtxOperand *o : elements) {
    rows.push_back(Store ? d.source(*o, t, true) : d.destination(*o, t, true));
    int have = d.register_bits(*o);
    if (!have) continue;
    if (width && width != have) d.fail("the elements have different widths");
    width = have;
  }
  if (!width) width = bits;
  if (Store && width == 64 && bits < 64) // an immediate has a row of 32 bits then
    for (const PtxOperand *o : elements)
      if (d.register_bits(*o) == 0) d.fail("an immediate beside 64-bit registers");
  if (space == Space::Param && a.is_local_param) space = Space::Local;
  if (space == Space::Param && Store) d.fail("kernel parameters are read-only");
  d.out.list = d.add_list(rows), d.out.n = uint8_t(n);
  d.out.a = a.row, d.out.imm = a.offset;
  d.out.mode = {uint8_t(space),    uint8_t(bits / 8), type_class(t) == TypeClass::Signed,
                uint8_t(strength), !a.wide,           uint8_t(width <= 16 ? 16 : width)};
  d.out.run = Store ? store : load;
  bool global = space == Space::Global || space == Space::Generic;
  if (!Store && strength != Strength::Weak && global) d.program().orders_blocks = true;
}

void prefetch(Warp &, const Inst &, uint32_t) {}
void decode_prefetch(Decoder &d) {
  Space space = take_space(d);
  bool map = d.take("tensormap");
  d.take_prefixed("L1"), d.take_prefixed("L2");
  d.need_operands(1);
  d.address(d.operand(0), space);
  (void)map;
  d.out.run = prefetch;
}
void policy_value(Warp &w, const Inst &i, uint32_t mask) {
  each_lane(mask, [&](int l) { w.row<uint64_t>(i.d)[l] = 1; });
}
void decode_createpolicy(Decoder &d) {
  if (!d.take("fractional")) return d.unsupported();
  d.take_prefixed("L2::"), d.take_prefixed("L2::");
  d.take_type();
  d.need_operands(1, 2);
  d.out.d = d.destination(0, Type::B64);
  d.out.run = policy_value;
}
void decode_discard(Decoder &d) {
  take_space(d);
  d.take_prefixed("L2");
  d.need_operands(1, 2);
  d.out.run = prefetch;
}
} // namespace

Strength take_strength(Decoder &d, bool store) {
  d.take("weak");
  bool is_volatile = d.take("volatile"), relaxed = d.take("relaxed");
  bool acquire = !store && d.take("acquire"), release = store && d.take("release");
  bool scoped = !d.take_any({"cta", "cluster", "gpu", "sys"}).empty();
  if ((relaxed || acquire || release) && !scoped) d.fail("the scope is missing");
  return acquire                  ? Strength::Acquire
         : release                ? Strength::Release
         : is_volatile || relaxed ? Strength::Relaxed
                                  : Strength::Weak;
}

void register_memory(DecodeTable &t) {
  t.insert(t.end(), {
                        {"ld", decode_access<false>, any_type},
                        {"ldu", decode_access<false>, any_type},
                        {"st", decode_access<true>, any_type},
                        {"prefetch", decode_prefetch, any_type},
                        {"prefetchu", decode_prefetch, any_type},
                        {"createpolicy", decode_createpolicy, any_type},
                        {"applypriority", decode_discard, any_type},
                    });
}

} // namespace tkc::emu

// atom and red. Lanes take effect in ascending order, which is one of the orders that the manual allows.
#include "emu/access.h"
#include "emu/element.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include "emu/strength.h"
#include <atomic>
#include <cstring>

namespace tkc::emu {

namespace {
// mode: 0 space, 1 type, 2 op, 3 strength, 4 address is 32 bits, 5 has a result.
// list: n result rows (if any), n operand rows, n swap rows (cas).
template <typename T, typename F> uint64_t update(uint8_t *at, bool parallel, F next) {
  T old;
  if (!parallel) {
    std::memcpy(&old, at, sizeof old);
    T fresh = T(next(old));
    std::memcpy(at, &fresh, sizeof fresh);
    return old;
  }
  // Blocks on other host threads may be at the same bytes. Only commutative integer operations come here (emu.h).
  std::atomic_ref<T> ref(*reinterpret_cast<T *>(at));
  old = ref.load(std::memory_order_relaxed);
  while (!ref.compare_exchange_weak(old, T(next(old)), std::memory_order_relaxed)) {}
  return old;
}

struct Order {
  bool acquire, release;
};
Order order_of(const Inst &i) {
  Strength s = Strength(i.mode[3]);
  return {s == Strength::Acquire || s == Strength::AcquireRelease,
          s == Strength::Release || s == Strength::AcquireRelease};
}

void atomic(Warp &w, const Inst &i, uint32_t mask) {
  Space space = Space(i.mode[0]);
  Type t = Type(i.mode[1]);
  AtomicOp op = AtomicOp(i.mode[2]);
  int64_t element = type_bytes(t), bytes = element * i.n;
  Order order = order_of(i);
  uint64_t values = mask;
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  const uint32_t *operands = rows + (i.mode[5] ? i.n : 0), *swaps = operands + i.n;
  auto get = [&](uint32_t row, int l) { return element == 8 ? w.row<uint64_t>(row)[l] : w.row<uint32_t>(row)[l]; };
  auto base = [&](int l) { return i.mode[4] ? w.row<uint32_t>(i.a)[l] : w.row<uint64_t>(i.a)[l]; };
  uint32_t told = 0; // lanes that the shadow knows of: those at one address are told together
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    uint64_t address = base(lane) + uint64_t(i.imm);
    Place p = find_place(w, lane, space, address, bytes, bytes, Use::ReadWrite);
    if (!p.bytes) return;
    if (!p.shared_in) {
      note_global(w, lane, p, bytes, Use::ReadWrite);
    } else if (!(told >> lane & 1)) {
      uint32_t same = 0;
      each_lane(m, [&](int l) { same |= uint32_t(base(l) == base(lane)) << l; });
      note_shared(w, same, AccessKind::Atomic, *p.shared_in, p.shared, bytes);
      told |= same;
    }
    strong_read(w, lane, strong_key(p, address), order.acquire);
    bool parallel = p.global && w.block->grid.parallel, flush = p.global != nullptr;
    for (int k = 0; k < i.n; k++) {
      uint64_t operand = get(operands[k], lane), swap = op == AtomicOp::Cas ? get(swaps[k], lane) : 0;
      auto next = [&](uint64_t old) { return atomic_result(op, t, old, operand, swap, flush); };
      uint8_t *at = p.bytes + k * element;
      uint64_t old = element == 8   ? update<uint64_t>(at, parallel, next)
                     : element == 4 ? update<uint32_t>(at, parallel, next)
                                    : update<uint16_t>(at, parallel, next);
      values = values * 31 + old;
      if (!i.mode[5]) continue;
      if (element == 8)
        w.row<uint64_t>(rows[k])[lane] = old;
      else
        w.row<uint32_t>(rows[k])[lane] = uint32_t(old);
    }
    strong_write(w, lane, strong_key(p, address), order.release, true);
  }
  if (i.mode[5]) note_poll(w, values);
}

// atom.{exch, cas}.b128
void atomic_wide(Warp &w, const Inst &i, uint32_t mask) {
  Order order = order_of(i);
  const uint32_t *rows = w.block->grid.program.lists.data() + i.list;
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    uint64_t address = w.row<uint64_t>(i.a)[lane] + uint64_t(i.imm);
    Place p = find_place(w, lane, Space(i.mode[0]), address, 16, 16, Use::ReadWrite);
    if (!p.bytes) return;
    if (p.shared_in)
      note_shared(w, uint32_t(1) << lane, AccessKind::Atomic, *p.shared_in, p.shared, 16);
    else
      note_global(w, lane, p, 16, Use::ReadWrite);
    strong_read(w, lane, strong_key(p, address), order.acquire);
    uint64_t old[2], operand[2], fresh[2];
    std::memcpy(old, p.bytes, 16);
    bool exchange = AtomicOp(i.mode[2]) == AtomicOp::Exch;
    for (int h = 0; h < 2; h++) {
      operand[h] = w.row<uint64_t>(rows[1])[lane + 32 * h];
      fresh[h] = exchange ? operand[h] : w.row<uint64_t>(rows[2])[lane + 32 * h];
    }
    if (exchange || (old[0] == operand[0] && old[1] == operand[1])) std::memcpy(p.bytes, fresh, 16);
    for (int h = 0; h < 2; h++) w.row<uint64_t>(rows[0])[lane + 32 * h] = old[h];
    strong_write(w, lane, strong_key(p, address), order.release, true);
  }
}

template <bool Result> void decode(Decoder &d) {
  Space space = d.take("global")                            ? Space::Global
                : d.take("shared") || d.take("shared::cta") ? Space::Shared
                : d.take("shared::cluster")                 ? Space::SharedCluster
                                                            : Space::Generic;
  Strength strength = d.take("acq_rel")   ? Strength::AcquireRelease
                      : d.take("acquire") ? Strength::Acquire
                      : d.take("release") ? Strength::Release
                                          : (d.take("relaxed"), Strength::Relaxed);
  d.take_any({"cta", "cluster", "gpu", "sys"});
  bool policy = d.take("L2::cache_hint");
  std::string_view name = d.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  std::optional<AtomicOp> op = parse_atomic_op(name);
  std::string_view vector = d.take_any({"v2", "v4", "v8"});
  bool noftz = d.take("noftz");
  Type t = d.take_type();
  if (!op) d.fail("the operation is missing");
  if (d.failed()) return;
  bool wide = t == Type::B128 && Result && (*op == AtomicOp::Exch || *op == AtomicOp::Cas);
  bool small_float = t == Type::F16 || t == Type::BF16 || t == Type::F16x2 || t == Type::BF16x2;
  int n = vector.empty() ? 1 : vector[1] - '0';
  if (!wide && !atomic_fits(*op, t)) return d.unsupported();
  if (noftz != small_float) return d.fail(".noftz belongs to 16-bit floats, and only to them");
  if (n > 1 &&
      (type_class(t) != TypeClass::Float || t == Type::F64 || n * type_bits(t) > 128 || space == Space::Shared))
    return d.unsupported();
  if (!Result && (*op == AtomicOp::Exch || *op == AtomicOp::Cas)) return d.unsupported();
  int sources = *op == AtomicOp::Cas ? 2 : 1, first = Result ? 1 : 0;
  d.need_operands(first + 1 + sources + policy);
  Decoder::Address a = d.address(d.operand(first), space);
  std::vector<uint32_t> rows;
  auto add = [&](int64_t k, bool destination) {
    std::vector<const PtxOperand *> elements = d.elements(k);
    if (int(elements.size()) != n) d.fail("{} elements, the vector has {}", elements.size(), n);
    for (const PtxOperand *o : elements) rows.push_back(destination ? d.destination(*o, t) : d.source(*o, t));
  };
  if (Result) add(0, true);
  for (int k = 0; k < sources; k++) add(first + 1 + k, false);
  d.out.list = d.add_list(rows), d.out.n = uint8_t(n), d.out.a = a.row, d.out.imm = a.offset;
  d.out.mode = {uint8_t(space), uint8_t(t), uint8_t(*op), uint8_t(strength), !a.wide, Result};
  d.out.run = wide ? atomic_wide : atomic;
  bool global = space == Space::Global || space == Space::Generic;
  bool commutes = !Result && type_class(t) != TypeClass::Float && *op != AtomicOp::Inc && *op != AtomicOp::Dec &&
                  strength == Strength::Relaxed;
  if (global && !commutes) d.program().orders_blocks = true;
}
} // namespace

void register_atomic(DecodeTable &t) {
  t.insert(t.end(), {{"atom", decode<true>, any_type}, {"red", decode<false>, any_type}});
}

} // namespace tkc::emu

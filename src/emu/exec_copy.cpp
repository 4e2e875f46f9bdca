// Asynchronous copies: cp.async and its groups, cp.async.mbarrier.arrive, bulk copies and reductions, their groups.
// Tensor copies are in exec_tensor.cpp.
#include "emu/access.h"
#include "emu/copy.h"
#include "emu/element.h"
#include "emu/families.h"
#include "emu/lanes.h"
#include <cstring>

namespace tkc::emu {

namespace {
int32_t thread_of(const Warp &w, int lane) { return w.block->clock_index(w) * 32 + lane; }
uint64_t address(Warp &w, uint32_t row, bool narrow, int64_t offset, int lane) {
  return (narrow ? w.row<uint32_t>(row)[lane] : w.row<uint64_t>(row)[lane]) + uint64_t(offset);
}
} // namespace

void note_copy(Warp &w, int lane, AccessKind kind, Block &in, uint32_t at, int64_t bytes, uint32_t stream,
               uint32_t stamp) {
  const Grid &g = in.grid;
  if (!g.options.check_shared) return;
  Access a{kind, uint16_t(w.block->clock_index(w)), uint32_t(1) << lane, stamp, stream, w.at};
  Shadow::Conflict c = in.shadow.access(in.cluster->clocks, a, at, bytes, g.options.fence_before_overwrite);
  if (c.fault != Shadow::Fault::None) report_conflict(w, lane, kind, in, c);
}

bool find_completion(Warp &w, int lane, Space space, uint64_t where, Completion &c) {
  if (space == Space::Generic) {
    if (where - kSharedWindow >= kWindowBytes) {
      w.error(ErrorKind::OutOfBounds, lane, where,
              fmt::format("the mbarrier at {:#x} does not lie in shared memory", where));
      return false;
    }
    where -= kSharedWindow;
  }
  if (!find_shared(w, lane, where, 8, 8, c.block, c.at)) return false;
  note_shared(w, uint32_t(1) << lane, AccessKind::Barrier, *c.block, c.at, 8);
  if (w.block->stopped) return false;
  c.mbarrier = find_mbarrier(*c.block, c.at, w, lane);
  return c.mbarrier != nullptr;
}

void need_init_fence(Warp &w, int lane, const Completion &c) {
  if (c.mbarrier->unfenced >= 0 && w.block->grid.options.check_shared) {
    w.error(ErrorKind::ProxyFence, lane, generic_shared(*c.block, c.at),
            fmt::format("a copy that completes on the mbarrier at {:#x}, whose initialisation by warp {} lane {} no "
                        "fence.mbarrier_init and no fence.proxy.async of that thread has followed",
                        c.at, c.mbarrier->unfenced / 32 % w.block->grid.warps, c.mbarrier->unfenced % 32));
    c.mbarrier->unfenced = -1;
  }
}

void issue_to_shared(Warp &w, int lane, const Completion &c, int64_t bytes, std::function<void()> write) {
  Copy copy;
  copy.kind = Copy::Kind::ToShared;
  copy.warp = &w, copy.lane = lane, copy.pc = w.at;
  copy.write = std::move(write);
  copy.stamp = c.mbarrier->issued;
  copy.barrier_block = c.block, copy.barrier = c.at, copy.tx = bytes;
  w.block->cluster->async.issue(*w.block->cluster, std::move(copy));
}

void issue_from_shared(Warp &w, int lane, uint32_t stamp, std::function<void()> read, std::function<void()> write) {
  Copy copy;
  copy.kind = Copy::Kind::FromShared;
  copy.warp = &w, copy.lane = lane, copy.pc = w.at;
  copy.read = std::move(read), copy.write = std::move(write);
  copy.stamp = stamp;
  w.block->cluster->async.issue(*w.block->cluster, std::move(copy));
}

uint32_t next_bulk_stamp(Warp &w, int lane, uint32_t &stream) {
  stream = w.block->cluster->clocks.component(Clocks::kBulk, w.block->clock_index(w), lane);
  return ++w.block->cluster->async.thread(thread_of(w, lane)).bulk.issued;
}

namespace {
// ---- cp.async: a destination, b source. mode: 0 destination is 32 bits, 1 size, 2 source size given (c row), 3
// ignore-src predicate given (c slot), 4 it is negated; imm: offset of the destination; list[0]: of the source
void cp_async(Warp &w, const Inst &i, uint32_t mask) {
  int64_t size = i.mode[1], source_offset = int32_t(w.block->grid.program.lists[i.list]);
  Cluster &cluster = *w.block->cluster;
  uint32_t ignore = i.mode[3] ? w.preds[i.c] ^ (i.mode[4] ? ~uint32_t(0) : 0) : 0;
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    int64_t source_size = i.mode[2] ? int64_t(w.row<uint32_t>(i.c)[lane]) : ignore >> lane & 1 ? 0 : size;
    if (source_size > size)
      return w.error(ErrorKind::AsyncMisuse, lane, 0,
                     fmt::format("cp.async of {} bytes with a source size of {}", size, source_size));
    Place to = find_place(w, lane, Space::Shared, address(w, i.a, i.mode[0], i.imm, lane), size, size, Use::Write);
    if (!to.bytes) return;
    Place from;
    if (source_size) {
      from = find_place(w, lane, Space::Global, address(w, i.b, false, source_offset, lane), source_size, 1, Use::Read);
      if (!from.bytes) return;
      note_global(w, lane, from, source_size, Use::Read);
    }
    uint64_t source_address = address(w, i.b, false, source_offset, lane);
    if (source_size && source_address % uint64_t(size))
      return w.error(ErrorKind::Misaligned, lane, source_address,
                     fmt::format("the source {:#x} of cp.async must be a multiple of {}", source_address, size));
    int32_t thread = thread_of(w, lane);
    ThreadCopies &copies = cluster.async.thread(thread);
    uint32_t stamp = ++copies.small.issued;
    note_copy(w, lane, AccessKind::CopyWrite, *to.shared_in, to.shared, size,
              cluster.clocks.component(Clocks::kCopies, w.block->clock_index(w), lane), stamp);
    cluster.async.issue_small(cluster, thread, {to.bytes, from.bytes, uint8_t(size), uint8_t(source_size), stamp});
  }
}

// imm: groups that may stay pending. wait_all also covers copies that belong to no group yet.
template <bool Bulk> void commit(Warp &w, const Inst &, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    ThreadCopies &t = w.block->cluster->async.thread(thread_of(w, lane));
    CopyGroups &g = Bulk ? t.bulk : t.small;
    g.group_ends.push_back(g.issued);
  });
}
// mode[0]: all, mode[1]: .read
template <bool Bulk> void wait_group(Warp &w, const Inst &i, uint32_t mask) {
  Cluster &c = *w.block->cluster;
  each_lane(mask, [&](int lane) {
    int32_t thread = thread_of(w, lane);
    ThreadCopies &t = c.async.thread(thread);
    CopyGroups &g = Bulk ? t.bulk : t.small;
    std::deque<uint32_t> &ends = g.group_ends;
    int64_t over = int64_t(ends.size()) - i.imm;
    uint32_t stamp = i.mode[0] ? g.issued : over > 0 ? ends[size_t(over - 1)] : 0;
    bool ends_life = !i.mode[1]; // .read does not end a group's life
    if (i.mode[0])
      ends.clear();
    else if (over > 0 && ends_life)
      ends.erase(ends.begin(), ends.begin() + over);
    if (!stamp) return;
    if (Bulk)
      c.async.complete_bulk(thread, stamp, i.mode[1]);
    else
      c.async.complete_small(thread, stamp);
    c.clocks.learn_own(w.block->clock_index(w), lane, Bulk ? Clocks::kBulk : Clocks::kCopies, stamp);
  });
}

// cp.async.mbarrier.arrive: a address, mode: 0 32 bits, 1 .noinc, 2 generic
void arrive_copies(Warp &w, const Inst &i, uint32_t mask) {
  Cluster &cluster = *w.block->cluster;
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    Completion c;
    if (!find_completion(w, lane, i.mode[2] ? Space::Generic : Space::Shared, address(w, i.a, i.mode[0], i.imm, lane),
                         c))
      return;
    if (!i.mode[1] && ++c.mbarrier->pending > kMostArrivals)
      return w.error(ErrorKind::MbarrierMisuse, lane, generic_shared(*c.block, c.at),
                     "the pending count exceeds 2^20-1");
    Copy copy;
    copy.kind = Copy::Kind::ArriveCopies;
    copy.warp = &w, copy.lane = lane, copy.pc = w.at;
    copy.stamp = cluster.async.thread(thread_of(w, lane)).small.issued;
    copy.barrier_block = c.block, copy.barrier = c.at;
    cluster.async.issue(cluster, std::move(copy));
    if (w.block->stopped) return;
  }
}

// ---- bulk copies. a destination, b source, c size; list: mbarrier row. mode: 0 direction, 1 narrow addresses (bits:
// destination, source, mbarrier), 2 op + 1 (0 = copy), 3 type, 4 mbarrier space; imm destination offset; e: offsets
// list
enum class Direction : uint8_t { GlobalToShared, SharedToShared, SharedToGlobal, Prefetch };
void bulk(Warp &w, const Inst &i, uint32_t mask) {
  const uint32_t *list =
      w.block->grid.program.lists.data() + i.list; // mbarrier row, source offset, mbarrier offset, mask row
  Direction direction = Direction(i.mode[0]);
  for (uint32_t m = mask; m; m &= m - 1) {
    int lane = first_lane(m);
    int64_t size = w.row<uint32_t>(i.c)[lane];
    if (size % 16)
      return w.error(ErrorKind::AsyncMisuse, lane, 0,
                     fmt::format("a bulk copy of {} bytes, not a multiple of 16", size));
    uint64_t to = address(w, i.a, i.mode[1] & 1, i.imm, lane),
             from = address(w, i.b, i.mode[1] & 2, int32_t(list[1]), lane);
    if (direction == Direction::Prefetch || size == 0) continue;
    bool from_global = direction == Direction::GlobalToShared, to_global = direction == Direction::SharedToGlobal;
    Use write = i.mode[2] ? Use::ReadWrite : Use::Write;
    Place source, destination;
    source = find_place(w, lane, from_global ? Space::Global : Space::Shared, from, size, 16, Use::Read);
    if (!source.bytes) return;
    destination = find_place(w, lane, to_global ? Space::Global : Space::SharedCluster, to, size, 16, write);
    if (!destination.bytes) return;
    std::function<void(uint8_t *, const uint8_t *)> put = [size](uint8_t *d, const uint8_t *s) {
      std::memcpy(d, s, size_t(size));
    };
    if (i.mode[2]) put = make_reduction(AtomicOp(i.mode[2] - 1), Type(i.mode[3]), size);
    uint8_t *d = destination.bytes;
    const uint8_t *s = source.bytes;
    if (from_global) note_global(w, lane, source, size, Use::Read);
    if (to_global) {
      note_global(w, lane, destination, size, write);
      uint32_t stream, stamp = next_bulk_stamp(w, lane, stream);
      note_copy(w, lane, AccessKind::AsyncRead, *source.shared_in, source.shared, size, stream, stamp);
      auto taken = std::make_shared<std::vector<uint8_t>>();
      issue_from_shared(
          w, lane, stamp, [taken, s, size] { taken->assign(s, s + size); }, [taken, d, put] { put(d, taken->data()); });
      continue;
    }
    Completion c;
    if (!find_completion(w, lane, Space(i.mode[4]), address(w, list[0], i.mode[1] & 4, int32_t(list[2]), lane), c))
      return;
    need_init_fence(w, lane, c);
    uint32_t stamp = ++c.mbarrier->issued;
    c.mbarrier->in_flight.insert(stamp);
    if (!from_global)
      note_copy(w, lane, AccessKind::AsyncRead, *source.shared_in, source.shared, size, c.mbarrier->stream, stamp);
    note_copy(w, lane, AccessKind::AsyncWrite, *destination.shared_in, destination.shared, size, c.mbarrier->stream,
              stamp);
    issue_to_shared(w, lane, c, size, [d, s, put] { put(d, s); });
    if (w.block->stopped) return;
  }
}

// ---- decoding
uint32_t offset_word(int64_t offset) { return uint32_t(int32_t(offset)); }

void decode_cp_async(Decoder &d) {
  bool cg = d.take("cg");
  if (!cg && !d.take("ca")) return d.unsupported();
  std::string_view to_space = d.take_first({"shared", "shared::cta", "global"}),
                   from_space = d.take_first({"shared", "shared::cta", "global"});
  bool good = to_space.starts_with("shared") && from_space == "global";
  bool policy = d.take("L2::cache_hint");
  d.take_prefixed("L2::");
  if (!good) return d.unsupported();
  d.need_operands(policy ? 4 : 3, policy ? 5 : 4);
  Decoder::Address to = d.address(d.operand(0), Space::Shared), from = d.address(d.operand(1), Space::Global);
  const PtxOperand &size = d.operand(2);
  int64_t bytes = size.kind == PtxOperand::Kind::Integer ? int64_t(size.bits) : 0;
  if (bytes != 16 && (cg || (bytes != 4 && bytes != 8))) d.fail("the size must be {}", cg ? "16" : "4, 8 or 16");
  d.out.a = to.row, d.out.imm = to.offset, d.out.b = from.row, d.out.list = d.add_list({offset_word(from.offset)});
  d.out.mode[0] = !to.wide, d.out.mode[1] = uint8_t(bytes);
  if (policy) d.source(d.operand_count() - 1, Type::B64);
  if (d.operand_count() - policy == 4 && !d.failed()) {
    const PtxOperand &o = d.operand(3);
    bool predicate = o.kind == PtxOperand::Kind::Register && d.register_type(o) == Type::Pred, negated = false;
    d.out.mode[2] = !predicate, d.out.mode[3] = predicate;
    d.out.c = predicate ? uint32_t(d.predicate(o, negated)) : d.source(o, Type::B32);
    d.out.mode[4] = negated;
  }
  d.out.run = cp_async;
}

bool decode_groups(Decoder &d, bool bulk) {
  if (d.take("commit_group")) {
    d.need_operands(0);
    d.out.run = bulk ? commit<true> : commit<false>;
    return true;
  }
  bool all = d.take("wait_all");
  if (!all && !d.take("wait_group")) return false;
  d.out.mode[0] = all, d.out.mode[1] = bulk && d.take("read");
  d.need_operands(all ? 0 : 1);
  if (!all) {
    const PtxOperand &n = d.operand(0);
    if (n.kind != PtxOperand::Kind::Integer || n.bits > 1 << 20) d.fail("the number of groups must be a constant");
    d.out.imm = int64_t(n.bits);
  }
  d.out.run = bulk ? wait_group<true> : wait_group<false>;
  return true;
}

void decode_bulk(Decoder &d) {
  if (decode_groups(d, true)) return;
  if (d.take("prefetch")) {
    if (d.take("tensor")) return decode_tensor_prefetch(d);
    bool good = d.take("L2") && d.take("global");
    bool policy = d.take("L2::cache_hint");
    if (!good) return d.unsupported();
    d.need_operands(policy ? 3 : 2);
    Decoder::Address from = d.address(d.operand(0), Space::Global);
    d.out.a = d.out.b = from.row, d.out.c = d.source(1, Type::B32);
    d.out.list = d.add_list({0, 0, 0});
    d.out.mode[0] = uint8_t(Direction::Prefetch);
    d.out.run = bulk;
    return;
  }
  if (d.take("tensor")) return decode_tensor(d, std::nullopt);
  d.unsupported();
}

// The remaining forms share their operands: [dst], [src], size {, [mbar]} {, policy}.
void decode_bulk_copy(Decoder &d, bool reduce) {
  bool complete_tx = d.take("mbarrier::complete_tx::bytes"), group = d.take("bulk_group");
  bool policy = d.take("L2::cache_hint");
  if (d.has("multicast::cluster") || d.has("cp_mask")) return d.unsupported();
  // Destination first, then source, as they stand.
  bool to_global = false, to_shared = false, from_shared = false;
  std::string_view first = d.take_first({"global", "shared::cta", "shared::cluster"});
  std::string_view second = d.take_first({"global", "shared::cta", "shared::cluster"});
  to_global = first == "global", to_shared = !first.empty() && !to_global, from_shared = second == "shared::cta";
  Direction direction = to_global     ? Direction::SharedToGlobal
                        : from_shared ? Direction::SharedToShared
                                      : Direction::GlobalToShared;
  bool good = to_global ? from_shared && group && !complete_tx : to_shared && !second.empty() && complete_tx && !group;
  if (!good || second == "shared::cluster") return d.unsupported();
  if (reduce) {
    std::string_view name = d.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
    bool noftz = d.take("noftz");
    Type t = d.take_type();
    std::optional<AtomicOp> op = parse_atomic_op(name);
    if (d.failed() || !op || !atomic_fits(*op, t)) return d.unsupported();
    bool half_add = *op == AtomicOp::Add && (t == Type::F16 || t == Type::BF16);
    if (noftz != half_add) return d.fail(".noftz belongs to .add of 16-bit floats, and only there");
    d.out.mode[2] = uint8_t(*op) + 1, d.out.mode[3] = uint8_t(t);
  }
  d.need_operands(3 + complete_tx + policy);
  Decoder::Address to = d.address(d.operand(0), to_global ? Space::Global : Space::SharedCluster);
  Decoder::Address from = d.address(d.operand(1), from_shared ? Space::Shared : Space::Global);
  d.out.c = d.source(2, Type::B32);
  Decoder::Address bar;
  if (complete_tx) bar = d.address(d.operand(3), Space::SharedCluster);
  if (policy) d.source(d.operand_count() - 1, Type::B64);
  d.out.a = to.row, d.out.imm = to.offset, d.out.b = from.row;
  d.out.list = d.add_list({bar.row, offset_word(from.offset), offset_word(bar.offset)});
  d.out.mode[0] = uint8_t(direction);
  d.out.mode[1] = uint8_t(int(!to.wide) | int(!from.wide) << 1 | int(!bar.wide) << 2);
  d.out.mode[4] = uint8_t(Space::SharedCluster);
  d.out.run = bulk;
}

void decode(Decoder &d) {
  d.program().uses_copies = true;
  bool reduce = d.take("reduce");
  if (!d.take("async")) return d.unsupported();
  if (d.take("bulk")) {
    if (reduce) {
      if (!d.take("tensor")) return decode_bulk_copy(d, true);
      std::string_view name = d.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
      std::optional<AtomicOp> op = parse_atomic_op(name);
      if (!op) return d.unsupported();
      return decode_tensor(d, op);
    }
    if (d.has("commit_group") || d.has("wait_group") || d.has("prefetch") || d.has("tensor")) return decode_bulk(d);
    return decode_bulk_copy(d, false);
  }
  if (reduce) return d.unsupported();
  if (d.take("mbarrier")) {
    if (!d.take("arrive")) return d.unsupported();
    d.out.mode[1] = d.take("noinc");
    bool shared = d.take("shared") || d.take("shared::cta");
    if (!d.take("b64")) d.fail(".b64 is missing");
    d.need_operands(1);
    Decoder::Address a = d.address(d.operand(0), shared ? Space::Shared : Space::Generic);
    d.out.a = a.row, d.out.imm = a.offset, d.out.mode[0] = !a.wide, d.out.mode[2] = !shared;
    d.out.run = arrive_copies;
    return;
  }
  if (decode_groups(d, false)) return;
  decode_cp_async(d);
}
} // namespace

std::function<void(uint8_t *, const uint8_t *)> make_reduction(AtomicOp op, Type t, int64_t bytes) {
  int64_t element = type_bytes(t);
  return [=](uint8_t *to, const uint8_t *from) {
    for (int64_t k = 0; k < bytes; k += element) {
      uint64_t old = 0, operand = 0;
      std::memcpy(&old, to + k, size_t(element));
      std::memcpy(&operand, from + k, size_t(element));
      uint64_t fresh = atomic_result(op, t, old, operand, 0, false);
      std::memcpy(to + k, &fresh, size_t(element));
    }
  };
}

void register_copy(DecodeTable &t) { t.push_back({"cp", decode, any_type}); }

} // namespace tkc::emu

#include "emu/access.h"
#include <algorithm>
#include <cstring>

namespace tkc::emu {

namespace {
std::string_view verb(Use use) { return use == Use::Read ? "read" : use == Use::Write ? "write" : "update"; }

std::string near_shared(const Block &b, uint32_t address) {
  for (const SharedVar &v : b.grid.program.shared) {
    int64_t bytes = v.dynamic ? b.grid.launch.dynamic_shared : v.bytes, end = v.offset + bytes;
    if (int64_t(address) >= v.offset && int64_t(address) < end)
      return fmt::format("{} + {} (of {} bytes)", v.name, address - v.offset, bytes);
    if (int64_t(address) >= end && int64_t(address) < end + 64)
      return fmt::format("{} bytes past the end of {} ({} bytes)", address - end, v.name, bytes);
  }
  return fmt::format("shared address {:#x}", address);
}
std::string line_of(const Block &b, int32_t pc) {
  const Position &p = b.grid.program.where[size_t(pc)];
  const std::vector<std::string> &files = b.grid.module.ptx.files;
  if (p.file > 0 && size_t(p.file) < files.size() && p.source_line)
    return fmt::format("PTX line {} ({}:{})", p.line, files[size_t(p.file)], p.source_line);
  return fmt::format("PTX line {}", p.line);
}
} // namespace

bool find_shared(Warp &w, int lane, uint64_t address, int64_t bytes, int64_t align, Block *&in, uint32_t &own) {
  Block &b = *w.block;
  in = &b;
  own = uint32_t(address) & 0xffffff;
  uint64_t rank = address >> 24;
  if (rank > 0) in = rank - 1 < b.cluster->blocks.size() ? b.cluster->blocks[size_t(rank - 1)].get() : nullptr;
  uint64_t generic = kSharedWindow + address;
  if (!in) {
    w.error(ErrorKind::OutOfBounds, lane, generic,
            fmt::format("shared address {:#x} belongs to no CTA of the cluster", address));
    return false;
  }
  if (in != &b && in->exited()) {
    w.error(ErrorKind::OutOfBounds, lane, generic,
            fmt::format("the CTA {} of the cluster, whose shared memory this is, has ended", in->rank));
    return false;
  }
  bool inside = false;
  for (const SharedVar &v : b.grid.program.shared) {
    int64_t size = v.dynamic ? b.grid.launch.dynamic_shared : v.bytes;
    inside |= int64_t(own) >= v.offset && int64_t(own) + bytes <= v.offset + size;
  }
  if (!inside) {
    w.error(ErrorKind::OutOfBounds, lane, generic,
            fmt::format("access to {} bytes of shared memory: {}", bytes, near_shared(b, own)));
    return false;
  }
  if (own % uint64_t(align)) {
    w.error(ErrorKind::Misaligned, lane, generic,
            fmt::format("the shared address {:#x} ({}) must be a multiple of {}", own, near_shared(b, own), align));
    return false;
  }
  return true;
}

Place find_place(Warp &w, int lane, Space space, uint64_t address, int64_t bytes, int64_t align, Use use) {
  Block &b = *w.block;
  const Grid &g = b.grid;
  uint64_t generic = address;
  if (space == Space::Generic) {
    space = address < kSharedWindow  ? Space::Global
            : address < kLocalWindow ? Space::SharedCluster
            : address < kParamWindow ? Space::Local
                                     : Space::Param;
    address -= space == Space::Global          ? 0
               : space == Space::SharedCluster ? kSharedWindow
               : space == Space::Local         ? kLocalWindow
                                               : kParamWindow;
  } else if (space == Space::Local) {
    generic += kLocalWindow;
  } else if (space == Space::Param) {
    generic += kParamWindow;
  }
  Place p;
  if (space == Space::Shared || space == Space::SharedCluster) {
    uint32_t own;
    Block *in;
    if (space == Space::Shared && address >> 24 && address >> 24 != uint64_t(b.rank) + 1) {
      w.error(ErrorKind::OutOfBounds, lane, kSharedWindow + address,
              fmt::format("{:#x} is no address of the own CTA's shared memory", address));
      return {};
    }
    if (!find_shared(w, lane, address, bytes, align, in, own)) return {};
    return {in->shared.data() + own, in, own, nullptr};
  }
  if (address % uint64_t(align)) {
    w.error(ErrorKind::Misaligned, lane, generic,
            fmt::format("{} of {} bytes: the {} address {:#x} must be a multiple of {}", verb(use), bytes,
                        space_name(space), address, align));
    return {};
  }
  if (space == Space::Local) {
    int64_t size = g.program.local_bytes;
    if (address + uint64_t(bytes) <= uint64_t(size) && address < uint64_t(size))
      return {w.local + lane * size + address};
    w.error(ErrorKind::OutOfBounds, lane, generic,
            fmt::format("{} of {} bytes of local memory at {:#x}, of {} bytes", verb(use), bytes, address, size));
    return {};
  }
  if (space == Space::Param) {
    const std::vector<uint8_t> &params = g.launch.params;
    if (use == Use::Read && address < params.size() && address + uint64_t(bytes) <= params.size())
      return {const_cast<uint8_t *>(params.data()) + address};
    w.error(
        use == Use::Read ? ErrorKind::OutOfBounds : ErrorKind::ReadOnly, lane, generic,
        fmt::format("{} of {} bytes of the parameters at {}, of {} bytes", verb(use), bytes, address, params.size()));
    return {};
  }
  Allocation *a = w.last_allocation;
  if (!a || address - a->address >= uint64_t(a->bytes)) a = w.last_allocation = g.memory.find(address);
  if (!a || address - a->address + uint64_t(bytes) > uint64_t(a->bytes) || (space == Space::Const && !a->constant)) {
    // The first byte outside is what the message is about.
    uint64_t bad = a ? a->address + uint64_t(a->bytes) : address;
    w.error(ErrorKind::OutOfBounds, lane, address,
            fmt::format("{} of {} bytes of {} memory at {:#x}: {}", verb(use), bytes, space_name(space), address,
                        a && !(space == Space::Const && !a->constant)
                            ? fmt::format("reaches {} bytes past the end of {} ({} bytes)",
                                          address + uint64_t(bytes) - bad, a->name, a->bytes)
                            : g.memory.describe(address)));
    return {};
  }
  if (use != Use::Read && (a->readonly || a->constant)) {
    w.error(ErrorKind::ReadOnly, lane, address,
            fmt::format("{} of {} bytes of {}, which is read-only", verb(use), bytes, a->name));
    return {};
  }
  if (g.launch.overlaps && !(w.waited >> lane & 1) && !a->readonly && !a->constant)
    w.error(ErrorKind::Dependency, lane, address,
            fmt::format("{} of {} before griddepcontrol.wait: the launch before may still {} it", verb(use), a->name,
                        use == Use::Read ? "write" : "use"));
  p.bytes = a->host + (address - a->address);
  p.global = a;
  return p;
}

static void note_race(Warp &w, int lane, const Place &place, int64_t bytes, Use use, bool strong, const uint8_t *data) {
  Allocation *a = place.global;
  Cluster &cluster = *w.block->cluster;
  int32_t warp = w.block->clock_index(w);
  AccessKind kind = strong || use == Use::ReadWrite ? AccessKind::Atomic
                    : use == Use::Read              ? AccessKind::Read
                                                    : AccessKind::Write;
  Access access{kind, uint16_t(warp), uint32_t(1) << lane, cluster.clocks.now(warp), 0, w.at};
  uint64_t address = a->address + uint64_t(place.bytes - a->host);
  bool unchanged = data && std::memcmp(place.bytes, data, size_t(bytes)) == 0;
  Shadow::Conflict c = cluster.global_shadow.access(cluster.clocks, access, address, bytes, data, unchanged);
  if (c.fault != Shadow::Fault::Race) return;
  const Access &o = c.other;
  // Lanes of one store at one place: the value of one of them stays.
  if (kind == AccessKind::Write && o.kind == kind && o.pc == w.at && o.warp == access.warp && o.stamp == access.stamp)
    return;
  bool same_warp = o.warp == access.warp;
  w.error(ErrorKind::GlobalRace, lane, address,
          fmt::format("{} of {} is not ordered after the {} by warp {} lane {} at {}: {} between them", verb(use),
                      w.block->grid.memory.describe(address + uint64_t(c.offset)),
                      o.kind == AccessKind::Read ? "read" : "write", o.warp % w.block->grid.warps, first_lane(o.lanes),
                      line_of(*w.block, o.pc), same_warp ? "no bar.warp.sync" : "no barrier"));
}

void note_global(Warp &w, int lane, const Place &place, int64_t bytes, Use use, bool strong, const uint8_t *data) {
  Allocation *a = place.global;
  if (!a) return;
  if (!a->readonly && !a->constant && w.block->grid.options.check_global)
    note_race(w, lane, place, bytes, use, strong, data);
  if (a->written.empty()) return;
  int64_t at = place.bytes - a->host;
  auto first = a->written.begin() + at;
  if (use != Use::Write) {
    auto unwritten = std::find(first, first + bytes, uint8_t(0));
    if (unwritten != first + bytes)
      w.error(ErrorKind::UninitialisedGlobal, lane, a->address + uint64_t(at),
              fmt::format("byte {} of {} is read and was never written", unwritten - a->written.begin(), a->name));
  }
  if (use != Use::Read) std::fill(first, first + bytes, uint8_t(1));
}

void report_conflict(Warp &w, int lane, AccessKind kind, Block &in, const Shadow::Conflict &c) {
  uint32_t address = uint32_t(c.offset);
  std::string where = near_shared(in, address);
  const Access &o = c.other;
  std::string other =
      o.lanes ? fmt::format("warp {} lane {} at {}", o.warp % in.grid.warps, first_lane(o.lanes), line_of(in, o.pc))
              : "";
  bool reads = kind == AccessKind::Read || kind == AccessKind::AsyncRead;
  bool other_reads = o.kind == AccessKind::Read || o.kind == AccessKind::AsyncRead;
  std::string_view what = reads ? "read" : kind == AccessKind::Barrier ? "mbarrier access" : "write";
  ErrorKind error = ErrorKind::SharedRace;
  std::string text;
  switch (c.fault) {
  case Shadow::Fault::None: return;
  case Shadow::Fault::Uninitialised:
    error = ErrorKind::UninitialisedShared;
    text = fmt::format("{} of shared memory that was never written: {}", what, where);
    break;
  case Shadow::Fault::Race: {
    bool same_warp = o.warp == uint32_t(w.block->clock_index(w)) && o.lanes != 0;
    text = fmt::format("{} of {} is not ordered after the {} by {}: {} between them", what, where,
                       o.kind == AccessKind::BarrierInit ? "mbarrier.init"
                       : other_reads                     ? "read"
                                                         : "write",
                       other, same_warp ? "no bar.warp.sync" : "no barrier");
    break;
  }
  case Shadow::Fault::InFlight:
    error = ErrorKind::InFlight;
    text = fmt::format("{} of {}, which the copy issued by {} may still {}: nothing here waits for its completion",
                       what, where, other, other_reads ? "read" : "write");
    break;
  case Shadow::Fault::ProxyFence:
    error = ErrorKind::ProxyFence;
    text = fmt::format("asynchronous {} of {} after a generic {} by {} without fence.proxy.async between them", what,
                       where, other_reads ? "read" : "write", other);
    break;
  case Shadow::Fault::Object:
    error = ErrorKind::MbarrierMisuse;
    text = kind == AccessKind::BarrierInit
               ? fmt::format(
                     "mbarrier.init of {}, where an mbarrier initialised by {} still lives (mbarrier.inval is missing)",
                     where, other)
               : fmt::format("ordinary {} of {}, where an mbarrier lives", what, where);
    break;
  case Shadow::Fault::NoObject:
    error = ErrorKind::MbarrierMisuse;
    text = fmt::format("{} is no initialised mbarrier", where);
    break;
  }
  w.error(error, lane, generic_shared(in, address), text);
}

void note_shared(Warp &w, uint32_t lanes, AccessKind kind, Block &in, uint32_t address, int64_t bytes) {
  const Grid &g = in.grid;
  if (!g.options.check_shared) return;
  Clocks &clocks = in.cluster->clocks;
  int32_t warp = w.block->clock_index(w);
  Access a{kind, uint16_t(warp), lanes, clocks.now(warp), 0, w.at};
  Shadow::Conflict c = in.shadow.access(clocks, a, address, bytes, g.options.fence_before_overwrite);
  if (c.fault != Shadow::Fault::None) report_conflict(w, first_lane(lanes), kind, in, c);
}

uint64_t strong_key(const Place &place, uint64_t address) {
  return place.shared_in ? generic_shared(*place.shared_in, place.shared) : address;
}

void note_poll(Warp &w, uint64_t values) {
  for (auto &[pc, last] : w.polled) {
    if (pc != w.at) continue;
    if (last != values) {
      last = values;
      w.stale_polls = 0;
    } else if (++w.stale_polls % 16 == 0) {
      w.quantum = 0;
      w.block->cluster->polls++;
    }
    return;
  }
  if (w.polled.size() >= 16) w.polled.clear();
  w.polled.push_back({w.at, values});
  w.stale_polls = 0;
}

void strong_read(Warp &w, int lane, uint64_t key, bool acquire) {
  Cluster &c = *w.block->cluster;
  auto at = c.sync_views.find(key);
  if (at == c.sync_views.end()) return;
  int32_t warp = w.block->clock_index(w);
  if (acquire)
    c.clocks.acquire(warp, uint32_t(1) << lane, w.live, at->second);
  else
    c.clocks.note_relaxed(warp, lane, at->second);
}

void strong_write(Warp &w, int lane, uint64_t key, bool release, bool read_modify_write) {
  Cluster &c = *w.block->cluster;
  c.progress++;
  int32_t warp = w.block->clock_index(w);
  const View *fenced = c.clocks.fence_view(warp, lane);
  if (!release && !fenced) { // nothing to hand over; a plain store ends what was
    if (!read_modify_write) c.sync_views.erase(key);
    return;
  }
  View &v = c.sync_views[key];
  if (!read_modify_write) v = View();
  if (fenced) v.join(*fenced);
  if (release) c.clocks.release(warp, uint32_t(1) << lane, v);
}

} // namespace tkc::emu

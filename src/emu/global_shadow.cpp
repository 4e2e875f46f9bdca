#include "emu/global_shadow.h"
#include <algorithm>

namespace tkc::emu {

Shadow::Conflict GlobalShadow::access(const Clocks &clocks, const Access &a, uint64_t address, int64_t bytes,
                                      const uint8_t *data, bool unchanged) {
  Shadow::Conflict found;
  bool reads = a.kind == AccessKind::Read, writes = a.kind == AccessKind::Write;
  for (int64_t done = 0; done < bytes;) {
    auto at = int64_t((address + uint64_t(done)) % uint64_t(kPageBytes));
    int64_t n = std::min(bytes - done, kPageBytes - at);
    auto [it, fresh] = pages_.try_emplace((address + uint64_t(done)) / uint64_t(kPageBytes));
    Page &page = it->second;
    if (fresh) page.shadow = shadow_.append(kPageBytes);
    Shadow::Conflict c = shadow_.access(clocks, a, page.shadow + at, n, false);
    bool equal_writes = unchanged && writes && c.fault == Shadow::Fault::Race && c.other.kind == AccessKind::Write;
    if (found.fault == Shadow::Fault::None && c.fault != Shadow::Fault::None && !equal_writes)
      found = c, found.offset = c.offset - page.shadow - at + done;
    if (reads && page.read.none()) page.read_pc = a.pc;
    if (!reads && page.written.none() && page.updated.none()) page.write_pc = a.pc;
    for (int64_t k = 0; k < n; k++) {
      (reads ? page.read : writes ? page.written : page.updated).set(size_t(at + k));
      if (writes && data) page.value[size_t(at + k)] = data[done + k];
    }
    done += n;
  }
  return found;
}

std::optional<ClusterRaces::Race> ClusterRaces::add(int64_t cluster, const GlobalShadow::Pages &pages) {
  std::optional<Race> found;
  for (const auto &[number, p] : pages) {
    auto [it, fresh] = pages_.try_emplace(number, Merged{p, cluster, cluster});
    if (fresh) continue;
    Merged &m = it->second;
    GlobalShadow::Page &q = m.page;
    // A value that both write is no race.
    auto both = p.written & q.written;
    for (size_t k = 0; k < size_t(GlobalShadow::kPageBytes); k++)
      if (both[k] && p.value[k] == q.value[k]) both.reset(k);
    auto late_read = p.read & (q.written | q.updated), early_read = q.read & (p.written | p.updated);
    auto mixed = (p.written & q.updated) | (p.updated & q.written);
    auto race = both | late_read | early_read | mixed;
    for (size_t k = 0; k < size_t(GlobalShadow::kPageBytes) && !found && race.any(); k++) {
      if (!race[k]) continue;
      bool reads = late_read[k];
      found = Race{number * uint64_t(GlobalShadow::kPageBytes) + k,
                   cluster,
                   early_read[k] && !reads ? m.reader : m.writer,
                   reads,
                   reads ? p.read_pc : p.write_pc,
                   early_read[k] && !reads ? q.read_pc : q.write_pc};
    }
    if (q.read.none() && p.read.any()) m.reader = cluster, q.read_pc = p.read_pc;
    if (q.written.none() && q.updated.none() && (p.written.any() || p.updated.any()))
      m.writer = cluster, q.write_pc = p.write_pc;
    for (size_t k = 0; k < size_t(GlobalShadow::kPageBytes); k++)
      if (p.written[k]) q.value[k] = p.value[k];
    q.read |= p.read, q.written |= p.written, q.updated |= p.updated;
  }
  return found;
}

} // namespace tkc::emu

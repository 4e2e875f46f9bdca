// Shadow of global memory that the kernel may write: accesses of one cluster that no synchronisation orders, and a
// record of what the cluster touched, from which races with other clusters are found once all have run. So what is
// found does not depend on which blocks ran at the same time.
#pragma once
#include "emu/shadow.h"
#include <array>
#include <bitset>
#include <map>
#include <optional>

namespace tkc::emu {

class GlobalShadow {
public:
  static constexpr int64_t kPageBytes = 256;
  // What one cluster did to a page of memory.
  struct Page {
    int64_t shadow = 0;                             // of its first byte in the cluster's shadow
    std::bitset<kPageBytes> read, written, updated; // plain, plain, atomic or strong
    std::array<uint8_t, kPageBytes> value{};        // last written
    int32_t read_pc = 0, write_pc = 0;              // the first of each
  };
  using Pages = std::map<uint64_t, Page>; // by address / kPageBytes

  // Notes an access and gives its first conflict within the cluster; the offset is from `address`. `data`: what is
  // written (null: unknown). Writes of the bytes that are there already do not race with other writes: one of several
  // equal values stays.
  Shadow::Conflict access(const Clocks &clocks, const Access &a, uint64_t address, int64_t bytes, const uint8_t *data,
                          bool unchanged);
  Pages take_pages() { return std::move(pages_); }

private:
  Shadow shadow_{0};
  Pages pages_;
};

// Merges the pages of clusters in the order of their numbers.
class ClusterRaces {
public:
  struct Race {
    uint64_t address = 0;
    int64_t cluster = 0, other = 0; // the later and the earlier one
    bool reads = false;             // `cluster` reads there and `other` writes
    int32_t pc = 0, other_pc = 0;
  };
  // The first race of this cluster with those before it.
  std::optional<Race> add(int64_t cluster, const GlobalShadow::Pages &pages);

private:
  struct Merged {
    GlobalShadow::Page page;
    int64_t reader = 0, writer = 0; // clusters that did it first
  };
  std::map<uint64_t, Merged> pages_;
};

} // namespace tkc::emu

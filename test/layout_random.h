// Random layouts for property tests: seeded, with odd extents, mixed vectors and replication.
#pragma once
#include "layout/f2.h"
#include "layout/fragments.h"
#include "layout/reg_layout.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <numeric>
#include <random>

// A check inside a hot loop: counted by doctest only when it fails.
#define CHECK_EACH(...)                                                                                                \
  do {                                                                                                                 \
    if (!(__VA_ARGS__)) FAIL_CHECK(#__VA_ARGS__);                                                                      \
  } while (0)

namespace tkc::test {

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  int64_t below(int64_t n) { return int64_t(engine() % uint64_t(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename V> void shuffle(V &v) {
    for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[size_t(below(int64_t(i)))]);
  }
};

inline std::vector<int64_t> random_shape(Random &rng, int max_bits) {
  std::vector<int64_t> shape;
  int rank = int(rng.below(4));
  for (int d = 0; d < rank && max_bits > 0; d++) {
    int b = int(rng.below(std::min(max_bits, 7) + 1));
    max_bits -= b;
    int64_t n = int64_t(1) << b;
    if (rng.chance(50) && n > 2) n = n / 2 + 1 + rng.below(n / 2); // any extent that is padded to n
    shape.push_back(n);
  }
  return shape;
}

// A valid layout of the shape: unit vectors (or, with `mixed`, sums of them) dealt out to register, lane and warp bits,
// the places that are left over replicated by zero vectors or, with `mixed`, by dependent ones.
inline RegLayout random_layout(Random &rng, std::vector<int64_t> shape, int warp_bits, bool mixed) {
  RegLayout l{std::move(shape), {}, {}, {}};
  int bits = l.space().bits;
  std::vector<uint32_t> vectors;
  for (int b = 0; b < bits; b++) vectors.push_back(1u << b);
  rng.shuffle(vectors);
  if (mixed)
    for (int i = 0; i < bits; i++) {
      size_t a = size_t(rng.below(bits)), b = size_t(rng.below(bits));
      if (a != b) vectors[a] ^= vectors[b];
    }
  std::vector<uint32_t> threads; // lanes and warps
  int thread_bits = lane_bits + warp_bits;
  int replicated = std::max(int64_t(thread_bits - bits), rng.chance(40) ? rng.below(4) : 0);
  replicated = std::min(replicated, thread_bits);
  auto copy = [&] { return mixed && rng.chance(40) && bits ? uint32_t(rng.below(int64_t(1) << bits)) : 0u; };
  for (int i = 0; i < replicated; i++) threads.push_back(copy());
  while (int(threads.size()) < thread_bits) threads.push_back(vectors.back()), vectors.pop_back();
  rng.shuffle(threads);
  l.lane.assign(threads.begin(), threads.begin() + lane_bits);
  l.warp.assign(threads.begin() + lane_bits, threads.end());
  l.reg = vectors;
  if (rng.chance(20)) l.reg.push_back(copy());
  rng.shuffle(l.reg);
  return l;
}

// Layouts as a compiler would choose them: coalesced, and every role of every mma shape.
inline std::vector<RegLayout> natural_layouts(Random &rng, const std::vector<int64_t> &shape, int64_t warps) {
  std::vector<RegLayout> all;
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  all.push_back(blocked(shape, order, int64_t(1) << rng.below(4), warps));
  if (shape.size() == 2) {
    for (const MmaShape &m : mma_shapes())
      for (Role role : {Role::A, Role::B, Role::C}) {
        WarpTiling t{rng.chance(50) ? warps : 1, 1, 1, rng.chance(30)};
        t.warps_n = warps / t.warps_m;
        if (rng.chance(40)) t.wide_n = rng.below(4), t.wide_k = rng.below(4);
        all.push_back(mma_operand_layout(m, role, shape, t, rng.chance(50)));
      }
  }
  return all;
}
inline RegLayout any_layout(Random &rng, const std::vector<int64_t> &shape, int warp_bits) {
  if (rng.chance(50)) {
    bool mixed = rng.chance(40);
    return random_layout(rng, shape, warp_bits, mixed);
  }
  auto all = natural_layouts(rng, shape, int64_t(1) << warp_bits);
  RegLayout l = all[size_t(rng.below(int64_t(all.size())))];
  if (rng.chance(20)) { // almost natural: one lane moves along something else too
    size_t to = size_t(rng.below(lane_bits)), from = size_t(rng.below(lane_bits));
    uint32_t other = l.reg.empty() || rng.chance(50) ? l.lane[from] : l.reg[size_t(rng.below(int64_t(l.reg.size())))];
    if (other != l.lane[to]) l.lane[to] ^= other;
  }
  return l;
}
inline std::vector<int64_t> any_shape(Random &rng) {
  if (rng.chance(60)) {
    std::vector<int64_t> shape;
    for (int d = 0; d < 2; d++) {
      int64_t n = int64_t(1) << rng.below(7);
      shape.push_back(rng.chance(30) && n > 2 ? n / 2 + 1 + rng.below(n / 2) : n);
    }
    return shape;
  }
  return random_shape(rng, 11);
}
inline constexpr int64_t element_bits[] = {8, 16, 32, 64};

} // namespace tkc::test

// Conversions through shared memory: choice of the scratch layout.
//
// A scratch layout is a basis of the coordinate space, one vector for each offset bit. Its lowest vectors are the
// "chunk": the elements that one lane moves at once, so they must lie in the registers of the side that wants wide
// accesses, or be what ldmatrix/stmatrix expect. The vectors from 128 bytes on span the subspace H of elements in the
// same bank. An access is free of conflicts iff its phase (the elements that its lanes touch in one wavefront) meets H
// in zero only. For two phases X and Y of equal dimension a common complement H always exists: with I = X n Y, X = I +
// <x_i>, Y = I + <y_i>, H = <x_i + y_i> + (a complement of X + Y). The sums x_i + y_i are the swizzle.
#include "layout/convert.h"
#include "layout/f2.h"
#include "layout/smem_side.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

namespace {
using Vectors = std::vector<uint32_t>;

// Vectors of `pool` that extend `span`, until it has `rank` (or the pool ends).
void extend(F2Span &span, Vectors &basis, std::span<const uint32_t> pool, int rank) {
  for (uint32_t v : pool) {
    if (span.rank() >= rank) return;
    if (span.insert(v)) basis.push_back(v);
  }
}

// One way for a side to touch shared memory: `elems` (log2) elements of the chunk at once by each lane, or a matrix.
struct Method {
  int elems = 0;
  Vectors phase; // vectors of the lanes (rows, for a matrix) that are served together
};

struct Candidate {
  Vectors chunk;
  Method store, load;
};

// What a side with these registers does with a chunk by vector accesses.
Method vector_method(const RegLayout &l, const Vectors &chunk, int elem_log2) {
  F2Span regs(l.reg);
  Method m;
  while (m.elems < int(chunk.size()) && regs.contains(chunk[size_t(m.elems)])) m.elems++;
  int width = elem_log2 + m.elems;
  m.phase.assign(l.lane.begin(), l.lane.begin() + (width <= 2 ? 5 : width == 3 ? 4 : 3));
  return m;
}

// Chunks that ldmatrix or stmatrix can use on this side, with the rows of a matrix.
struct MatrixChunk {
  Vectors chunk, rows;
};
std::vector<MatrixChunk> matrix_chunks(const RegLayout &l, const RegLayout &other, int elem_log2) {
  std::vector<MatrixChunk> found;
  F2Span other_regs(other.reg);
  size_t in_word = size_t(2 - elem_log2); // chunk vectors inside a b32, from registers
  // Registers for them: those that the other side has in registers too come first, which makes its accesses wide.
  Vectors regs;
  for (bool shared : {true, false})
    for (uint32_t v : l.reg)
      if (v && other_regs.contains(v) == shared) regs.push_back(v);
  auto offer = [&](Vectors words) {
    words.push_back(l.lane[0]), words.push_back(l.lane[1]);
    if (F2Span(words).rank() == int(words.size())) found.push_back({words, {l.lane[2], l.lane[3], l.lane[4]}});
  };
  if (in_word == 0) offer({});
  if (in_word == 1)
    for (size_t i = 0; i < std::min<size_t>(regs.size(), 3); i++) offer({regs[i]});
  if (in_word == 2 && regs.size() >= 2) offer({regs[0], regs[1]});
  if (elem_log2 == 1 && !l.reg.empty()) {
    Vectors columns = {l.lane[2], l.lane[3], l.lane[4]};
    if (F2Span(columns).rank() == 3) {
      F2Span outside(columns);
      outside.insert(l.lane[0]), outside.insert(l.lane[1]);
      uint32_t row = 0; // the register vector of the pair: a row bit
      for (uint32_t v : regs)
        if (!row && outside.insert(v)) row = v;
      if (row) found.push_back({columns, {row, l.lane[0], l.lane[1]}});
    }
  }
  return found;
}

// Candidates in groups, the widest of a group first: the others are worth a look only if it has conflicts.
std::vector<std::vector<Candidate>> candidates(const RegLayout &src, const RegLayout &dst, int elem_log2,
                                               const LayoutFeatures &features) {
  std::vector<std::vector<Candidate>> groups;
  std::vector<Candidate> all;
  Vectors common = f2_intersection(src.reg, dst.reg);
  // Plain basis vectors first: they make offsets of registers single bits.
  std::stable_sort(common.begin(), common.end(),
                   [](uint32_t a, uint32_t b) { return std::popcount(a) < std::popcount(b); });
  auto limit = size_t(4 - elem_log2);
  // Registers of both sides, then as many more as one side has. What the other side has in its lanes is best: where the
  // chunk runs over the other side's warps, the phases of that side miss a part of each bank line.
  auto vector_chunk = [&](const Vectors &chunk) {
    return Candidate{chunk, vector_method(src, chunk, elem_log2), vector_method(dst, chunk, elem_log2)};
  };
  for (bool wide_load : {true, false}) {
    const RegLayout &wide = wide_load ? dst : src, &other = wide_load ? src : dst;
    Vectors chunk;
    F2Span span, other_lanes(other.lane);
    extend(span, chunk, common, int(limit));
    size_t shared = chunk.size();
    for (bool in_lanes : {true, false})
      for (uint32_t v : wide.reg)
        if (other_lanes.contains(v) == in_lanes) extend(span, chunk, std::span(&v, 1), int(limit));
    std::vector<Candidate> group;
    for (;; chunk.pop_back()) {
      group.push_back(vector_chunk(chunk));
      if (chunk.size() <= shared) break;
    }
    bool same_for_other = group.size() == 1;
    groups.push_back(std::move(group));
    if (same_for_other) break;
  }
  std::vector<MatrixChunk> loads, stores;
  if (features.ldmatrix && elem_log2 <= 2) loads = matrix_chunks(dst, src, elem_log2);
  if (features.stmatrix && elem_log2 <= 2) stores = matrix_chunks(src, dst, elem_log2);
  for (const MatrixChunk &m : loads) {
    Method load{int(m.chunk.size()), m.rows};
    all.push_back({m.chunk, vector_method(src, m.chunk, elem_log2), load});
    for (const MatrixChunk &s : stores)
      if (s.chunk == m.chunk) all.push_back({m.chunk, {int(s.chunk.size()), s.rows}, load});
  }
  for (const MatrixChunk &s : stores)
    all.push_back({s.chunk, {int(s.chunk.size()), s.rows}, vector_method(dst, s.chunk, elem_log2)});
  for (Candidate &c : all) groups.push_back({std::move(c)});
  return groups;
}

// The scratch map for a candidate: the construction at the head of this file.
Vectors scratch_bases(const Candidate &c, int bits, int elem_log2, std::span<const uint32_t> pool,
                      const F2Span &common) {
  int bank_bits = std::min(bits, 7 - elem_log2), word_bits = std::min(bits, 2 - elem_log2);
  Vectors low = c.chunk;
  F2Span low_span(low);
  extend(low_span, low, pool, word_bits);
  auto phase = [&](const Method &m) {
    F2Span span;
    Vectors basis;
    size_t inner = std::max<size_t>(size_t(m.elems), size_t(std::max(word_bits, 0)));
    extend(span, basis, std::span(low).first(std::min(inner, low.size())), bank_bits);
    extend(span, basis, m.phase, bank_bits);
    return basis;
  };
  Vectors x = phase(c.store), y = phase(c.load);
  F2Span xs(x), ys(y);
  Vectors x0 = x;
  extend(xs, x, y, bank_bits);
  extend(ys, y, x0, bank_bits);
  extend(xs, x, pool, bank_bits);
  extend(ys, y, x, bank_bits);
  Vectors both = f2_intersection(x, y), high;
  F2Span in_x(both), in_y(both);
  Vectors only_x, only_y;
  extend(in_x, only_x, x, 32);
  extend(in_y, only_y, y, 32);
  TKC_CHECK(only_x.size() == only_y.size(), "scratch_bases: phases of different sizes");
  F2Span basis_span;
  for (size_t i = 0; i < only_x.size(); i++) {
    high.push_back(only_x[i] ^ only_y[i]);
    basis_span.insert(high.back());
  }
  F2Span sum(x);
  sum.insert_all(y);
  Vectors rest;
  extend(sum, rest, pool, bits);
  // Registers of both sides come last: the top offset bits can then be cut off and the tile converted in pieces.
  std::stable_partition(rest.begin(), rest.end(), [&](uint32_t v) { return !common.contains(v); });
  for (uint32_t v : rest) {
    high.push_back(v);
    basis_span.insert(v);
  }
  for (uint32_t v : low) TKC_CHECK(basis_span.insert(v), "scratch_bases: the chunk meets its own bank");
  extend(basis_span, low, pool, bits);
  low.insert(low.end(), high.begin(), high.end());
  Vectors bases = f2_inverse(low);
  for (uint32_t &v : bases) v <<= elem_log2;
  return bases;
}

SharedPlan expand_plan(const RegLayout &src, Vectors bases, int elem_log2, const SideQuery &store,
                       const SideQuery &load, bool private_warps, const LayoutFeatures &features) {
  SharedPlan plan;
  plan.layout = {src.shape.to_vector(), int64_t(1) << elem_log2, std::move(bases), 0, 16};
  SideQuery s = store, l = load;
  s.bases = l.bases = plan.layout.bases;
  SideShape store_shape = side_shape(s), load_shape = side_shape(l);
  s.reader_group = std::span(load_shape.group).first(size_t(load_shape.group_bits));
  // Warps that hold the same elements get a copy each above the tile.
  Vectors extra;
  size_t copies = 0;
  if (private_warps) {
    F2Span held(src.reg);
    held.insert_all(src.lane);
    for (uint32_t v : src.warp) {
      bool copy = !held.insert(v);
      extra.push_back(copy ? 1u << copies : 0);
      copies += copy;
    }
  }
  // Pieces: cut top offset bits that only registers reach.
  uint32_t threads = 0;
  for (const SideShape *shape : {&store_shape, &load_shape}) {
    for (uint32_t v : shape->lane) threads |= v;
    for (uint32_t v : shape->warp) threads |= v;
    for (uint32_t v : shape->row) threads |= v;
    threads |= shape->inst == SmemInst::Vector ? (1u << (elem_log2 + shape->group_bits)) - 1 : 15;
  }
  uint32_t tile = uint32_t(plan.layout.elem_bytes) << plan.layout.bases.size(), piece = tile;
  auto build = [&] {
    Vectors shifted = extra;
    for (uint32_t &v : shifted) v *= piece;
    plan.store = expand_side(s, store_shape, shifted, piece);
    plan.load = expand_side(l, load_shape, shifted, piece);
    plan.pieces = int(tile / piece);
    plan.bytes = std::max(plan.store.reach, plan.load.reach);
  };
  build();
  while (plan.bytes > features.scratch_bytes && piece > 16 && !(threads & piece / 2)) {
    piece /= 2;
    build();
  }
  // Pieces without a live register are not converted: number those that are.
  if (plan.pieces > 1) {
    std::vector<int> number(size_t(plan.pieces), 0);
    for (const SmemSide *side : {&plan.store, &plan.load})
      for (const SmemAccess &a : side->accesses) number[size_t(a.piece)] = 1;
    int next = 0;
    for (int &n : number) n = n ? next++ : -1;
    for (SmemSide *side : {&plan.store, &plan.load})
      for (SmemAccess &a : side->accesses) a.piece = number[size_t(a.piece)];
    plan.pieces = next;
  }
  plan.layout.bytes = plan.bytes;
  plan.warp_sync = private_warps;
  return plan;
}
} // namespace

double shared_cycles(const SharedPlan &plan, int64_t warps, const ConvertCosts &costs) {
  int64_t storing = warps >> std::popcount(plan.store.warp_mask);
  double pipe = double(storing * plan.store.wavefronts + warps * plan.load.wavefronts) * costs.wavefront;
  double slots = double(plan.store.accesses.size() + plan.load.accesses.size() + plan.store.classes.size() +
                        plan.load.classes.size()) *
                     costs.issue +
                 double(plan.store.packs + plan.load.packs) * costs.pack;
  double issue = double((warps + 3) / 4) * slots;
  double sync = plan.warp_sync ? costs.warp_sync : costs.block_barrier;
  double steps =
      double(plan.pieces) * (costs.store_latency + sync + costs.load_latency) + double(plan.pieces - 1) * sync;
  return std::max(pipe, issue) + steps;
}

SharedPlan plan_shared(const RegLayout &src, const RegLayout &dst, int64_t elem_bits, const LayoutFeatures &features,
                       const ConvertCosts &costs) {
  TKC_CHECK(src.shape == dst.shape && src.warp.size() == dst.warp.size(), "plan_shared: {} -> {}", src.to_string(),
            dst.to_string());
  int elem_log2 = std::max(0, log2_ceil(elem_bits) - 3), bits = src.space().bits;
  TKC_CHECK(elem_log2 <= 3, "plan_shared of {}-bit elements", elem_bits);
  // Vectors in the order in which they should be single offset bits: those of threads first, so that their offsets
  // leave the chunk alone.
  Vectors pool;
  for (const auto *part : {&src.lane, &dst.lane, &src.warp, &dst.warp, &src.reg, &dst.reg})
    pool.insert(pool.end(), part->begin(), part->end());
  for (int b = 0; b < bits; b++) pool.push_back(1u << b);
  F2Span common(f2_intersection(src.reg, dst.reg));
  bool in_warp = stays_in_warp(src, dst);
  SideQuery load{dst, {}, elem_log2, false, false, features.ldmatrix};
  SideQuery store{src, {}, elem_log2, true, false, features.stmatrix, &dst};
  // The candidates are compared by the exact wavefronts and instructions of both sides, then the best is expanded.
  Vectors best;
  int64_t best_cost = 0;
  bool found = false;
  bool perfect = false;
  for (const auto &group : candidates(src, dst, elem_log2, features))
    for (const Candidate &c : group) {
      if (perfect) break;
      Vectors bases = scratch_bases(c, bits, elem_log2, pool, common);
      SideQuery s = store, l = load;
      s.bases = l.bases = bases;
      SideShape out = side_shape(s), in = side_shape(l);
      if (int64_t cost = out.cost() + in.cost(); !found || cost < best_cost) {
        best = std::move(bases);
        best_cost = cost;
        found = true;
      }
      perfect = out.is_best(elem_log2) && in.is_best(elem_log2);
      if (out.wavefronts == out.ideal && in.wavefronts == in.ideal) break;
    }
  SharedPlan plan = expand_plan(src, best, elem_log2, store, load, false, features);
  if (!in_warp) return plan;
  store.private_warps = true;
  SharedPlan local = expand_plan(src, best, elem_log2, store, load, true, features);
  bool fits = local.bytes <= std::max(features.scratch_bytes, plan.bytes);
  if (fits && shared_cycles(local, src.num_warps(), costs) <= shared_cycles(plan, src.num_warps(), costs)) return local;
  return plan;
}

} // namespace tkc

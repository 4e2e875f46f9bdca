#include "layout/smem_side.h"
#include "layout/f2.h"
#include "layout/fragments.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

namespace {
int64_t bank_conflicts(const F2Span &words) { // wavefronts of one phase whose words are this span
  F2Span banks;
  // The span of the low five bits of every word: fibres of the map to banks all have the same size.
  int rank = 0;
  for (int b = 0; b < 30; b++) {
    uint32_t row = words.row(b);
    if (!row) continue;
    rank++;
    banks.insert(row & 31);
  }
  return int64_t(1) << (rank - banks.rank());
}
} // namespace

namespace {
// Lane bits that are served together, and how often that happens.
int phase_bits(int width) { return width <= 4 ? 5 : width == 8 ? 4 : 3; }
int64_t phase_count(int width, uint32_t away) {
  uint32_t outer = 31u & ~((1u << phase_bits(width)) - 1);
  return int64_t(1) << std::popcount(outer & ~away);
}
} // namespace

int64_t smem_wavefronts(std::span<const uint32_t, lane_bits> lane, int width, uint32_t away) {
  F2Span words;
  for (int i = 0; i < phase_bits(width); i++)
    if (!(away >> i & 1)) words.insert(lane[size_t(i)] >> 2);
  for (int w = 4; w < width; w *= 2) words.insert(uint32_t(w) >> 2);
  return bank_conflicts(words) * phase_count(width, away);
}

int64_t smem_matrix_wavefronts(std::span<const uint32_t, 3> row) {
  F2Span words;
  for (uint32_t r : row) words.insert(r >> 2);
  words.insert(1), words.insert(2);
  return bank_conflicts(words);
}

uint32_t SmemSide::lane_part(int l) const { return f2_apply(lane, uint64_t(l)); }
uint32_t SmemSide::warp_part(int w) const { return f2_apply(warp, uint64_t(w)); }

namespace {
// Byte offsets of all the vectors of a layout, and which register bits are needed.
struct Images {
  std::array<uint32_t, lane_bits> lane{};
  std::array<uint32_t, 10> warp{};
  std::array<uint32_t, max_reg_bits> reg{};
  int regs = 0, warps = 0;
  uint32_t pivots = 0; // register bits that reach everything: the others are copies of these
  uint32_t lane_mask = 0, warp_mask = 0;
  uint32_t threads = 0; // offset bits that change with lane or warp, of those that take part
  F2Span span;          // of the pivots; generator i = register bit i (zero for others)
};

Images images_of(const SideQuery &q) {
  Images im;
  im.regs = int(q.regs.reg.size()), im.warps = int(q.regs.warp.size());
  TKC_CHECK(im.regs <= max_reg_bits && im.warps <= 10, "layout with {} register bits, {} warp bits", im.regs, im.warps);
  F2Span held;
  for (size_t i = 0; i < size_t(lane_bits); i++) {
    im.lane[i] = f2_apply(q.bases, q.regs.lane[i]);
    if (q.store && !held.insert(im.lane[i]))
      im.lane_mask |= 1u << i;
    else
      im.threads |= im.lane[i];
  }
  for (size_t i = 0; i < size_t(im.warps); i++) {
    im.warp[i] = f2_apply(q.bases, q.regs.warp[i]);
    if (q.store && !q.private_warps && !held.insert(im.warp[i]))
      im.warp_mask |= 1u << i;
    else
      im.threads |= im.warp[i];
  }
  for (size_t i = 0; i < size_t(im.regs); i++) {
    im.reg[i] = f2_apply(q.bases, q.regs.reg[i]);
    bool pivot = held.insert(im.reg[i]);
    if (pivot) im.pivots |= 1u << i;
    im.span.insert(pivot ? im.reg[i] : 0);
  }
  return im;
}

// Splits the pivot registers into combos whose offsets are the unit bytes elem << 0 .. elem << (bits - 1), and the
// rest, cleared of those bytes. False if the registers do not reach a unit.
bool split_registers(const Images &im, int elem_log2, int bits, SideShape &s) {
  s.group_bits = bits;
  s.rest_bits = 0;
  for (int j = 0; j < bits; j++) {
    auto combo = im.span.solve(1u << (elem_log2 + j));
    if (!combo) return false;
    s.group[size_t(j)] = uint32_t(*combo);
  }
  F2Span seen;
  for (int i = 0; i < im.regs; i++) {
    if (!(im.pivots >> i & 1)) continue;
    uint32_t combo = 1u << i, offset = im.reg[size_t(i)];
    for (int j = 0; j < bits; j++)
      if (offset >> (elem_log2 + j) & 1) {
        offset ^= 1u << (elem_log2 + j);
        combo ^= s.group[size_t(j)];
      }
    if (!seen.insert(offset)) continue;
    s.rest[size_t(s.rest_bits)] = combo;
    s.rest_offset[size_t(s.rest_bits++)] = offset;
  }
  return true;
}

// Elements narrower than 32 bits live packed in b32 registers, neighbours (registers 2i, 2i + 1) together. An access
// whose words hold other elements, or less than a word, costs instructions that pack or unpack them.
int pack_cost(const SideShape &s, int elem_log2) {
  int per_word = 2 - elem_log2; // log2
  if (per_word <= 0) return 0;
  bool natural = s.group_bits >= per_word;
  for (int j = 0; j < std::min(per_word, s.group_bits); j++) natural &= s.group[size_t(j)] == 1u << j;
  if (natural) return 0;
  int elements = 1 << s.group_bits, words = std::max(1, elements >> per_word);
  return elements > 1 ? elements - words : 1;
}

bool vector_shape(const Images &im, int elem_log2, int bits, SideShape &s) {
  if (im.threads & ((1u << (elem_log2 + bits)) - 1)) return false;
  if (!split_registers(im, elem_log2, bits, s)) return false;
  s.inst = SmemInst::Vector;
  int width = 1 << (elem_log2 + bits);
  s.wavefronts = smem_wavefronts(im.lane, width, im.lane_mask);
  s.ideal = phase_count(width, im.lane_mask);
  s.pack = pack_cost(s, elem_log2);
  return true;
}

bool matrix_shape(const Images &im, int elem_log2, bool trans, SideShape &s) {
  if (im.lane_mask || elem_log2 > 2 || (trans && elem_log2 != 1)) return false;
  // A matrix row is 16 contiguous bytes: which lanes hold its parts is fixed by the instruction.
  const MatrixFragment &f = trans ? matrix_trans : matrix_plain;
  for (size_t i = 0; i < size_t(lane_bits); i++) {
    uint32_t inside = im.lane[i] & 15;
    if (inside != f.lane[i].column * 2u || (inside && im.lane[i] != inside)) return false;
  }
  for (int i = 0; i < im.warps; i++)
    if (im.warp[size_t(i)] & 15) return false;
  if (!split_registers(im, elem_log2, trans ? 0 : 2 - elem_log2, s)) return false;
  for (int i = 0; i < s.rest_bits; i++)
    if (s.rest_offset[size_t(i)] & 15) return false;
  s.inst = trans ? SmemInst::MatrixTrans : SmemInst::Matrix;
  s.ideal = 1;
  if (!trans) {
    s.row = {im.lane[2], im.lane[3], im.lane[4]};
    s.wavefronts = smem_matrix_wavefronts(s.row);
  } else {
    // The pair in a b32 lies in neighbouring rows: any register bit can be that row bit.
    if (s.rest_bits == 0) return false;
    int best = 0;
    for (int i = 0; i < s.rest_bits; i++) {
      std::array<uint32_t, 3> row = {s.rest_offset[size_t(i)], im.lane[0], im.lane[1]};
      int64_t wavefronts = smem_matrix_wavefronts(row);
      if (i > 0 && wavefronts >= s.wavefronts) continue; // ties: the lowest register, which packs naturally
      best = i;
      s.row = row;
      s.wavefronts = wavefronts;
    }
    s.group_bits = 1;
    s.group[0] = s.rest[size_t(best)];
    std::copy(s.rest.begin() + best + 1, s.rest.end(), s.rest.begin() + best);
    std::copy(s.rest_offset.begin() + best + 1, s.rest_offset.end(), s.rest_offset.begin() + best);
    s.rest_bits--;
  }
  s.matrix_bits = std::min(s.rest_bits, 2);
  s.pack = pack_cost(s, elem_log2);
  return true;
}
} // namespace

SideShape side_shape(const SideQuery &q) {
  Images im = images_of(q);
  SideShape best;
  bool found = false;
  auto offer = [&](const SideShape &s) {
    if (found && s.cost() >= best.cost()) return;
    best = s;
    found = true;
  };
  SideShape s;
  for (int bits = 4 - q.elem_log2; bits >= 0; bits--) {
    s = {};
    if (vector_shape(im, q.elem_log2, bits, s)) offer(s);
  }
  for (bool trans : {false, true}) {
    s = {};
    if (q.matrix && matrix_shape(im, q.elem_log2, trans, s)) offer(s);
  }
  TKC_CHECK(found, "no access for {}", q.regs.to_string());
  best.lane = im.lane, best.warp = im.warp;
  best.lane_mask = im.lane_mask, best.warp_mask = im.warp_mask;
  return best;
}

SmemSide expand_side(const SideQuery &q, const SideShape &shape, std::span<const uint32_t> extra,
                     uint32_t piece_bytes) {
  SmemSide out;
  out.inst = shape.inst;
  std::vector<bool> live(size_t(q.regs.num_regs()), false);
  for (int r : q.regs.live_regs()) live[size_t(r)] = true;
  std::vector<bool> stored = live;
  if (q.reader && std::find(live.begin(), live.end(), false) != live.end()) {
    // All elements of a register, over lanes and warps, form one coset; two registers touch if cosets of both spans
    // meet.
    F2Span threads(q.regs.lane);
    for (const auto *part : {&q.regs.warp, &q.reader->lane, &q.reader->warp}) threads.insert_all(*part);
    std::vector<uint32_t> read;
    for (int r : q.reader->live_regs())
      for (uint64_t i = 0; i < uint64_t(1) << q.reader_group.size(); i++) // an access with r moves all of these
        read.push_back(threads.reduce(q.reader->reg_part(int64_t(uint32_t(r) ^ f2_apply(q.reader_group, i)))));
    std::sort(read.begin(), read.end());
    for (size_t r = 0; r < stored.size(); r++)
      if (!live[r])
        stored[r] = std::binary_search(read.begin(), read.end(), threads.reduce(q.regs.reg_part(int64_t(r))));
  }
  int group = 1 << shape.group_bits;
  auto unit_live = [&](uint32_t base) {
    for (int i = 0; i < group; i++)
      if (stored[base ^ f2_apply(shape.group, uint64_t(i))]) return true;
    return false;
  };
  // Rest bits in the order in which accesses use them. Matrices are joined only where live ones stay among themselves.
  std::vector<uint32_t> rest(shape.rest.begin(), shape.rest.begin() + shape.rest_bits);
  std::vector<uint32_t> offset(shape.rest_offset.begin(), shape.rest_offset.begin() + shape.rest_bits);
  // The lowest register bits first: the words of one instruction are then neighbours in the fragment of an mma operand,
  // which wants them in consecutive registers. Any other choice costs a mov for each word.
  int joined = 0;
  for (size_t i = 0; i < rest.size() && joined < shape.matrix_bits; i++) {
    bool uniform = offset[i] < piece_bytes;
    for (uint64_t c = 0; c < uint64_t(1) << rest.size() && uniform; c++) {
      uint32_t base = f2_apply(rest, c);
      uniform = unit_live(base) == unit_live(base ^ rest[i]);
    }
    if (!uniform) continue;
    std::rotate(rest.begin() + joined, rest.begin() + int64_t(i), rest.begin() + int64_t(i) + 1);
    std::rotate(offset.begin() + joined, offset.begin() + int64_t(i), offset.begin() + int64_t(i) + 1);
    joined++;
  }
  bool matrix = shape.inst != SmemInst::Vector;
  out.matrices = matrix ? 1 << joined : 0;
  out.width = matrix ? 4 << joined : 1 << (q.elem_log2 + shape.group_bits);
  if (matrix) {
    for (size_t i = 0; i < 3; i++) out.lane[i] = shape.row[i];
    for (int i = 0; i < joined; i++) out.lane[size_t(3 + i)] = offset[size_t(i)];
  } else {
    out.lane = shape.lane;
    out.lane_mask = shape.lane_mask;
  }
  out.warp.assign(shape.warp.begin(), shape.warp.begin() + int64_t(q.regs.warp.size()));
  for (size_t i = 0; i < extra.size(); i++) out.warp[i] ^= extra[i];
  out.warp_mask = shape.warp_mask;

  uint32_t touched = 0;
  for (uint32_t v : out.lane) touched |= v;
  for (uint32_t v : out.warp) touched |= v;
  F2Span threads(out.lane);
  threads.insert_all(out.warp);
  auto joined_span = std::span(rest).first(size_t(joined)), outer = std::span(rest).subspan(size_t(joined));
  auto outer_offset = std::span(offset).subspan(size_t(joined));
  for (uint64_t c = 0; c < uint64_t(1) << outer.size(); c++) {
    uint32_t base = f2_apply(outer, c);
    if (!unit_live(base)) continue; // the joined units are live or not together
    SmemAccess a;
    for (uint64_t m = 0; m < uint64_t(1) << joined; m++)
      for (int i = 0; i < group; i++) {
        uint32_t r = base ^ f2_apply(joined_span, m) ^ f2_apply(shape.group, uint64_t(i));
        a.regs.push_back(live[r] ? int(r) : -1);
      }
    uint32_t at = f2_apply(outer_offset, c);
    a.piece = int(at / piece_bytes);
    a.reg_offset = at % piece_bytes;
    a.imm = a.reg_offset & ~touched;
    uint32_t part = a.reg_offset & touched;
    auto known = std::find(out.classes.begin(), out.classes.end(), part);
    a.cls = int(known - out.classes.begin());
    if (known == out.classes.end()) out.classes.push_back(part);
    out.reach = std::max<int64_t>(out.reach, int64_t(threads.largest(a.reg_offset)) + (matrix ? 16 : out.width));
    out.wavefronts += shape.wavefronts << joined;
    out.ideal += shape.ideal << joined;
    out.packs += int64_t(shape.pack) << joined;
    out.accesses.push_back(std::move(a));
  }
  std::stable_sort(out.accesses.begin(), out.accesses.end(),
                   [](const SmemAccess &a, const SmemAccess &b) { return a.piece < b.piece; });
  if (!q.store) { // registers that repeat another: loaded once
    F2Span span(q.regs.reg);
    if (span.rank() < int(q.regs.reg.size()))
      for (int64_t r = 0; r < q.regs.num_regs(); r++)
        if (auto same = span.solve(q.regs.reg_part(r)); int64_t(*same) != r && live[size_t(r)])
          out.copies.emplace_back(int(r), int(*same));
  }
  return out;
}

namespace {
SideQuery query_of(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features, bool store) {
  TKC_CHECK(regs.shape == smem.shape, "a register tile and a shared tile of different shapes");
  return {regs, smem.bases, log2_ceil(smem.elem_bytes), store, false, store ? features.stmatrix : features.ldmatrix};
}
SmemSide plan_side(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features, bool store) {
  SideQuery q = query_of(regs, smem, features, store);
  return expand_side(q, side_shape(q), {}, 1u << 31);
}
SmemCost side_cost(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features, bool store) {
  SideShape s = side_shape(query_of(regs, smem, features, store));
  bool matrix = s.inst != SmemInst::Vector;
  int width = matrix ? 4 << s.matrix_bits : int(smem.elem_bytes) << s.group_bits;
  return {s.inst, width, s.all_accesses(), s.all_wavefronts(), s.all_ideal()};
}
} // namespace

SmemSide plan_smem_load(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features) {
  return plan_side(regs, smem, features, false);
}
SmemSide plan_smem_store(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features) {
  return plan_side(regs, smem, features, true);
}
std::vector<bool> touched_bytes(const SmemSide &side, int piece, int64_t bytes) {
  std::vector<bool> out(size_t(bytes), false);
  bool matrix = side.inst != SmemInst::Vector;
  int lanes = matrix ? 8 * side.matrices : 32, width = matrix ? 16 : side.width;
  for (const SmemAccess &a : side.accesses) {
    if (a.piece != piece) continue;
    uint32_t cls = side.classes.empty() ? 0 : side.classes[size_t(a.cls)];
    for (int w = 0; w < 1 << side.warp.size(); w++)
      for (int l = 0; l < lanes; l++) {
        if ((uint32_t(l) & side.lane_mask) || (uint32_t(w) & side.warp_mask)) continue;
        int64_t at = int64_t((side.lane_part(l) ^ side.warp_part(w) ^ cls) + a.imm);
        for (int64_t k = at; k < std::min<int64_t>(at + width, bytes); k++) out[size_t(k)] = true;
      }
  }
  return out;
}
SmemCost smem_load_cost(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features) {
  return side_cost(regs, smem, features, false);
}
SmemCost smem_store_cost(const RegLayout &regs, const SmemLayout &smem, const LayoutFeatures &features) {
  return side_cost(regs, smem, features, true);
}

} // namespace tkc

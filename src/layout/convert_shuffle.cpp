// Conversions inside a warp.
//
// Shuffle. Let S and D be the maps of source and destination. Lane l wants in register r the element D(r, l). The plan
// receives in round t, not for one fixed register, but for register t ^ H(l): with H chosen well, all lanes can read a
// permutation of lanes in every round, and the number of exchanges is the least that the data allow. For every lane bit
// i the equation
//   D_lane[i] ^ D_reg(H e_i) = S_lane(M e_i) ^ S_reg(N e_i)
// says: lane l reads lane M l, there register N l, and puts what comes into register t ^ H l. Likewise for each
// register bit of the result, D_reg[j] = S_reg(A e_j) ^ S_lane(B e_j): round t reads lane M l ^ B t, register N l ^ A
// t. The reading lane does not choose the register, the sending lane does; so N must be a function of the lane that is
// read: N = G M. That holds where M is invertible. On the kernel of M (lanes that read the same lane) N may differ;
// each independent difference doubles the rounds, and the receiver selects.
#include "layout/convert.h"
#include "layout/f2.h"
#include "layout/fragments.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

bool stays_in_warp(const RegLayout &src, const RegLayout &dst) {
  if (src.warp.size() != dst.warp.size()) return false;
  F2Span held(src.reg);
  held.insert_all(src.lane);
  for (const auto *part : {&dst.reg, &dst.lane})
    for (uint32_t v : *part)
      if (!held.contains(v)) return false;
  for (size_t i = 0; i < dst.warp.size(); i++)
    if (!held.contains(dst.warp[i] ^ src.warp[i])) return false;
  return true;
}

namespace {
constexpr size_t lanes5 = size_t(lane_bits);

// A linear function of lane and warp bits into index bits, as conditional index flips. Equal images share a stage; the
// number of stages is the rank of the function.
std::vector<SelectStage> select_stages(std::span<const uint32_t> lane, std::span<const uint32_t> warp) {
  F2Span images; // generator k = the flip of stage k
  std::vector<SelectStage> stages;
  auto add = [&](uint32_t image, uint32_t lane_mask, uint32_t warp_mask) {
    auto known = images.solve(image);
    if (!known) {
      images.insert(image);
      stages.push_back({lane_mask, warp_mask, image});
      return;
    }
    for (uint64_t left = *known; left; left &= left - 1) {
      SelectStage &s = stages[size_t(std::countr_zero(left))];
      s.lane_mask |= lane_mask, s.warp_mask |= warp_mask;
    }
  };
  for (size_t i = 0; i < lane.size(); i++) add(lane[i], 1u << i, 0);
  for (size_t i = 0; i < warp.size(); i++) add(warp[i], 0, 1u << i);
  return stages;
}

struct Parts {
  uint32_t src_reg = 0, src_lane = 0, dst_reg = 0;
};

// Writes a vector as a sum of register and lane vectors of the source and, if allowed, register vectors of the result.
// Earlier generators are preferred.
class Splitter {
public:
  enum Kind : uint8_t { SrcReg, SrcLane, DstReg };
  Splitter(const RegLayout &src, const RegLayout &dst, std::initializer_list<Kind> order) {
    for (Kind k : order) {
      const auto &part = k == SrcReg ? src.reg : k == SrcLane ? src.lane : dst.reg;
      for (size_t i = 0; i < part.size(); i++) {
        span_.insert(part[i]);
        kinds_.push_back({k, uint8_t(i)});
      }
    }
  }
  std::optional<Parts> split(uint32_t v) const {
    auto combo = span_.solve(v);
    if (!combo) return std::nullopt;
    Parts p;
    for (uint64_t left = *combo; left; left &= left - 1) {
      auto [kind, bit] = kinds_[size_t(std::countr_zero(left))];
      (kind == SrcReg ? p.src_reg : kind == SrcLane ? p.src_lane : p.dst_reg) |= 1u << bit;
    }
    return p;
  }

private:
  F2Span span_;
  std::vector<std::pair<Kind, uint8_t>> kinds_;
};

// M: which lane each lane reads. d = s M modulo the registers of both sides, as close to the identity as possible, and
// invertible whenever the data allow. With `broadcast`, lane bits along which the result is replicated read one lane
// instead: no selects, but no exchange is saved either.
std::array<uint32_t, lanes5> choose_lanes(const RegLayout &src, const RegLayout &dst, bool broadcast) {
  F2Span registers(src.reg);
  registers.insert_all(dst.reg);
  std::array<uint32_t, lanes5> s, d, m{};
  F2Span lanes;
  std::vector<uint32_t> kernel; // lanes of the source that hold the same modulo registers
  for (size_t i = 0; i < lanes5; i++) {
    s[i] = registers.reduce(src.lane[i]);
    d[i] = registers.reduce(dst.lane[i]);
    if (auto relation = lanes.solve(s[i])) kernel.push_back(uint32_t(*relation) | 1u << i);
    lanes.insert(s[i]);
  }
  F2Span used;
  std::array<bool, lanes5> done{};
  for (size_t i = 0; i < lanes5; i++)
    if (broadcast && dst.lane[i] == 0) {
      done[i] = true;
    } else if (s[i] == d[i]) {
      m[i] = 1u << i;
      done[i] = true;
      used.insert(m[i]);
    }
  for (size_t i = 0; i < lanes5; i++) {
    if (done[i]) continue;
    auto particular = lanes.solve(d[i]);
    TKC_CHECK(particular.has_value(), "choose_lanes: data leave the warp");
    // Any element of particular + kernel will do; one outside the lanes used so far keeps M invertible.
    uint32_t best = uint32_t(*particular);
    bool independent = !used.contains(best);
    for (uint64_t c = 1; c < uint64_t(1) << kernel.size() && !independent; c++) {
      uint32_t candidate = uint32_t(*particular) ^ f2_apply(kernel, c);
      if (used.contains(candidate)) continue;
      best = candidate;
      independent = true;
    }
    m[i] = best;
    used.insert(best);
  }
  return m;
}

// Indices wanted before a list of stages, given those wanted after it; counts the selects.
std::vector<bool> wanted_before(const std::vector<SelectStage> &stages, std::vector<bool> wanted, int64_t &selects) {
  for (size_t k = stages.size(); k-- > 0;) {
    std::vector<bool> before = wanted;
    for (size_t i = 0; i < wanted.size(); i++)
      if (wanted[i]) {
        before[i ^ stages[k].index_xor] = true;
        selects++;
      }
    wanted = std::move(before);
  }
  return wanted;
}
} // namespace

namespace {
ShufflePlan build_shuffle(const RegLayout &src, const RegLayout &dst, int64_t elem_bits,
                          const std::array<uint32_t, lanes5> &m) {
  using enum Splitter::Kind;
  Splitter stay_first(src, dst, {SrcReg, DstReg}), drop_first(src, dst, {DstReg, SrcReg});
  Splitter fetch(src, dst, {SrcReg, SrcLane}), warps(src, dst, {SrcReg, DstReg, SrcLane});

  // M, H, N by lane bit. Lanes that read the same lane should also read the same register: on the kernel of M the
  // registers of the result are preferred (H), elsewhere those of the source (N).
  std::array<uint32_t, lanes5> h{}, n{};
  F2Span images;
  std::vector<uint32_t> kernel; // of M, each the sum of one lane bit and earlier ones
  for (size_t i = 0; i < lanes5; i++) {
    auto relation = images.solve(m[i]);
    images.insert(m[i]);
    uint32_t lanes = relation ? uint32_t(*relation) | 1u << i : 1u << i;
    uint32_t m_sum = f2_apply(m, lanes);
    auto parts = (relation ? drop_first : stay_first).split(f2_apply(dst.lane, lanes) ^ f2_apply(src.lane, m_sum));
    TKC_CHECK(parts.has_value(), "plan_shuffle: lane bit {} has no source", i);
    h[i] = parts->dst_reg, n[i] = parts->src_reg;
    if (relation) {
      kernel.push_back(lanes);
      for (uint64_t left = *relation; left; left &= left - 1) { // back to the single lane bit
        auto j = size_t(std::countr_zero(left));
        h[i] ^= h[j], n[i] ^= n[j];
      }
    }
  }
  std::vector<uint32_t> hw, nw, mw;
  for (size_t i = 0; i < dst.warp.size(); i++) {
    auto parts = warps.split(dst.warp[i] ^ src.warp[i]);
    TKC_CHECK(parts.has_value(), "plan_shuffle: warp bit {} has no source", i);
    hw.push_back(parts->dst_reg), nw.push_back(parts->src_reg), mw.push_back(parts->src_lane);
  }
  // Extra rounds: one index bit for each independent register difference on the kernel of M.
  std::vector<uint32_t> extra;                     // register difference of each extra index bit
  std::vector<std::pair<uint32_t, uint32_t>> z_of; // (kernel vector, extra index bits that it wants)
  F2Span differences;                              // as elements, so that registers with equal contents do not count
  for (uint32_t k : kernel) {
    uint32_t difference = f2_apply(n, k), element = f2_apply(src.reg, difference);
    auto known = differences.solve(element);
    if (!known) {
      differences.insert(element);
      known = uint64_t(1) << extra.size();
      extra.push_back(difference);
    }
    z_of.emplace_back(k, uint32_t(*known));
  }
  // G with G M = N where M is injective (lane bits that are no kernel's last bit); zero on a complement of the image.
  // Z: extra index bits as a function of the reading lane, zero on those lane bits.
  std::array<uint32_t, lanes5> g{}, z{};
  {
    F2Span span;
    std::vector<uint32_t> value; // of each generator
    uint32_t last_bits = 0;
    for (uint32_t k : kernel) last_bits |= std::bit_floor(k);
    for (size_t i = 0; i < lanes5; i++) {
      if (last_bits >> i & 1) continue;
      span.insert(m[i]);
      value.push_back(n[i]);
    }
    for (size_t i = 0; i < lanes5; i++) {
      span.insert(1u << i);
      value.push_back(0);
    }
    for (size_t i = 0; i < lanes5; i++) g[i] = f2_apply(value, *span.solve(1u << i));
    for (auto [k, bits] : z_of) z[size_t(31 - std::countl_zero(k))] = bits;
  }
  // For a lane l = c + (kernel vectors), N l = N c + (their differences). With z set at a kernel vector's last bit
  // only, Z l names exactly those kernel vectors, and G M l = N c.

  // Result registers: index bits for a basis of them.
  F2Span result_regs(dst.reg);
  uint64_t pivots = result_regs.pivots();
  std::vector<uint32_t> a, b; // by index bit
  std::vector<int> index_bit(dst.reg.size(), -1);
  for (size_t j = 0; j < dst.reg.size(); j++)
    if (pivots >> j & 1) {
      auto parts = fetch.split(dst.reg[j]);
      TKC_CHECK(parts.has_value(), "plan_shuffle: register bit {} has no source", j);
      index_bit[j] = int(a.size());
      a.push_back(parts->src_reg), b.push_back(parts->src_lane);
    }
  size_t reg_index_bits = a.size();
  auto compact = [&](uint32_t reg) { // a sum of basis registers as index bits
    uint32_t index = 0;
    for (size_t j = 0; j < index_bit.size(); j++)
      if (reg >> j & 1) index |= 1u << index_bit[j];
    return index;
  };
  for (uint32_t e : extra) a.push_back(e), b.push_back(0);

  ShufflePlan plan;
  plan.receive_size = 1 << a.size();
  plan.lane_map = m;
  plan.warp_map = mw;
  plan.is_butterfly = true;
  for (size_t i = 0; i < lanes5; i++) plan.is_butterfly &= m[i] == 1u << i;
  for (uint32_t v : mw) plan.is_butterfly &= v == 0;
  std::array<uint32_t, lanes5> post{};
  for (size_t i = 0; i < lanes5; i++) post[i] = compact(h[i]) | z[i] << reg_index_bits;
  std::vector<uint32_t> post_warp, pre_warp;
  for (size_t i = 0; i < hw.size(); i++) {
    post_warp.push_back(compact(hw[i]));
    // The sender sees its own lane, which the warp's part of the lane map has moved.
    pre_warp.push_back(nw[i] ^ f2_apply(g, mw[i]));
  }
  plan.pre = select_stages(g, pre_warp);
  plan.post = select_stages(post, post_warp);

  plan.result.assign(size_t(dst.num_regs()), -1);
  std::vector<bool> wanted(size_t(plan.receive_size), false);
  for (int r : dst.live_regs()) {
    uint32_t index = compact(uint32_t(*result_regs.solve(dst.reg_part(r))));
    plan.result[size_t(r)] = int(index);
    wanted[index] = true;
  }
  wanted = wanted_before(plan.post, std::move(wanted), plan.selects);
  // Rounds: exchanges with the same lanes travel together in one 32-bit register.
  size_t packed = elem_bits >= 32 ? 1 : size_t(32 / elem_bits);
  std::vector<bool> sent(size_t(src.num_regs()), false);
  for (uint32_t t = 0; t < uint32_t(plan.receive_size); t++) {
    if (!wanted[t]) continue;
    uint32_t lane_xor = f2_apply(b, t), from = f2_apply(a, t) ^ f2_apply(g, lane_xor);
    sent[from] = true;
    ShuffleRound *open = nullptr;
    for (ShuffleRound &r : plan.rounds)
      if (r.lane_xor == lane_xor && r.from.size() < packed) open = &r;
    if (!open) {
      plan.rounds.push_back({{}, {}, lane_xor, !plan.is_butterfly || lane_xor != 0});
      open = &plan.rounds.back();
      if (open->moves) plan.shuffles += elem_bits > 32 ? 2 : 1;
    }
    open->from.push_back(int(from));
    open->to.push_back(int(t));
  }
  wanted_before(plan.pre, std::move(sent), plan.selects);
  // Neighbours (2i, 2i + 1) lie in one register anyway; other elements are packed for the way and unpacked after it.
  auto packs = [&](const std::vector<int> &v) {
    bool natural = v.size() == packed;
    for (size_t i = 0; i < v.size(); i++) natural &= v[i] == v[0] + int(i) && v[0] % int(packed) == 0;
    return natural ? 0 : int64_t(v.size()) - (v.size() > 1);
  };
  if (packed > 1)
    for (const ShuffleRound &r : plan.rounds)
      if (r.moves) plan.packs += packs(r.from) + packs(r.to);
  if (elem_bits > 32) plan.selects *= 2;
  return plan;
}
} // namespace

std::optional<ShufflePlan> plan_shuffle(const RegLayout &src, const RegLayout &dst, int64_t elem_bits) {
  if (src.shape != dst.shape || !stays_in_warp(src, dst)) return std::nullopt;
  if (src.reg.size() > 10 || dst.reg.size() > 10) return std::nullopt;
  auto m = choose_lanes(src, dst, false), broadcast = choose_lanes(src, dst, true);
  ShufflePlan plan = build_shuffle(src, dst, elem_bits, m);
  if (broadcast == m) return plan;
  ShufflePlan other = build_shuffle(src, dst, elem_bits, broadcast);
  auto slots = [](const ShufflePlan &p) { return p.shuffles + 2 * (p.selects + p.packs); };
  return slots(other) < slots(plan) ? other : plan;
}

std::optional<MovMatrixPlan> plan_movmatrix(const RegLayout &src, const RegLayout &dst) {
  if (src.shape != dst.shape || src.warp != dst.warp) return std::nullopt;
  for (size_t p = 0; p < src.reg.size(); p++) {
    // The layout after movmatrix on the pairs along register bit p: (row, column) of matrix_trans where matrix_plain
    // was.
    RegLayout moved = src;
    moved.reg[p] = src.lane[2];
    moved.lane = {src.lane[3], src.lane[4], src.reg[p], src.lane[0], src.lane[1]};
    auto map = register_map(moved, dst);
    if (!map) continue;
    std::vector<bool> live(size_t(src.num_regs()), false);
    for (int r : src.live_regs()) live[size_t(r)] = true;
    MovMatrixPlan plan;
    plan.result.resize(size_t(dst.num_regs()));
    std::vector<int> op_of(size_t(src.num_regs()), -1); // by low register
    for (int r : dst.live_regs()) {
      int from = (*map)[size_t(r)], lo = from & ~(1 << p), hi = lo | 1 << p;
      int &op = op_of[size_t(lo)];
      if (op < 0) {
        op = int(plan.ops.size());
        plan.ops.push_back({live[size_t(lo)] ? lo : -1, live[size_t(hi)] ? hi : -1});
      }
      plan.result[size_t(r)] = {op, from >> p & 1};
    }
    // Neighbours (2i, 2i + 1) lie in one register anyway.
    plan.packs = p == 0 ? 0 : int64_t(plan.ops.size());
    auto is_pair = [&](size_t r) {
      MovMatrixPlan::Half lo = plan.result[r], hi = plan.result[r + 1];
      return lo.op < 0 || hi.op < 0 || (lo.op == hi.op && lo.half == 0 && hi.half == 1);
    };
    bool pairs = dst.reg.size() > 0;
    for (size_t r = 0; r + 1 < plan.result.size(); r += 2) pairs &= is_pair(r);
    if (!pairs) plan.packs += int64_t(plan.ops.size());
    return plan;
  }
  return std::nullopt;
}

} // namespace tkc

#include "layout/convert.h"
#include "layout/f2.h"
#include "support/check.h"
#include <algorithm>

namespace tkc {

std::string_view convert_kind_name(ConvertKind kind) {
  switch (kind) {
  case ConvertKind::Identity: return "identity";
  case ConvertKind::Registers: return "registers";
  case ConvertKind::MovMatrix: return "movmatrix";
  case ConvertKind::Shuffle: return "shuffle";
  case ConvertKind::Shared: return "shared";
  }
  TKC_UNREACHABLE("conversion kind {}", int(kind));
}

double shuffle_cycles(const ShufflePlan &plan, int64_t warps, const ConvertCosts &costs) {
  double pipe = double(warps * plan.shuffles) * costs.shuffle;
  double slots =
      double(plan.shuffles) * costs.issue + double(plan.selects) * costs.select + double(plan.packs) * costs.pack;
  double latency = plan.shuffles ? costs.shuffle_latency : 0;
  return std::max(pipe, double((warps + 3) / 4) * slots) + latency;
}

double movmatrix_cycles(const MovMatrixPlan &plan, int64_t warps, const ConvertCosts &costs) {
  auto ops = double(plan.ops.size());
  double pipe = double(warps) * ops * costs.movmatrix;
  double slots = ops * costs.issue + double(plan.packs) * costs.pack;
  return std::max(pipe, double((warps + 3) / 4) * slots) + costs.movmatrix_latency;
}

namespace {
// Whether every element of a live register of `dst` lies in a live register of `src`. All elements of a register, over
// lanes and warps, form one coset of the threads' span; so liveness is a property of cosets.
bool keeps_padding(const RegLayout &src, const RegLayout &dst) {
  std::vector<int> live = src.live_regs();
  if (int64_t(live.size()) == src.num_regs()) return true;
  F2Span threads(src.lane);
  threads.insert_all(src.warp);
  std::vector<uint32_t> held;
  for (int r : live) held.push_back(threads.reduce(src.reg_part(r)));
  std::sort(held.begin(), held.end());
  std::vector<uint32_t> spread; // what lanes and warps of dst add, modulo threads of src
  F2Span seen;
  for (const auto *part : {&dst.lane, &dst.warp})
    for (uint32_t v : *part)
      if (uint32_t rest = threads.reduce(v); seen.insert(rest)) spread.push_back(rest);
  for (int r : dst.live_regs())
    for (uint64_t i = 0; i < uint64_t(1) << spread.size(); i++)
      if (!std::binary_search(held.begin(), held.end(), threads.reduce(dst.reg_part(r) ^ f2_apply(spread, i))))
        return false;
  return true;
}
} // namespace

ConversionPlan plan_conversion(const RegLayout &src, const RegLayout &dst, int64_t elem_bits,
                               const LayoutFeatures &features, const ConvertCosts &costs) {
  TKC_CHECK(src.shape == dst.shape && src.warp.size() == dst.warp.size(), "plan_conversion: {} -> {}", src.to_string(),
            dst.to_string());
  elem_bits = std::max<int64_t>(elem_bits, 8);
  ConversionPlan plan;
  plan.padding_kept = keeps_padding(src, dst);
  if (auto map = register_map(src, dst)) {
    plan.kind = src == dst ? ConvertKind::Identity : ConvertKind::Registers;
    plan.registers.assign(size_t(dst.num_regs()), -1);
    for (int r : dst.live_regs()) plan.registers[size_t(r)] = (*map)[size_t(r)];
    return plan;
  }
  int64_t warps = src.num_warps();
  bool found = false;
  auto offer = [&](ConvertKind kind, double cycles) {
    if (found && cycles >= plan.cycles) return false;
    found = true;
    plan.kind = kind;
    plan.cycles = cycles;
    return true;
  };
  if (elem_bits == 16 && features.movmatrix)
    if (auto mov = plan_movmatrix(src, dst); mov && offer(ConvertKind::MovMatrix, movmatrix_cycles(*mov, warps, costs)))
      plan.movmatrix = std::move(*mov);
  if (auto shuffle = plan_shuffle(src, dst, elem_bits);
      shuffle && offer(ConvertKind::Shuffle, shuffle_cycles(*shuffle, warps, costs)))
    plan.shuffle = std::move(*shuffle);
  double fastest_shared = costs.store_latency + costs.warp_sync + costs.load_latency;
  if (!found || plan.cycles > fastest_shared) {
    SharedPlan shared = plan_shared(src, dst, elem_bits, features, costs);
    if (offer(ConvertKind::Shared, shared_cycles(shared, warps, costs))) plan.shared = std::move(shared);
  }
  if (plan.kind != ConvertKind::MovMatrix) plan.movmatrix = {};
  if (plan.kind != ConvertKind::Shuffle) plan.shuffle = {};
  return plan;
}

std::string ConversionPlan::to_string() const {
  auto side = [](const SmemSide &s, bool store) {
    auto n = s.accesses.size();
    if (s.inst == SmemInst::Vector)
      return fmt::format("{} x {}.shared.b{}{}", n, store ? "st" : "ld", std::min(s.width, 4) * 8,
                         s.width > 4 ? fmt::format(".v{}", s.width / 4) : "");
    return fmt::format("{} x {}.x{}{}", n, store ? "stmatrix" : "ldmatrix", s.matrices,
                       s.inst == SmemInst::MatrixTrans ? ".trans" : "");
  };
  std::string text(convert_kind_name(kind));
  switch (kind) {
  case ConvertKind::Identity:
  case ConvertKind::Registers: return text;
  case ConvertKind::MovMatrix: text += fmt::format(": {} x movmatrix", movmatrix.ops.size()); break;
  case ConvertKind::Shuffle: text += fmt::format(": {} x shfl, {} x selp", shuffle.shuffles, shuffle.selects); break;
  case ConvertKind::Shared:
    text += fmt::format(": {}, {}, {}, {} B", side(shared.store, true), shared.warp_sync ? "bar.warp.sync" : "bar.sync",
                        side(shared.load, false), shared.bytes);
    if (shared.pieces > 1) text += fmt::format(" in {} pieces", shared.pieces);
    if (int64_t lost = shared.store.wavefronts + shared.load.wavefronts - shared.store.ideal - shared.load.ideal)
      text += fmt::format(", {} bank conflicts", lost);
    break;
  }
  return text + fmt::format(", {:.0f} cycles", cycles);
}

size_t ConversionPlanner::Hash::operator()(const Key &k) const {
  return k.src.hash() * 31 + k.dst.hash() * 7 + size_t(k.elem_bits);
}

const ConversionPlan &ConversionPlanner::plan(const RegLayout &src, const RegLayout &dst, int64_t elem_bits) {
  Key key{src, dst, elem_bits};
  if (auto known = plans_.find(key); known != plans_.end()) return known->second;
  ConversionPlan made = plan_conversion(src, dst, elem_bits, features_, costs_);
  return plans_.emplace(std::move(key), std::move(made)).first->second;
}

} // namespace tkc

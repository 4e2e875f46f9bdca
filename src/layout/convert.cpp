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
  double packs = 0; // packing before and unpacking after
  for (const ShuffleRound &r : plan.rounds)
    if (r.moves) packs += double(r.from.size() - 1) * 2;
  double pipe = double(warps * plan.shuffles) * costs.shuffle;
  double slots = double(plan.shuffles) * costs.issue + double(plan.selects) * costs.select + packs * costs.pack;
  double latency = plan.shuffles ? costs.shuffle_latency : 0;
  return std::max(pipe, double((warps + 3) / 4) * slots) + latency;
}

double movmatrix_cycles(const MovMatrixPlan &plan, int64_t warps, const ConvertCosts &costs) {
  auto ops = double(plan.ops.size());
  double pipe = double(warps) * ops * costs.movmatrix;
  return std::max(pipe, double((warps + 3) / 4) * ops * (costs.issue + 2 * costs.pack)) + costs.movmatrix_latency;
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
  ConversionPlan plan;
  plan.padding_kept = keeps_padding(src, dst);
  if (auto map = register_map(src, dst)) {
    plan.kind = src == dst ? ConvertKind::Identity : ConvertKind::Registers;
    plan.registers.assign(size_t(dst.num_regs()), -1);
    for (int r : dst.live_regs()) plan.registers[size_t(r)] = (*map)[size_t(r)];
    return plan;
  }
  int64_t warps = src.num_warps();
  plan.kind = ConvertKind::Shared;
  plan.shared = plan_shared(src, dst, elem_bits, features, costs);
  plan.cycles = shared_cycles(plan.shared, warps, costs);
  if (auto shuffle = plan_shuffle(src, dst, elem_bits)) {
    double cycles = shuffle_cycles(*shuffle, warps, costs);
    if (cycles <= plan.cycles) {
      plan.kind = ConvertKind::Shuffle;
      plan.cycles = cycles;
      plan.shuffle = std::move(*shuffle);
    }
  }
  if (elem_bits == 16 && features.movmatrix)
    if (auto mov = plan_movmatrix(src, dst)) {
      double cycles = movmatrix_cycles(*mov, warps, costs);
      if (cycles <= plan.cycles) {
        plan.kind = ConvertKind::MovMatrix;
        plan.cycles = cycles;
        plan.movmatrix = std::move(*mov);
      }
    }
  if (plan.kind != ConvertKind::Shared) plan.shared = {};
  if (plan.kind != ConvertKind::Shuffle) plan.shuffle = {};
  return plan;
}

} // namespace tkc

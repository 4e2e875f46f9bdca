// Chooses the variables of layout inference by coordinate descent from several starts.
//
// A product has {instruction shape} x {warps over M, N, K} x {plain, transposed} candidates. The starts give all
// products the same tiling and orientation; then one product at a time tries every candidate, then every loop-carried
// tile tries the layout that its body yields, until nothing improves. A propagation costs tens of microseconds and
// conversion plans are remembered, so a kernel with four products takes a few milliseconds. Where the kernel leaves the
// number of warps open, the search runs for 1, 2, 4 and 8.
#include "ir/op_def.h"
#include "passes/layout_choice.h"
#include <cmath>
#include <set>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {

std::vector<MmaConfig> candidates(const Op &op, const ir::Target &target, int64_t warps) {
  DType t = op.operand(0)->type.dtype;
  if (op.attrs.has("precision") && op.attrs.s("precision") == "ieee") return {MmaConfig{}};
  if (t == DType::F32) t = DType::TF32;
  std::vector<MmaConfig> out;
  std::vector<const MmaShape *> shapes = mma_shapes_for(t);
  std::erase_if(shapes, [&](const MmaShape *s) { return s->min_sm > target.sm; });
  if (shapes.empty()) return {MmaConfig{}};
  for (int64_t wk = 1; wk <= warps; wk *= 2)
    for (int64_t wm = 1; wm * wk <= warps; wm *= 2)
      for (bool transposed : {false, true}) {
        int64_t k = op.operand(0)->type.shape[1];
        if (wk > 1 && k < wk * shapes[0]->k) continue; // no step of its own for every warp
        out.push_back({shapes[0], {wm, warps / wm / wk, wk, false}, transposed});
      }
  return out;
}

class Search {
public:
  Search(ir::Function &f, const ir::Target &target, const ir::Part &part, int64_t warps)
      : f_(f), cost_(target, part, warps) {
    ir::walk(f.body, [&](Op *op) {
      if (op->kind == OpKind::Mma) products_.emplace_back(op, candidates(*op, target, warps));
    });
    best_.variables.warps = warps;
  }

  LayoutDecision run() {
    if (products_.empty()) {
      accept(best_.variables);
    } else {
      // Same tiling and orientation for all, as far as each has it.
      std::set<std::tuple<int64_t, int64_t, bool>> starts;
      for (const auto &[op, list] : products_)
        for (const MmaConfig &c : list) starts.insert({c.tiling.warps_m, c.tiling.warps_k, c.transposed});
      for (auto [wm, wk, transposed] : starts) {
        LayoutVariables v;
        v.warps = best_.variables.warps;
        for (const auto &[op, list] : products_) {
          v.products[op] = list[0];
          for (const MmaConfig &c : list)
            if (c.tiling.warps_m == wm && c.tiling.warps_k == wk && c.transposed == transposed) v.products[op] = c;
        }
        accept(v);
      }
      descend();
    }
    carried();
    return std::move(best_);
  }

private:
  bool accept(const LayoutVariables &v) {
    LayoutPlan plan = propagate_layouts(f_, v, cost_);
    bool better = !seen_ || (best_.plan.problem.empty() == plan.problem.empty() ? plan.cycles < best_.plan.cycles - 1e-9
                                                                                : plan.problem.empty());
    if (better) best_ = {v, std::move(plan)};
    seen_ = true;
    return better;
  }
  void descend() {
    for (int round = 0; round < 4; round++) {
      bool improved = false;
      for (const auto &[op, list] : products_)
        for (const MmaConfig &c : list) {
          if (best_.variables.products[op] == c) continue;
          LayoutVariables v = best_.variables;
          v.products[op] = c;
          improved |= accept(v);
        }
      if (!improved) return;
    }
  }
  void carried() {
    auto yielded = best_.plan.yielded;
    for (const auto &[arg, layout] : yielded) {
      if (best_.plan.home[size_t(arg->id)] == layout) continue;
      LayoutVariables v = best_.variables;
      v.carried.insert_or_assign(arg, layout);
      accept(v);
    }
  }

  ir::Function &f_;
  LayoutCost cost_;
  std::vector<std::pair<Op *, std::vector<MmaConfig>>> products_;
  LayoutDecision best_;
  bool seen_ = false;
};

} // namespace

LayoutDecision search_layouts(ir::Function &f, const ir::Target &target, const ir::Part &part) {
  if (f.warps > 0) return Search(f, target, part, f.warps).run();
  LayoutDecision best;
  double least = INFINITY;
  for (int64_t warps : {1, 2, 4, 8}) {
    LayoutDecision d = Search(f, target, part, warps).run();
    if (d.plan.problem.empty() && d.plan.cycles < least * 0.97) { // more warps must pay
      least = d.plan.cycles;
      best = std::move(d);
    } else if (least == INFINITY) {
      best = std::move(d);
    }
  }
  return best;
}

} // namespace tkc::passes

// Chooses the variables of layout inference by coordinate descent from several starts.
//
// A product has {instruction shape} x {warps over M, N, K} x {plain, transposed} candidates. The starts deal the warps
// out to classes of dims (dim_classes.h), so that products that must change together do; then one product at a time
// (those of an unrolled loop together) tries every candidate, until nothing improves. Then dims of products are tried
// wide (WarpTiling::wide_n), scans in the layout of their users, and every loop-carried tile in the layout that its
// body yields. A propagation costs tens of microseconds and conversion plans are remembered, so a kernel with four
// products takes a few milliseconds. Where the kernel leaves the number of warps open, the search runs for 1, 2, 4
// and 8.
#include "ir/op_def.h"
#include "passes/dim_classes.h"
#include "passes/layout_choice.h"
#include <algorithm>
#include <array>
#include <cmath>

namespace tkc::passes {

using ir::Op;
using ir::OpKind;

namespace {

// Twice the warps must be faster by a tenth: they also pay for skew at barriers and for registers, which no cost here
// counts. (The KDA chain on an H200: one warp for each 16 columns against two that split K tie, 148 and 154 us, where
// the estimates differ by 6 %.)
constexpr double kMoreWarpsPay = 0.9;

// With more products than this, those outside loops are tried by classes: a propagation for every product and candidate
// takes half a second for 30 products.
constexpr size_t kProductsOneByOne = 8;

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
  Search(ir::Function &f, ir::Block *program, const ir::Target &target, const ir::Part &part, int64_t warps)
      : f_(f), program_(program), cost_(target, part, warps) {
    ir::walk(program, [&](Op *op) {
      if (op->kind == OpKind::Mma) products_.emplace_back(op, candidates(*op, target, warps));
      if (is_scan(*op)) scans_.push_back(op);
    });
    best_.variables.warps = warps;
  }

  LayoutDecision run() {
    if (products_.empty()) {
      accept(best_.variables);
    } else {
      start();
      descend();
      widen();
    }
    scans();
    carried();
    return std::move(best_);
  }

private:
  enum class Accept : uint8_t {
    Any,
    NoMore,    // not for more work in all, however well it overlaps
    TieBreaker // estimates are not better than a percent: of plans so close, the one with less work
  };
  bool accept(const LayoutVariables &v, Accept when = Accept::Any) {
    LayoutPlan plan = propagate_layouts(f_, program_, v, cost_);
    bool better = !seen_;
    if (seen_ && best_.plan.problem.empty() != plan.problem.empty())
      better = plan.problem.empty();
    else if (seen_)
      better = when == Accept::TieBreaker && tie(plan) ? plan.slots < best_.plan.slots - 1e-9
                                                       : plan.cycles < best_.plan.cycles;
    if (when == Accept::NoMore && seen_ && plan.slots > best_.plan.slots + 1e-9) better = false;
    if (better) best_ = {v, std::move(plan)};
    seen_ = true;
    return better;
  }
  bool tie(const LayoutPlan &plan) const {
    return std::abs(plan.cycles - best_.plan.cycles) < 0.01 * best_.plan.cycles;
  }
  // Every way to deal the warps out to classes of dims, each with all products plain or all transposed.
  void start() {
    DimClasses classes(f_);
    std::vector<int64_t> order; // classes of product dims by first appearance
    auto number = [&](const ir::Value *v, int64_t dim) {
      int64_t id = classes.of(v, dim);
      auto it = std::find(order.begin(), order.end(), id);
      if (it == order.end()) it = order.insert(it, id);
      return size_t(it - order.begin());
    };
    struct Dims {
      size_t m, n, k;
    };
    std::vector<Dims> dims;
    for (const auto &[op, list] : products_)
      dims.push_back({number(op->operand(0), 0), number(op->operand(1), 1), number(op->operand(0), 1)});
    std::vector<int64_t> share(order.size(), 1);
    auto deal = [&](auto &self, size_t i, int64_t left) -> void {
      if (i + 1 == order.size()) {
        share[i] = left;
        for (bool transposed : {false, true}) {
          LayoutVariables v = best_.variables;
          for (size_t p = 0; p < products_.size(); p++)
            v.products[products_[p].first] =
                nearest(products_[p].second, share[dims[p].m], share[dims[p].n], share[dims[p].k], transposed);
          accept(v, Accept::TieBreaker);
        }
        return;
      }
      for (int64_t mine = 1; mine <= left; mine *= 2) {
        share[i] = mine;
        self(self, i + 1, left / mine);
      }
    };
    deal(deal, 0, best_.variables.warps);
  }
  // The candidate that splits K so and M, N at least so: warps that no dim of the product has go to M, or to N.
  static MmaConfig nearest(const std::vector<MmaConfig> &list, int64_t m, int64_t n, int64_t k, bool transposed) {
    const MmaConfig *best = &list[0];
    int64_t least = INT64_MAX;
    auto far = [](int64_t a, int64_t b) { return std::abs(log2_ceil(a) - log2_ceil(b)); };
    for (const MmaConfig &c : list) {
      if (c.transposed != transposed) continue;
      int64_t d = 16 * far(c.tiling.warps_k, k) + 4 * far(c.tiling.warps_n, n) + far(c.tiling.warps_m, m);
      if (d < least) {
        least = d;
        best = &c;
      }
    }
    return *best;
  }
  // One product at a time; where there are many, outside loops all that have the same classes of dims.
  void descend() {
    DimClasses classes(f_);
    std::map<std::array<int64_t, 4>, std::vector<size_t>> groups;
    for (size_t p = 0; p < products_.size(); p++) {
      const Op &op = *products_[p].first;
      std::array<int64_t, 4> key{classes.of(op.operand(0), 0), classes.of(op.operand(1), 1),
                                 classes.of(op.operand(0), 1), 0};
      const Op *around = op.block->parent;
      if (products_.size() <= kProductsOneByOne || (around && around->kind == OpKind::For)) key[3] = int64_t(p) + 1;
      groups[key].push_back(p);
    }
    for (int round = 0; round < 4; round++) {
      bool improved = false;
      for (const auto &[key, members] : groups)
        for (const MmaConfig &c : products_[members[0]].second) {
          LayoutVariables v = best_.variables;
          for (size_t p : members) {
            const auto &[op, list] = products_[p];
            if (std::find(list.begin(), list.end(), c) != list.end()) v.products[op] = c;
          }
          if (v.products != best_.variables.products) improved |= accept(v);
        }
      if (!improved) return;
    }
  }
  // Neighbours along a dim in one lane (WarpTiling::wide_n): for all products of a class of dims at once, since the
  // operands and results of one that has them want them of the others, and then for one product at a time.
  void widen() {
    DimClasses classes(f_);
    using Wide = int64_t WarpTiling::*;
    std::map<int64_t, std::vector<std::pair<Op *, Wide>>> dims;
    std::vector<std::pair<Op *, Wide>> singles;
    auto add = [&](const ir::Value *v, int64_t dim, Op *op, Wide which) {
      if (!best_.variables.products[op].shape) return;
      dims[classes.of(v, dim)].push_back({op, which});
      singles.push_back({op, which});
    };
    for (const auto &[op, list] : products_) {
      add(op->operand(1), 1, op, &WarpTiling::wide_n);
      add(op->operand(0), 1, op, &WarpTiling::wide_k);
    }
    auto change = [&](std::span<const std::pair<Op *, Wide>> all, bool wide) {
      LayoutVariables v = best_.variables;
      for (auto [op, which] : all) {
        MmaConfig &c = v.products[op];
        c.tiling.*which = wide ? log2_ceil(128 / c.shape->elem_bits) : 0;
      }
      if (v.products != best_.variables.products) accept(v, Accept::NoMore);
    };
    for (const auto &[id, all] : dims) change(all, true);
    for (const auto &one : singles) change({&one, 1}, best_.variables.products[one.first].tiling.*one.second == 0);
  }
  void scans() {
    auto change = [&](std::span<Op *const> ops) {
      LayoutVariables v = best_.variables;
      for (Op *op : ops)
        if (!v.in_place.erase(op)) v.in_place.insert(op);
      accept(v);
    };
    if (scans_.size() > 1) change(scans_);
    for (Op *const &op : scans_) change({&op, 1});
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
  ir::Block *program_;
  LayoutCost cost_;
  std::vector<std::pair<Op *, std::vector<MmaConfig>>> products_;
  std::vector<Op *> scans_;
  LayoutDecision best_;
  bool seen_ = false;
};

} // namespace

LayoutDecision search_layouts(ir::Function &f, ir::Block *program, const ir::Target &target, const ir::Part &part) {
  if (int64_t warps = ir::warps_of(program)) return Search(f, program, target, part, warps).run();
  LayoutDecision best;
  double least = INFINITY;
  for (int64_t warps : {1, 2, 4, 8}) {
    LayoutDecision d = Search(f, program, target, part, warps).run();
    if (d.plan.problem.empty() && d.plan.cycles < least * kMoreWarpsPay) {
      least = d.plan.cycles;
      best = std::move(d);
    } else if (least == INFINITY) {
      best = std::move(d);
    }
  }
  return best;
}

} // namespace tkc::passes

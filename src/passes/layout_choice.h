// Layout inference, shared declarations. Three files decide and one rewrites:
//   layout_cost.cpp       cycles of one op, access or conversion, from targets.def
//   propagate_layouts.cpp given the searched variables, the layout of every value and the conversions this needs
//   search_layouts.cpp    chooses the variables: per product {instruction, warps over M, N, K, transposed}, the layout
//   of
//                         loop-carried tiles, the number of warps
//   apply_layouts.cpp     writes a decision into the IR: layouts on values, attributes on products, convert_layout ops
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include "layout/convert.h"
#include "layout/fragments.h"
#include "layout/reg_layout.h"
#include <map>

namespace tkc::passes {

struct MmaConfig {
  const MmaShape *shape = nullptr; // null: no tensor core instruction; every thread multiplies what it holds
  WarpTiling tiling;
  bool transposed = false;
  bool operator==(const MmaConfig &) const = default;
};

// The variables of the search.
struct LayoutVariables {
  int64_t warps = 4;
  std::map<const ir::Op *, MmaConfig> products;
  std::map<const ir::Value *, RegLayout> carried; // loop arguments whose layout is forced
};

struct Conversion {
  ir::Op *op; // the user
  int64_t operand;
  RegLayout to;
};

struct LayoutPlan {
  std::vector<std::optional<RegLayout>> home; // by value id
  std::vector<Conversion> conversions;
  std::map<const ir::Value *, RegLayout> yielded; // per loop argument: the layout that the yielded value had
  double cycles = 0;                              // of one block
  double product_cycles = 0, conversion_cycles = 0, memory_cycles = 0;
  std::string problem; // not empty: no legal layout; says why
};

// Cycle estimates of one warp scheduler (sub-core); a block's warps are spread over four of them.
class LayoutCost {
public:
  LayoutCost(const ir::Target &target, const ir::Part &part, int64_t warps);
  double pointwise(const ir::Op &op, const RegLayout &l) const;
  double access(const ir::Op &op, const RegLayout &l, DType t, bool store) const; // load, store, atomic
  double reduce(const ir::Op &op, const RegLayout &operand) const;
  double product(const ir::Op &op, const MmaConfig &c, const RegLayout &a, const RegLayout &b,
                 const RegLayout &acc) const;
  double conversion(const RegLayout &from, const RegLayout &to, DType t);
  double exchange(int64_t registers) const;                 // f32 partial sums through shared memory between warps
  int64_t vector_elements(const ir::Op &op, DType t) const; // elements of the widest access of a blocked layout

private:
  double scale() const { return double((warps_ + 3) / 4); }
  const ir::Part &part_;
  int64_t warps_;
  const ir::Target &target_;
  ConversionPlanner planner_;
};

// The element type that a conversion moves, and the tile's fast dims for a coalesced layout of an access.
RegLayout access_layout(const ir::Op &op, DType t, const LayoutCost &cost, int64_t warps);
RegLayout scan_layout(const ir::Op &op, int64_t warps);
// Dims in `dims` held in registers only, the others spread over lanes and warps.
RegLayout register_axes_layout(const std::vector<int64_t> &shape, const std::vector<bool> &dims, int64_t warps);
bool in_registers_only(const RegLayout &l, const std::vector<bool> &dims);

LayoutPlan propagate_layouts(ir::Function &f, const LayoutVariables &v, LayoutCost &cost);

struct LayoutDecision {
  LayoutVariables variables;
  LayoutPlan plan;
};
// Chooses everything; `plan.problem` says why there is none.
LayoutDecision search_layouts(ir::Function &f, const ir::Target &target, const ir::Part &part);
void apply_layouts(ir::Function &f, const LayoutDecision &d);

int64_t trip_estimate(const ir::Op &loop); // of a for loop: exact if constant

} // namespace tkc::passes

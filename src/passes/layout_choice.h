// Layout inference, shared declarations. Four files decide and one rewrites:
//   layout_cost.cpp       cycles of one op, access or conversion, from targets.def
//   layout_work.cpp       sums them up, block by block
//   propagate_layouts.cpp given the searched variables, the layout of every value and the conversions this needs
//   search_layouts.cpp    chooses the variables: per product {instruction, warps over M, N, K, transposed}, the layout
//                         of loop-carried tiles, the number of warps
//   apply_layouts.cpp     writes a decision into the IR: layouts on values, attributes on products, convert_layout ops
#pragma once
#include "ir/ir.h"
#include "ir/target.h"
#include "layout/convert.h"
#include "layout/fragments.h"
#include "layout/reg_layout.h"
#include "layout/smem_layout.h"
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace tkc::passes {

struct MmaConfig {
  const MmaShape *shape = nullptr; // null: no tensor core instruction; every thread multiplies what it holds
  WarpTiling tiling;
  bool transposed = false;
  bool operator==(const MmaConfig &) const = default;
  std::tuple<const MmaShape *, int64_t, int64_t, int64_t, int64_t, int64_t, bool> key() const {
    return {shape, tiling.warps_m, tiling.warps_n, tiling.warps_k, tiling.wide_n, tiling.wide_k, transposed};
  }
};

// The variables of the search.
struct LayoutVariables {
  int64_t warps = 4;
  std::map<const ir::Op *, MmaConfig> products;
  std::map<const ir::Value *, RegLayout> carried; // loop arguments whose layout is forced
  std::set<const ir::Op *> in_place;              // scans in the layout that their users want, not in scan_layout()
};

struct Conversion {
  ir::Op *op; // the user
  int64_t operand;
  RegLayout to;
  enum class How : uint8_t {
    Moved,  // from the home
    Remade, // remake.h
    Reread, // of a tile that a loop stages in shared memory: read from there
  } how = How::Moved;
};

// A load that goes through shared memory: it is read in one layout, its users have it in another (the home).
struct StagedLoad {
  ir::Op *op;
  RegLayout read;
};

// What one execution of something costs one block alone on its SM, in cycles by resource. A block's warps are spread
// over the SM's four sub-cores.
struct Work {
  double serial = 0;     // one warp in order, nothing overlapped
  double issue = 0;      // slots of a sub-core, all its warps
  double tensor = 0;     // the tensor pipe of a sub-core, all its warps
  double shared = 0;     // the SM's pipe of shared memory, shuffles and movmatrix, all warps
  double global = 0;     // sectors between the SM and L2, all warps
  double recurrence = 0; // of a loop's body: latencies from a carried tile to the next iteration's
  Work &operator+=(const Work &w);
  friend Work operator+(Work a, const Work &b) { return a += b; }
  // Resources overlap, and so does what is not on the recurrence: the longest counts. But a warp issues in order, which
  // leaves a part of the serial sum uncovered (a quarter fits the measured variants of the KDA chain), and of two
  // layouts with the same limit the one with less work is taken.
  double cycles() const;
};

// The work of a block of ops (a loop's body, or what is in no loop), each time it is executed.
struct BodyWork {
  const ir::Block *body = nullptr;
  double executions = 1; // trip_estimate() for loops
  Work work{};           // with the recurrence, if it is a loop's body
  // The ops one after the other, each as long as its slowest resource or its latency: warps of a block are in phase,
  // and none issues past an instruction that waits. Loads and reads of slots are issued ahead: their issue counts
  // alone.
  double in_order = 0;
};

struct LayoutPlan {
  std::vector<std::optional<RegLayout>> home; // by value id
  std::vector<Conversion> conversions;
  std::vector<StagedLoad> staged;
  std::map<const ir::Value *, RegLayout> yielded; // per loop argument: the layout that the yielded value had
  double cycles = 0;                              // of one block
  double slots = 0;                               // of issue and of shared memory's pipe, however they overlap
  std::vector<BodyWork> bodies;                   // that `cycles` is the sum of
  std::string problem;                            // not empty: no legal layout; says why
  SourceLoc problem_at;                           // of the op
};

class LayoutCost {
public:
  LayoutCost(const ir::Target &target, const ir::Part &part, int64_t warps);
  Work pointwise(const ir::Op &op, const RegLayout &l) const;
  Work access(const ir::Op &op, const RegLayout &l, DType t, bool store); // load, store, atomic
  // The conversion of a loaded tile. Where it goes through shared memory, the load itself writes there by asynchronous
  // copies, and only the read is left: in a loop (`ring`) of rows in chunks of 16 bytes, which is what such copies
  // write.
  Work staged(const RegLayout &coalesced, const RegLayout &to, DType t, bool ring);
  Work item(const RegLayout &to, DType t); // reading a tile from a ring's slot
  bool through_shared(const RegLayout &from, const RegLayout &to, DType t);
  Work reduce(const ir::Op &op, const RegLayout &operand) const;
  Work scan(const ir::Op &op, const RegLayout &l) const; // in this layout, of which the axis must be bit_by_bit()
  // A product and the layouts of its operands and result, which follow from the configuration.
  struct Product {
    RegLayout a, b, acc;
    Work work;
  };
  const Product &product(const ir::Op &op, const MmaConfig &c);
  Work conversion(const RegLayout &from, const RegLayout &to, DType t);
  // The cheapest way from v's home `from` to `to`; `staged`: v is in shared memory of a loop's ring.
  Work conversion(const ir::Value *v, const RegLayout &from, const RegLayout &to, bool staged, Conversion::How &how);
  // f32 partial sums through shared memory between as many warps.
  Work exchange(int64_t registers, int64_t sharers) const;
  int64_t vector_elements(const ir::Op &op, DType t) const; // elements of the widest access of a blocked layout

private:
  const SmemCost &ring_read(const RegLayout &to, int64_t bytes);
  Work product_work(const ir::Op &op, const MmaConfig &c, const RegLayout &a, const RegLayout &b,
                    const RegLayout &acc) const;
  Work access_work(const ir::Op &op, const RegLayout &l, DType t, bool store) const;
  double per_core() const { return double((warps_ + 3) / 4); } // warps of a sub-core
  const ir::Part &part_;
  int64_t warps_;
  const ir::Target &target_;
  ConvertCosts costs_;
  ConversionPlanner planner_;
  // The search asks for the same again and again.
  std::map<std::pair<const ir::Op *, decltype(MmaConfig().key())>, Product> products_;
  std::map<const ir::Op *, std::unordered_map<RegLayout, Work>> accesses_;
  std::map<int64_t, std::unordered_map<RegLayout, SmemCost>> ring_reads_; // by bytes of an element
  std::unordered_map<const ir::Value *, int64_t> remake_ops_;
};

// Elements of the widest access of at most `max_bytes` along the innermost dim, from what is known of the tile's place.
int64_t access_vector(const ir::Op &op, DType t, int64_t max_bytes);
// The element type that a conversion moves, and the tile's fast dims for a coalesced layout of an access.
RegLayout access_layout(const ir::Op &op, DType t, const LayoutCost &cost, int64_t warps);
// The layout with the warps of `from`, and registers and lanes in the order of `like`.
RegLayout within_warps(const RegLayout &like, const RegLayout &from);
bool is_scan(const ir::Op &op);
RegLayout scan_layout(const ir::Op &op, int64_t warps);
RegLayout default_layout(const ir::Type &t, int64_t warps); // blocked, vectors of up to 16 bytes along the last dim

// Of `program`: the function's body or one of its roles.
LayoutPlan propagate_layouts(ir::Function &f, ir::Block *program, const LayoutVariables &v, LayoutCost &cost);

struct LayoutDecision {
  LayoutVariables variables;
  LayoutPlan plan;
};
// Chooses everything; `plan.problem` says why there is none.
LayoutDecision search_layouts(ir::Function &f, ir::Block *program, const ir::Target &target, const ir::Part &part);
void apply_layouts(ir::Function &f, ir::Block *program, const LayoutDecision &d);

// Extents that are no powers of two: layouts hold more elements than the tile.
inline bool has_padding(const ir::Type &t) {
  return std::any_of(t.shape.begin(), t.shape.end(), [](int64_t n) { return n & (n - 1); });
}

int64_t trip_estimate(const ir::Op &loop); // of a for loop: exact if constant

} // namespace tkc::passes

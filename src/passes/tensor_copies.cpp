// A tensor copy brings a box of up to 256 elements along each dim of a tensor. Its inner coordinate lies at a multiple
// of 16 bytes (hardware traps otherwise), its place in shared memory at a multiple of 128, and with a swizzle of w
// bytes its rows are at most w bytes wide and the pattern repeats every 8 w bytes. A wider tile is brought by columns:
// box after box (layout/smem_layout.h, tma_swizzle). What lies beyond the tensor arrives as zero, which is just what a
// load gives.
//
// A bulk copy brings one row that lies within the tensor, without a tensor map.
#include "passes/tensor_copies.h"
#include <algorithm>
#include <bit>

namespace tkc::passes {

using ir::Op;
using ir::Value;

namespace {
constexpr int64_t kMostBox = 256, kMostRank = 5;

class Plan {
public:
  Plan(const ir::Function &f, const Op &load, const ir::Type &tile)
      : f_(f), load_(load), tile_(tile), tensor_(load.operand(0)) {
    element_ = dtype_bytes(tile.dtype);
    const std::vector<int64_t> &sizes = load.attrs.ints("sizes"), &drop = load.attrs.ints("drop");
    for (size_t d = 0; d < sizes.size(); d++) extent_.push_back(drop[d] ? 1 : sizes[d]);
    inner_ = extent_.empty() ? 1 : extent_.back();
  }

  // What no copy by the asynchronous proxy can do.
  std::string obstacle() const {
    if (tensor_->op && tensor_->op->kind == ir::OpKind::RecordField)
      return "it is a field of records, of which no whole one is taken or whose rows have gaps";
    const ir::Param *param = nullptr;
    for (const ir::Param &p : f_.params)
      if (p.present && f_.param_value(p.name) == tensor_) param = &p;
    if (!param) return "it is a part of a tensor";
    if (param->any_strides) return "its innermost stride is a run-time value";
    if (int64_t(extent_.size()) > kMostRank) return fmt::format("the tensor has {} dims", extent_.size());
    if (dtype_bits(tile_.dtype) < 8) return "its elements are narrower than a byte";
    for (size_t i = 1; i <= extent_.size(); i++)
      if (DType t = load_.operand(i)->type.dtype; dtype_bits(t) > 32 || t == DType::U32)
        return fmt::format("its place is computed in {}", dtype_name(t));
    for (int64_t n : tile_.shape)
      if (!std::has_single_bit(uint64_t(n))) return fmt::format("an extent of {} is no power of two", n);
    if (inner_ * element_ % 16) return fmt::format("its rows have {} bytes, not a multiple of 16", inner_ * element_);
    int64_t start = load_.attrs.has("divisor") ? load_.attrs.ints("divisor").back() : 1;
    if (start * element_ % 16)
      return fmt::format("its rows start at multiples of {} bytes, not of 16", start * element_);
    return "";
  }

  // One row within the tensor.
  bool is_row() const {
    bool inside = load_.attrs.has("in_bounds");
    for (size_t d = 0; d < extent_.size() && inside; d++)
      inside = load_.attrs.ints("in_bounds")[d] && (extent_[d] == 1 || d + 1 == extent_.size());
    return inside;
  }

  bool is_inside() const {
    const std::vector<int64_t> *inside = load_.attrs.has("in_bounds") ? &load_.attrs.ints("in_bounds") : nullptr;
    return inside && std::find(inside->begin(), inside->end(), 0) == inside->end();
  }

  // Fills in box and swizzle for a layout that TMA writes; false: it does not with this tile.
  bool boxes(TensorCopy &out) const {
    std::optional<int> mode = tma_mode(out.smem);
    if (!mode) return false;
    out.swizzle = *mode;
    out.box = extent_;
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < extent_.size(); d++) {
      rows *= extent_[d];
      out.box[d] = std::min(extent_[d], kMostBox);
    }
    int64_t widest = *mode ? *mode / element_ : rows == 1 ? kMostBox : inner_;
    out.box.back() = std::min(inner_, widest);
    if (out.box.back() > kMostBox) return false;
    // Every box begins a pattern.
    int64_t pattern = *mode ? *mode * 8 : 128, box_bytes = element_, tile_bytes = element_;
    for (int64_t n : out.box) box_bytes *= n;
    for (int64_t n : extent_) tile_bytes *= n;
    return box_bytes == tile_bytes || box_bytes % pattern == 0;
  }
  int64_t bytes() const {
    int64_t n = element_;
    for (int64_t e : extent_) n *= e;
    return n;
  }

private:
  const ir::Function &f_;
  const Op &load_;
  const ir::Type &tile_;
  const Value *tensor_;
  std::vector<int64_t> extent_; // of the tile, per dim of the tensor
  int64_t element_ = 1, inner_ = 1;
};

// `wanted`: a swizzle in bytes; else the mode with the fewest bank conflicts, of equal ones the widest, which takes the
// fewest copies.
TensorCopy best_box(const Plan &plan, const ir::Type &t, std::span<const SmemUse> uses, const LayoutFeatures &features,
                    std::optional<int64_t> wanted) {
  TensorCopy out;
  out.bytes = plan.bytes();
  std::optional<TensorCopy> best;
  double least = 0;
  for (int swizzle : {128, 64, 32, 0}) {
    if (wanted && swizzle != *wanted) continue;
    auto l = swizzle ? tma_swizzle(t.shape, dtype_bytes(t.dtype), swizzle) : plain_smem(t.shape, dtype_bytes(t.dtype));
    if (!l) continue;
    out.smem = *l;
    if (!swizzle) out.smem.alignment = 128;
    if (!plan.boxes(out)) continue;
    double wavefronts = 0;
    for (const SmemUse &u : uses)
      wavefronts += u.weight * double(smem_load_cost(u.layout, out.smem, features).wavefronts);
    if (best && wavefronts >= least) continue;
    least = wavefronts;
    best = out;
  }
  if (best) return *best;
  out.problem = wanted ? fmt::format("no box of a tensor map fits it with a swizzle of {} bytes", *wanted)
                       : "no box of a tensor map fits it";
  return out;
}
} // namespace

TensorCopy plan_tensor_copy(const ir::Function &f, const Op &load, std::span<const SmemUse> uses,
                            const LayoutFeatures &features, bool bulk_only, std::optional<int64_t> wanted) {
  TensorCopy out;
  const ir::Type &t = load.result()->type;
  Plan plan(f, load, t);
  out.problem = plan.obstacle();
  if (!out.problem.empty()) return out;
  out.bytes = plan.bytes();
  if (out.bytes >= 1 << 20) {
    out.problem = "a barrier counts fewer bytes";
    return out;
  }
  if (plan.is_row()) {
    out.smem = plain_smem(t.shape, dtype_bytes(t.dtype));
    out.smem.alignment = 128;
    return out;
  }
  if (bulk_only) {
    out.problem = "it is not one row within the tensor";
    return out;
  }
  return best_box(plan, t, uses, features, wanted);
}

TensorCopy plan_box(const ir::Function &f, const Op &copy, const ir::Type &tile, std::span<const SmemUse> uses,
                    const LayoutFeatures &features, std::optional<int64_t> swizzle) {
  Plan plan(f, copy, tile);
  TensorCopy out;
  out.problem = plan.obstacle();
  return out.problem.empty() ? best_box(plan, tile, uses, features, swizzle) : out;
}

std::string row_copy_problem(const ir::Function &f, const Op &copy, const ir::Type &tile) {
  Plan plan(f, copy, tile);
  std::string problem = plan.obstacle();
  if (problem.empty() && !plan.is_inside())
    problem = "its rows are not known to lie within the tensor; tma_load and copy_async take what lies outside as zero";
  return problem;
}

} // namespace tkc::passes

// Atomic updates of memory.
#include "ops/access.h"
#include "ops/adjoint.h"
#include "ops/combine.h"
#include "ops/scratch.h"
#include <algorithm>
#include <array>

namespace tkc::ops {

namespace {

constexpr std::array kAddTypes = {DType::I32, DType::U32,  DType::I64, DType::U64,
                                  DType::F16, DType::BF16, DType::F32, DType::F64};
constexpr std::array kOrderTypes = {DType::I32, DType::U32, DType::I64, DType::U64, DType::F32, DType::F64};
constexpr std::array kBitTypes = {DType::I32, DType::U32, DType::I64, DType::U64};

template <const auto &kTypes, bool kCompare = false> void infer_atomic(InferCtx &ctx, Op &op) {
  auto shape = infer_access(ctx, op);
  if (!shape) return;
  default_attr(op, "has_mask", int64_t(0));
  DType t = op.operand(0)->type.dtype;
  if (std::find(kTypes.begin(), kTypes.end(), t) == kTypes.end()) {
    std::string list;
    for (DType a : kTypes) list += (list.empty() ? "" : ", ") + std::string(dtype_name(a));
    return ctx.error_at(0, DiagKind::atomic_dtype, shown(op), list, dtype_name(t));
  }
  size_t value = op.operand(0)->type.shape.size() + 1, mask = value + (kCompare ? 2 : 1);
  size_t count = mask + (op.attrs.i("has_mask") ? 1 : 0);
  if (!has_operands(ctx, op, count, count)) return;
  for (size_t i = value; i < mask; i++)
    if (!is_access_tile(ctx, op, i, *shape, t)) return;
  if (check_mask(ctx, op, mask, *shape)) tile_result(ctx, op, Type::tile(t, *shape));
}

// F gives the new element from the old one, the value and the comparand.
template <typename F, bool kCompare = false> void interp_atomic(interp::Ctx &ctx, const Op &op) {
  interp::Storage &s = *ctx.tensor(op.operand(0)).storage;
  size_t next = op.operand(0)->type.shape.size() + 1;
  const interp::Tile &value = ctx.tile(op.operand(next++));
  const interp::Tile &compare = kCompare ? ctx.tile(op.operand(next++)) : value;
  const interp::Tile *mask = op.attrs.i("has_mask") ? &ctx.tile(op.operand(next)) : nullptr;
  interp::Tile old(value.dtype, value.shape);
  {
    std::lock_guard guard(s.atomics);
    for_elements(ctx, op, [&](int64_t k, int64_t position) {
      if (position < 0 || (mask && !mask->i[size_t(k)])) return;
      if constexpr (requires { F::f(0.0, 0.0); })
        if (old.is_float()) {
          double &x = s.f[size_t(position)];
          old.f[size_t(k)] = peek(x);
          poke(x, round_to(old.dtype, F::f(old.f[size_t(k)], value.f[size_t(k)])));
          return;
        }
      int64_t &x = s.i[size_t(position)], before = peek(x);
      old.i[size_t(k)] = before;
      if constexpr (kCompare)
        poke(x, F::i(before, value.i[size_t(k)], compare.i[size_t(k)]));
      else
        poke(x, wrap_to(old.dtype, F::i(old.dtype, before, value.i[size_t(k)])));
    });
  }
  ctx.set(op.result(), std::move(old));
}

struct AndF {
  static int64_t i(DType, int64_t a, int64_t b) { return a & b; }
};
struct OrF {
  static int64_t i(DType, int64_t a, int64_t b) { return a | b; }
};
struct XorF {
  static int64_t i(DType, int64_t a, int64_t b) { return a ^ b; }
};
struct ExchF {
  static double f(double, double b) { return b; }
  static int64_t i(DType, int64_t, int64_t b) { return b; }
};
struct CasF {
  static int64_t i(int64_t old, int64_t value, int64_t compare) { return old == compare ? value : old; }
};

constexpr ir::Effect kUpdates = {0, ir::Space::Global, ir::Access::ReadWrite};

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kAtomicAdd = {.name = "atomic_add",
                              .source = "atomic_add",
                              .signature = "atomic_add(x: view, value: tile, mask: tile?)",
                              .doc = "Adds a tile to memory, each element in one indivisible step, and returns what "
                                     "was there before (0 for elements "
                                     "that are outside or masked out). Blocks add in any order, so float sums may "
                                     "differ in the last bits from run to run.",
                              .example = "let t = load(x[:, :]);\nstore(y[:, :], t);\natomic_add(y[0, iota(N) % 4], "
                                         "t[0, :]);   // eight additions to each of four elements",
                              .effects = kUpdates,
                              .layout = {LayoutKind::Anchor},
                              .scratch = atomic_scratch,
                              .derivative = kOfKernels,
                              .infer = infer_atomic<kAddTypes>,
                              .interp = interp_atomic<SumF>,
                              .lower = lower_AtomicAdd};

constexpr OpDef kAtomicMax = {
    .name = "atomic_max",
    .source = "atomic_max",
    .signature = "atomic_max(x: view, value: tile, mask: tile?)",
    .doc = "Replaces elements of memory by the larger of themselves and the tile's, and returns what was there before.",
    .example = "let t = load(x[:, :]);\nstore(y[:, :], t);\natomic_max(y[0, :], t[1, :]);",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kOrderTypes>,
    .interp = interp_atomic<MaxF>,
    .lower = lower_AtomicMax};

constexpr OpDef kAtomicMin = {
    .name = "atomic_min",
    .source = "atomic_min",
    .signature = "atomic_min(x: view, value: tile, mask: tile?)",
    .doc =
        "Replaces elements of memory by the smaller of themselves and the tile's, and returns what was there before.",
    .example = "let t = load(x[:, :]);\nstore(y[:, :], t);\natomic_min(y[0, :], t[1, :]);",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kOrderTypes>,
    .interp = interp_atomic<MinF>,
    .lower = lower_AtomicMin};

constexpr OpDef kAtomicAnd = {
    .name = "atomic_and",
    .source = "atomic_and",
    .signature = "atomic_and(x: view, value: tile, mask: tile?)",
    .doc = "Keeps of elements of memory the bits that the tile has, and returns what was there before.",
    .example = "# with n: inout tensor<i32>[M, N]\nlet before = atomic_and(n[:, :], full<i32>([M, N], 255));\n# "
               "store(y[:, :], f32(before));",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kBitTypes>,
    .interp = interp_atomic<AndF>,
    .lower = lower_AtomicAnd};

constexpr OpDef kAtomicOr = {
    .name = "atomic_or",
    .source = "atomic_or",
    .signature = "atomic_or(x: view, value: tile, mask: tile?)",
    .doc = "Sets in elements of memory the bits that the tile has, and returns what was there before.",
    .example = "# with n: inout tensor<i32>[M, N]\nlet before = atomic_or(n[0, :], 1 << iota(N) % 8);\n# store(y[0, "
               ":], f32(before));",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kBitTypes>,
    .interp = interp_atomic<OrF>,
    .lower = lower_AtomicOr};

constexpr OpDef kAtomicXor = {
    .name = "atomic_xor",
    .source = "atomic_xor",
    .signature = "atomic_xor(x: view, value: tile, mask: tile?)",
    .doc = "Flips in elements of memory the bits that the tile has, and returns what was there before.",
    .example =
        "# with n: inout tensor<i32>[M, N]\nlet before = atomic_xor(n[0, :], iota(N));\n# store(y[0, :], f32(before));",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kBitTypes>,
    .interp = interp_atomic<XorF>,
    .lower = lower_AtomicXor};

constexpr OpDef kAtomicExch = {
    .name = "atomic_exch",
    .source = "atomic_exch",
    .signature = "atomic_exch(x: view, value: tile, mask: tile?)",
    .doc = "Writes the tile to memory and returns what was there before, each element in one indivisible step.",
    .example = "let t = load(x[:, :]);\nstore(y[:, :], t);\nlet before = atomic_exch(y[0, :], t[1, :]);\n# store(y[2, "
               ":], before);",
    .effects = kUpdates,
    .layout = {LayoutKind::Anchor},
    .scratch = atomic_scratch,
    .derivative = kOfKernels,
    .infer = infer_atomic<kOrderTypes>,
    .interp = interp_atomic<ExchF>,
    .lower = lower_AtomicExch};

constexpr OpDef kAtomicCas = {.name = "atomic_cas",
                              .source = "atomic_cas",
                              .signature = "atomic_cas(x: view, value: tile, compare: tile, mask: tile?)",
                              .doc = "Writes `value` where memory holds `compare`, and returns what was there before.",
                              .example = "# with n: inout tensor<i32>[M, N]\nlet before = atomic_cas(n[0, :], value = "
                                         "iota(N), compare = full<i32>([N], 0));\n"
                                         "# store(y[0, :], f32(before));",
                              .effects = kUpdates,
                              .layout = {LayoutKind::Anchor},
                              .scratch = atomic_scratch,
                              .derivative = kOfKernels,
                              .infer = infer_atomic<kBitTypes, true>,
                              .interp = interp_atomic<CasF, true>,
                              .lower = lower_AtomicCas};

} // namespace tkc::ir

// Constants, and ops that move elements without computing: their layouts follow from the operand's.
#include "layout/pieces.h"
#include "ops/adjoint.h"
#include "ops/boxes.h"
#include "ops/common.h"
#include "ops/scratch.h"
#include <algorithm>
#include <numeric>

namespace tkc::ops {

namespace {

using Layout = std::optional<RegLayout>;

template <typename T> const std::vector<T> &elements(const interp::Tile &t) {
  if constexpr (std::is_same_v<T, double>)
    return t.f;
  else
    return t.i;
}
template <typename T> std::vector<T> &elements(interp::Tile &t) {
  if constexpr (std::is_same_v<T, double>)
    return t.f;
  else
    return t.i;
}
// Calls f with a value of the element type of the tile: double or int64_t.
template <typename F> void by_element(const interp::Tile &t, F &&f) {
  if (t.is_float())
    f(double());
  else
    f(int64_t());
}

// Copies the box at `from` of x to `to` of y.
void copy_box(const interp::Tile &x, const Ints &from, interp::Tile &y, const Ints &to, const Ints &box) {
  Ints sx = row_major(x.shape), sy = row_major(y.shape);
  by_element(x, [&](auto zero) {
    using T = decltype(zero);
    const T *in = elements<T>(x).data();
    T *out = elements<T>(y).data();
    for_rows(box, sx, sy, dot(from, sx), dot(to, sy),
             [&](int64_t n, int64_t a, int64_t b) { std::copy_n(in + a, n, out + b); });
  });
}

// ---- constants

void infer_constant(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 0, 0)) return;
  ctx.result(Type::scalar(op.attrs.dtype("dtype")));
}

void interp_constant(interp::Ctx &ctx, const Op &op) {
  interp::Tile t(op.attrs.dtype("dtype"), {});
  if (t.is_float())
    t.f[0] = op.attrs.get<double>("value");
  else
    t.i[0] = op.attrs.i("value");
  ctx.set(op.result(), std::move(t));
}

void infer_iota(InferCtx &ctx, Op &op) {
  default_attr(op, "dtype", DType::I32);
  if (!has_operands(ctx, op, 0, 0)) return;
  DType t = op.attrs.dtype("dtype");
  int64_t n = op.attrs.i("n");
  if (!dtype_in(t, kNumbers))
    return ctx.error(DiagKind::operand_dtype, "iota", "a float or an integer", "dtype", dtype_name(t));
  if (is_integer(t) && int_less(t, int_highest(t), n - 1))
    return ctx.error(DiagKind::iota_range, n, dtype_name(t), int_highest(t));
  tile_result(ctx, op, Type::tile(t, {n}));
}

void interp_iota(interp::Ctx &ctx, const Op &op) {
  interp::Tile t(op.attrs.dtype("dtype"), {op.attrs.i("n")});
  for (size_t k = 0; k < t.f.size(); k++) t.f[k] = round_to(t.dtype, double(k));
  std::iota(t.i.begin(), t.i.end(), 0);
  ctx.set(op.result(), std::move(t));
}

// ---- reshape, expand_dims

void infer_reshape(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  const Type &x = op.operand(0)->type;
  Ints shape = op.attrs.ints("shape");
  int64_t known = 1, open = 0;
  for (int64_t n : shape) {
    open += n == -1;
    if (n != -1 && __builtin_mul_overflow(known, n, &known))
      return ctx.error(DiagKind::tile_too_large, shown(op), ir::shape_str(shape), ir::kMaxTileElements);
  }
  if (open == 1 && known > 0 && x.elements() % known == 0) {
    *std::find(shape.begin(), shape.end(), -1) = x.elements() / known;
    op.attrs.set("shape", shape);
    known = x.elements();
  }
  bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; });
  if (negative || known != x.elements()) {
    std::string count = open > 1    ? "one extent may be -1"
                        : open == 1 ? fmt::format("a multiple of {} elements", known)
                                    : counted(known, "element");
    return ctx.error(DiagKind::reshape_count, ir::shape_str(x.shape), x.elements(), ir::shape_str(shape), count);
  }
  tile_result(ctx, op, x.with_shape(shape));
}

void interp_reshape(interp::Ctx &ctx, const Op &op) {
  interp::Tile t = ctx.take_tile(op, 0);
  t.shape = op.result()->type.shape;
  ctx.set(op.result(), std::move(t));
}

Layout reshape_layout(const Op &op, const RegLayout &l) { return l.reshape(op.result()->type.shape); }
Layout reshape_back(const Op &op, const RegLayout &l) { return l.reshape(op.operand(0)->type.shape); }

void infer_expand_dims(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  const Type &x = op.operand(0)->type;
  if (!normalise_axis(ctx, op, x.rank() + 1)) return;
  Ints shape = x.shape;
  shape.insert(shape.begin() + op.attrs.i("axis"), 1);
  tile_result(ctx, op, x.with_shape(shape));
}

Layout expand_layout(const Op &op, const RegLayout &l) { return l.insert_axis(int(op.attrs.i("axis"))); }
Layout expand_back(const Op &op, const RegLayout &l) { return l.slice(int(op.attrs.i("axis"))); }

// ---- broadcast

void infer_broadcast(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  const Type &x = op.operand(0)->type;
  const Ints &shape = op.attrs.ints("shape");
  if (!x.is_scalar()) {
    if (x.rank() != int64_t(shape.size()))
      return ctx.error(DiagKind::operand_ranks_differ, shown(op), "x", shape_text(x), "the result",
                       "shape " + ir::shape_str(shape));
    for (size_t d = 0; d < shape.size(); d++)
      if (x.shape[d] != shape[d] && x.shape[d] != 1)
        return ctx.error(DiagKind::broadcast_dim, ir::shape_str(x.shape), ir::shape_str(shape), d, x.shape[d],
                         shape[d]);
  }
  tile_result(ctx, op, x.with_shape(shape));
}

void interp_broadcast(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  interp::Tile t(x.dtype, op.attrs.ints("shape"));
  Ints from(t.shape.size(), 0), strides = row_major(x.shape);
  for (size_t d = 0; d < x.shape.size(); d++) from[d] = x.shape[d] == 1 ? 0 : strides[d];
  bool constant = from.empty() || from.back() == 0;
  by_element(x, [&](auto zero) {
    using T = decltype(zero);
    const T *in = elements<T>(x).data();
    T *out = elements<T>(t).data();
    for_rows(t.shape, from, row_major(t.shape), 0, 0, [&](int64_t n, int64_t a, int64_t b) {
      if (constant)
        std::fill_n(out + b, n, in[a]);
      else
        std::copy_n(in + a, n, out + b);
    });
  });
  ctx.set(op.result(), std::move(t));
}

Layout broadcast_back(const Op &op, const RegLayout &l) {
  const Type &x = op.operand(0)->type;
  if (x.is_scalar()) return replicated({}, l.num_warps());
  return l.broadcast_source(x.shape);
}

// ---- transpose

void infer_transpose(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  const Type &x = op.operand(0)->type;
  if (!op.attrs.has("perm")) {
    Ints perm(x.shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    if (perm.size() >= 2) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    op.attrs.set("perm", perm);
  }
  const Ints &perm = op.attrs.ints("perm");
  Ints sorted = perm, shape;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < sorted.size(); d++)
    if (sorted[d] != int64_t(d) || sorted.size() != x.shape.size())
      return ctx.error(DiagKind::transpose_perm, x.str(), ir::shape_str(perm));
  if (perm.empty() && x.rank() != 0) return ctx.error(DiagKind::transpose_perm, x.str(), ir::shape_str(perm));
  for (int64_t d : perm) shape.push_back(x.shape[size_t(d)]);
  tile_result(ctx, op, x.with_shape(shape));
}

void interp_transpose(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  interp::Tile t(x.dtype, op.result()->type.shape);
  Ints strides = row_major(x.shape), from;
  for (int64_t d : op.attrs.ints("perm")) from.push_back(strides[size_t(d)]);
  int64_t step = from.empty() ? 0 : from.back();
  by_element(x, [&](auto zero) {
    using T = decltype(zero);
    const T *in = elements<T>(x).data();
    T *out = elements<T>(t).data();
    for_rows(t.shape, from, row_major(t.shape), 0, 0, [&](int64_t n, int64_t a, int64_t b) {
      for (int64_t k = 0; k < n; k++) out[b + k] = in[a + k * step];
    });
  });
  ctx.set(op.result(), std::move(t));
}

Layout transpose_layout(const Op &op, const RegLayout &l) {
  const Ints &perm = op.attrs.ints("perm");
  return l.permute(std::vector<int>(perm.begin(), perm.end()));
}
Layout transpose_back(const Op &op, const RegLayout &l) {
  const Ints &perm = op.attrs.ints("perm");
  std::vector<int> inverse(perm.size());
  for (size_t d = 0; d < perm.size(); d++) inverse[size_t(perm[d])] = int(d);
  return l.permute(inverse);
}

// ---- concat, slice, insert

void infer_concat(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, SIZE_MAX) || !is_tile(ctx, op, 0, kAny)) return;
  const Type &first = op.operand(0)->type;
  default_attr(op, "axis", int64_t(0));
  if (!normalise_axis(ctx, op, first.rank())) return;
  size_t axis = size_t(op.attrs.i("axis"));
  Ints shape = first.shape;
  for (size_t i = 1; i < op.operands.size(); i++) {
    if (!is_tile(ctx, op, i, kAny) || !same_dtype(ctx, op, 0, i)) return;
    const Type &t = op.operand(i)->type;
    if (t.rank() != first.rank())
      return ctx.error_at(i, DiagKind::operand_ranks_differ, shown(op), operand_name(op, 0), shape_text(first),
                          operand_name(op, i), shape_text(t));
    for (size_t d = 0; d < shape.size(); d++)
      if (d != axis && t.shape[d] != shape[d])
        return ctx.error_at(i, DiagKind::operand_shapes_differ, shown(op), operand_name(op, 0), shape_text(first),
                            operand_name(op, i), shape_text(t), d, shape[d], t.shape[d]);
    shape[axis] += t.shape[axis];
  }
  tile_result(ctx, op, first.with_shape(shape));
}

void interp_concat(interp::Ctx &ctx, const Op &op) {
  interp::Tile t(op.result()->type.dtype, op.result()->type.shape);
  Ints zero(t.shape.size(), 0), to = zero;
  for (const ir::Value *v : op.operands) {
    const interp::Tile &x = ctx.tile(v);
    copy_box(x, zero, t, to, x.shape);
    to[size_t(op.attrs.i("axis"))] += x.shape[size_t(op.attrs.i("axis"))];
  }
  ctx.set(op.result(), std::move(t));
}

// starts and sizes against the shape of operand 0.
bool check_box(InferCtx &ctx, Op &op, const Ints &starts, const Ints &sizes) {
  const Type &x = op.operand(0)->type;
  if (int64_t(starts.size()) != x.rank() || int64_t(sizes.size()) != x.rank()) {
    ctx.error(DiagKind::too_many_indices, counted(int64_t(starts.size()), "index position"), x.str(), x.rank());
    return false;
  }
  for (size_t d = 0; d < sizes.size(); d++)
    if (starts[d] < 0 || sizes[d] < 0 || starts[d] > x.shape[d] - sizes[d]) {
      ctx.error(DiagKind::slice_range, shown(op), x.str(), d, starts[d], starts[d] + sizes[d], x.shape[d]);
      return false;
    }
  return true;
}

void infer_slice(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tile(ctx, op, 0, kAny)) return;
  if (!check_box(ctx, op, op.attrs.ints("starts"), op.attrs.ints("sizes"))) return;
  tile_result(ctx, op, op.operand(0)->type.with_shape(op.attrs.ints("sizes")));
}

void interp_slice(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  interp::Tile t(x.dtype, op.attrs.ints("sizes"));
  copy_box(x, op.attrs.ints("starts"), t, Ints(t.shape.size(), 0), t.shape);
  ctx.set(op.result(), std::move(t));
}

Layout slice_layout(const Op &op, const RegLayout &l) {
  return part_layout(l, op.attrs.ints("starts"), op.attrs.ints("sizes"));
}
Layout slice_back(const Op &op, const RegLayout &l) {
  return whole_layout(l, op.operand(0)->type.shape, op.attrs.ints("starts"));
}

void infer_insert(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 2, 2) || !is_tile(ctx, op, 0, kAny) || !is_tile(ctx, op, 1, kAny) ||
      !same_dtype(ctx, op, 0, 1))
    return;
  if (!check_box(ctx, op, op.attrs.ints("starts"), op.operand(1)->type.shape)) return;
  tile_result(ctx, op, op.operand(0)->type);
}

void interp_insert(interp::Ctx &ctx, const Op &op) {
  interp::Tile x = ctx.take_tile(op, 0);
  const interp::Tile &y = ctx.tile(op.operand(1));
  copy_box(y, Ints(y.shape.size(), 0), x, op.attrs.ints("starts"), y.shape);
  ctx.set(op.result(), std::move(x));
}

// ---- slices at run-time positions

bool check_dynamic(InferCtx &ctx, Op &op, size_t first, const Ints &sizes) {
  if (ctx.function().kind != ir::FunctionKind::Reference) {
    ctx.error(DiagKind::dynamic_tile_index);
    return false;
  }
  const Type &x = op.operand(0)->type;
  if (int64_t(op.operands.size() - first) != x.rank() || int64_t(sizes.size()) != x.rank()) {
    ctx.error(DiagKind::too_many_indices, counted(int64_t(op.operands.size() - first), "index position"), x.str(),
              x.rank());
    return false;
  }
  for (size_t i = first; i < op.operands.size(); i++)
    if (!is_scalar(ctx, op, i, kInts)) return false;
  for (size_t d = 0; d < sizes.size(); d++)
    // A part of an empty tensor is wrong only if it is reached, which the interpreter sees.
    if (x.shape[d] > 0 && (sizes[d] < 0 || sizes[d] > x.shape[d])) {
      ctx.error(DiagKind::slice_range, shown(op), x.str(), d, 0, sizes[d], x.shape[d]);
      return false;
    }
  return true;
}

void infer_dyn_slice(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, SIZE_MAX) || !is_tile(ctx, op, 0, kAny)) return;
  if (!check_dynamic(ctx, op, 1, op.attrs.ints("sizes"))) return;
  tile_result(ctx, op, op.operand(0)->type.with_shape(op.attrs.ints("sizes")));
}

void infer_dyn_update(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 2, SIZE_MAX) || !is_tile(ctx, op, 0, kAny) || !is_tile(ctx, op, 1, kAny) ||
      !same_dtype(ctx, op, 0, 1))
    return;
  if (!check_dynamic(ctx, op, 2, op.operand(1)->type.shape)) return;
  tile_result(ctx, op, op.operand(0)->type);
}

// The start operands, or nothing after a trap.
std::optional<Ints> run_time_starts(interp::Ctx &ctx, const Op &op, size_t first, const Ints &shape,
                                    const Ints &sizes) {
  Ints starts;
  for (size_t d = 0; d < shape.size(); d++) {
    int64_t s = ctx.scalar_i(op.operand(first + d));
    if (s < 0 || s > shape[d] - sizes[d]) {
      ctx.trap(op, fmt::format("dim {} covers {} : {}, outside 0 : {}", d, s, s + sizes[d], shape[d]));
      return std::nullopt;
    }
    starts.push_back(s);
  }
  return starts;
}

void interp_dyn_slice(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &x = ctx.tile(op.operand(0));
  auto starts = run_time_starts(ctx, op, 1, x.shape, op.attrs.ints("sizes"));
  if (!starts) return;
  interp::Tile t(x.dtype, op.attrs.ints("sizes"));
  copy_box(x, *starts, t, Ints(t.shape.size(), 0), t.shape);
  ctx.set(op.result(), std::move(t));
}

void interp_dyn_update(interp::Ctx &ctx, const Op &op) {
  auto starts = run_time_starts(ctx, op, 2, op.operand(0)->type.shape, op.operand(1)->type.shape);
  if (!starts) return;
  interp::Tile x = ctx.take_tile(op, 0);
  const interp::Tile &y = ctx.tile(op.operand(1));
  copy_box(y, Ints(y.shape.size(), 0), x, *starts, y.shape);
  ctx.set(op.result(), std::move(x));
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kConstant = {
    .name = "constant",
    .source = "-",
    .signature = "constant(dtype: type, value: int)",
    .doc = "A number of the source text in the dtype of its surroundings: a scalar; tiles are made by broadcasting it.",
    .example = "let a = load(x[:, :]) * 0.5;\n# store(y[:, :], a);",
    .layout = {LayoutKind::Free},
    .derivative = zero_derivative("it has no operands"),
    .infer = infer_constant,
    .interp = interp_constant,
    .lower = lower_Constant};

constexpr OpDef kIota = {
    .name = "iota",
    .source = "iota",
    .signature = "iota(n: int, dtype: type = i32)",
    .doc = "The tile [0, 1, ..., n - 1]; iota<f32>(n) gives floats.",
    .example =
        "let columns = iota(N);\nlet a = where(columns[None, :] < 20, load(x[:, :]), 0.0);\n# store(y[:, :], a);",
    .layout = {LayoutKind::Free},
    .derivative = zero_derivative("it has no operands"),
    .infer = infer_iota,
    .interp = interp_iota,
    .lower = lower_Iota};

constexpr OpDef kReshape = {
    .name = "reshape",
    .source = "reshape",
    .signature = "reshape(x: tile, shape: ints)",
    .doc =
        "The elements of x in row-major order as another shape with as many elements; one extent may be -1 and follows "
        "from the others.",
    .example = "let t = load(x[:, :]);\nlet pairs = reshape(t, [M, N / 2, 2]);\nlet a = sum(pairs, axis = 2);\n"
               "# store(y[:, 0 : N / 2], a);",
    .layout = {LayoutKind::Structural, reshape_layout, reshape_back},
    .scratch = reshape_scratch,
    .derivative = adjoint(adjoint_Reshape),
    .infer = infer_reshape,
    .interp = interp_reshape,
    .lower = lower_Reshape};

constexpr OpDef kExpandDims = {
    .name = "expand_dims",
    .source = "-",
    .signature = "expand_dims(x: tile, axis: int)",
    .doc = "x with a new dim of extent 1 at `axis`; written as an index: x[:, None].",
    .example = "let t = load(x[:, :]);\nlet a = t - max(t, axis = 1)[:, None];\n# store(y[:, :], a);",
    .layout = {LayoutKind::Structural, expand_layout, expand_back},
    .derivative = adjoint(adjoint_Reshape),
    .infer = infer_expand_dims,
    .interp = interp_reshape,
    .lower = lower_ExpandDims};

constexpr OpDef kBroadcast = {
    .name = "broadcast",
    .source = "broadcast",
    .signature = "broadcast(x: tile, shape: ints)",
    .doc = "x repeated along its dims of extent 1 to the shape, which has the same rank; a scalar becomes any shape. "
           "Operators and calls of several tiles do this by themselves.",
    .example = "let row = load(x[0, :]);\nlet a = broadcast(row[None, :], [M, N]);\n# store(y[:, :], a);",
    .layout = {LayoutKind::Structural, nullptr, broadcast_back},
    .derivative = adjoint(adjoint_Broadcast),
    .infer = infer_broadcast,
    .interp = interp_broadcast,
    .lower = lower_Broadcast};

constexpr OpDef kTranspose = {
    .name = "transpose",
    .source = "transpose",
    .signature = "transpose(x: tile, perm: ints = swapped)",
    .doc =
        "The dims of x in another order: dim d of the result is dim perm[d] of x. Without `perm`, and as x.T, the last "
        "two dims are swapped.",
    .example = "let t = load(x[:, :]);\nlet a = transpose(t[:, 0 : 16]);\n# store(y[:, 0 : 16], a);",
    .layout = {LayoutKind::Structural, transpose_layout, transpose_back},
    .derivative = adjoint(adjoint_Transpose),
    .infer = infer_transpose,
    .interp = interp_transpose,
    .lower = lower_Transpose};

constexpr OpDef kConcat = {.name = "concat",
                           .source = "concat",
                           .signature = "concat(xs: tile..., axis: int = 0)",
                           .doc = "Tiles one after the other along an axis; the other extents are equal.",
                           .example =
                               "let t = load(x[:, :]);\nlet rotated = concat(-t[:, 16 : 32], t[:, 0 : 16], axis = 1);\n"
                               "# store(y[:, :], rotated);",
                           .layout = {LayoutKind::Anchor},
                           .derivative = adjoint(adjoint_Concat),
                           .infer = infer_concat,
                           .interp = interp_concat,
                           .lower = lower_Concat};

constexpr OpDef kSlice = {
    .name = "slice",
    .source = "-",
    .signature = "slice(x: tile, starts: ints, sizes: ints)",
    .doc =
        "A part of a tile at compile-time positions, written as an index: x[0 : 8, :]. It costs nothing where the part "
        "begins at a multiple of its extent and the bits that tell it from the rest are held in registers.",
    .example = "let t = load(x[:, :]);\nlet left = t[:, 0 : 16];\n# store(y[:, 0 : 16], left);",
    .layout = {LayoutKind::Structural, slice_layout, slice_back},
    .derivative = adjoint(adjoint_Slice),
    .infer = infer_slice,
    .interp = interp_slice,
    .lower = lower_Slice};

constexpr OpDef kInsert = {
    .name = "insert",
    .source = "-",
    .signature = "insert(x: tile, y: tile, starts: ints)",
    .doc = "x with the part that begins at `starts` replaced by y, written as an assignment: x[0 : 8, :] = y.",
    .example = "var t = load(x[:, :]);\nt[:, 0 : 16] = t[:, 16 : 32] * 2.0;\n# store(y[:, :], t);",
    .layout = {LayoutKind::Anchor},
    .derivative = adjoint(adjoint_Insert),
    .infer = infer_insert,
    .interp = interp_insert,
    .lower = lower_Insert};

constexpr OpDef kDynSlice = {
    .name = "dyn_slice",
    .source = "-",
    .signature = "dyn_slice(x: tile, starts: scalar..., sizes: ints)",
    .doc =
        "A part of an array at a run-time position, written as an index: k[t, :]. References only; a position outside "
        "the array stops the program.",
    .example = "# reference f_ref(x: tensor<f64>[M, N]) -> tensor<f64>[N] {\nvar total = zeros<f64>[N];\n"
               "for t in 0 : M { total = total + x[t, :]; }\n# return total; }",
    .layout = {LayoutKind::Anchor},
    .derivative = adjoint(adjoint_DynSlice, Derivative::kOperands & ~kX),
    .infer = infer_dyn_slice,
    .interp = interp_dyn_slice,
    .lower = lower_DynSlice};

constexpr OpDef kDynUpdate = {
    .name = "dyn_update",
    .source = "-",
    .signature = "dyn_update(x: tile, y: tile, starts: scalar...)",
    .doc = "An array with the part at a run-time position replaced by y, written as an assignment: o[t, :] = y. "
           "References "
           "only; a position outside the array stops the program.",
    .example = "# reference f_ref(x: tensor<f64>[M, N]) -> tensor<f64>[M, N] {\nvar o = zeros<f64>[M, N];\n"
               "for t in 0 : M { o[t, :] = x[M - 1 - t, :]; }\n# return o; }",
    .layout = {LayoutKind::Anchor},
    .derivative = adjoint(adjoint_DynUpdate, Derivative::kOperands & ~(kX | kY)),
    .infer = infer_dyn_update,
    .interp = interp_dyn_update,
    .lower = lower_DynUpdate};

} // namespace tkc::ir

// Tensors: extents, parts, loads and stores.
#include "ops/access.h"
#include "ops/adjoint.h"
#include <algorithm>

namespace tkc::ops {

std::optional<std::vector<int64_t>> infer_access(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, SIZE_MAX) || !is_tensor(ctx, op, 0)) return std::nullopt;
  const Type &t = op.operand(0)->type;
  size_t rank = t.shape.size();
  if (!has_operands(ctx, op, rank + 1, SIZE_MAX)) return std::nullopt;
  default_attr(op, "drop", std::vector<int64_t>(rank, 0));
  default_attr(op, "gather", std::vector<int64_t>(rank, 0));
  const std::vector<int64_t> &sizes = op.attrs.ints("sizes"), &drop = op.attrs.ints("drop"),
                             &gather = op.attrs.ints("gather");
  if (sizes.size() != rank || drop.size() != rank || gather.size() != rank) {
    ctx.error(DiagKind::too_many_indices, counted(int64_t(sizes.size()), "index position"), t.str(), rank);
    return std::nullopt;
  }
  std::vector<int64_t> shape;
  for (size_t d = 0; d < rank; d++) {
    const Type &index = op.operand(d + 1)->type;
    if (gather[d]) {
      bool fits =
          index.is_tile() && index.rank() == 1 && is_integer(index.dtype) && index.shape[0] == sizes[d] && !drop[d];
      if (!fits) {
        ctx.error_at(d + 1, DiagKind::bad_index, index.str());
        return std::nullopt;
      }
    } else if (!is_scalar(ctx, op, d + 1, kInts)) {
      return std::nullopt;
    }
    if (!drop[d]) shape.push_back(sizes[d]);
    if (sizes[d] < 1 || (drop[d] && sizes[d] != 1)) {
      ctx.error(DiagKind::tile_extent, shown(op), ir::shape_str(sizes));
      return std::nullopt;
    }
  }
  return shape;
}

bool is_access_tile(InferCtx &ctx, Op &op, size_t i, const std::vector<int64_t> &shape, std::optional<DType> dtype) {
  if (!is_tile(ctx, op, i, kAny)) return false;
  const Type &t = op.operand(i)->type;
  if (dtype && t.dtype != *dtype) {
    ctx.error_at(i, DiagKind::operand_dtypes_differ, shown(op), operand_name(op, 0), dtype_name(*dtype),
                 operand_name(op, i), dtype_name(t.dtype));
    return false;
  }
  if (t.shape == shape) return true;
  Type want = Type::tile(t.dtype, shape);
  if (t.rank() != want.rank()) {
    ctx.error_at(i, DiagKind::operand_ranks_differ, shown(op), operand_name(op, 0), shape_text(want),
                 operand_name(op, i), shape_text(t));
    return false;
  }
  size_t d = 0;
  while (t.shape[d] == shape[d]) d++;
  ctx.error_at(i, DiagKind::operand_shapes_differ, shown(op), operand_name(op, 0), shape_text(want),
               operand_name(op, i), shape_text(t), d, shape[d], t.shape[d]);
  return false;
}

bool check_mask(InferCtx &ctx, Op &op, size_t i, const std::vector<int64_t> &shape) {
  if (!op.attrs.i("has_mask")) return true;
  return is_tile(ctx, op, i, kBools) && is_access_tile(ctx, op, i, shape, std::nullopt);
}

namespace {

// ---- dim, subview

void infer_dim(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tensor(ctx, op, 0)) return;
  if (normalise_axis(ctx, op, op.operand(0)->type.rank())) ctx.result(Type::scalar(DType::I32));
}

void interp_dim(interp::Ctx &ctx, const Op &op) {
  interp::Tile t(DType::I32, {});
  t.i[0] = wrap_to(DType::I32, ctx.tensor(op.operand(0)).extents[size_t(op.attrs.i("axis"))]);
  ctx.set(op.result(), std::move(t));
}

enum Range : int64_t { kWhole = 0, kBounds = 1, kIndex = 2 };

void infer_subview(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, SIZE_MAX) || !is_tensor(ctx, op, 0)) return;
  const Type &t = op.operand(0)->type;
  const std::vector<int64_t> &ranges = op.attrs.ints("ranges");
  if (int64_t(ranges.size()) != t.rank())
    return ctx.error(DiagKind::too_many_indices, counted(int64_t(ranges.size()), "index position"), t.str(), t.rank());
  std::vector<int64_t> shape;
  size_t operands = 1;
  for (size_t d = 0; d < ranges.size(); d++) {
    TKC_CHECK(ranges[d] >= kWhole && ranges[d] <= kIndex, "subview: range {} of dim {}", ranges[d], d);
    if (ranges[d] != kIndex) shape.push_back(ranges[d] == kWhole ? t.shape[d] : ir::kDynamic);
    operands += ranges[d] == kWhole ? 0 : ranges[d] == kBounds ? 2 : 1;
  }
  if (!has_operands(ctx, op, operands, operands)) return;
  for (size_t i = 1; i < operands; i++)
    if (!is_scalar(ctx, op, i, kInts)) return;
  ctx.result(Type::tensor(t.dtype, shape));
}

void interp_subview(interp::Ctx &ctx, const Op &op) {
  const interp::TensorRef &t = ctx.tensor(op.operand(0));
  interp::TensorRef out;
  out.storage = t.storage;
  out.offset = t.offset;
  const std::vector<int64_t> &ranges = op.attrs.ints("ranges");
  size_t next = 1;
  for (size_t d = 0; d < ranges.size(); d++) {
    int64_t lo = 0, hi = t.extents[d];
    if (ranges[d] == kBounds) {
      lo = std::clamp<int64_t>(ctx.scalar_i(op.operand(next++)), 0, hi);
      hi = std::clamp(ctx.scalar_i(op.operand(next++)), lo, hi);
    } else if (ranges[d] == kIndex) {
      lo = ctx.scalar_i(op.operand(next++));
      if (lo < 0 || lo >= hi)
        return ctx.trap(op, fmt::format("index {} of dim {} of `{}` is outside 0 : {}", lo, d, t.storage->name, hi));
    }
    out.offset += lo * t.strides[d];
    if (ranges[d] == kIndex) continue;
    out.extents.push_back(hi - lo);
    out.strides.push_back(t.strides[d]);
  }
  ctx.set(op.result(), std::move(out));
}

// ---- fields of records

void infer_record_field(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1) || !is_tensor(ctx, op, 0)) return;
  const Type &t = op.operand(0)->type;
  const std::vector<int64_t> &field = op.attrs.ints("shape"), &pitch = op.attrs.ints("pitch");
  DType dtype = op.attrs.dtype("dtype");
  int64_t end = op.attrs.i("offset") + dtype_bytes(dtype);
  for (size_t d = 0; d < field.size() && d < pitch.size(); d++) end += (field[d] - 1) * pitch[d] * dtype_bytes(dtype);
  TKC_CHECK(t.dtype == ir::kRecordWord && t.rank() > 0 && field.size() == pitch.size() && !field.empty() &&
                end <= t.shape.back() * 8,
            "a field of {} bytes in records of {}", end, t.str());
  std::vector<int64_t> shape(t.shape.begin(), t.shape.end() - 1);
  shape.insert(shape.end(), field.begin(), field.end());
  ctx.result(Type::tensor(dtype, shape));
}

void interp_record_field(interp::Ctx &ctx, const Op &op) {
  interp::TensorRef t = ctx.tensor(op.operand(0));
  const std::vector<int64_t> &field = op.attrs.ints("shape"), &pitch = op.attrs.ints("pitch");
  DType dtype = op.attrs.dtype("dtype");
  t.offset = t.offset * 8 + op.attrs.i("offset");
  t.extents.pop_back();
  t.strides.pop_back();
  for (int64_t &s : t.strides) s *= 8;
  for (size_t d = 0; d < field.size(); d++) {
    t.extents.push_back(field[d]);
    t.strides.push_back(pitch[d] * dtype_bytes(dtype));
  }
  t.field = {dtype, field.size(), ir::field_swizzle(dtype, field, op.attrs.i("swizzle"))};
  ctx.set(op.result(), std::move(t));
}

// ---- load, store

void infer_load(InferCtx &ctx, Op &op) {
  auto shape = infer_access(ctx, op);
  if (!shape) return;
  default_attr(op, "has_mask", int64_t(0));
  default_attr(op, "has_other", int64_t(0));
  size_t next = op.operand(0)->type.shape.size() + 1, mask = next, other = mask + (op.attrs.i("has_mask") ? 1 : 0);
  size_t count = other + (op.attrs.i("has_other") ? 1 : 0);
  if (!has_operands(ctx, op, count, count) || !check_mask(ctx, op, mask, *shape)) return;
  DType t = op.operand(0)->type.dtype;
  if (op.attrs.i("has_other") && !is_access_tile(ctx, op, other, *shape, t)) return;
  tile_result(ctx, op, Type::tile(t, *shape));
}

void interp_load(interp::Ctx &ctx, const Op &op) {
  const interp::Storage &s = *ctx.tensor(op.operand(0)).storage;
  size_t next = op.operand(0)->type.shape.size() + 1;
  const interp::Tile *mask = op.attrs.i("has_mask") ? &ctx.tile(op.operand(next++)) : nullptr;
  interp::Tile t = op.attrs.i("has_other") ? ctx.tile(op.operand(next))
                                           : interp::Tile(op.result()->type.dtype, op.result()->type.shape);
  bool field = ctx.tensor(op.operand(0)).field.has_value();
  for_elements(ctx, op, [&](int64_t k, int64_t position) {
    if (position < 0 || (mask && !mask->i[size_t(k)])) return;
    if (field) {
      uint64_t bits = peek_bits(s, position, dtype_bytes(t.dtype));
      if (t.is_float())
        t.f[size_t(k)] = decode_float(t.dtype, bits);
      else
        t.i[size_t(k)] = wrap_to(t.dtype, int64_t(bits));
    } else if (t.is_float())
      t.f[size_t(k)] = peek(s.f[size_t(position)]);
    else
      t.i[size_t(k)] = peek(s.i[size_t(position)]);
  });
  ctx.set(op.result(), std::move(t));
}

void infer_store(InferCtx &ctx, Op &op) {
  auto shape = infer_access(ctx, op);
  if (!shape) return;
  default_attr(op, "has_mask", int64_t(0));
  size_t value = op.operand(0)->type.shape.size() + 1, count = value + 1 + (op.attrs.i("has_mask") ? 1 : 0);
  if (!has_operands(ctx, op, count, count)) return;
  if (is_access_tile(ctx, op, value, *shape, op.operand(0)->type.dtype)) check_mask(ctx, op, value + 1, *shape);
}

void interp_store(interp::Ctx &ctx, const Op &op) {
  interp::Storage &s = *ctx.tensor(op.operand(0)).storage;
  size_t value = op.operand(0)->type.shape.size() + 1;
  const interp::Tile &t = ctx.tile(op.operand(value));
  const interp::Tile *mask = op.attrs.i("has_mask") ? &ctx.tile(op.operand(value + 1)) : nullptr;
  bool field = ctx.tensor(op.operand(0)).field.has_value();
  for_elements(ctx, op, [&](int64_t k, int64_t position) {
    if (position < 0 || (mask && !mask->i[size_t(k)])) return;
    if (field)
      poke_bits(s, position, dtype_bytes(t.dtype),
                t.is_float() ? encode_float(t.dtype, t.f[size_t(k)]) : uint64_t(t.i[size_t(k)]));
    else if (t.is_float())
      poke(s.f[size_t(position)], t.f[size_t(k)]);
    else
      poke(s.i[size_t(position)], t.i[size_t(k)]);
  });
}

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kDim = {
    .name = "dim",
    .source = "dim",
    .signature = "dim(t: tensor, axis: int)",
    .doc = "The extent of a tensor or of a part of one along an axis, as i32.",
    .example = "let rows = x[2 : 10, :];\nlet a = load(x[:, :]) * f32(dim(rows, 0));\n# store(y[:, :], a);",
    .derivative = kNoFloats,
    .infer = infer_dim,
    .interp = interp_dim,
    .lower = lower_Dim};

constexpr OpDef kSubview = {
    .name = "subview",
    .source = "-",
    .signature = "subview(t: tensor, bounds: scalar...)",
    .doc = "A part of a tensor as a tensor, written as an index: let q = x[bos : eos, :]. Bounds are clamped to the "
           "tensor; "
           "loads from the part read 0 outside it and stores skip, so packed sequences do not see each other. An index "
           "drops its dim and must lie inside the tensor.",
    .example = "let part = x[2 : 10, :];\nlet a = load(part[0 :+ 16, :]);  // rows 8.. are outside the part: 0\n"
               "# store(y[:, :], a);",
    .derivative = kOfKernels,
    .infer = infer_subview,
    .interp = interp_subview,
    .lower = lower_Subview};

constexpr OpDef kRecordField = {
    .name = "record_field",
    .source = "-",
    .signature = "record_field(t: tensor)",
    .doc =
        "A field of a tensor of records as a tensor, written as a member: x.kp, or x[h, c].kp for that of one record. "
        "Only `load`, `store` and `dim` take it. In the IR a record is `i64` words along the last dim; the field has "
        "`dtype`, `shape` and lies `offset` bytes behind the record's start, with `pitch` (elements) per dim and the "
        "chunks of its rows permuted over `swizzle` bytes (ir/record.h).",
    .example = "# record Item { m: f32[16, 32]; v: f32[32]; }\n# with r: inout tensor<Item>[4]\n"
               "store(r[2].m, load(x[:, :]));\nlet v = load(r.v[2, :]);  // of the same record\n"
               "# store(y[:, :], load(r[2].m[:, :]) + v[None, :]);",
    .derivative = kOfKernels,
    .infer = infer_record_field,
    .interp = interp_record_field,
    .lower = lower_RecordField};

constexpr OpDef kLoad = {
    .name = "load",
    .source = "load",
    .signature = "load(x: view, mask: tile?, other: tile?)",
    .doc =
        "A tile from memory. Each dim of the tensor is whole, a range start :+ length, one position (the dim is "
        "dropped), "
        "or a tile of positions (a gather). Elements outside the tensor, and those where `mask` is false, are `other`, "
        "0 if not given.",
    .example = "let t = load(x[4 :+ 16, :]);                          // rows 16..19 do not exist: 0\n"
               "let even = load(x[:, iota(16) * 2]);                  // a gather of columns\n"
               "let few = load(x[:, :], mask = iota(N)[None, :] < 5, other = -1.0);\n"
               "# store(y[:, :], t + few + concat(even, even, axis = 1));",
    .effects = Effect{0, Space::Global, Access::Read},
    .layout = {LayoutKind::Anchor},
    .derivative = kOfKernels,
    .infer = infer_load,
    .interp = interp_load,
    .lower = lower_Load};

constexpr OpDef kStore = {
    .name = "store",
    .source = "store",
    .signature = "store(x: view, value: tile, mask: tile?)",
    .doc =
        "Writes a tile to memory; indices as for `load`. Elements outside the tensor, and those where `mask` is false, "
        "are not written. Programs that store to the same element leave the value of one of them.",
    .example = "let t = load(x[:, :]);\nstore(y[:, :], t, mask = t > 0.0);",
    .effects = Effect{0, Space::Global, Access::Write},
    .layout = {LayoutKind::Anchor},
    .derivative = kOfKernels,
    .infer = infer_store,
    .interp = interp_store,
    .lower = lower_Store};

} // namespace tkc::ir

// Indexing: parts of tensors (views), parts of tiles, and the operands of memory accesses.
#include "sema/elaborate.h"

namespace tkc::sema {

using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

std::optional<IndexItem> Elaborator::index_item(const ast::Expr &e) {
  SV v = expr(e);
  IndexItem item;
  item.loc = e.loc;
  if (v.is_poison()) return std::nullopt;
  if (v.is(Kind::Range)) {
    item.range = *v.range;
    item.kind = !item.range.lo && !item.range.hi && !item.range.length ? IndexItem::Kind::All : IndexItem::Kind::Range;
    return item;
  }
  if (v.is(Kind::Int) || (v.is(Kind::Value) && v.v->type.is_scalar() && is_integer(v.v->type.dtype))) {
    item.kind = IndexItem::Kind::Scalar;
    item.value = v;
    return item;
  }
  if (v.is(Kind::Value) && v.v->type.rank() == 1 && is_integer(v.v->type.dtype)) {
    item.kind = IndexItem::Kind::Gather;
    item.value = v;
    return item;
  }
  error(e.loc, DiagKind::bad_index, v.describe());
  return std::nullopt;
}

SV Elaborator::index(const ast::Expr &e) {
  SV base = expr(*e.operands[0]);
  if (base.is(Kind::View) && base.view->open) return index_field(e, base);
  if (base.is(Kind::View)) base = materialise(base);
  switch (base.kind) {
  case Kind::Poison: return base;
  case Kind::Tensor: return index_tensor(e, base);
  case Kind::Value: return index_tile(e, base);
  case Kind::Place: return slot(e, base);
  case Kind::Tuple: {
    if (e.operands.size() != 2)
      return error(e.loc, DiagKind::too_many_indices, counted(int64_t(e.operands.size()) - 1, "index position"),
                   base.describe(), 1);
    auto i = const_int(*e.operands[1], "the index of a tuple");
    if (!i) return SV::poison();
    if (*i < 0 || *i >= int64_t(base.elements.size()))
      return error(e.operands[1]->loc, DiagKind::index_out_of_range, *i, base.elements.size());
    return base.elements[size_t(*i)];
  }
  case Kind::Absent: return error(e.loc, DiagKind::absent_tensor, base.s, base.s);
  default: return error(e.loc, DiagKind::not_indexable, base.describe());
  }
}

SV Elaborator::index_tensor(const ast::Expr &e, SV base) {
  int64_t rank = base.v->type.rank(), count = int64_t(e.operands.size()) - 1;
  auto record = record_of(base.v);
  if (int64_t most = rank - (record ? 1 : 0); count > most) // the words of a record are not indexed
    return error(e.loc, DiagKind::too_many_indices, counted(count, "index position"),
                 record ? fmt::format("a tensor of {}", record->title()) : base.describe(), most);
  auto view = std::make_shared<View>();
  view->tensor = base.v;
  for (int64_t d = 0; d < rank; d++) {
    if (d >= count) {
      IndexItem all;
      all.loc = e.loc;
      view->items.push_back(all);
      continue;
    }
    auto item = index_item(*e.operands[size_t(d) + 1]);
    if (!item) return SV::poison();
    view->items.push_back(std::move(*item));
  }
  return SV::make(Kind::View, e.loc, [&](SV &s) { s.view = view; });
}

SV Elaborator::materialise(const SV &view) {
  const View &v = *view.view;
  if (v.tensor->op && v.tensor->op->kind == OpKind::RecordField) { // of a part of the records
    size_t rank = v.tensor->op->attrs.ints("shape").size();
    for (size_t d = v.items.size() - rank; d < v.items.size(); d++)
      if (v.items[d].kind != IndexItem::Kind::All)
        return error(view.loc, DiagKind::bad_record, record_of(v.tensor->op->operand(0))->title(),
                     fmt::format("a part of field `{}` is loaded or stored, but not indexed again", v.tensor->name));
    auto records = std::make_shared<View>(v);
    records->tensor = v.tensor->op->operand(0);
    records->items.resize(v.items.size() - rank + 1);
    records->items.back() = IndexItem{IndexItem::Kind::All, {}, {}, view.loc};
    SV part = materialise(SV::make(Kind::View, view.loc, [&](SV &s) { s.view = records; }));
    if (part.is_poison()) return part;
    return SV::make_tensor(field_tensor(part.v, *record_of(part.v)->find(v.tensor->op->attrs.s("field")), view.loc),
                           view.loc);
  }
  std::vector<ir::Value *> operands = {v.tensor};
  std::vector<int64_t> ranges;
  for (size_t d = 0; d < v.items.size(); d++) {
    const IndexItem &item = v.items[d];
    switch (item.kind) {
    case IndexItem::Kind::All: ranges.push_back(0); break;
    case IndexItem::Kind::Scalar:
      ranges.push_back(2);
      operands.push_back(value(item.value));
      break;
    case IndexItem::Kind::Gather:
      return error(item.loc, DiagKind::bad_index, "a tile of positions in a part that is indexed again");
    case IndexItem::Kind::Range: {
      ranges.push_back(1);
      SV lo = item.range.lo ? *item.range.lo : SV::make_int(0, item.loc);
      operands.push_back(value(lo));
      SV hi;
      if (item.range.length) {
        hi = binary(ast::BinaryOp::Add, lo, *item.range.length, item.loc);
      } else if (item.range.hi) {
        hi = *item.range.hi;
      } else {
        ir::Attrs a;
        a.set("axis", int64_t(d));
        hi = emit(OpKind::Dim, {v.tensor}, a, item.loc);
      }
      operands.push_back(value(hi));
      break;
    }
    }
  }
  ir::Attrs attrs;
  attrs.set("ranges", ranges);
  SV out = emit(OpKind::Subview, operands, attrs, view.loc);
  return out.is_poison() ? out : SV::make_tensor(out.v, view.loc);
}

std::optional<Elaborator::Span> Elaborator::constant_span(const Range &r, int64_t extent, SourceLoc loc,
                                                          bool &constant) {
  constant = true;
  auto known = [](const std::optional<SV> &v) { return !v || v->is(Kind::Int); };
  if (!known(r.lo) || !known(r.hi) || !known(r.length)) {
    constant = false;
    return std::nullopt;
  }
  Span s;
  s.start = r.lo ? r.lo->i : 0;
  if (r.length)
    s.size = r.length->i;
  else if (r.hi)
    s.size = r.hi->i - s.start;
  else if (extent == ir::kDynamic) {
    constant = false;
    return std::nullopt;
  } else
    s.size = extent - s.start;
  if (s.size < least_extent()) {
    error(loc, DiagKind::bad_extent, 0, s.size);
    return std::nullopt;
  }
  return s;
}

Elaborator::Access Elaborator::access(const SV &target, OpKind kind, const std::string &name, SourceLoc loc) {
  Access out;
  SV whole = target;
  if (whole.is(Kind::Tensor)) { // load(x): everything
    auto view = std::make_shared<View>();
    view->tensor = whole.v;
    IndexItem all;
    all.loc = loc;
    view->items.assign(size_t(whole.v->type.rank()), all);
    whole = SV::make(Kind::View, loc, [&](SV &s) { s.view = view; });
  }
  if (!whole.is(Kind::View)) {
    if (whole.is(Kind::Absent))
      error(loc, DiagKind::absent_tensor, whole.s, whole.s);
    else if (!whole.is_poison())
      error(loc, DiagKind::type_mismatch, "a part of a tensor, such as x[i, :]", whole.describe());
    return out;
  }
  const View &v = *whole.view;
  if (!check_record_access(v.tensor, kind, name, loc)) return out;
  out.operands.push_back(v.tensor);
  std::vector<int64_t> sizes, drop, gather;
  for (size_t d = 0; d < v.items.size(); d++) {
    const IndexItem &item = v.items[d];
    int64_t extent = v.tensor->type.shape[d];
    int64_t size = 1, dropped = 0, gathered = 0;
    SV start = SV::make_int(0, item.loc);
    switch (item.kind) {
    case IndexItem::Kind::All:
      if (extent == ir::kDynamic) {
        std::string dim;
        for (const ir::Param &p : fn_.params)
          if (fn_.param_value(p.name) == v.tensor) dim = p.dims[d].str();
        if (dim.empty()) dim = "of a part of a tensor";
        run_time_extent(item.loc, d, "the loaded tile", dim);
        return out;
      }
      size = extent;
      break;
    case IndexItem::Kind::Scalar:
      dropped = 1;
      start = item.value;
      break;
    case IndexItem::Kind::Gather:
      gathered = 1;
      size = item.value.v->type.shape[0];
      start = item.value;
      break;
    case IndexItem::Kind::Range: {
      if (item.range.length && item.range.length->is(Kind::Int)) {
        size = item.range.length->i;
        if (item.range.lo) start = *item.range.lo;
      } else {
        bool constant = true;
        auto s = constant_span(item.range, extent, item.loc, constant);
        if (!s) {
          if (constant) return out; // reported
          const std::optional<SV> &r = item.range.length;
          run_time_extent(item.loc, d, "the loaded tile", std::string(diags_.sources().text(r ? r->loc : item.loc)));
          return out;
        }
        size = s->size;
        start = SV::make_int(s->start, item.loc);
      }
      if (size < 1) {
        error(item.loc, DiagKind::bad_extent, d, size);
        return out;
      }
      break;
    }
    }
    ir::Value *index = value(start);
    if (!index) return out;
    out.operands.push_back(index);
    sizes.push_back(size);
    drop.push_back(dropped);
    gather.push_back(gathered);
    if (!dropped) out.shape.push_back(size);
  }
  out.attrs.set("sizes", sizes);
  out.attrs.set("drop", drop);
  out.attrs.set("gather", gather);
  out.ok = true;
  return out;
}

Elaborator::TileAccess Elaborator::tile_access(const ast::Expr &e, ir::Value *base, bool allow_none) {
  TileAccess out;
  const std::vector<int64_t> &shape = base->type.shape;
  size_t dim = 0;
  std::vector<SV> starts;
  bool dynamic = false;
  for (size_t k = 1; k < e.operands.size(); k++) {
    const ast::Expr &x = *e.operands[k];
    if (x.kind == ExprKind::None) {
      if (!allow_none) {
        error(x.loc, DiagKind::bad_index, "None in an assignment");
        return out;
      }
      out.new_axes.push_back(int64_t(out.result_shape.size() + out.new_axes.size()));
      continue;
    }
    if (dim >= shape.size()) {
      int64_t count = 0;
      for (size_t j = 1; j < e.operands.size(); j++) count += e.operands[j]->kind != ExprKind::None;
      error(e.loc, DiagKind::too_many_indices, counted(count, "index position"), base->type.str(), shape.size());
      return out;
    }
    auto item = index_item(x);
    if (!item) return out;
    int64_t extent = shape[dim], start = 0, size = extent;
    SV start_sv = SV::make_int(0, x.loc);
    switch (item->kind) {
    case IndexItem::Kind::All: break;
    case IndexItem::Kind::Gather: error(x.loc, DiagKind::dynamic_tile_index); return out;
    case IndexItem::Kind::Scalar:
      size = 1;
      start_sv = item->value;
      break;
    case IndexItem::Kind::Range: {
      if (item->range.length && item->range.length->is(Kind::Int) && item->range.lo &&
          item->range.lo->is(Kind::Value)) {
        size = item->range.length->i;
        start_sv = *item->range.lo;
        break;
      }
      bool constant = true;
      auto s = constant_span(item->range, extent, x.loc, constant);
      if (!s) {
        if (!constant) error(x.loc, DiagKind::not_constant, "the bounds of a slice of a tile");
        return out;
      }
      size = s->size;
      start_sv = SV::make_int(s->start, x.loc);
      break;
    }
    }
    if (start_sv.is(Kind::Int)) {
      start = start_sv.i;
      if (start < 0 && item->kind == IndexItem::Kind::Scalar) start_sv.i = start = start + extent; // x[-1]
      if (start < 0 || start + size > extent) {
        error(x.loc, DiagKind::index_out_of_range, start < 0 ? start : start + size - 1, extent);
        return out;
      }
    } else {
      dynamic = true;
    }
    starts.push_back(start_sv);
    out.starts.push_back(start);
    out.sizes.push_back(size);
    if (item->kind != IndexItem::Kind::Scalar) out.result_shape.push_back(size);
    dim++;
  }
  for (; dim < shape.size(); dim++) {
    starts.push_back(SV::make_int(0, e.loc));
    out.starts.push_back(0);
    out.sizes.push_back(shape[dim]);
    out.result_shape.push_back(shape[dim]);
  }
  if (dynamic) {
    if (!reference()) {
      error(e.loc, DiagKind::dynamic_tile_index);
      return out;
    }
    for (const SV &s : starts) {
      ir::Value *v = value(s);
      if (!v) return out;
      out.dynamic.push_back(v);
    }
  }
  out.ok = true;
  return out;
}

SV Elaborator::index_tile(const ast::Expr &e, SV base) {
  ir::Value *v = base.v;
  TileAccess a = tile_access(e, v, true);
  if (!a.ok) return SV::poison();
  ir::Attrs attrs;
  if (!a.dynamic.empty()) {
    std::vector<ir::Value *> operands = {v};
    operands.insert(operands.end(), a.dynamic.begin(), a.dynamic.end());
    attrs.set("sizes", a.sizes);
    v = emit(OpKind::DynSlice, operands, attrs, e.loc).v;
  } else if (a.sizes != v->type.shape) {
    attrs.set("starts", a.starts);
    attrs.set("sizes", a.sizes);
    v = emit(OpKind::Slice, {v}, attrs, e.loc).v;
  }
  if (v && v->type.shape != a.result_shape) {
    ir::Attrs shape;
    shape.set("shape", a.result_shape);
    v = emit(OpKind::Reshape, {v}, shape, e.loc).v;
  }
  for (int64_t axis : a.new_axes) {
    ir::Attrs at;
    at.set("axis", axis);
    v = v ? emit(OpKind::ExpandDims, {v}, at, e.loc).v : nullptr;
  }
  return SV::make_value(v, e.loc);
}

} // namespace tkc::sema

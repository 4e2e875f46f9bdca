// Records: their types, and the tensors of their fields.
#include "sema/elaborate.h"
#include "sema/signature.h"
#include <algorithm>

namespace tkc::sema {

using ir::OpKind;
using Kind = SV::Kind;

namespace {
constexpr size_t kMostFieldRank = 4;
constexpr int64_t kMostRecordBytes = int64_t(1) << 24;
} // namespace

const ast::Record *Elaborator::record_named(const std::string &name) const {
  auto it = file_->records.find(name);
  return it == file_->records.end() ? nullptr : it->second.first;
}

std::shared_ptr<const ir::Record> Elaborator::record_type(const ast::Name &name, const std::vector<ast::Arg> &args) {
  auto [node, scope] = file_->records.at(name.text);
  const std::vector<ast::GenericParam> &generics = node->generics;
  int64_t errors = diags_.error_count();
  // Arguments, in the scope of who names the type.
  std::vector<std::optional<SV>> given(generics.size());
  size_t next = 0;
  for (const ast::Arg &a : args) {
    size_t slot = next++;
    if (a.name)
      for (slot = 0; slot < generics.size() && generics[slot].name.text != a.name->text; slot++) {}
    if (slot >= generics.size()) {
      if (a.name)
        error(a.name->loc, DiagKind::unknown_parameter, name.text, a.name->text, "");
      else
        error(a.value->loc, DiagKind::wrong_arity, name.text,
              counted(int64_t(generics.size()), "compile-time parameter"), args.size());
      return nullptr;
    }
    if (given[slot]) {
      error(a.value->loc, DiagKind::repeated_argument, generics[slot].name.text, name.text);
      return nullptr;
    }
    SV v = expr(*a.value);
    if (v.is_poison()) return nullptr;
    if (!v.is_number() && !v.is(Kind::DType) && !v.is(Kind::Enum)) {
      error(a.value->loc, DiagKind::not_constant,
            fmt::format("`{}` of record `{}`", generics[slot].name.text, name.text));
      return nullptr;
    }
    given[slot] = std::move(v);
  }
  // The rest where the record is declared, which does not see the names around.
  Scope *file = std::exchange(file_, scope);
  size_t base = std::exchange(scope_base_, scopes_.size());
  push_scope();
  ir::Record out{name.text, {}, {}, 0};
  for (size_t i = 0; i < generics.size(); i++) {
    SV v = SV::poison();
    if (given[i])
      v = *given[i];
    else if (generics[i].default_value)
      v = expr(*generics[i].default_value);
    else
      error(name.loc, DiagKind::missing_argument, name.text, generics[i].name.text);
    out.args.push_back(setting_text(v));
    define(generics[i].name, std::move(v));
  }
  for (const ast::Field &f : node->fields) record_field(*node, f, out);
  pop_scope();
  scope_base_ = base;
  file_ = file;
  if (diags_.error_count() != errors) return nullptr;
  out = ir::lay_out_record(std::move(out));
  if (out.bytes <= kMostRecordBytes) return std::make_shared<ir::Record>(std::move(out));
  error(name.loc, DiagKind::bad_record, name.text,
        fmt::format("it has {} bytes; at most {} are possible", out.bytes, kMostRecordBytes));
  return nullptr;
}

void Elaborator::record_field(const ast::Record &record, const ast::Field &f, ir::Record &out) {
  auto fail = [&](SourceLoc loc, const std::string &text) { error(loc, DiagKind::bad_record, record.name.text, text); };
  ir::RecordField field;
  field.name = f.name.text;
  if (out.find(field.name)) return fail(f.name.loc, fmt::format("it has two fields `{}`", field.name));
  if (field.name == "T" || field.name == "dtype" || field.name == "shape")
    return fail(f.name.loc, fmt::format("`.{}` means something else", field.name));
  auto t = dtype_of(f.element);
  if (!t) return;
  field.dtype = *t;
  if (dtype_bits(*t) < 8)
    return fail(f.element.loc, fmt::format("a field has whole bytes: declare packed {} as u8", dtype_name(*t)));
  if (f.dims.empty() || f.dims.size() > kMostFieldRank)
    return fail(f.name.loc, fmt::format("field `{}` needs a shape of rank 1 to {}", field.name, kMostFieldRank));
  int64_t bytes = dtype_bytes(*t);
  for (const ast::ExprPtr &d : f.dims) {
    auto n = const_int(*d, fmt::format("dim {} of field `{}`", field.shape.size(), field.name));
    if (!n) return;
    if (*n < 1) {
      error(d->loc, DiagKind::bad_extent, field.shape.size(), *n);
      return;
    }
    if (__builtin_mul_overflow(bytes, *n, &bytes) || bytes > kMostRecordBytes)
      return fail(f.name.loc, fmt::format("field `{}` has more than {} bytes", field.name, kMostRecordBytes));
    field.shape.push_back(*n);
  }
  out.fields.push_back(std::move(field));
}

std::shared_ptr<const ir::Record> Elaborator::record_of(const ir::Value *tensor) const {
  for (; tensor->op && ir::is_view(tensor->op->kind); tensor = tensor->op->operand(0))
    if (tensor->op->kind == OpKind::RecordField) return nullptr;
  for (const ir::Param &p : fn_.params)
    if (p.record && p.present && fn_.param_value(p.name) == tensor) return p.record;
  return nullptr;
}

ir::Value *Elaborator::field_tensor(ir::Value *tensor, const ir::RecordField &f, SourceLoc loc) {
  ir::Attrs a;
  a.set("dtype", f.dtype);
  a.set("shape", f.shape);
  a.set("offset", f.offset);
  a.set("pitch", f.pitch);
  a.set("swizzle", f.swizzle);
  a.set("field", f.name);
  ir::Value *v = emit(OpKind::RecordField, {tensor}, std::move(a), loc).v;
  if (v) v->name = f.name;
  return v;
}

// x.kp, and x[h, c].kp, which is x.kp[h, c] that takes the indices of the field next.
SV Elaborator::record_member(const SV &of, const ir::Record &record, const ast::Expr &e) {
  const ir::RecordField *f = record.find(e.text);
  if (!f) {
    std::vector<std::string> names;
    for (const ir::RecordField &x : record.fields) names.push_back(x.name);
    std::string near = nearest_name(e.text, names);
    return error(e.name_loc, DiagKind::bad_record, record.title(),
                 fmt::format("it has no field `{}`{}", e.text,
                             near.empty() ? fmt::format("; its fields are {}", fmt::join(names, ", "))
                                          : "; did you mean `" + near + "`?"));
  }
  if (of.is(Kind::Tensor)) return SV::make_tensor(field_tensor(of.v, *f, e.loc), e.loc);
  const std::vector<IndexItem> &items = of.view->items;
  bool one =
      std::all_of(items.begin(), items.end() - 1, [](const IndexItem &i) { return i.kind == IndexItem::Kind::Scalar; });
  auto view = std::make_shared<View>();
  if (std::any_of(items.begin(), items.end(), [](const IndexItem &i) {
        return i.kind == IndexItem::Kind::Range && !(i.range.length && i.range.length->is(Kind::Int));
      })) { // a part of the tensor with run-time bounds
    SV part = materialise(of);
    return part.is_poison() ? part : SV::make_tensor(field_tensor(part.v, *f, e.loc), e.loc);
  }
  view->tensor = field_tensor(of.view->tensor, *f, e.loc);
  view->items.assign(items.begin(), items.end() - 1);
  IndexItem all;
  all.loc = e.loc;
  view->items.insert(view->items.end(), f->shape.size(), all);
  view->open = one ? f->shape.size() : 0;
  return view->tensor ? SV::make(Kind::View, e.loc, [&](SV &s) { s.view = view; }) : SV::poison();
}

// x[h, c].kp[rows, :]
SV Elaborator::index_field(const ast::Expr &e, const SV &base) {
  int64_t rank = int64_t(base.view->open), count = int64_t(e.operands.size()) - 1;
  if (count > rank)
    return error(e.loc, DiagKind::too_many_indices, counted(count, "index position"),
                 fmt::format("field `{}`", base.view->tensor->name), rank);
  auto view = std::make_shared<View>(*base.view);
  view->open = 0;
  for (int64_t d = 0; d < count; d++) {
    auto item = index_item(*e.operands[size_t(d) + 1]);
    if (!item) return SV::poison();
    view->items[view->items.size() - size_t(rank - d)] = std::move(*item);
  }
  return SV::make(Kind::View, e.loc, [&](SV &s) { s.view = view; });
}

bool Elaborator::check_record_access(const ir::Value *tensor, OpKind kind, const std::string &name, SourceLoc loc) {
  if (auto record = record_of(tensor); record && kind != OpKind::Dim)
    return error(loc, DiagKind::bad_record, record->title(),
                 fmt::format("`{}` takes a field, as in `x.{}`, not whole records", name, record->fields[0].name)),
           false;
  bool field = tensor->op && tensor->op->kind == OpKind::RecordField;
  if (!field || kind == OpKind::Load || kind == OpKind::Store || kind == OpKind::Dim) return true;
  const ir::Value *of = tensor->op->operand(0);
  auto record = record_of(of);
  return error(loc, DiagKind::bad_record, record ? record->title() : "",
               fmt::format("its fields are loaded and stored; `{}` does not take `{}`", name, tensor->name)),
         false;
}

} // namespace tkc::sema

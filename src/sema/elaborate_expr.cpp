// Expressions: names, operators, constants; everything but indexing and calls.
#include "ir/target.h"
#include "sema/elaborate.h"
#include <algorithm>
#include <cmath>

namespace tkc::sema {

using ast::BinaryOp;
using ast::ExprKind;
using ir::OpKind;
using Kind = SV::Kind;

std::string SV::describe() const {
  switch (kind) {
  case Kind::Poison: return "an error";
  case Kind::Int: return fmt::format("integer {}", i);
  case Kind::Float: return fmt::format("number {}", f);
  case Kind::Bool: return i ? "true" : "false";
  case Kind::String: return "a string";
  case Kind::DType: return fmt::format("type {}", dtype_name(dtype));
  case Kind::Enum: return s;
  case Kind::None: return "None";
  case Kind::Value: return v->type.is_scalar() ? fmt::format("{} scalar", dtype_name(v->type.dtype)) : v->type.str();
  case Kind::Tensor: return v->type.str();
  case Kind::View: return fmt::format("a part of a {}; load(...) it", view->tensor->type.str());
  case Kind::Range: return "a range";
  case Kind::Tuple: return fmt::format("a tuple of {}", elements.size());
  case Kind::Absent: return fmt::format("absent tensor `{}`", s);
  case Kind::Effect: return "a call without value";
  case Kind::Size: return "host scalar " + size->str();
  case Kind::Ring: return fmt::format("ring `{}`", v->name);
  case Kind::Item: return fmt::format("an item of ring `{}`", v->op->operand(0)->name);
  case Kind::Place: {
    std::string what = v->op->kind == ir::OpKind::SharedAlloc ? "shared memory" : "mbarrier";
    return v->name.empty() ? what : fmt::format("{} `{}`", what, v->name);
  }
  case Kind::State: return "the state of an arrival";
  }
  return "";
}

Elaborator::Elaborator(Program &program, ir::Function &function, Diagnostics &diags, const ir::Target *target)
    : program_(program), fn_(function), diags_(diags), target_(target), b_(function, diags), file_(&program.root()) {
  push_scope();
}

SV Elaborator::emit(OpKind kind, std::vector<ir::Value *> operands, ir::Attrs attrs, SourceLoc loc,
                    std::vector<SourceLoc> locs) {
  for (ir::Value *v : operands)
    if (!v) return SV::poison();
  const ir::OpDef &d = ir::def(kind);
  if (target_ && target_->sm < d.min_sm)
    return error(loc, DiagKind::unsupported_on_target, d.name.s, fmt::format("sm_{}", d.min_sm), target_->name);
  int64_t errors = diags_.error_count();
  ir::Op *op = b_.create(kind, std::move(operands), std::move(attrs), loc, locs);
  note_calls_since(errors);
  if (!op) return SV::poison();
  return op->results.empty() ? SV::effect(loc) : SV::make_value(op->result(), loc);
}

ir::Value *Elaborator::value(const SV &v, std::optional<DType> want) {
  switch (v.kind) {
  case Kind::Value: return v.v;
  case Kind::Int: {
    DType t = want.value_or(v.i == int32_t(v.i) && !reference() ? DType::I32 : DType::I64);
    if (is_float(t)) return b_.constant(t, double(v.i), v.loc);
    if (is_bool(t)) break;
    bool fits = t == DType::U64 ? v.i >= 0 : wrap_to(t, v.i) == v.i;
    if (!fits) {
      error(v.loc, DiagKind::constant_range, v.i, dtype_name(t));
      return nullptr;
    }
    return b_.constant_int(t, v.i, v.loc);
  }
  case Kind::Float: {
    DType t = want.value_or(reference() ? DType::F64 : DType::F32);
    if (!is_float(t)) {
      error(v.loc, DiagKind::type_mismatch, std::string(dtype_name(t)), v.describe());
      return nullptr;
    }
    return b_.constant(t, v.f, v.loc);
  }
  case Kind::Bool:
    if (want && !is_bool(*want)) break;
    return b_.constant_int(DType::Bool, v.i, v.loc);
  case Kind::Poison: return nullptr;
  case Kind::Absent: error(v.loc, DiagKind::absent_tensor, v.s, v.s); return nullptr;
  default: error(v.loc, DiagKind::not_a_value, v.describe()); return nullptr;
  }
  error(v.loc, DiagKind::type_mismatch, want ? std::string(dtype_name(*want)) : "a value", v.describe());
  return nullptr;
}

ir::Value *Elaborator::convert_shape(ir::Value *v, const std::vector<int64_t> &shape, SourceLoc loc) {
  if (v->type.shape == shape) return v;
  if (!v->type.is_scalar())
    while (v->type.rank() < int64_t(shape.size())) {
      v = emit(OpKind::ExpandDims, {v}, ir::Attrs::one("axis", int64_t(0)), loc).v;
      if (!v) return nullptr;
    }
  if (v->type.shape == shape) return v;
  return emit(OpKind::Broadcast, {v}, ir::Attrs::one("shape", shape), loc).v;
}

ir::Value *Elaborator::value_as(const SV &v, const ir::Type &type, const std::string &what) {
  ir::Value *x = value(v, type.dtype);
  if (!x) return nullptr;
  if (x->type.dtype != type.dtype) {
    error(v.loc, DiagKind::wrong_dtype, what, type.str(), x->type.str(), dtype_name(type.dtype));
    return nullptr;
  }
  if (x->type.shape == type.shape) return x;
  if (x->type.rank() <= type.rank()) {
    int64_t shift = type.rank() - x->type.rank();
    int64_t d = 0;
    while (d < x->type.rank() && (x->type.shape[d] == 1 || x->type.shape[d] == type.shape[d + shift])) d++;
    if (d == x->type.rank()) return convert_shape(x, type.shape, v.loc);
    if (shift == 0) {
      error(v.loc, DiagKind::shape_mismatch, what, ir::shape_str(x->type.shape), ir::shape_str(type.shape), d,
            x->type.shape[d], type.shape[d]);
      return nullptr;
    }
  }
  error(v.loc, DiagKind::type_mismatch, type.str(), x->type.str());
  return nullptr;
}

SV Elaborator::run_time_extent(SourceLoc loc, size_t dim, const std::string &what, const std::string &extent) {
  bool size = std::find(fn_.sizes.begin(), fn_.sizes.end(), extent) != fn_.sizes.end();
  std::string advice =
      size ? fmt::format("put `{}` in <> of the kernel", extent) : "use a compile-time length, as in `start :+ length`";
  return error(loc, DiagKind::non_constant_shape, dim, what, extent, advice);
}

std::optional<int64_t> Elaborator::const_int(const ast::Expr &e, const std::string &what) {
  SV v = expr(e);
  if (v.is(Kind::Int)) return v.i;
  if (v.is(Kind::Value) || v.is(Kind::Tensor) || v.is(Kind::View))
    error(e.loc, DiagKind::not_constant, what);
  else if (!v.is_poison())
    error(e.loc, DiagKind::type_mismatch, "an integer as " + what, v.describe());
  return std::nullopt;
}

std::optional<bool> Elaborator::const_bool(const ast::Expr &e, const std::string &what) {
  SV v = expr(e);
  if (v.is(Kind::Bool) || v.is(Kind::Int)) return v.i != 0;
  if (!v.is_poison()) error(e.loc, DiagKind::not_constant, what);
  return std::nullopt;
}

std::optional<DType> Elaborator::dtype_of(const ast::Name &n) {
  if (auto t = parse_dtype(n.text)) return t;
  if (record_named(n.text)) {
    error(n.loc, DiagKind::bad_record, n.text, "it is the element of tensors of kernels and programs, nowhere else");
    return std::nullopt;
  }
  if (Var *v = lookup(n.text); v && v->value.is(Kind::DType)) return v->value.dtype;
  std::vector<std::string> names;
  for (DType t : all_dtypes()) names.emplace_back(dtype_name(t));
  static const std::map<std::string, std::string> elsewhere = {
      {"float", "f32"},   {"double", "f64"},    {"half", "f16"},   {"float16", "f16"}, {"float32", "f32"},
      {"float64", "f64"}, {"bfloat16", "bf16"}, {"int8", "i8"},    {"int16", "i16"},   {"int32", "i32"},
      {"int64", "i64"},   {"uint8", "u8"},      {"uint16", "u16"}, {"uint32", "u32"},  {"uint64", "u64"}};
  auto alias = elsewhere.find(n.text);
  std::string near = alias != elsewhere.end() ? alias->second : nearest_name(n.text, names);
  error(n.loc, DiagKind::unknown_type, n.text, near.empty() ? "" : "; did you mean `" + near + "`?");
  return std::nullopt;
}

std::optional<ir::Type> Elaborator::type(const ast::Type &t) {
  if (t.kind == ast::TypeKind::Named) {
    if (t.name.text == "int") return ir::Type::scalar(DType::I32);
    auto d = dtype_of(t.name);
    return d ? std::optional(ir::Type::scalar(*d)) : std::nullopt;
  }
  if (t.kind != ast::TypeKind::Tile) {
    error(t.loc, DiagKind::type_mismatch, "a tile or scalar type", "a tensor type");
    return std::nullopt;
  }
  return tile_type(t);
}

std::optional<ir::Type> Elaborator::tile_type(const ast::Type &t) {
  if (t.kind == ast::TypeKind::Named) return type(t);
  auto d = dtype_of(t.element);
  std::vector<int64_t> shape;
  for (const ast::ExprPtr &e : t.dims) {
    SV n = expr(*e);
    if (n.is_poison()) return std::nullopt;
    if (!n.is(Kind::Int)) {
      run_time_extent(e->loc, shape.size(), "the tile", std::string(diags_.sources().text(e->loc)));
      return std::nullopt;
    }
    if (n.i < least_extent()) {
      error(e->loc, DiagKind::bad_extent, shape.size(), n.i);
      return std::nullopt;
    }
    shape.push_back(n.i);
  }
  return d ? std::optional(ir::Type::tile(*d, shape)) : std::nullopt;
}

SV Elaborator::expr(const ast::Expr &e) {
  if (SV own; host_value && host_value(e, own)) return own;
  switch (e.kind) {
  case ExprKind::Int: return SV::make_int(e.int_value, e.loc);
  case ExprKind::Float: return SV::make_float(e.float_value, e.loc);
  case ExprKind::Bool: return SV::make_bool(e.int_value, e.loc);
  case ExprKind::String: return SV::make(Kind::String, e.loc, [&](SV &s) { s.s = e.text; });
  case ExprKind::None: return SV::make(Kind::None, e.loc, [](SV &) {});
  case ExprKind::Name: return name(e);
  case ExprKind::Unary: return unary(e);
  case ExprKind::Binary: return binary(e);
  case ExprKind::Ternary: return ternary(e);
  case ExprKind::Call: return call(e);
  case ExprKind::Shaped: return shaped(e);
  case ExprKind::Index: return index(e);
  case ExprKind::Member: return member(e);
  case ExprKind::Range: return range(e);
  case ExprKind::Record: return error(e.loc, DiagKind::type_mismatch, "a value", "a record, which only `push` takes");
  case ExprKind::Tuple:
  case ExprKind::List: {
    SV out = SV::make(Kind::Tuple, e.loc, [](SV &) {});
    for (const ast::ExprPtr &x : e.operands) {
      SV v = expr(*x);
      if (v.is_poison()) return v;
      out.elements.push_back(std::move(v));
    }
    return out;
  }
  }
  return SV::poison();
}

DType common_dtype(DType a, DType b) {
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  return dtype_bits(a) >= dtype_bits(b) ? a : b;
}

std::string argument_count(size_t least, size_t most) {
  std::string count = least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  return count + (most == 1 ? " argument" : " arguments");
}

std::vector<std::string> Elaborator::visible_names() {
  std::vector<std::string> out;
  for (size_t i = scope_base_; i < scopes_.size(); i++)
    for (const auto &[n, v] : scopes_[i]) out.push_back(n);
  for (const auto &[n, v] : file_->functions) out.push_back(n);
  for (const auto &[n, v] : file_->consts) out.push_back(n);
  for (const auto &[n, v] : file_->enums) out.push_back(n);
  for (const auto &[n, v] : file_->records) out.push_back(n);
  return out;
}

SV Elaborator::name(const ast::Expr &e) {
  if (Var *v = lookup(e.text)) {
    if (!v->initialised) return error(e.loc, DiagKind::uninitialised_variable, e.text);
    SV out = v->value;
    out.loc = e.loc;
    return check_capture(e.text, std::move(out));
  }
  if (auto it = file_->consts.find(e.text); it != file_->consts.end()) {
    auto [node, scope] = it->second;
    std::string key = fmt::format("{}", fmt::ptr(node));
    if (auto c = const_cache_.find(key); c != const_cache_.end()) {
      if (c->second.is(Kind::None))
        return error(e.loc, DiagKind::recursion, e.text, "a constant needs a value before it is used");
      SV out = c->second;
      out.loc = e.loc;
      return out;
    }
    const_cache_[key] = SV::make(Kind::None, e.loc, [](SV &) {}); // being evaluated
    Scope *file = std::exchange(file_, scope);
    size_t base = std::exchange(scope_base_, scopes_.size());
    push_scope();
    SV v = expr(*node->value);
    pop_scope();
    scope_base_ = base;
    file_ = file;
    if (!v.is_number() && !v.is(Kind::Tuple) && !v.is(Kind::String) && !v.is_poison())
      v = error(node->value->loc, DiagKind::not_constant, "the value of a `const`");
    const_cache_[key] = v;
    v.loc = e.loc;
    return v;
  }
  if (e.text == "inf") return SV::make_float(INFINITY, e.loc);
  if (e.text == "nan") return SV::make_float(NAN, e.loc);
  if (e.text == "pi") return SV::make_float(M_PI, e.loc);
  if (auto t = parse_dtype(e.text)) return SV::make(Kind::DType, e.loc, [&](SV &s) { s.dtype = *t; });
  if (record_named(e.text)) return error(e.loc, DiagKind::not_a_value, "record " + quoted(e.text));
  if (file_->functions.count(e.text) || !ir::find_source_ops(e.text).empty())
    return error(e.loc, DiagKind::not_a_value, "function " + quoted(e.text));
  std::string near = nearest_name(e.text, visible_names());
  return error(e.loc, DiagKind::unknown_name, e.text, near.empty() ? "" : "; did you mean `" + near + "`?");
}

SV Elaborator::unary(const ast::Expr &e) {
  SV a = expr(*e.operands[0]);
  if (a.is_poison()) return a;
  a.loc = e.loc;
  if (a.is(Kind::Tuple)) {
    for (SV &x : a.elements) {
      ir::Value *v = value(x);
      x = e.unary == ast::UnaryOp::Neg ? emit(OpKind::Neg, {v}, {}, e.loc) : emit(OpKind::Not, {v}, {}, e.loc);
    }
    return a;
  }
  switch (e.unary) {
  case ast::UnaryOp::Neg:
    if (a.is(Kind::Int)) {
      if (a.i == INT64_MIN) return error(e.loc, DiagKind::integer_overflow, fmt::format("-({})", a.i));
      return SV::make_int(-a.i, e.loc);
    }
    if (a.is(Kind::Float)) return SV::make_float(-a.f, e.loc);
    return emit(OpKind::Neg, {value(a)}, {}, e.loc, {e.operands[0]->loc});
  case ast::UnaryOp::Not:
    if (a.is(Kind::Bool) || a.is(Kind::Int)) return SV::make_bool(!a.i, e.loc);
    return emit(OpKind::Not, {value(a)}, {}, e.loc, {e.operands[0]->loc});
  case ast::UnaryOp::BitNot:
    if (a.is(Kind::Int)) return SV::make_int(~a.i, e.loc);
    return emit(OpKind::Not, {value(a)}, {}, e.loc, {e.operands[0]->loc});
  }
  return SV::poison();
}

static OpKind op_of(BinaryOp op) {
  switch (op) {
  case BinaryOp::Or:
  case BinaryOp::BitOr: return OpKind::Or;
  case BinaryOp::And:
  case BinaryOp::BitAnd: return OpKind::And;
  case BinaryOp::BitXor: return OpKind::Xor;
  case BinaryOp::Eq: return OpKind::Eq;
  case BinaryOp::Ne: return OpKind::Ne;
  case BinaryOp::Lt: return OpKind::Lt;
  case BinaryOp::Gt: return OpKind::Gt;
  case BinaryOp::Le: return OpKind::Le;
  case BinaryOp::Ge: return OpKind::Ge;
  case BinaryOp::Shl: return OpKind::Shl;
  case BinaryOp::Shr: return OpKind::Shr;
  case BinaryOp::Add: return OpKind::Add;
  case BinaryOp::Sub: return OpKind::Sub;
  case BinaryOp::Mul: return OpKind::Mul;
  case BinaryOp::Div: return OpKind::Div;
  case BinaryOp::Rem: return OpKind::Rem;
  }
  return OpKind::Add;
}

SV Elaborator::fold(BinaryOp op, const SV &a, const SV &b, SourceLoc loc) {
  auto overflow = [&] {
    return error(loc, DiagKind::integer_overflow, fmt::format("{} {} {}", a.i, ast::spelling(op), b.i));
  };
  bool floats = a.is(Kind::Float) || b.is(Kind::Float);
  double x = a.is(Kind::Float) ? a.f : double(a.i), y = b.is(Kind::Float) ? b.f : double(b.i);
  int64_t out = 0;
  switch (op) {
  case BinaryOp::Or: return SV::make_bool(x != 0 || y != 0, loc);
  case BinaryOp::And: return SV::make_bool(x != 0 && y != 0, loc);
  case BinaryOp::Eq: return SV::make_bool(floats ? x == y : a.i == b.i, loc);
  case BinaryOp::Ne: return SV::make_bool(floats ? x != y : a.i != b.i, loc);
  case BinaryOp::Lt: return SV::make_bool(floats ? x < y : a.i < b.i, loc);
  case BinaryOp::Gt: return SV::make_bool(floats ? x > y : a.i > b.i, loc);
  case BinaryOp::Le: return SV::make_bool(floats ? x <= y : a.i <= b.i, loc);
  case BinaryOp::Ge: return SV::make_bool(floats ? x >= y : a.i >= b.i, loc);
  case BinaryOp::Add:
    if (floats) return SV::make_float(x + y, loc);
    return __builtin_add_overflow(a.i, b.i, &out) ? overflow() : SV::make_int(out, loc);
  case BinaryOp::Sub:
    if (floats) return SV::make_float(x - y, loc);
    return __builtin_sub_overflow(a.i, b.i, &out) ? overflow() : SV::make_int(out, loc);
  case BinaryOp::Mul:
    if (floats) return SV::make_float(x * y, loc);
    return __builtin_mul_overflow(a.i, b.i, &out) ? overflow() : SV::make_int(out, loc);
  case BinaryOp::Div:
  case BinaryOp::Rem:
    if (floats && op == BinaryOp::Div) return SV::make_float(x / y, loc);
    if (floats) return SV::make_float(std::fmod(x, y), loc);
    if (b.i == 0) return error(loc, DiagKind::division_by_zero);
    if (a.i == INT64_MIN && b.i == -1) return overflow();
    return SV::make_int(op == BinaryOp::Div ? a.i / b.i : a.i % b.i, loc);
  case BinaryOp::BitOr:
  case BinaryOp::BitAnd:
  case BinaryOp::BitXor:
    if (floats) return error(loc, DiagKind::type_mismatch, "integers", (a.is(Kind::Float) ? a : b).describe());
    out = op == BinaryOp::BitOr ? a.i | b.i : op == BinaryOp::BitAnd ? a.i & b.i : a.i ^ b.i;
    return a.is(Kind::Bool) && b.is(Kind::Bool) ? SV::make_bool(out, loc) : SV::make_int(out, loc);
  case BinaryOp::Shl:
  case BinaryOp::Shr:
    if (floats) return error(loc, DiagKind::type_mismatch, "integers", (a.is(Kind::Float) ? a : b).describe());
    if (b.i < 0 || b.i > 62 || (op == BinaryOp::Shl && (a.i > INT64_MAX >> b.i || a.i < INT64_MIN >> b.i)))
      return overflow();
    return SV::make_int(op == BinaryOp::Shl ? a.i << b.i : a.i >> b.i, loc);
  }
  return SV::poison();
}

SV Elaborator::binary(const ast::Expr &e) {
  SV a = expr(*e.operands[0]);
  // && and || of compile-time conditions do not look at what is decided: `has(x) && load(x[0]) > 0`.
  if (a.is_number() && ((e.binary == BinaryOp::And && !a.i) || (e.binary == BinaryOp::Or && a.i)))
    return SV::make_bool(a.i, e.loc);
  SV b = expr(*e.operands[1]);
  return binary(e.binary, std::move(a), std::move(b), e.loc);
}

SV Elaborator::binary(BinaryOp op, SV a, SV b, SourceLoc loc) {
  if (a.is_poison() || b.is_poison()) return SV::poison();
  if (a.is_number() && b.is_number()) return fold(op, a, b, loc);
  if (a.is(Kind::Tuple) || b.is(Kind::Tuple)) { // elementwise; a single value meets every element
    size_t n = a.is(Kind::Tuple) ? a.elements.size() : b.elements.size();
    if (a.is(Kind::Tuple) && b.is(Kind::Tuple) && a.elements.size() != b.elements.size())
      return error(loc, DiagKind::wrong_tuple, counted(int64_t(a.elements.size()), "element"),
                   counted(int64_t(b.elements.size()), "element"));
    SV out = SV::make(Kind::Tuple, loc, [](SV &) {});
    for (size_t i = 0; i < n; i++)
      out.elements.push_back(
          binary(op, a.is(Kind::Tuple) ? a.elements[i] : a, b.is(Kind::Tuple) ? b.elements[i] : b, loc));
    return out;
  }
  if ((a.is(Kind::Enum) || a.is(Kind::DType)) && a.kind == b.kind && (op == BinaryOp::Eq || op == BinaryOp::Ne)) {
    bool same = a.is(Kind::Enum) ? a.s == b.s : a.dtype == b.dtype;
    return SV::make_bool(same == (op == BinaryOp::Eq), loc);
  }
  std::optional<DType> want;
  if (a.is(Kind::Value)) want = a.v->type.dtype;
  if (b.is(Kind::Value) && (!want || !a.is(Kind::Value))) want = b.v->type.dtype;
  ir::Value *x = value(a, want), *y = value(b, want);
  if (!x || !y) return SV::poison();
  if (x->type.dtype != y->type.dtype) {
    // Sizes and indices: i32 widens to i64 beside it.
    auto widen = [&](ir::Value *v) { return emit(OpKind::Cast, {v}, ir::Attrs::one("dtype", DType::I64), loc).v; };
    if (x->type.dtype == DType::I32 && y->type.dtype == DType::I64 && x->type.is_scalar()) {
      x = widen(x);
    } else if (x->type.dtype == DType::I64 && y->type.dtype == DType::I32 && y->type.is_scalar()) {
      y = widen(y);
    } else {
      return error(loc, DiagKind::dtype_mismatch, ast::spelling(op), x->type.str(), y->type.str(),
                   dtype_name(common_dtype(x->type.dtype, y->type.dtype)));
    }
  }
  // numpy's broadcasting: dims from the right, extent 1 fits everything.
  int64_t rank = std::max(x->type.rank(), y->type.rank());
  std::vector<int64_t> shape(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; d++) {
    int64_t dx = d - (rank - x->type.rank()), dy = d - (rank - y->type.rank());
    int64_t ex = dx < 0 ? 1 : x->type.shape[dx], ey = dy < 0 ? 1 : y->type.shape[dy];
    if (ex != ey && ex != 1 && ey != 1)
      return error(loc, DiagKind::shape_mismatch, quoted(ast::spelling(op)), ir::shape_str(x->type.shape),
                   ir::shape_str(y->type.shape), d, ex, ey);
    shape[size_t(d)] = ex == 1 ? ey : ex;
  }
  SourceLoc la = a.loc, lb = b.loc;
  x = convert_shape(x, shape, la);
  y = x ? convert_shape(y, shape, lb) : nullptr;
  return emit(op_of(op), {x, y}, {}, loc, {la, lb});
}

SV Elaborator::ternary(const ast::Expr &e) {
  SV c = expr(*e.operands[0]);
  if (c.is_poison()) return c;
  if (c.is_number()) return expr(*e.operands[c.i ? 1 : 2]);
  SV a = expr(*e.operands[1]), b = expr(*e.operands[2]);
  if (a.is_poison() || b.is_poison()) return SV::poison();
  std::optional<DType> want;
  if (a.is(Kind::Value))
    want = a.v->type.dtype;
  else if (b.is(Kind::Value))
    want = b.v->type.dtype;
  else if (a.is(Kind::Float) || b.is(Kind::Float))
    want = reference() ? DType::F64 : DType::F32;
  ir::Value *x = value(a, want), *y = value(b, want), *k = value(c);
  if (!x || !y || !k) return SV::poison();
  std::vector<int64_t> shape = x->type.rank() >= y->type.rank() ? x->type.shape : y->type.shape;
  if (k->type.rank() > int64_t(shape.size())) shape = k->type.shape;
  auto fit = [&](ir::Value *v) { return value_as(SV::make_value(v, e.loc), v->type.with_shape(shape), "`? :`"); };
  x = fit(x);
  y = fit(y);
  k = fit(k);
  return emit(OpKind::Where, {k, x, y}, {}, e.loc);
}

SV Elaborator::member(const ast::Expr &e) {
  const ast::Expr &base = *e.operands[0];
  if (base.kind == ExprKind::Name && !lookup(base.text))
    if (auto it = file_->enums.find(base.text); it != file_->enums.end()) {
      std::vector<std::string> names;
      for (size_t i = 0; i < it->second.first->values.size(); i++) {
        names.push_back(it->second.first->values[i].text);
        if (names.back() == e.text)
          return SV::make(Kind::Enum, e.loc, [&](SV &s) { s.s = base.text + "." + e.text, s.i = int64_t(i); });
      }
      std::string near = nearest_name(e.text, names);
      return error(e.name_loc, DiagKind::unknown_name, base.text + "." + e.text,
                   near.empty() ? "" : "; did you mean `" + near + "`?");
    }
  SV a = expr(base);
  if (a.is_poison()) return a;
  if (a.is(Kind::Item)) return item_field(a, e);
  if (a.is(Kind::Tensor) || (a.is(Kind::View) && !a.view->open))
    if (auto record = record_of(a.is(Kind::Tensor) ? a.v : a.view->tensor)) return record_member(a, *record, e);
  if (e.text == "T" && a.is(Kind::Value)) {
    int64_t rank = a.v->type.rank();
    if (rank < 2) return error(e.loc, DiagKind::type_mismatch, "a tile of rank 2 or more", a.describe());
    std::vector<int64_t> perm;
    for (int64_t d = 0; d < rank; d++) perm.push_back(d);
    std::swap(perm[size_t(rank - 1)], perm[size_t(rank - 2)]);
    return emit(OpKind::Transpose, {a.v}, ir::Attrs::one("perm", perm), e.loc);
  }
  if (e.text == "dtype" && (a.is(Kind::Value) || a.is(Kind::Tensor)))
    return SV::make(Kind::DType, e.loc, [&](SV &s) { s.dtype = a.v->type.dtype; });
  if (e.text == "shape" && a.is(Kind::Value)) {
    SV out = SV::make(Kind::Tuple, e.loc, [](SV &) {});
    for (int64_t n : a.v->type.shape) out.elements.push_back(SV::make_int(n, e.loc));
    return out;
  }
  return error(e.name_loc, DiagKind::unknown_member, a.describe(), e.text);
}

SV Elaborator::range(const ast::Expr &e) {
  SV out = SV::make(Kind::Range, e.loc, [](SV &s) { s.range = std::make_shared<Range>(); });
  auto end = [&](size_t i) -> std::optional<SV> {
    if (i >= e.operands.size() || !e.operands[i]) return std::nullopt;
    return expr(*e.operands[i]);
  };
  out.range->lo = end(0);
  (e.has_length ? out.range->length : out.range->hi) = end(1);
  for (auto *x : {&out.range->lo, &out.range->hi, &out.range->length})
    if (*x && (*x)->is_poison()) return SV::poison();
  return out;
}

bool Elaborator::tile_fits(const std::vector<int64_t> &shape, const std::string &name, SourceLoc loc) {
  if (reference()) return true;
  if (int64_t(shape.size()) > max_rank) return error(loc, DiagKind::tile_rank, name, shape.size()), false;
  int64_t elements = 1;
  for (int64_t n : shape)
    if (__builtin_mul_overflow(elements, n, &elements) || elements > ir::kMaxTileElements)
      return error(loc, DiagKind::tile_too_large, name, ir::shape_str(shape), ir::kMaxTileElements), false;
  return true;
}

// zeros<f32>[BM, BN], ones<f32>[N], full is a call.
SV Elaborator::shaped(const ast::Expr &e) {
  if (std::string near = nearest_name(e.text, {"zeros", "ones", "shared"}); e.text != near && !near.empty())
    return error(e.name_loc, DiagKind::unknown_name, e.text, "; did you mean `" + near + "`?");
  if (e.text == "shared") return shared_memory(e);
  if (e.text != "zeros" && e.text != "ones")
    return error(e.name_loc, DiagKind::not_callable, e.text, "`name<T>[...]` makes a tile only for zeros and ones");
  if (e.generics.size() != 1 || e.generics[0].value->kind != ExprKind::Name)
    return error(e.loc, DiagKind::wrong_arity, e.text, "one type in <>", e.generics.size());
  auto t = dtype_of({e.generics[0].value->text, e.generics[0].value->loc});
  if (!t) return SV::poison();
  std::vector<int64_t> shape;
  for (const ast::ExprPtr &d : e.operands) {
    SV v = expr(*d);
    if (v.is_poison()) return v;
    if (!v.is(Kind::Int))
      return run_time_extent(d->loc, shape.size(), "`" + e.text + "`", std::string(diags_.sources().text(d->loc)));
    if (v.i < least_extent()) return error(d->loc, DiagKind::bad_extent, shape.size(), v.i);
    shape.push_back(v.i);
  }
  if (!tile_fits(shape, e.text, e.loc)) return SV::poison();
  SV number = SV::make_int(e.text == "ones", e.loc);
  if (is_bool(*t)) number = SV::make_bool(e.text == "ones", e.loc);
  return SV::make_value(value_as(number, ir::Type::tile(*t, shape), quoted(e.text)), e.loc);
}

} // namespace tkc::sema

#include "passes/unfuse_kernel.h"
#include "ir/builder.h"
#include "ir/print.h"
#include "ir/verify.h"
#include <algorithm>
#include <deque>
#include <functional>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::SizeExpr;
using ir::Type;
using ir::Value;
using Kind = UnfusedArgument::Kind;

// ---- what is free

static bool is_view_or_cast(OpKind kind) {
  switch (kind) {
  case OpKind::Constant:
  case OpKind::Iota:
  case OpKind::ProgramId:
  case OpKind::NumPrograms:
  case OpKind::Dim:
  case OpKind::Subview:
  case OpKind::RecordField:
  case OpKind::Cast:
  case OpKind::Bitcast:
  case OpKind::Reshape:
  case OpKind::ExpandDims:
  case OpKind::Broadcast:
  case OpKind::Transpose:
  case OpKind::Slice: return true;
  default: return false;
  }
}

bool SplitPlan::is_number(const Value *v) const {
  if (v->type.is_scalar()) return true;
  if (!v->op || !v->op->regions.empty() || !is_pure(*v->op)) return false;
  return std::all_of(v->op->operands.begin(), v->op->operands.end(), [&](const Value *x) { return is_number(x); });
}

bool SplitPlan::free(const Op &op) const {
  if (auto it = free_.find(&op); it != free_.end()) return it->second;
  bool out = is_free(op);
  return free_[&op] = out;
}

bool SplitPlan::is_free(const Op &op) const {
  if (op.kind == OpKind::Yield || op.kind == OpKind::Return) return false;
  if (!op.regions.empty()) {
    auto scalar = [](const Value *v) { return v->type.is_scalar(); };
    if (op.results.empty() || !std::all_of(op.results.begin(), op.results.end(), scalar)) return false;
    for (const Block *r : op.regions)
      for (const Op *inner : r->ops) {
        if (inner->kind == OpKind::Yield) continue;
        bool views = std::all_of(inner->results.begin(), inner->results.end(),
                                 [](const Value *v) { return v->type.is_scalar() || v->type.is_tensor(); });
        if (!views || !free(*inner)) return false;
      }
    return true;
  }
  if (op.kind == OpKind::Load) return writes_.never_written(op.operand(0));
  if (!is_pure(op)) return false;
  if (is_view_or_cast(op.kind)) return true;
  return std::all_of(op.operands.begin(), op.operands.end(), [&](const Value *v) { return is_number(v); });
}

// Calls f with every operand that a value is made from, those that a region takes from outside included.
template <typename F> static void for_inputs(const Op &op, F &&f) {
  for (const Value *v : op.operands) f(v);
  for (const Block *r : op.regions)
    for (const Op *inner : r->ops) for_inputs(*inner, f);
}

bool SplitPlan::from_params(const Value *v) const {
  if (!v->op) {
    const Op *loop = v->block->parent;
    return !loop || (loop->kind == OpKind::For && v->index == 0);
  }
  if (!v->op->regions.empty() || !free(*v->op)) return false;
  return std::all_of(v->op->operands.begin(), v->op->operands.end(), [&](const Value *x) { return from_params(x); });
}

bool SplitPlan::reads(const Value *v, size_t t) const {
  if (auto it = tile.find(v); it != tile.end()) return it->second == t;
  if (!v->op || !free(*v->op)) return false;
  bool out = false;
  for_inputs(*v->op, [&](const Value *x) { out |= x->op != v->op && reads(x, t); });
  return out;
}

// ---- kernels

namespace {

class Kernel {
public:
  Kernel(const SplitPlan &plan, const Unfused &unfused, Diagnostics &diags, SourceLoc loc)
      : plan_(plan), unfused_(unfused), loc_(loc), g_(std::make_unique<ir::Function>()), b_(*g_, diags) {
    g_->loc = loc;
    g_->grid = {SizeExpr::symbol(plan_.blocks)};
    g_->body = g_->new_block(nullptr);
    b_.set_block(g_->body);
  }

  void enter(const SplitPath &path) {
    size_t counter = 0;
    for (const SplitPlace &p : path) {
      if (!p.is_loop()) {
        Value *cond = get(p.op->operand(0));
        if (p.region == 1) cond = make(OpKind::Not, {cond});
        open_if(cond);
        continue;
      }
      const Block &body = *p.op->regions[0];
      Value *lo = get(p.op->operand(0)), *step = get(p.op->operand(2)), *n = counter_param(counter++);
      if (lo->type.dtype != n->type.dtype) n = cast(n, lo->type.dtype);
      Value *at = make(OpKind::Add, {lo, make(OpKind::Mul, {n, step})});
      values_[body.args[0]] = at;
      if (p.guarded) open_if(make(OpKind::Lt, {at, get(p.op->operand(1))}));
    }
  }

  // A value of the kernel that is split.
  Value *get(const Value *v) {
    if (auto it = values_.find(v); it != values_.end()) return it->second;
    return values_[v] = find(v);
  }

  // A copy of an op with what it needs.
  void run(const Op &op) {
    for_inputs(op, [&](const Value *v) {
      if (!inside(*v, op)) get(v);
    });
    for (const Block *r : op.regions) resolve_places(*r);
    ir::clone_op(*g_, b_.block(), op, values_);
    note_accesses(op);
  }

  Value *load_tile(size_t tile) {
    const UnfusedTile &t = unfused_.tiles[tile];
    Access a = access(tile);
    ir::Attrs attrs = a.attrs;
    attrs.set("has_mask", int64_t(0));
    attrs.set("has_other", int64_t(0));
    note(Kind::Tile, tile, true, false);
    return b_.create_typed(OpKind::Load, a.operands, {Type::tile(t.dtype, t.shape)}, std::move(attrs), loc_)->result();
  }
  void store_tile(size_t tile, Value *v) {
    Access a = access(tile);
    ir::Attrs attrs = a.attrs;
    attrs.set("has_mask", int64_t(0));
    a.operands.push_back(v);
    note(Kind::Tile, tile, false, true);
    b_.create_typed(OpKind::Store, a.operands, {}, std::move(attrs), loc_);
  }

  std::shared_ptr<ir::Function> finish(std::vector<UnfusedArgument> &args, std::vector<SizeExpr> &sizes) {
    for (size_t i = open_.size(); i-- > 0;) {
      b_.set_block(open_[i]);
      b_.create_typed(OpKind::Yield, {}, {}, {}, loc_);
    }
    b_.set_block(g_->body);
    b_.create_typed(OpKind::Return, {}, {}, {}, loc_);
    size_t index = 0;
    for (const Parameter &p : params_) {
      ir::Param &declared = g_->params[index];
      if (p.read && p.written) declared.mode = ir::ParamMode::InOut;
      if (!p.read && p.written) declared.mode = ir::ParamMode::Out;
      p.value->index = int64_t(index++);
      g_->body->args.push_back(p.value);
      args.push_back(p.argument);
    }
    std::vector<std::string> names;
    for (const ir::Param &p : g_->params)
      for (const SizeExpr &d : p.dims) d.symbols(names);
    for (const std::string &name : names) size_value(name);
    size_value(plan_.blocks);
    for (const auto &[name, value] : sizes_) {
      value->index = int64_t(index++);
      g_->sizes.push_back(name);
      g_->body->args.push_back(value);
      sizes.push_back(name == plan_.blocks ? unfused_.blocks : SizeExpr::symbol(name));
    }
    for (size_t i = 0; i < plan_.f.facts.size(); i++) {
      std::vector<std::string> needs;
      plan_.f.facts[i].symbols(needs);
      bool known = std::all_of(needs.begin(), needs.end(), [&](const std::string &n) { return known_symbol(n); });
      if (!known) continue;
      g_->facts.push_back(plan_.f.facts[i]);
      g_->fact_locs.push_back(plan_.f.fact_locs[i]);
    }
    forget_names(*g_->body);
    std::vector<std::string> wrong = ir::verify(*g_, ir::Stage::typed);
    TKC_CHECK(wrong.empty(), "a split kernel: {}\n{}", wrong.front(), ir::print(*g_));
    return std::move(g_);
  }

private:
  struct Parameter {
    UnfusedArgument argument;
    Value *value;
    bool read = false, written = false;
  };
  struct Access {
    std::vector<Value *> operands;
    ir::Attrs attrs;
  };

  // Of values inside: equal kernels have equal texts.
  static void forget_names(const Block &b) {
    for (Op *op : b.ops) {
      for (Value *v : op->results) v->name.clear();
      for (Block *r : op->regions) {
        for (Value *v : r->args) v->name.clear();
        forget_names(*r);
      }
    }
  }

  static bool inside(const Value &v, const Op &op) {
    const Block *b = v.op ? v.op->block : v.block;
    for (; b && b->parent; b = b->parent->block)
      if (b->parent == &op) return true;
    return false;
  }

  Value *make(OpKind kind, std::vector<Value *> operands, ir::Attrs attrs = {}) {
    Value *v = b_.value(kind, std::move(operands), std::move(attrs), loc_);
    TKC_CHECK(v, "`{}` of a split kernel", def(kind).name.s);
    return v;
  }
  Value *cast(Value *v, DType t) { return make(OpKind::Cast, {v}, ir::Attrs::one("dtype", t)); }
  Value *number(int64_t n) { return b_.constant_int(DType::I32, n, loc_); }

  void open_if(Value *cond) {
    Op *op = b_.create_typed(OpKind::If, {cond}, {}, {}, loc_);
    for (int i = 0; i < 2; i++) op->regions.push_back(g_->new_block(op));
    b_.set_block(op->regions[1]);
    b_.create_typed(OpKind::Yield, {}, {}, {}, loc_);
    b_.set_block(op->regions[0]);
    open_.push_back(op->regions[0]);
  }

  // ---- parameters: in order of first use, by names of their own, so that equal launches have equal kernels

  Parameter &param(UnfusedArgument a, const std::function<ir::Param(std::string)> &declare) {
    for (Parameter &p : params_)
      if (p.argument.kind == a.kind && p.argument.index == a.index) return p;
    std::string name = fmt::format("x{}", params_.size());
    while (in_source(name)) name += "_"; // sizes and numbers keep their names
    ir::Param declared = declare(name);
    Value *v = g_->new_value(declared.type, declared.name);
    v->block = g_->body;
    g_->params.push_back(std::move(declared));
    params_.push_back({a, v});
    return params_.back();
  }

  bool in_source(const std::string &name) const {
    return std::count(plan_.f.sizes.begin(), plan_.f.sizes.end(), name) ||
           std::any_of(plan_.f.params.begin(), plan_.f.params.end(),
                       [&](const ir::Param &p) { return p.name == name; });
  }

  Parameter &source_param(size_t index) {
    const ir::Param &from = plan_.f.params[index];
    return param({Kind::Param, index}, [&](std::string name) {
      ir::Param p = from;
      p.mode = ir::ParamMode::In;
      p.optional = false;
      if (p.type.is_tensor()) p.name = std::move(name); // expressions may name a number
      return p;
    });
  }

  Value *counter_param(size_t index) {
    return param({Kind::Counter, index},
                 [&](std::string name) {
                   ir::Param p;
                   p.name = std::move(name);
                   p.type = Type::scalar(DType::I32);
                   return p;
                 })
        .value;
  }

  Parameter &tile_param(size_t tile) {
    const UnfusedTile &t = unfused_.tiles[tile];
    return param({Kind::Tile, tile}, [&](std::string name) {
      ir::Param p;
      p.name = std::move(name);
      p.dims = tensor_dims(t, SizeExpr::symbol(plan_.blocks));
      std::vector<int64_t> shape;
      for (const SizeExpr &d : p.dims) shape.push_back(d.is_const() ? d.value() : ir::kDynamic);
      p.type = Type::tensor(t.dtype, std::move(shape));
      p.loc = loc_;
      return p;
    });
  }

  void note(Kind kind, size_t index, bool read, bool written) {
    for (Parameter &p : params_)
      if (p.argument.kind == kind && p.argument.index == index) p.read |= read, p.written |= written;
  }

  Access access(size_t tile) {
    const UnfusedTile &t = unfused_.tiles[tile];
    Access a;
    a.operands.push_back(tile_param(tile).value);
    Value *first = block_number();
    bool scalar = t.shape.empty();
    if (!scalar && t.shape[0] > 1) first = make(OpKind::Mul, {first, number(t.shape[0])});
    a.operands.push_back(first);
    for (size_t d = 1; d < t.shape.size(); d++) a.operands.push_back(number(0));
    size_t rank = std::max<size_t>(1, t.shape.size());
    a.attrs.set("sizes", scalar ? std::vector<int64_t>{1} : t.shape);
    a.attrs.set("drop", std::vector<int64_t>(rank, scalar ? 1 : 0));
    a.attrs.set("gather", std::vector<int64_t>(rank, 0));
    return a;
  }

  // ---- numbers

  Value *size_value(const std::string &name) {
    for (auto &[n, v] : sizes_)
      if (n == name) return v;
    for (size_t i = 0; i < plan_.f.params.size(); i++)
      if (plan_.f.params[i].name == name) return source_param(i).value;
    Value *v = g_->new_value(Type::scalar(DType::I32), name);
    v->block = g_->body;
    sizes_.emplace_back(name, v);
    return v;
  }
  bool known_symbol(const std::string &name) const {
    return std::any_of(sizes_.begin(), sizes_.end(), [&](const auto &s) { return s.first == name; }) ||
           std::any_of(g_->params.begin(), g_->params.end(), [&](const ir::Param &p) { return p.name == name; });
  }

  Value *block_number() {
    if (!block_number_) block_number_ = make(OpKind::ProgramId, {}, ir::Attrs::one("axis", int64_t(0)));
    return block_number_;
  }

  // An extent of the grid.
  Value *expression(const SizeExpr &e) {
    using O = SizeExpr::Op;
    if (e.is_const()) return number(e.value());
    if (e.op() == O::Sym) {
      Value *v = size_value(e.name());
      return v->type.dtype == DType::I32 ? v : cast(v, DType::I32);
    }
    if (e.op() == O::Select)
      return make(OpKind::Where,
                  {make(OpKind::Ne, {expression(e.a()), number(0)}), expression(e.b()), expression(e.c())});
    Value *a = expression(e.a());
    if (e.op() == O::Not) return cast(make(OpKind::Eq, {a, number(0)}), DType::I32);
    Value *b = expression(e.b());
    auto truth = [&](OpKind kind, Value *x, Value *y) { return cast(make(kind, {x, y}), DType::I32); };
    auto is_true = [&](Value *x) { return make(OpKind::Ne, {x, number(0)}); };
    switch (e.op()) {
    case O::Add: return make(OpKind::Add, {a, b});
    case O::Sub: return make(OpKind::Sub, {a, b});
    case O::Mul: return make(OpKind::Mul, {a, b});
    case O::Div: return make(OpKind::Div, {a, b});
    case O::CDiv: return make(OpKind::Div, {make(OpKind::Sub, {make(OpKind::Add, {a, b}), number(1)}), b});
    case O::Rem: return make(OpKind::Rem, {a, b});
    case O::Min: return make(OpKind::Min, {a, b});
    case O::Max: return make(OpKind::Max, {a, b});
    case O::Eq: return truth(OpKind::Eq, a, b);
    case O::Ne: return truth(OpKind::Ne, a, b);
    case O::Lt: return truth(OpKind::Lt, a, b);
    case O::Le: return truth(OpKind::Le, a, b);
    case O::Gt: return truth(OpKind::Gt, a, b);
    case O::Ge: return truth(OpKind::Ge, a, b);
    case O::And: return cast(make(OpKind::And, {is_true(a), is_true(b)}), DType::I32);
    case O::Or: return cast(make(OpKind::Or, {is_true(a), is_true(b)}), DType::I32);
    case O::Not:
    case O::Select:
    case O::Const:
    case O::Sym: break;
    }
    TKC_UNREACHABLE("SizeExpr::Op");
  }

  // Axis 0 is the fastest, as in every grid.
  Value *coordinate(size_t axis) {
    Value *n = block_number();
    for (size_t a = 0; a < axis; a++) n = make(OpKind::Div, {n, expression(plan_.f.grid[a])});
    bool last = axis + 1 == plan_.f.grid.size();
    return last ? n : make(OpKind::Rem, {n, expression(plan_.f.grid[axis])});
  }

  Value *find(const Value *v) {
    if (auto it = plan_.tile.find(v); it != plan_.tile.end()) return load_tile(it->second);
    if (v->block == plan_.f.body) {
      size_t arg = 0;
      for (size_t i = 0; i < plan_.f.params.size(); i++) {
        if (!plan_.f.params[i].present) continue;
        if (plan_.f.body->args[arg++] == v) return source_param(i).value;
      }
      return size_value(v->name);
    }
    TKC_CHECK(v->op, "an argument of a region that no launch is in");
    const Op &op = *v->op;
    if (op.kind == OpKind::ProgramId) return coordinate(size_t(op.attrs.i("axis")));
    if (op.kind == OpKind::NumPrograms) return expression(plan_.f.grid[size_t(op.attrs.i("axis"))]);
    run(op);
    return values_.at(v);
  }

  // Numbers of the block inside of control flow that is copied whole.
  void resolve_places(const Block &b) {
    for (const Op *op : b.ops) {
      if (op->kind == OpKind::ProgramId || op->kind == OpKind::NumPrograms) get(op->result());
      for (const Block *r : op->regions) resolve_places(*r);
    }
  }

  // Which of the source's tensors an op reads and writes.
  void note_accesses(const Op &op) {
    const ir::Effects &e = def(op).effects;
    for (int i = 0; i < e.count; i++) {
      if (e.list[i].operand < 0 || e.list[i].space != ir::Space::Global) continue;
      auto root = values_.find(root_tensor(op.operands[size_t(e.list[i].operand)]));
      for (Parameter &p : params_)
        if (root != values_.end() && root->second == p.value) {
          p.read |= e.list[i].access != ir::Access::Write;
          p.written |= e.list[i].access != ir::Access::Read;
        }
    }
    for (const Block *r : op.regions)
      for (const Op *inner : r->ops) note_accesses(*inner);
  }

  const SplitPlan &plan_;
  const Unfused &unfused_;
  SourceLoc loc_;
  std::unique_ptr<ir::Function> g_;
  ir::Builder b_;
  ir::ValueMap values_;
  std::deque<Parameter> params_;
  std::vector<std::pair<std::string, Value *>> sizes_;
  std::vector<Block *> open_;
  Value *block_number_ = nullptr;
};

// The launch of a finished kernel.
UnfusedStep step_of(Kernel &k, SourceLoc loc, std::string_view what, Unfused &out,
                    std::map<std::string, size_t> &known) {
  UnfusedStep step;
  step.loc = loc;
  std::shared_ptr<ir::Function> g = k.finish(step.args, step.sizes);
  auto [it, fresh] = known.emplace(ir::print(*g), out.kernels.size());
  if (fresh) {
    g->name = fmt::format("unfused_{}_{}", what, out.kernels.size());
    out.kernels.push_back(std::move(g));
  }
  step.kernel = it->second;
  return step;
}

} // namespace

UnfusedStep KernelMaker::op(const Op &op, const std::vector<const Op *> &stores, const SplitPath &path) {
  Kernel k(plan_, out_, diags_, op.loc);
  k.enter(path);
  k.run(op);
  for (const Op *store : stores) k.run(*store);
  // Last: what is stored may lie where an operand was.
  for (const Value *v : op.results)
    if (auto it = plan_.tile.find(v); it != plan_.tile.end()) k.store_tile(it->second, k.get(v));
  return step_of(k, op.loc, def(op).name.s, out_, known_);
}

UnfusedStep KernelMaker::copy(const Value *from, size_t to_tile, const SplitPath &path) {
  SourceLoc loc = from->op ? from->op->loc : plan_.f.loc;
  Kernel k(plan_, out_, diags_, loc);
  k.enter(path);
  k.store_tile(to_tile, k.get(from));
  return step_of(k, loc, "copy", out_, known_);
}

UnfusedStep KernelMaker::move(size_t from_tile, size_t to_tile, const SplitPath &path) {
  Kernel k(plan_, out_, diags_, plan_.f.loc);
  k.enter(path);
  k.store_tile(to_tile, k.load_tile(from_tile));
  return step_of(k, plan_.f.loc, "copy", out_, known_);
}

} // namespace tkc::passes

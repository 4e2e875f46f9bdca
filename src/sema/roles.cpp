// Roles and rings of a kernel: `ring`, `role`, push, pop and the fields of items; what a role may use from outside, and
// what rings and roles must be to each other.
#include "ir/ring.h"
#include "sema/elaborate.h"
#include <algorithm>

namespace tkc::sema {

using ir::OpKind;
using Kind = SV::Kind;

namespace {
constexpr int64_t kMostFields = 14, kMostRoles = 8; // of the proof; named barriers would do for 15

const std::vector<std::string> &field_names(const ir::Op &ring) {
  return ring.attrs.get<std::vector<std::string>>("fields");
}
bool inside(const ir::Value *v, const ir::Block *block) {
  for (const ir::Block *b = v->op ? v->op->block : v->block; b; b = b->parent ? b->parent->block : nullptr)
    if (b == block) return true;
  return false;
}
// Shared memory and mbarriers of the block, and the `if elect()` that initialises them before the roles start.
bool makes_mbarriers(const ir::Op &op) {
  if (op.kind == OpKind::SharedAlloc || op.kind == OpKind::BarrierAlloc) return true;
  if (op.kind != OpKind::If || !op.operand(0)->op || op.operand(0)->op->kind != OpKind::ElectThread) return false;
  const std::vector<ir::Op *> &ops = op.regions[0]->ops;
  return std::all_of(ops.begin(), ops.end(), [](const ir::Op *o) {
    return o->kind == OpKind::MbarrierInit || o->kind == OpKind::Constant || o->kind == OpKind::Yield;
  });
}
} // namespace

void Elaborator::ring_stmt(const ast::Stmt &s) {
  const ast::Name &name = s.targets[0];
  auto fail = [&](SourceLoc loc, const std::string &text) {
    error(loc, DiagKind::bad_ring, name.text, text);
    define(name, SV::poison());
  };
  if (fn_.kind != ir::FunctionKind::Kernel || b_.block() != fn_.body || !calls_.empty())
    return fail(s.loc, "a ring is declared directly in the body of a kernel");
  if (s.fields.empty() || int64_t(s.fields.size()) > kMostFields)
    return fail(s.loc, fmt::format("it has {} fields; 1 to {} are possible", s.fields.size(), kMostFields));
  ir::Attrs attrs;
  int64_t stages = 0; // the compiler chooses
  if (s.value && !(s.value->kind == ast::ExprKind::Name && s.value->text == "auto")) {
    auto n = const_int(*s.value, "the number of stages");
    if (!n) return define(name, SV::poison());
    if (*n < 2 || *n > 8) return fail(s.value->loc, fmt::format("it has 2 to 8 stages or `auto`, not {}", *n));
    stages = *n;
  }
  attrs.set("stages", stages);
  attrs.set("transport", std::string("mbarrier"));
  std::vector<std::string> names;
  for (size_t i = 0; i < s.fields.size(); i++) {
    const ast::Field &f = s.fields[i];
    if (std::find(names.begin(), names.end(), f.name.text) != names.end())
      return fail(f.name.loc, fmt::format("two fields are named `{}`", f.name.text));
    names.push_back(f.name.text);
    auto t = dtype_of(f.element);
    std::vector<int64_t> shape;
    for (const ast::ExprPtr &e : f.dims) {
      auto n = const_int(*e, fmt::format("dim {} of field `{}`", shape.size(), f.name.text));
      if (!n) return define(name, SV::poison());
      if (*n < 1) {
        error(e->loc, DiagKind::bad_extent, shape.size(), *n);
        return define(name, SV::poison());
      }
      shape.push_back(*n);
    }
    if (!t || !tile_fits(shape, f.name.text, f.name.loc)) return define(name, SV::poison());
    if (shape.empty()) return fail(f.name.loc, fmt::format("field `{}` needs a shape of rank 1 to 4", f.name.text));
    attrs.set(fmt::format("dtype{}", i), *t);
    attrs.set(fmt::format("shape{}", i), shape);
  }
  attrs.set("fields", names);
  ir::Value *ring = b_.value(OpKind::RingAlloc, {}, std::move(attrs), name.loc);
  ring->name = name.text;
  define(name, SV::make(Kind::Ring, name.loc, [&](SV &v) { v.v = ring; }));
}

void Elaborator::role_stmt(const ast::Stmt &s) {
  const ast::Name &name = s.targets[0];
  int64_t warps = 0; // the layout search chooses
  if (s.value)
    if (auto w = const_int(*s.value, "the number of warps")) {
      if (*w < 1 || *w > 32 || (*w & (*w - 1)))
        error(s.value->loc, DiagKind::bad_warps, *w);
      else
        warps = *w;
    }
  if (fn_.kind != ir::FunctionKind::Kernel || b_.block() != fn_.body || !calls_.empty()) {
    error(s.loc, DiagKind::bad_role, name.text, "a role stands directly in the body of a kernel");
    return;
  }
  // All roles are one op, behind what stands between them.
  ir::Op *roles = ir::roles_of(fn_);
  std::vector<std::string> names;
  std::vector<int64_t> counts;
  if (roles) {
    names = roles->attrs.get<std::vector<std::string>>("names");
    counts = roles->attrs.ints("warps");
    ir::erase(roles);
    roles->block = fn_.body;
    fn_.body->ops.push_back(roles);
  } else {
    roles = b_.create_typed(OpKind::Roles, {}, {}, {}, s.loc);
  }
  if (std::find(names.begin(), names.end(), name.text) != names.end())
    error(name.loc, DiagKind::duplicate_name, name.text);
  if (int64_t(names.size()) == kMostRoles)
    error(name.loc, DiagKind::bad_role, name.text, fmt::format("a kernel has at most {} roles", kMostRoles));
  names.push_back(name.text);
  counts.push_back(warps);
  roles->attrs.set("names", names);
  roles->attrs.set("warps", counts);
  ir::Block *body = fn_.new_block(roles);
  roles->regions.push_back(body);
  b_.set_block(body);
  role_ = body;
  role_scope_ = scopes_.size();
  region_depth_++;
  push_scope();
  for (size_t i = 0; i < s.body.size();)
    if (statement(s.body, i).returned) error(s.body[i - 1]->loc, DiagKind::misplaced_return, "cannot leave a role");
  pop_scope();
  region_depth_--;
  role_ = nullptr;
  b_.create_typed(OpKind::Yield, {}, {}, {}, s.loc);
  b_.set_block(fn_.body);
}

bool Elaborator::outside_role(const std::string &name) {
  if (!role_ || scope_base_ > role_scope_) return false;
  for (size_t i = scopes_.size(); i-- > scope_base_;)
    if (scopes_[i].count(name)) return i < role_scope_;
  return false;
}

SV Elaborator::check_capture(const std::string &name, SV v) {
  if (!role_) return v;
  bool tile = v.is(Kind::Value) && !v.v->type.is_scalar() && !inside(v.v, role_);
  for (const SV &e : v.elements) tile |= e.is(Kind::Value) && !e.v->type.is_scalar() && !inside(e.v, role_);
  if (!tile) return v;
  return error(v.loc, DiagKind::role_capture, name,
               v.describe() + " lies in the registers of other warps; a tile comes to a role through a ring");
}

SV Elaborator::ring_method(const SV &ring, const ast::Expr &e) {
  if (!role_) return error(e.name_loc, DiagKind::bad_ring, ring.v->name, "roles alone push and pop");
  if (e.text == "push") return push(ring, e);
  if (e.text != "pop") return error(e.name_loc, DiagKind::unknown_member, ring.describe(), e.text);
  if (!e.args.empty()) return error(e.loc, DiagKind::wrong_arity, "pop", "0 arguments", e.args.size());
  SV item = emit(OpKind::RingPop, {ring.v}, {}, e.loc);
  if (item.is(Kind::Value)) item.kind = Kind::Item;
  return item;
}

SV Elaborator::push(const SV &ring, const ast::Expr &e) {
  const ir::Op &alloc = *ring.v->op;
  const std::vector<std::string> &names = field_names(alloc);
  if (e.args.size() != 1 || e.args[0].name || e.args[0].value->kind != ast::ExprKind::Record)
    return error(e.loc, DiagKind::bad_ring, ring.v->name,
                 fmt::format("`push` takes one record, as in `push({{ {}: ... }})`", names[0]));
  std::vector<ir::Value *> values(names.size(), nullptr);
  bool good = true;
  for (const ast::Arg &a : e.args[0].value->args) {
    auto it = std::find(names.begin(), names.end(), a.name->text);
    if (it == names.end()) {
      std::string near = nearest_name(a.name->text, names);
      error(a.name->loc, DiagKind::unknown_member, ring.describe(),
            a.name->text + (near.empty() ? "" : "; did you mean `" + near + "`?"));
      good = false;
      continue;
    }
    size_t i = size_t(it - names.begin());
    if (values[i]) {
      error(a.name->loc, DiagKind::duplicate_name, a.name->text);
      good = false;
      continue;
    }
    SV v = expr(*a.value);
    values[i] = v.is_poison() ? nullptr : value_as(v, ir::ring_field(alloc, i), "field `" + names[i] + "`");
    if (!values[i]) good = false;
  }
  if (!good) return SV::poison();
  for (size_t i = 0; i < names.size(); i++)
    if (!values[i])
      return error(e.loc, DiagKind::bad_ring, ring.v->name, fmt::format("this item has no field `{}`", names[i]));
  values.insert(values.begin(), ring.v);
  return emit(OpKind::RingPush, std::move(values), {}, e.loc);
}

SV Elaborator::item_field(const SV &item, const ast::Expr &e) {
  const ir::Value *ring = item.v->op->operand(0);
  if (auto it = released_.find(item.v); it != released_.end()) {
    error(e.loc, DiagKind::bad_ring, ring->name, "this item is read after its release");
    diags_.last().notes.push_back({it->second, "released here"});
    return SV::poison();
  }
  const std::vector<std::string> &names = field_names(*ring->op);
  auto it = std::find(names.begin(), names.end(), e.text);
  if (it == names.end()) {
    std::string near = nearest_name(e.text, names);
    return error(e.name_loc, DiagKind::unknown_member, item.describe(),
                 e.text + (near.empty() ? "" : "; did you mean `" + near + "`?"));
  }
  return emit(OpKind::RingItem, {item.v}, ir::Attrs::one("field", int64_t(it - names.begin())), e.loc);
}

SV Elaborator::release_item(const SV &item, const ast::Expr &e) {
  if (item.is_poison()) return item;
  if (!item.is(Kind::Item)) return error(e.loc, DiagKind::type_mismatch, "an item of a ring", item.describe());
  const std::string &ring = item.v->op->operand(0)->name;
  if (released_.count(item.v)) return error(e.loc, DiagKind::bad_ring, ring, "this item is released twice");
  if (item.v->op->block != b_.block())
    return error(e.loc, DiagKind::bad_ring, ring,
                 "an item is released in the block that popped it, not inside another");
  released_[item.v] = e.loc;
  return emit(OpKind::RingDrop, {item.v}, {}, e.loc);
}

void Elaborator::check_roles(SourceLoc warps_clause) {
  ir::Op *roles = ir::roles_of(fn_);
  std::vector<ir::Op *> rings;
  for (ir::Op *op : fn_.body->ops)
    if (op->kind == OpKind::RingAlloc) rings.push_back(op);
  if (!roles) {
    for (ir::Op *ring : rings) diags_.report(ring->loc, DiagKind::bad_ring, ring->result()->name, "no role uses it");
    return;
  }
  const auto &names = roles->attrs.get<std::vector<std::string>>("names");
  const std::vector<int64_t> &warps = roles->attrs.ints("warps");
  if (warps_clause.valid())
    diags_.report(warps_clause, DiagKind::bad_role, names[0],
                  "each role says how many warps it has, the kernel does not");
  int64_t sum = 0;
  for (int64_t w : warps) sum += std::max<int64_t>(w, 1);
  if (sum > 32)
    diags_.report(roles->loc, DiagKind::bad_role, names[0], fmt::format("{} warps in all; a block has 32", sum));

  // Who pushes and who pops.
  for (ir::Op *ring : rings) {
    std::vector<size_t> push, pop;
    const ir::Op *last = nullptr;
    for (size_t r = 0; r < roles->regions.size(); r++)
      ir::walk(roles->regions[r], [&](const ir::Op *op) {
        bool pushes = op->kind == OpKind::RingPush;
        if ((!pushes && op->kind != OpKind::RingPop) || op->operand(0) != ring->result()) return;
        std::vector<size_t> &list = pushes ? push : pop;
        if (list.empty() || list.back() != r) list.push_back(r), last = pushes && list.size() > 1 ? op : last;
      });
    auto fail = [&](SourceLoc loc, const std::string &text) {
      diags_.report(loc, DiagKind::bad_ring, ring->result()->name, text);
    };
    if (push.empty())
      fail(ring->loc, "no role pushes into it");
    else if (pop.empty())
      fail(ring->loc, "no role pops it");
    else if (push.size() > 1)
      fail(last->loc, fmt::format("role `{}` pushes into it as well; one role does", names[push[0]]));
    else if (std::find(pop.begin(), pop.end(), push[0]) != pop.end())
      fail(ring->loc, fmt::format("role `{}` pushes and pops it; others pop", names[push[0]]));
  }

  // Outside of the roles there are scalars: all warps compute them.
  auto scalars_only = [&](ir::Op *op) {
    bool makes_tile = false, acts = false;
    for (const ir::Value *v : op->results) makes_tile |= v->type.is_tile() && !v->type.is_scalar();
    const ir::Effects &e = def(*op).effects;
    for (int8_t i = 0; i < e.count; i++) acts |= e.list[i].access != ir::Access::Read;
    bool control = op->kind == OpKind::Return || op->kind == OpKind::Yield;
    if (makes_tile || (acts && !control))
      diags_.report(op->loc, DiagKind::outside_roles,
                    makes_tile ? "a tile belongs to the warps of a role" : "what a program does, its roles do");
  };
  for (ir::Op *op : fn_.body->ops) {
    if (op == roles || op->kind == OpKind::RingAlloc || op->kind == OpKind::ElectThread || makes_mbarriers(*op))
      continue;
    scalars_only(op);
    for (ir::Block *b : op->regions) ir::walk(b, scalars_only);
  }

  // No order between the roles but that of rings: what one writes to a tensor is its own.
  struct Access {
    size_t role;
    const ir::Op *op;
    bool writes, atomic;
  };
  std::map<std::pair<int64_t, const ir::Value *>, std::vector<Access>> accesses; // by number: errors have an order
  for (size_t r = 0; r < roles->regions.size(); r++)
    ir::walk(roles->regions[r], [&](const ir::Op *op) {
      const ir::Effects &e = def(*op).effects;
      for (int8_t i = 0; i < e.count; i++)
        if (e.list[i].space == ir::Space::Global && e.list[i].operand >= 0) {
          const ir::Value *tensor = ir::root_tensor(op->operand(size_t(e.list[i].operand)));
          bool atomic = op->kind >= OpKind::AtomicAdd && op->kind <= OpKind::AtomicCas;
          accesses[{tensor->id, tensor}].push_back({r, op, e.list[i].access != ir::Access::Read, atomic});
        }
    });
  for (const auto &[tensor, list] : accesses)
    for (const Access &a : list) {
      auto other = std::find_if(list.begin(), list.end(),
                                [&](const Access &b) { return b.role != a.role && !(a.atomic && b.atomic); });
      if (!a.writes || other == list.end()) continue;
      Diagnostic &d = diags_.report(a.op->loc, DiagKind::bad_role, names[a.role],
                                    fmt::format("it writes `{}`, which role `{}` uses too: roles exchange data through "
                                                "rings alone",
                                                tensor.second->name, names[other->role]));
      d.notes.push_back({other->op->loc, "used here"});
      break;
    }
}

} // namespace tkc::sema

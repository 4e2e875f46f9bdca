#include "passes/unfuse.h"
#include "ir/builder.h"
#include "ir/clone.h"
#include "ir/print.h"
#include "passes/cleanup.h"
#include "passes/effects.h"
#include "passes/pass_manager.h"
#include "passes/poly.h"
#include "passes/unfuse_kernel.h"
#include <algorithm>
#include <functional>
#include <map>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::SizeExpr;
using ir::Value;
using O = SizeExpr::Op;

std::vector<SizeExpr> tensor_dims(const UnfusedTile &t, const SizeExpr &blocks) {
  std::vector<SizeExpr> out = {blocks};
  for (size_t d = 0; d < t.shape.size(); d++) {
    SizeExpr n = SizeExpr::constant(t.shape[d]);
    if (d == 0)
      out[0] = SizeExpr::make(O::Mul, blocks, n);
    else
      out.push_back(n);
  }
  return out;
}

namespace {

// The number of blocks is a size of every kernel; no size of the source may have its name.
std::string blocks_name(const ir::Function &f) {
  std::string out = "blocks";
  while (std::count(f.sizes.begin(), f.sizes.end(), out)) out += "_";
  return out;
}

class Unfuser {
public:
  Unfuser(ir::Function &f, Diagnostics &diags)
      : f_(f), uses_(f), plan_(f, blocks_name(f)), maker_(plan_, out_, diags) {}

  Unfused run() {
    SizeExpr blocks = SizeExpr::constant(1);
    for (const SizeExpr &g : f_.grid) blocks = SizeExpr::make(O::Mul, blocks, g);
    out_.blocks = blocks;
    decide(*f_.body);
    place(*f_.body);
    launch_all(*f_.body, out_.steps);
    return std::move(out_);
  }

private:
  // ---- which control flow the host can run

  void decide(const Block &b) {
    for (const Op *op : b.ops) {
      if (op->regions.empty() || plan_.free(*op)) continue;
      std::string why = stays_together(*op);
      if (why.empty()) {
        plan_.mix(*op);
        for (const Block *r : op->regions) decide(*r);
      } else if (why != kOneOp) {
        out_.remarks.push_back(fmt::format("a `{}` stays one launch: {}", def(*op).name.s, why));
      }
    }
  }

  static constexpr const char *kOneOp = "it is one op";

  // "" if its ops become launches.
  std::string stays_together(const Op &op) {
    for (const Value *v : op.results)
      if (!v->type.is_tile()) return "it carries tensors";
    if (op.kind == OpKind::If) return "";
    if (op.kind != OpKind::For) return "how often it runs is known to the GPU alone";
    if (is_product(op)) return kOneOp;
    Loop loop;
    if (auto trips = most_trips(op, loop.exact)) {
      loop.trips = *trips;
      loops_[&op] = loop;
      return "";
    }
    return "how often it runs is known to the GPU alone";
  }

  // Loads and conversions, and products that add to what the loop carries.
  bool is_product(const Op &loop) const {
    const Block &body = *loop.regions[0];
    int64_t products = 0;
    for (const Op *op : body.ops) {
      if (op->kind == OpKind::Yield) continue;
      if (!op->regions.empty()) return false;
      if (op->kind != OpKind::Mma) {
        if (!plan_.free(*op)) return false;
        continue;
      }
      products++;
      for (const Value *v : op->operands)
        if (v->block == &body && v != op->operands.back()) return false;
    }
    const Op *yield = body.ops.back();
    for (size_t k = 0; k < yield->operands.size(); k++) {
      const Op *product = yield->operands[k]->op;
      bool sums = product && product->kind == OpKind::Mma && product->block == &body && product->operands.size() == 3 &&
                  product->operands[2] == body.args[k + 1];
      if (!sums && !yield->operands[k]->type.is_scalar()) return false;
    }
    return products > 0;
  }

  // ---- trip counts

  struct Loop {
    SizeExpr trips;
    bool exact = false; // the same for every block
  };

  // A number that the host knows.
  std::optional<SizeExpr> uniform(const Value *v) const {
    if (auto c = constant_int(v)) return SizeExpr::constant(*c);
    if (v->block == f_.body) {
      if (v->type.is_tensor() || is_float(v->type.dtype)) return std::nullopt;
      return SizeExpr::symbol(v->name);
    }
    if (!v->op) return std::nullopt;
    auto operand = [&](size_t i) { return uniform(v->op->operand(i)); };
    switch (v->op->kind) {
    case OpKind::Dim: {
      const Value *t = v->op->operand(0);
      if (t->block != f_.body) return std::nullopt;
      for (const ir::Param &p : f_.params)
        if (p.present && f_.param_value(p.name) == t) return p.dims[size_t(v->op->attrs.i("axis"))];
      return std::nullopt;
    }
    case OpKind::Cast: return is_integer(v->op->operand(0)->type.dtype) ? operand(0) : std::nullopt;
    default: break;
    }
    static const std::map<OpKind, O> ops = {{OpKind::Add, O::Add}, {OpKind::Sub, O::Sub}, {OpKind::Mul, O::Mul},
                                            {OpKind::Div, O::Div}, {OpKind::Rem, O::Rem}, {OpKind::Min, O::Min},
                                            {OpKind::Max, O::Max}};
    auto it = ops.find(v->op->kind);
    if (it == ops.end() || !is_integer(v->type.dtype)) return std::nullopt;
    auto a = operand(0), b = operand(1);
    return a && b ? std::optional(SizeExpr::make(it->second, *a, *b)) : std::nullopt;
  }

  Poly poly(const Value *v) {
    if (auto c = constant_int(v)) return Poly(*c);
    if (v->op) {
      auto operand = [&](size_t i) { return poly(v->op->operand(i)); };
      switch (v->op->kind) {
      case OpKind::Add: return operand(0) + operand(1);
      case OpKind::Sub: return operand(0) - operand(1);
      case OpKind::Mul: return operand(0) * operand(1);
      default: break;
      }
    }
    return Poly::atom(atoms_.emplace(v, int(atoms_.size())).first->second);
  }

  // hi - lo is at most this.
  std::optional<SizeExpr> most_between(const Value *lo, const Value *hi) {
    if (auto a = uniform(lo), b = uniform(hi); a && b) return SizeExpr::make(O::Sub, *b, *a);
    if (auto c = (poly(hi) - poly(lo)).constant()) return SizeExpr::constant(int64_t(*c));
    if (hi->op && hi->op->kind == OpKind::Min)
      for (const Value *either : hi->op->operands)
        if (auto n = most_between(lo, either)) return n;
    return std::nullopt;
  }

  std::optional<SizeExpr> most_trips(const Op &loop, bool &exact) {
    auto step = constant_int(loop.operand(2));
    auto n = most_between(loop.operand(0), loop.operand(1));
    if (!n || step.value_or(0) < 1) return std::nullopt;
    exact = uniform(loop.operand(0)) && uniform(loop.operand(1));
    return SizeExpr::make(O::Max, SizeExpr::make(O::CDiv, *n, SizeExpr::constant(*step)), SizeExpr::constant(0));
  }

  // ---- where tiles lie

  size_t new_tile(const Value *v) {
    out_.tiles.push_back({v->type.dtype, v->type.shape, v->name});
    return out_.tiles.size() - 1;
  }

  // Whether a launch other than the one that makes v reads it.
  bool read_later(const Value *v) {
    for (const ir::Use &u : uses_.of(v)) {
      const Op *op = u.op;
      if (auto it = stored_with_.find(op); it != stored_with_.end() && made_by(v) == it->second) continue;
      if (op->regions.empty() && plan_.free(*op)) {
        if (read_later(op->result())) return true;
        continue;
      }
      return true;
    }
    return false;
  }
  const Op *made_by(const Value *v) const {
    while (v->op && plan_.free(*v->op) && v->op->operands.size() == 1) v = v->op->operand(0);
    return v->op;
  }

  // Launches, other than `except`, that read one of `tiles` from op `from` of a block on.
  bool reads_after(const Block &b, size_t from, size_t tile, const Op *except) const {
    for (size_t i = from; i < b.ops.size(); i++) {
      if (b.ops[i] == except || stored_with(b.ops[i]) == except) continue;
      if (op_reads(*b.ops[i], tile)) return true;
    }
    return false;
  }
  bool op_reads(const Op &op, size_t tile) const {
    for (const Value *v : op.operands)
      if (plan_.reads(v, tile)) return true;
    for (const Block *r : op.regions)
      for (const Op *inner : r->ops)
        if (op_reads(*inner, tile)) return true;
    return false;
  }
  const Op *stored_with(const Op *store) const {
    auto it = stored_with_.find(store);
    return it == stored_with_.end() ? nullptr : it->second;
  }

  void place(const Block &b) {
    find_stores(b);
    for (const Op *op : b.ops) {
      if (plan_.mixed(*op)) {
        place_control(*op);
      } else if (!plan_.free(*op) && op->kind != OpKind::Yield) {
        for (const Value *v : op->results)
          if (!plan_.tile.count(v) && v->type.is_tile() && read_later(v)) plan_.tile[v] = new_tile(v);
      }
    }
  }

  // Results of branches and what loops carry lie where the ops that make them can write directly, if nothing reads the
  // old contents after that.
  void place_control(const Op &op) {
    for (size_t k = 0; k < op.results.size(); k++) {
      size_t tile = plan_.tile[op.results[k]] = new_tile(op.results[k]);
      if (op.kind == OpKind::For) plan_.tile[op.regions[0]->args[k + 1]] = tile;
    }
    for (const Block *r : op.regions) {
      find_stores(*r); // what is stored with its op reads nothing later
      const Op *yield = r->ops.back();
      for (size_t k = 0; k < yield->operands.size(); k++) {
        const Value *v = yield->operands[k];
        if (!v->op || v->op->block != r || plan_.mixed(*v->op) || plan_.free(*v->op) || plan_.tile.count(v)) continue;
        size_t tile = plan_.tile.at(op.results[k]), at = size_t(ir::position(v->op));
        bool old = op.kind == OpKind::For && reads_after(*r, at + 1, tile, v->op);
        if (!old) plan_.tile[v] = tile;
      }
      place(*r);
    }
  }

  // Stores of an op's result in its own launch: behind the op in the same block, of it by views and casts, at places
  // that only parameters say, with no other access to the tensor.
  void find_stores(const Block &b) {
    for (const Op *op : b.ops) {
      if (op->kind != OpKind::Store || stored_with_.count(op)) continue;
      size_t value = op->operand(0)->type.shape.size() + 1;
      const Op *maker = made_by(op->operand(value));
      bool good = maker && maker->block == &b && maker->regions.empty() && !plan_.free(*maker) &&
                  maker->kind != OpKind::Load && is_pure(*maker);
      for (size_t i = 0; good && i < op->operands.size(); i++)
        if (i != value) good = plan_.from_params(op->operand(i));
      if (good && !accessed_between(b, *maker, *op, *root_tensor(op->operand(0)))) stored_with_[op] = maker;
    }
  }
  bool accessed_between(const Block &b, const Op &from, const Op &to, const Value &tensor) const {
    std::function<bool(const Op &)> accesses = [&](const Op &op) {
      bool view = ir::is_view(op.kind) || op.kind == OpKind::Dim;
      for (const Value *v : op.operands)
        if (!view && v->type.is_tensor() && root_tensor(v) == &tensor) return true;
      for (const Block *r : op.regions)
        if (std::any_of(r->ops.begin(), r->ops.end(), [&](const Op *inner) { return accesses(*inner); })) return true;
      return false;
    };
    for (int64_t i = ir::position(&from) + 1; i < ir::position(&to); i++)
      if (accesses(*b.ops[size_t(i)])) return true;
    return false;
  }

  // ---- launches

  void launch_all(const Block &b, std::vector<UnfusedStep> &out) {
    for (const Op *op : b.ops) {
      if (op->kind == OpKind::Yield || op->kind == OpKind::Return || plan_.free(*op) || stored_with_.count(op))
        continue;
      if (plan_.mixed(*op)) {
        launch_control(*op, out);
        continue;
      }
      std::vector<const Op *> stores;
      for (const auto &[store, maker] : stored_with_)
        if (maker == op) stores.push_back(store);
      std::sort(stores.begin(), stores.end(),
                [](const Op *x, const Op *y) { return ir::position(x) < ir::position(y); });
      out.push_back(maker_.op(*op, stores, path_));
    }
  }

  void launch_control(const Op &op, std::vector<UnfusedStep> &out) {
    if (op.kind == OpKind::If) {
      for (size_t r = 0; r < 2; r++) {
        path_.push_back({&op, r});
        launch_all(*op.regions[r], out);
        yield(op, *op.regions[r], out);
        path_.pop_back();
      }
      return;
    }
    for (size_t k = 0; k < op.results.size(); k++)
      out.push_back(maker_.copy(op.operand(k + 3), plan_.tile.at(op.results[k]), path_));
    const Loop &loop = loops_.at(&op);
    UnfusedStep step;
    step.loop = true;
    step.loc = op.loc;
    step.counter = size_t(std::count_if(path_.begin(), path_.end(), [](const SplitPlace &p) { return p.is_loop(); }));
    step.trips = loop.trips;
    path_.push_back({&op, 0, !loop.exact});
    launch_all(*op.regions[0], step.body);
    yield(op, *op.regions[0], step.body);
    path_.pop_back();
    out.push_back(std::move(step));
  }

  // What a region gives that does not lie at its place yet. Values that another copy would overwrite are put aside
  // first.
  void yield(const Op &op, const Block &region, std::vector<UnfusedStep> &out) {
    const Op *last = region.ops.back();
    struct Copy {
      const Value *from;
      size_t to;
    };
    std::vector<Copy> copies;
    for (size_t k = 0; k < last->operands.size(); k++) {
      size_t to = plan_.tile.at(op.results[k]);
      auto at = plan_.tile.find(last->operands[k]);
      if (at == plan_.tile.end() || at->second != to) copies.push_back({last->operands[k], to});
    }
    std::vector<std::pair<size_t, size_t>> aside;
    for (Copy &c : copies) {
      bool clobbered = std::any_of(copies.begin(), copies.end(),
                                   [&](const Copy &o) { return &o != &c && plan_.reads(c.from, o.to); });
      if (!clobbered) continue;
      size_t tile = new_tile(c.from);
      out.push_back(maker_.copy(c.from, tile, path_));
      aside.emplace_back(tile, c.to);
      c.from = nullptr;
    }
    for (const Copy &c : copies)
      if (c.from) out.push_back(maker_.copy(c.from, c.to, path_));
    for (auto [from, to] : aside) out.push_back(maker_.move(from, to, path_));
  }

  ir::Function &f_;
  ir::Uses uses_;
  Unfused out_;
  SplitPlan plan_;
  KernelMaker maker_;
  std::map<const Op *, Loop> loops_;
  std::map<const Op *, const Op *> stored_with_; // store -> the op in whose launch it is
  std::map<const Value *, int> atoms_;
  std::vector<SplitPlace> path_;
};

std::string cannot_split(const ir::Function &f) {
  std::string why;
  ir::walk(f.body, [&](const Op *op) {
    for (const Value *v : op->results)
      if (v->type.kind == ir::TypeKind::Token) why = fmt::format("`{}`", def(*op).name.s);
    if (op->kind == OpKind::InlinePtx && !is_pure(*op)) why = "inline PTX with effects";
    if (op->kind == OpKind::Roles) why = "roles";
    if (op->kind == OpKind::Return && op->block != f.body) why = "`return` inside of control flow";
  });
  return why;
}

} // namespace

std::optional<Unfused> unfuse(ir::Function &f, const ir::Target &target, Diagnostics &diags, std::string &why) {
  why = cannot_split(f);
  if (!why.empty()) return std::nullopt;
  PassContext context{target, ir::default_part(target), diags};
  for (auto pass : {fold_constants, common_subexpressions, fuse_product_sum, dead_code}) pass(f, context);
  return Unfuser(f, diags).run();
}

} // namespace tkc::passes

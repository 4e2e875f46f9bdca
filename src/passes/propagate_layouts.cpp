// The layout of every value, given the search variables.
//
// Two passes over the structured IR. The backward pass collects what users would like (`want`): products want fragment
// layouts of their operands, and the wish travels through pointwise and structural ops to loads and loop arguments. The
// forward pass gives every value its home layout: products and forced loop arguments first, loads the cheaper of "as
// wanted" and "coalesced, converted later", pointwise ops the candidate with the least conversion. Values that can be
// made in any layout at no cost (iota, broadcasts, and pointwise ops of nothing else) wait until their first user
// tells. Limits: one home per value; a second layout is a conversion at the use (apply_layouts shares equal ones).
#include "ir/op_def.h"
#include "layout/pieces.h"
#include "passes/layout_work.h"
#include "passes/record_copies.h"
#include <algorithm>
#include <cmath>

namespace tkc::passes {

using ir::Block;
using ir::LayoutKind;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

// A load to registers inside a loop stalls the iteration; one to shared memory is issued iterations ahead.
constexpr double kLoopLoadLatency = 300;
// Registers of a thread left for tiles, and what one more costs.
constexpr double kFreeRegisters = 200, kSpillCycles = 40;
constexpr double kStreamedRegisters = 32; // of an operand that is read from shared memory step by step

bool is_tile(const Value *v) { return v->type.is_tile() && !v->type.is_scalar(); }

class Propagation {
public:
  Propagation(ir::Function &f, Block *program, const LayoutVariables &v, LayoutCost &cost)
      : f_(f), program_(program), vars_(v), cost_(cost) {}

  LayoutPlan run() {
    scalar_ = replicated({}, vars_.warps);
    // References into both tables live across calls: their size is final now.
    int64_t last = 0;
    for (const Value *v : f_.body->args) last = std::max(last, v->id);
    ir::walk(f_.body, [&](const Op *op) {
      for (const Value *v : op->results) last = std::max(last, v->id);
      for (const Block *b : op->regions)
        for (const Value *v : b->args) last = std::max(last, v->id);
    });
    plan_.home.resize(size_t(last) + 1);
    wishes_.resize(size_t(last) + 1);
    work_.emplace(size_t(last) + 1);
    wish_block(program_, 1);
    for (Value *v : f_.body->args)
      if (v->type.is_tile()) set(v, scalar_);
    if (program_ != f_.body) // of what stands outside of roles a role sees scalars
      for (const Op *op : f_.body->ops)
        for (const Value *v : op->results)
          if (v->type.is_tile()) set(v, scalar_);
    forward_block(program_, 1);
    for (Value *v : unassigned_) // made for nobody that cares
      if (!home(v)) demand(v, default_layout(v));
    work_->sum_up(plan_);
    return std::move(plan_);
  }

private:
  // ---- homes
  std::optional<RegLayout> &home(const Value *v) { return plan_.home[size_t(v->id)]; }
  void set(const Value *v, RegLayout l) { home(v) = std::move(l); }

  RegLayout default_layout(const Value *v) const { return passes::default_layout(v->type, vars_.warps); }

  // ---- wishes
  struct Wish {
    RegLayout layout;
    double weight;
  };
  std::optional<Wish> &wish(const Value *v) { return wishes_[size_t(v->id)]; }
  void wish_for(const Value *v, const RegLayout &l, double weight) {
    if (!is_tile(v) || l.shape != v->type.shape) return;
    auto &w = wish(v);
    if (!w || w->weight < weight) w = Wish{l, weight};
  }

  const LayoutCost::Product &product_of(const Op *op) { return cost_.product(*op, vars_.products.at(op)); }

  void wish_block(Block *block, double weight) {
    for (size_t i = block->ops.size(); i-- > 0;) wish_op(block->ops[i], weight);
  }

  void wish_op(Op *op, double weight) {
    const ir::OpDef &d = ir::def(*op);
    switch (op->kind) {
    case OpKind::Mma:
      wish_for(op->operand(0), product_of(op).a, weight);
      wish_for(op->operand(1), product_of(op).b, weight);
      if (op->operands.size() > 2) wish_for(op->operand(2), product_of(op).acc, 2 * weight);
      return;
    case OpKind::For: {
      Block *body = op->regions[0];
      double inner = weight * double(std::max<int64_t>(1, trip_estimate(*op)));
      for (int round = 0; round < 2; round++) {
        Op *yield = body->terminator();
        for (size_t i = 0; i < op->results.size(); i++) {
          if (auto &w = wish(op->results[i])) wish_for(yield->operand(i), w->layout, w->weight * 0.5);
          if (auto &w = wish(body->args[i + 1])) wish_for(yield->operand(i), w->layout, w->weight * 0.9);
        }
        wish_block(body, inner);
        for (size_t i = 0; i < op->results.size(); i++) {
          // The layout of a product's own accumulator comes back to the argument through the yield.
          Value *y = yield->operand(i);
          if (y->op && y->op->kind == OpKind::Mma && !wish(body->args[i + 1]))
            wish_for(body->args[i + 1], product_of(y->op).acc, inner * 0.5);
        }
      }
      for (size_t i = 0; i < op->results.size(); i++)
        if (auto &w = wish(body->args[i + 1])) wish_for(op->operand(i + 3), w->layout, weight);
      return;
    }
    case OpKind::While: {
      double inner = weight * 16;
      wish_block(op->regions[1], inner);
      wish_block(op->regions[0], inner);
      for (size_t i = 0; i < op->operands.size(); i++)
        if (auto &w = wish(op->regions[1]->args[i])) wish_for(op->operand(i), w->layout, weight);
      return;
    }
    case OpKind::If:
      for (Block *region : op->regions) {
        for (size_t i = 0; i < op->results.size(); i++)
          if (auto &w = wish(op->results[i])) wish_for(region->terminator()->operand(i), w->layout, w->weight);
        wish_block(region, weight);
      }
      return;
    default: break;
    }
    if (op->results.empty() || !is_tile(op->result())) return;
    auto &w = wish(op->result());
    if (is_scan(*op)) {
      if (!vars_.in_place.count(op))
        wish_for(op->operand(0), scan_layout(*op, vars_.warps), weight);
      else if (w && bit_by_bit(w->layout, int(op->attrs.i("axis"))))
        wish_for(op->operand(0), w->layout, w->weight);
      return;
    }
    if (!w) return;
    Wish here = *w;
    if (d.layout.kind == LayoutKind::Pointwise) {
      for (Value *v : op->operands) wish_for(v, here.layout, here.weight);
    } else if (d.layout.kind == LayoutKind::Structural && d.layout.backward && !op->operands.empty()) {
      // A part of a tile speaks for its elements only.
      double part = double(op->result()->type.elements()) / double(op->operand(0)->type.elements());
      if (auto l = d.layout.backward(*op, here.layout)) wish_for(op->operand(0), *l, here.weight * std::min(part, 1.0));
    }
  }

  // ---- values made to order
  static bool made_to_order(const Op *op) {
    switch (op->kind) {
    case OpKind::Iota:
    case OpKind::Broadcast:
    case OpKind::ExpandDims: return true;
    default: return false;
    }
  }
  bool waiting(const Value *v) { return is_tile(v) && !home(v); }

  // Gives a waiting value the layout `l`, and so on up its operands.
  void demand(Value *v, const RegLayout &l) {
    TKC_CHECK(v->op, "a block argument waits for a layout");
    set(v, l);
    Op *op = v->op;
    switch (ir::def(*op).layout.kind) {
    case LayoutKind::Pointwise:
      for (size_t i = 0; i < op->operands.size(); i++) require(op, i, l);
      break;
    case LayoutKind::Structural: {
      if (op->operand(0)->type.is_scalar()) break;
      auto from = ir::def(*op).layout.backward(*op, l);
      TKC_CHECK(from, "`{}` cannot be made in every layout", ir::def(*op).name.s);
      require(op, 0, *from);
      break;
    }
    case LayoutKind::None:
    case LayoutKind::Free:
    case LayoutKind::Anchor: break;
    }
    work_->add(op, cost_.pointwise(*op, l));
  }

  // Whether v has been converted to l: apply_layouts shares conversions that differ in the order of registers at most.
  bool converted(const Value *v, const RegLayout &l) const {
    for (const Conversion &c : plan_.conversions)
      if (c.op->operand(size_t(c.operand)) == v && (c.to == l || register_map(c.to, l))) return true;
    return false;
  }

  // Operand i of op must have layout l: a waiting value takes it, another is converted if it differs.
  void require(Op *op, size_t i, const RegLayout &l) {
    Value *v = op->operand(i);
    if (!v->type.is_tile() || v->type.is_scalar()) return;
    if (waiting(v)) {
      demand(v, l);
      return;
    }
    if (*home(v) == l) return;
    bool shared = converted(v, l);
    Conversion c{op, int64_t(i), l};
    Work work = cost_.conversion(v, *home(v), l, staged_.count(v), c.how);
    if (c.how == Conversion::How::Reread) work.shared += conflicts(*v->op, l);
    work_->add_conversion(v, op, work, shared, c.how == Conversion::How::Reread);
    plan_.conversions.push_back(std::move(c));
  }

  // The home of an operand; a waiting one is settled first.
  const RegLayout &settled(Op *op, size_t i) {
    Value *v = op->operand(i);
    if (waiting(v)) demand(v, wish(v) ? wish(v)->layout : default_layout(v));
    return *home(v);
  }

  // ---- forward
  void forward_block(Block *block, double weight) {
    work_->executions(block, weight);
    for (size_t i = 0; i < block->ops.size(); i++) {
      weight_ = weight;
      forward(block->ops[i]);
    }
  }

  void pointwise(Op *op) {
    std::vector<const RegLayout *> candidates;
    bool all_waiting = true;
    for (Value *v : op->operands)
      if (is_tile(v) && !waiting(v)) {
        all_waiting = false;
        candidates.push_back(&*home(v));
      }
    Value *r = op->result();
    if (all_waiting) {
      bool any = false;
      for (Value *v : op->operands) any |= is_tile(v);
      if (!any) return set(r, scalar_);
      unassigned_.push_back(r);
      return; // waits too
    }
    // First, so that of equals an operand is converted and not the result: its other users may share that.
    if (wish(r)) candidates.insert(candidates.begin(), &wish(r)->layout);
    const RegLayout *best = candidates[0];
    double least = INFINITY;
    for (const RegLayout *l : candidates) {
      Work work = cost_.pointwise(*op, *l);
      Conversion::How how;
      for (Value *v : op->operands)
        if (is_tile(v) && !waiting(v) && !(*home(v) == *l) && !converted(v, *l))
          work += cost_.conversion(v, *home(v), *l, staged_.count(v), how);
      if (wish(r) && !(*l == wish(r)->layout)) work += cost_.conversion(*l, wish(r)->layout, r->type.dtype);
      double c = work.cycles();
      if (c < least) {
        least = c;
        best = l;
      }
    }
    RegLayout chosen = *best;
    for (size_t i = 0; i < op->operands.size(); i++) require(op, i, chosen);
    work_->add(op, cost_.pointwise(*op, chosen));
    set(r, chosen);
  }

  // Index tiles of a gather or scatter: one per tile dim, the accessed tile's layout with the other dims sliced off.
  void require_indices(Op *op, const RegLayout &l) {
    const auto &drop = op->attrs.ints("drop"), &gather = op->attrs.ints("gather");
    int dim = 0;
    for (size_t d = 0; d < drop.size(); d++) {
      if (drop[d]) continue;
      if (gather[d]) {
        RegLayout index = l;
        for (int k = int(l.shape.size()) - 1; k >= 0; k--)
          if (k != dim) index = index.slice(k);
        require(op, d + 1, index);
      }
      dim++;
    }
  }
  static size_t first_value(const Op *op) { return op->attrs.ints("drop").size() + 1; }

  // Of reads of a field of records from a ring, in cycles of the SM.
  double conflicts(const Op &load, const RegLayout &to) const {
    return double(vars_.warps) * double(record_conflicts(load, to)) * ConvertCosts().wavefront;
  }

  void load(Op *op) {
    Value *r = op->result();
    if (!is_tile(r)) return set(r, scalar_);
    RegLayout coalesced = access_layout(*op, r->type.dtype, cost_, vars_.warps), chosen = coalesced;
    RegLayout accessed = coalesced; // of the registers that memory is read into
    Work work = cost_.access(*op, coalesced, r->type.dtype, false);
    if (auto &w = wish(r)) {
      Work direct = cost_.access(*op, w->layout, r->type.dtype, false);
      if (weight_ > 1) direct.serial += kLoopLoadLatency;
      Work staged = work + cost_.staged(coalesced, w->layout, r->type.dtype, weight_ > 1);
      if (weight_ > 1) staged.shared += conflicts(*op, w->layout);
      if (direct.cycles() <= staged.cycles()) {
        chosen = accessed = w->layout;
        work = direct;
      } else if (cost_.through_shared(coalesced, w->layout, r->type.dtype)) {
        chosen = w->layout;
        work = staged;
        plan_.staged.push_back({op, coalesced});
        if (weight_ > 1 && !has_padding(r->type)) staged_.insert(r);
      }
    }
    require_indices(op, accessed);
    for (size_t i = first_value(op); i < op->operands.size(); i++) require(op, i, accessed);
    work_->add(op, work);
    set(r, chosen);
  }

  // An item's field is read in any layout; one that is wanted besides is a read of its own.
  void item(Op *op) {
    Value *r = op->result();
    RegLayout l = wish(r) ? wish(r)->layout : default_layout(r);
    work_->add(op, cost_.item(l, r->type.dtype));
    set(r, l);
  }

  void store(Op *op) {
    size_t at = first_value(op);
    Value *v = op->operand(at);
    RegLayout chosen = scalar_;
    if (is_tile(v)) {
      RegLayout coalesced = access_layout(*op, v->type.dtype, cost_, vars_.warps);
      chosen = coalesced;
      Work work = cost_.access(*op, coalesced, v->type.dtype, true);
      if (!waiting(v)) {
        // As it is; coalesced; or as coalesced as it gets without an exchange between warps.
        const RegLayout &here = *home(v);
        work = cost_.access(*op, here, v->type.dtype, true);
        chosen = here;
        double least = work.cycles();
        for (const RegLayout &l : {coalesced, within_warps(coalesced, here)}) {
          Work w = cost_.access(*op, l, v->type.dtype, true);
          if (double c = (w + cost_.conversion(here, l, v->type.dtype)).cycles(); c < least) {
            least = c;
            work = w;
            chosen = l;
          }
        }
      }
      work_->add(op, work);
    }
    require_indices(op, chosen);
    for (size_t i = at; i < op->operands.size(); i++) require(op, i, chosen);
    if (!op->results.empty()) set(op->result(), chosen);
  }

  // Read from shared memory where it is used, as the loads of loops are.
  bool streamed(const Value *v) const {
    const Op *op = v->op;
    while (op && op->kind == OpKind::Transpose) op = op->operand(0)->op;
    if (op && op->kind == OpKind::RingItem) return true;
    return op && op->block->parent &&
           std::any_of(plan_.staged.begin(), plan_.staged.end(), [&](const StagedLoad &s) { return s.op == op; });
  }

  void product(Op *op) {
    const LayoutCost::Product &p = product_of(op);
    require(op, 0, p.a);
    require(op, 1, p.b);
    if (op->operands.size() > 2) require(op, 2, p.acc);
    // A thread holds the operands, the sums, and what the loop carries; what does not fit goes to memory. Of an operand
    // that comes from shared memory it holds a few steps.
    double registers = carried_;
    if (op->operands.size() < 3 || !op->operand(2)->is_arg()) registers += double(p.acc.num_regs());
    for (size_t i = 0; i < 2; i++) {
      const Value *v = op->operand(i);
      double all = double((i ? p.b : p.a).num_regs()) * double(dtype_bytes(v->type.dtype)) / 4;
      registers += streamed(v) ? std::min(all, kStreamedRegisters) : all;
    }
    Work work = p.work;
    if (registers > kFreeRegisters) work.serial += (registers - kFreeRegisters) * kSpillCycles;
    work_->add(op, work);
    set(op->result(), p.acc);
  }

  // A part is registers of the whole. Where the whole's layout does not allow that, it is converted: to the part's
  // layout with further register bits if the part begins at a multiple of its extent, else so that the dims in which
  // they differ are held in registers altogether.
  std::vector<bool> changed_dims(const std::vector<int64_t> &a, const std::vector<int64_t> &b) const {
    std::vector<bool> out;
    for (size_t d = 0; d < a.size(); d++) out.push_back(a[d] != b[d]);
    return out;
  }

  void slice(Op *op) {
    const Value *x = op->operand(0), *r = op->result();
    RegLayout l = settled(op, 0);
    const auto &starts = op->attrs.ints("starts"), &sizes = op->attrs.ints("sizes");
    if (auto part = part_layout(l, starts, sizes)) return set(r, *part);
    RegLayout part = wish(r) ? wish(r)->layout : default_layout(r);
    if (auto whole = whole_layout(part, x->type.shape, starts)) {
      require(op, 0, *whole);
      return set(r, part);
    }
    std::vector<bool> dims = changed_dims(x->type.shape, sizes);
    RegLayout whole = register_axes_layout(x->type.shape, dims, vars_.warps);
    require(op, 0, whole);
    set(r, with_register_axes(whole, sizes, dims));
  }

  void insert(Op *op) {
    const Value *x = op->operand(0), *y = op->operand(1);
    const auto &starts = op->attrs.ints("starts");
    RegLayout whole = settled(op, 0);
    auto part = part_layout(whole, starts, y->type.shape);
    if (!part) {
      RegLayout small = !waiting(y) ? *home(y) : wish(y) ? wish(y)->layout : default_layout(y);
      if (auto large = whole_layout(small, x->type.shape, starts)) {
        whole = *large;
        part = small;
      } else {
        std::vector<bool> dims = changed_dims(x->type.shape, y->type.shape);
        whole = register_axes_layout(x->type.shape, dims, vars_.warps);
        part = with_register_axes(whole, y->type.shape, dims);
      }
      require(op, 0, whole);
    }
    require(op, 1, *part);
    set(op->result(), whole);
  }

  void concat(Op *op) {
    const Value *r = op->result();
    int axis = int(op->attrs.i("axis"));
    auto count = int64_t(op->operands.size());
    // The layouts of the operands, if each is a part of `whole`.
    auto parts_of = [&](const RegLayout &whole) {
      std::vector<RegLayout> parts;
      std::vector<int64_t> start(whole.shape.size(), 0);
      for (const Value *v : op->operands) {
        auto part = part_layout(whole, start, v->type.shape);
        if (!part) return std::vector<RegLayout>();
        parts.push_back(std::move(*part));
        start[size_t(axis)] += v->type.shape[size_t(axis)];
      }
      return parts;
    };
    std::optional<RegLayout> whole;
    std::vector<RegLayout> parts;
    if (wish(r)) parts = parts_of(*(whole = wish(r)->layout));
    bool equal = count > 1 && (count & (count - 1)) == 0;
    for (const Value *v : op->operands) equal &= v->type.shape == op->operand(0)->type.shape;
    if (parts.empty() && equal) {
      const Value *first = op->operand(0);
      for (const Value *v : op->operands)
        if (waiting(first) && !waiting(v)) first = v;
      whole = (waiting(first) ? default_layout(first) : *home(first)).stack(axis, count);
      if (whole) parts = parts_of(*whole);
    }
    if (parts.empty()) {
      std::vector<bool> dims(r->type.shape.size(), false);
      dims[size_t(axis)] = true;
      whole = register_axes_layout(r->type.shape, dims, vars_.warps);
      for (const Value *v : op->operands) parts.push_back(with_register_axes(*whole, v->type.shape, dims));
    }
    for (size_t i = 0; i < parts.size(); i++) require(op, i, parts[i]);
    set(r, *whole);
  }

  // What the body would like a carried value to have. A sum `arg + x` took the layout of arg, where that of x costs as
  // much in one iteration: over all of them it costs nothing.
  const RegLayout &yielded_layout(const Value *arg, const Value *y) {
    if (*home(y) == *home(arg) && y->op && ir::def(*y->op).layout.kind == LayoutKind::Pointwise)
      for (const Value *v : y->op->operands)
        if (v != arg && is_tile(v) && !waiting(v) && !(*home(v) == *home(arg))) return *home(v);
    return *home(y);
  }

  void loop(Op *op) {
    Block *body = op->regions[0];
    for (size_t i = 0; i < 3; i++) settled(op, i);
    double outer = weight_, inner = weight_ * double(std::max<int64_t>(1, trip_estimate(*op)));
    set(body->args[0], scalar_);
    for (size_t i = 0; i < op->results.size(); i++) {
      Value *arg = body->args[i + 1];
      if (!is_tile(arg)) {
        set(arg, scalar_);
        continue;
      }
      RegLayout l;
      if (auto it = vars_.carried.find(arg); it != vars_.carried.end())
        l = it->second;
      else if (wish(arg))
        l = wish(arg)->layout;
      else
        l = settled(op, i + 3);
      set(arg, l);
      require(op, i + 3, l);
    }
    double carried = carried_;
    for (const Value *arg : body->args)
      if (is_tile(arg))
        carried_ += double(home(arg)->num_regs()) * double(std::max<int64_t>(4, dtype_bytes(arg->type.dtype))) / 4;
    forward_block(body, inner);
    carried_ = carried;
    weight_ = inner;
    Op *yield = body->terminator();
    for (size_t i = 0; i < op->results.size(); i++) {
      Value *arg = body->args[i + 1], *y = yield->operand(i);
      if (is_tile(arg)) {
        if (!waiting(y)) plan_.yielded.emplace(arg, yielded_layout(arg, y));
        require(yield, i, *home(arg));
      }
      set(op->results[i], *home(arg));
    }
    weight_ = outer;
  }

  void while_loop(Op *op) {
    std::vector<RegLayout> layouts;
    for (size_t i = 0; i < op->operands.size(); i++) {
      Value *arg = op->regions[1]->args[i];
      layouts.push_back(!is_tile(arg) ? scalar_ : wish(arg) ? wish(arg)->layout : settled(op, i));
      require(op, i, layouts[i]);
      for (Block *region : op->regions) set(region->args[i], layouts[i]);
      set(op->results[i], layouts[i]);
    }
    double outer = weight_;
    for (size_t r = 0; r < 2; r++) {
      forward_block(op->regions[r], outer * 16);
      weight_ = outer * 16;
      Op *yield = op->regions[r]->terminator();
      for (size_t i = 0; i < yield->operands.size(); i++) {
        if (r == 1)
          require(yield, i, layouts[i]);
        else
          settled(yield, i);
      }
    }
    weight_ = outer;
  }

  void branch(Op *op) {
    double outer = weight_;
    for (Block *region : op->regions) forward_block(region, outer);
    weight_ = outer;
    for (size_t i = 0; i < op->results.size(); i++) {
      Value *r = op->results[i];
      RegLayout l = scalar_;
      if (is_tile(r)) {
        if (wish(r)) {
          l = wish(r)->layout;
        } else {
          Value *first = nullptr;
          for (Block *region : op->regions)
            if (Value *y = region->terminator()->operand(i); !first && !waiting(y)) first = y;
          l = first ? *home(first) : default_layout(r);
        }
        for (Block *region : op->regions) require(region->terminator(), i, l);
      }
      set(r, l);
    }
  }

  void reduce(Op *op) {
    int axis = int(op->attrs.i("axis"));
    RegLayout l = settled(op, 0);
    if (!l.is_separable(axis)) {
      l = default_layout(op->operand(0));
      require(op, 0, l);
    }
    work_->add(op, cost_.reduce(*op, l));
    set(op->result(), op->result()->type.is_scalar() ? scalar_ : l.slice(axis));
  }

  void scan(Op *op) {
    const Value *x = op->operand(0), *r = op->result();
    RegLayout l = scan_layout(*op, vars_.warps);
    if (vars_.in_place.count(op)) {
      auto fits = [&](const RegLayout &of) { return bit_by_bit(of, int(op->attrs.i("axis"))); };
      if (is_tile(x) && !waiting(x) && fits(*home(x)))
        l = *home(x);
      else if (wish(r) && fits(wish(r)->layout))
        l = wish(r)->layout;
    }
    require(op, 0, l);
    work_->add(op, cost_.scan(*op, l));
    set(r, l);
  }

  void forward(Op *op) {
    const ir::OpDef &d = ir::def(*op);
    switch (op->kind) {
    case OpKind::For: return loop(op);
    case OpKind::While: return while_loop(op);
    case OpKind::If: return branch(op);
    case OpKind::Load: return load(op);
    case OpKind::RingItem:
    case OpKind::SharedLoad: return item(op);
    case OpKind::Mma: return product(op);
    case OpKind::Slice: return slice(op);
    case OpKind::Insert: return insert(op);
    case OpKind::Concat: return concat(op);
    case OpKind::Store:
    case OpKind::AtomicAdd:
    case OpKind::AtomicMax:
    case OpKind::AtomicMin:
    case OpKind::AtomicAnd:
    case OpKind::AtomicOr:
    case OpKind::AtomicXor:
    case OpKind::AtomicExch:
    case OpKind::AtomicCas: return store(op);
    case OpKind::ReduceSum:
    case OpKind::ReduceProd:
    case OpKind::ReduceMax:
    case OpKind::ReduceMin:
    case OpKind::ReduceAny:
    case OpKind::ReduceAll:
    case OpKind::ArgMax:
    case OpKind::ArgMin: return reduce(op);
    case OpKind::CumSum:
    case OpKind::CumProd:
    case OpKind::CumMax:
    case OpKind::CumMin: return scan(op);
    case OpKind::Yield:
    case OpKind::Return: return; // their users' business
    default: break;
    }
    if (op->results.empty()) {
      for (size_t i = 0; i < op->operands.size(); i++)
        if (op->operand(i)->type.is_tile()) settled(op, i);
      return;
    }
    Value *r = op->result();
    if (!r->type.is_tile()) return;
    if (!is_tile(r)) return set(r, scalar_);
    if (made_to_order(op)) {
      unassigned_.push_back(r);
      return;
    }
    if (d.layout.kind == LayoutKind::Pointwise) return pointwise(op);
    if (d.layout.kind == LayoutKind::Structural) {
      if (waiting(op->operand(0)) && d.layout.backward && wish(r) && d.layout.backward(*op, wish(r)->layout)) {
        require(op, 0, *d.layout.backward(*op, wish(r)->layout));
        return set(r, wish(r)->layout);
      }
      RegLayout from = is_tile(op->operand(0)) ? settled(op, 0) : scalar_;
      auto l = d.layout.forward ? d.layout.forward(*op, from) : std::nullopt;
      if (!l) { // a reshape whose padding is in the way of this layout: try the coalesced one
        from = default_layout(op->operand(0));
        l = d.layout.forward ? d.layout.forward(*op, from) : std::nullopt;
        if (l) require(op, 0, from);
      }
      if (!l && d.scratch) { // through memory, from any layout to any
        settled(op, 0);
        l = wish(r) ? wish(r)->layout : default_layout(r);
      }
      if (!l) {
        plan_.problem = fmt::format("`{}` of {} to {}: the extents are not powers of two where they are split",
                                    d.name.s, op->operand(0)->type.str(), r->type.str());
        plan_.problem_at = op->loc;
        l = default_layout(r);
      }
      return set(r, *l);
    }
    plan_.problem = fmt::format("`{}` has no layout rule", d.name.s);
    plan_.problem_at = op->loc;
    set(r, default_layout(r));
  }

  ir::Function &f_;
  Block *program_;
  const LayoutVariables &vars_;
  LayoutCost &cost_;
  LayoutPlan plan_;
  RegLayout scalar_;
  std::vector<std::optional<Wish>> wishes_;
  std::vector<Value *> unassigned_;
  std::set<const Value *> staged_; // in loops, where a ring will hold them
  double weight_ = 1;              // executions of the block at hand
  double carried_ = 0;             // registers of a thread for what the loops around it carry
  std::optional<PlanWork> work_;
};

} // namespace

LayoutPlan propagate_layouts(ir::Function &f, Block *program, const LayoutVariables &v, LayoutCost &cost) {
  return Propagation(f, program, v, cost).run();
}

} // namespace tkc::passes

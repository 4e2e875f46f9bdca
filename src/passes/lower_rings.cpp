// The pushes and pops of roles (ops/role.cpp) become slots, counters and waits (ops/ring.cpp).
//
//   for .. {                               for .., c in .. {               c counts the items from 0
//     ring_push %f, %a, %b                   ring_acquire %f, c
//   }                                        ring_store %f, c, %a          or ring_fill, where %a is a load
//                                 ->         ring_store %f, c, %b
//                                            ring_publish %f, c
//                                          }
//     %x = ring_pop %f                       ring_wait %f, c
//     %a = ring_item %x                      %a = ring_load %f, c
//     ..                                     ..
//                                            ring_release %f, c            behind the last read, or where ring_drop is
//
// Decided here, as attributes of the ring: where fields lie in a slot and their layouts, by the fewest wavefronts over
// all stores and reads; the number of slots where the source leaves it open; and how items come: by plain stores of the
// producer's registers, by cp.async for fields that every push takes straight from a load, or, where all fields are
// such and the target has them, by tensor copies.
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include "passes/effects.h"
#include "passes/layout_choice.h"
#include "passes/passes.h"
#include "passes/ring_slot.h"
#include "passes/shared_buffers.h"
#include "passes/tensor_copies.h"
#include <algorithm>
#include <map>

namespace tkc::passes {

using ir::Attrs;
using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

struct Field {
  std::string name;
  Type type;
  bool copied = false; // by ring_fill
  RegLayout read;      // of a copy
  TensorCopy tensor;
  SmemLayout smem;
  int64_t offset = 0;
};

class LowerRing {
public:
  LowerRing(ir::Function &f, Op *ring, const ir::Target &target, Diagnostics &diags)
      : f_(f), ring_(ring), target_(target), b_(f, diags) {
    ir::walk(f.body, [&](Op *op) {
      if (op->kind == OpKind::RingPush && op->operand(0) == ring->result()) pushes_.push_back(op);
      if (op->kind == OpKind::RingPop && op->operand(0) == ring->result()) pops_.push_back(op);
    });
  }

  void run() {
    fields();
    place();
    for (Block *role : ir::roles_of(f_)->regions) count(role);
    for (Op *op : pushes_) push(op);
    for (Op *op : pops_) pop(op);
  }

  // The source leaves the number of slots open.
  bool open() const { return open_; }
  void set_slots(int64_t n) {
    int64_t stage_bytes = ring_->attrs.i("stage_bytes");
    ring_->attrs.set("stages", n);
    ring_->attrs.set("bytes", n * stage_bytes);
    ring_->attrs.set("schedule",
                     fmt::format("ring `{}`: {} stages of {} B:{}", ring_->result()->name, n, stage_bytes, how_));
  }

private:
  // ---- decisions
  void fields() {
    Writes writes(f_);
    ir::Uses uses(f_);
    auto names = ring_->attrs.get<std::vector<std::string>>("fields");
    LayoutFeatures features = ir::layout_features(target_);
    tma_ = target_.has(ir::kTma);
    for (size_t i = 0; i < names.size(); i++) {
      Field field{names[i], ir::ring_field(*ring_, i)};
      field.copied = true;
      for (const Op *op : pushes_) {
        const Value *v = op->operand(i + 1);
        field.copied &= copies(*op, v, writes, uses) && *v->layout == *pushes_[0]->operand(i + 1)->layout;
      }
      std::vector<SmemUse> accesses, reads;
      for (const Op *op : pops_)
        for (const ir::Use &u : uses.of(op->result()))
          if (u.op->kind == OpKind::RingItem && u.op->attrs.i("field") == int64_t(i))
            reads.push_back({false, *u.op->result()->layout, 1});
      accesses = reads;
      for (const Op *op : pushes_)
        if (!field.copied) accesses.push_back({true, *op->operand(i + 1)->layout, 1});
      field.smem =
          choose_smem(field.type.shape, dtype_bytes(field.type.dtype), accesses, SmemForm::Swizzle, features).layout;
      if (field.copied) field.read = *pushes_[0]->operand(i + 1)->layout;
      if (tma_ && field.copied) field.tensor = tensor_copy(i, reads, features);
      tma_ &= field.copied && field.tensor.problem.empty();
      fields_.push_back(std::move(field));
    }
    int64_t bytes = 0;
    for (const Field &field : fields_) bytes += field.tensor.bytes;
    tma_ &= bytes < 1 << 20;
  }

  // Whether a pushed value can be copied to its slot from where it is loaded.
  static bool copies(const Op &push, const Value *v, const Writes &writes, const ir::Uses &uses) {
    const Op *load = v->op;
    if (!load || load->kind != OpKind::Load || load->block != push.block || uses.of(v).size() != 1) return false;
    return copy_obstacle(*load, writes).empty() &&
           access_vector(*load, v->type.dtype, 16) * dtype_bytes(v->type.dtype) >= 4;
  }
  // The same box for every push.
  TensorCopy tensor_copy(size_t i, const std::vector<SmemUse> &reads, const LayoutFeatures &features) const {
    TensorCopy first = plan_tensor_copy(f_, *pushes_[0]->operand(i + 1)->op, reads, features, false);
    for (const Op *op : pushes_) {
      TensorCopy t = plan_tensor_copy(f_, *op->operand(i + 1)->op, reads, features, false);
      if (first.problem.empty() &&
          (!t.problem.empty() || t.box != first.box || t.swizzle != first.swizzle || !(t.smem == first.smem)))
        first.problem = "pushes copy it differently";
    }
    return first;
  }

  // The fields in a slot.
  void place() {
    RingSlot slot(tma_);
    Attrs &a = ring_->attrs;
    std::vector<int64_t> offsets;
    for (size_t i = 0; i < fields_.size(); i++) {
      Field &field = fields_[i];
      if (tma_) field.smem = field.tensor.smem;
      field.offset = slot.add(field.smem, field.type);
      offsets.push_back(field.offset);
      a.set(fmt::format("smem{}", i), field.smem);
      how_ += fmt::format(" {} {}", field.name, tma_ ? "by tma" : field.copied ? "by cp.async" : "by stores");
    }
    if (tma_) {
      a.set("transport", std::string("tma"));
      a.set("producer", int64_t(1));
    }
    a.set("stage_bytes", slot.bytes());
    a.set("field_offset", offsets);
    open_ = a.i("stages") == 0;
    set_slots(open_ ? 2 : a.i("stages"));
  }

  // ---- counters: one for each role, carried through its control flow
  Value *made(OpKind kind, std::vector<Value *> operands, Attrs attrs, SourceLoc loc) {
    Op *op = b_.create(kind, std::move(operands), std::move(attrs), loc);
    TKC_CHECK(op, "{} of a ring", ir::def(kind).name.s);
    if (op->results.empty()) return nullptr;
    op->result()->layout = scalar_;
    return op->result();
  }
  Value *integer(int64_t v, SourceLoc loc) {
    Value *c = b_.constant_int(DType::U32, v, loc);
    c->layout = scalar_;
    return c;
  }
  bool names_items(const Op *op) const {
    return (op->kind == OpKind::RingPush || op->kind == OpKind::RingPop) && op->operand(0) == ring_->result();
  }
  bool has_items(const Op &op) const {
    bool any = false;
    for (Block *r : op.regions) ir::walk(r, [&](const Op *inner) { any |= names_items(inner); });
    return any;
  }
  void count(Block *role) {
    bool any = false;
    ir::walk(role, [&](const Op *op) { any |= names_items(op); });
    if (!any) return;
    scalar_ = replicated({}, ir::warps_of(role));
    b_.set_before(role->ops.front());
    count(role, integer(0, ring_->loc));
  }
  // Returns the counter behind the block.
  Value *count(Block *block, Value *counter) {
    std::vector<Op *> ops = block->ops;
    for (Op *op : ops) {
      if (names_items(op)) {
        counter_[op] = counter;
        b_.set_before(op);
        counter = made(OpKind::Add, {counter, integer(1, op->loc)}, {}, op->loc);
      } else if (has_items(*op)) {
        counter = through(op, counter);
      }
    }
    return counter;
  }
  Value *through(Op *op, Value *counter) {
    if (op->kind != OpKind::If) op->operands.push_back(counter);
    for (Block *r : op->regions) {
      Value *inner = op->kind == OpKind::If ? counter : argument(r);
      Value *end = count(r, inner);
      bool condition = op->kind == OpKind::While && r == op->regions[0]; // no items there (sema/roles.cpp)
      if (!condition) r->terminator()->operands.push_back(end);
    }
    Value *after = f_.new_value(Type::scalar(DType::U32));
    after->op = op;
    after->index = int64_t(op->results.size());
    after->layout = scalar_;
    op->results.push_back(after);
    return after;
  }
  Value *argument(Block *b) {
    Value *arg = f_.new_value(Type::scalar(DType::U32), ring_->result()->name);
    arg->block = b;
    arg->index = int64_t(b->args.size());
    arg->layout = scalar_;
    b->args.push_back(arg);
    return arg;
  }

  // ---- ops
  void push(Op *op) {
    Value *ring = ring_->result(), *counter = counter_.at(op);
    scalar_ = replicated({}, ir::warps_of(op->block));
    b_.set_before(op);
    made(OpKind::RingAcquire, {ring, counter}, {}, op->loc);
    int64_t tx_bytes = 0;
    for (size_t i = 0; i < fields_.size(); i++) {
      Value *v = op->operand(i + 1);
      if (!fields_[i].copied) {
        made(OpKind::RingStore, {ring, counter, v}, Attrs::one("field", int64_t(i)), op->loc);
        continue;
      }
      fill(i, v->op, counter);
      tx_bytes += fields_[i].tensor.bytes;
    }
    made(OpKind::RingPublish, {ring, counter}, tma_ ? Attrs::one("tx_bytes", tx_bytes) : Attrs(), op->loc);
    std::vector<Value *> values = op->operands;
    erase(op);
    for (size_t i = 0; i < fields_.size(); i++)
      if (fields_[i].copied) erase(values[i + 1]->op);
  }
  void fill(size_t i, Op *load, Value *counter) {
    const Field &field = fields_[i];
    std::vector<Value *> operands = load->operands;
    Value *always = b_.constant_int(DType::Bool, 1, load->loc);
    always->layout = scalar_;
    operands.insert(operands.end(), {ring_->result(), counter, always});
    Attrs a;
    for (const char *key : {"sizes", "drop", "gather", "in_bounds", "divisor", "extent_divisor"})
      if (load->attrs.has(key)) a.set(key, load->attrs.ints(key));
    a.set("field", int64_t(i));
    a.set("read", field.read);
    if (tma_ && field.tensor.box.empty()) a.set("bulk", field.tensor.bytes);
    if (tma_ && !field.tensor.box.empty()) {
      a.set("box", field.tensor.box);
      a.set("swizzle", field.tensor.swizzle);
    }
    made(OpKind::RingFill, std::move(operands), std::move(a), load->loc);
  }

  void pop(Op *op) {
    Value *ring = ring_->result(), *counter = counter_.at(op);
    scalar_ = replicated({}, ir::warps_of(op->block));
    Block *block = op->block;
    ir::Uses uses(f_);
    Op *last = op;
    std::vector<Op *> reads;
    bool early = false;
    for (const ir::Use &u : uses.of(op->result())) {
      Op *at = u.op;
      while (at->block != block) at = at->block->parent;
      if (u.op->kind == OpKind::RingDrop) {
        last = u.op;
        early = true;
        continue;
      }
      reads.push_back(u.op);
      if (!early && position(at) > position(last)) last = at;
    }
    for (Op *read : reads) {
      b_.set_before(read);
      Value *v = read->result();
      Attrs a;
      a.set("field", read->attrs.i("field"));
      a.set("dtype", v->type.dtype);
      Op *load = b_.create(OpKind::RingLoad, {ring, counter}, std::move(a), read->loc);
      TKC_CHECK(load, "ring_load of an item");
      load->results = {v};
      v->op = load;
      read->results.clear();
      if (last == read) last = load;
      erase(read);
    }
    b_.set_before(op);
    made(OpKind::RingWait, {ring, counter}, {}, op->loc);
    b_.set_before(block->ops[size_t(position(last)) + 1]);
    if (tma_) made(OpKind::ProxyFence, {}, {}, op->loc);
    made(OpKind::RingRelease, {ring, counter}, {}, op->loc);
    if (last != op) erase(op);
    if (last->kind == OpKind::RingDrop) erase(last);
    if (last == op) erase(op);
  }

  ir::Function &f_;
  Op *ring_;
  const ir::Target &target_;
  ir::Builder b_;
  std::vector<Op *> pushes_, pops_;
  std::vector<Field> fields_;
  bool tma_ = false, open_ = false;
  std::string how_;  // items come, for reports
  RegLayout scalar_; // of the role at hand
  std::map<const Op *, Value *> counter_;
};

} // namespace

bool lower_rings(ir::Function &f, PassContext &context) {
  std::vector<LowerRing> rings;
  for (Op *op : f.body->ops)
    if (op->kind == OpKind::RingAlloc && op->attrs.has("fields"))
      rings.emplace_back(f, op, context.target, context.diags);
  for (LowerRing &ring : rings) ring.run();
  // One more slot for each in turn, while all of them fit.
  for (int64_t n = 3; n <= kMostStages; n++)
    for (LowerRing &ring : rings) {
      if (!ring.open()) continue;
      ring.set_slots(n);
      std::vector<SharedBuffer> buffers = shared_buffers(f, ProgramOrder(f));
      if (place_buffers(buffers, false) <= context.target.shared_per_block) continue;
      ring.set_slots(n - 1);
      return true;
    }
  return !rings.empty();
}

} // namespace tkc::passes

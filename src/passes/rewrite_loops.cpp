// Writes loop schedules into the IR.
//
// Without roles:
//
//   for i in lo : hi step d {             %r = ring_alloc {stages = S}
//     %x = load t[i ..]                   ring_fill t[lo + 0 d ..] -> item 0 if it exists; ring_publish 0
//     %b = scratch_store %x               ..  S - 1 items, in a loop
//     %y = scratch_load %b         ->     for i, c in lo : hi step d {       c counts from 0
//     .. %y ..                              ring_wait c                      and every thread has read item c - 1
//   }                                       ring_fill t[i + (S-1) d ..] -> item c + S - 1 if it exists; ring_publish
//                                           %y = ring_load c
//                                           .. %y ..
//
// Every iteration publishes one item, an empty one where the loop ends, so the number of items pending at a wait is
// always S - 2. Copies of items that do not exist are not made.
//
// With roles the body of the kernel becomes the compute role, and a producer role runs the same loops with nothing in
// them but what the copies need:
//
//   roles { for i, c in lo : hi step d {          } and { ..
//             ring_acquire c                              for i, c in lo : hi step d {
//             ring_fill t[i ..]                             ring_wait c, arrived
//             ring_publish c                                %y = ring_load c
//           }                                               .. %y ..
//                                                           arrived' = ring_test c + 1
//                                                           ring_release c
//
// By TMA a proxy_fence stands behind the reads of an item: before the release, or before the wait of the next
// iteration.
#include "ir/builder.h"
#include "passes/schedule_loops.h"
#include "support/check.h"
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

class Rewrite {
public:
  Rewrite(ir::Function &f, Diagnostics &diags) : f_(f), b_(f, diags), layout_(replicated({}, f.warps)) {}

  // All threads copy.
  void without_roles(const LoopSchedule &s) {
    Op *loop = s.loop;
    Block *body = loop->regions[0];
    loc_ = loop->loc;
    std::vector<std::vector<Op *>> loads = loads_of(s);
    b_.set_before(loop);
    Value *ring = make(OpKind::RingAlloc, {}, ring_attrs(s, false));
    if (s.by_tma()) { // the mbarriers are initialised, and what was read of these bytes before has been
      make(OpKind::ProxyFence, {}, {});
      make(OpKind::BlockBarrier, {}, Attrs::one("scope", std::string("block")));
    }
    Value *trips = trip_count(loop->operand(0), loop->operand(1), loop->operand(2));
    Value *iv = loop->operand(0), *step = loop->operand(2);
    auto fill_if = [&](Value *at, Value *counter) {
      Value *enabled = make(OpKind::Lt, {counter, trips}, {});
      fill(s, ring, at, counter, enabled);
      if (s.by_tma())
        make(OpKind::RingPublish, {ring, counter, enabled}, Attrs::one("tx_bytes", s.tx_bytes()));
      else
        make(OpKind::RingPublish, {ring, counter}, {});
    };
    if (s.stages == 2)
      fill_if(iv, integer(DType::U32, 0));
    else
      prologue(s.stages - 1, iv, step, fill_if);
    b_.set_before(loop);
    Value *distance = make(OpKind::Mul, {step, integer(step->type.dtype, s.stages - 1)}, {});
    Value *counter = carry_counter(loop);
    b_.set_before(body->ops.front());
    if (s.by_tma()) make(OpKind::ProxyFence, {}, {}); // behind the reads of item c - 1
    make(OpKind::RingWait, {ring, counter}, Attrs::one("pending", s.stages - 2));
    Value *ahead = make(OpKind::Add, {counter, integer(DType::U32, s.stages - 1)}, {});
    fill_if(make(OpKind::Add, {body->args[0], distance}, {}), ahead);
    replace(s, loads, ring, counter);
  }

  void with_roles(const std::vector<LoopSchedule> &schedules, int64_t producer_warps) {
    loc_ = f_.loc;
    Op *roles = f_.new_op(OpKind::Roles, f_.loc);
    roles->attrs.set("names", std::vector<std::string>{"producer", "compute"});
    roles->attrs.set("warps", std::vector<int64_t>{producer_warps, f_.warps});
    Block *producer = f_.new_block(roles), *compute = f_.new_block(roles);
    roles->regions = {producer, compute};
    Op *end = f_.body->terminator();
    for (Op *op : f_.body->ops)
      if (op != end) {
        op->block = compute;
        compute->ops.push_back(op);
      }
    f_.body->ops = {end};
    insert_before(end, roles);
    std::map<const Value *, Value *> made; // of the compute role -> of the producer role
    for (const LoopSchedule &s : schedules) {
      loc_ = s.loop->loc;
      std::vector<std::vector<Op *>> loads = loads_of(s);
      b_.set_before(roles);
      Value *ring = make(OpKind::RingAlloc, {}, ring_attrs(s, true));
      RegLayout compute_scalar = std::exchange(layout_, replicated({}, producer_warps));
      if (s.over_tiles)
        produce_tiles(s, ring, producer, made);
      else
        produce(s, ring, producer, made, nullptr);
      layout_ = std::move(compute_scalar);
      Value *counter = s.over_tiles ? carry_counter_over_tiles(s.loop) : carry_counter(s.loop);
      Block *body = s.loop->regions[0];
      std::vector<Value *> wait = {ring, counter};
      if (s.asks_ahead) wait.push_back(carry_test(s.loop, ring, counter));
      b_.set_before(body->ops.front());
      make(OpKind::RingWait, std::move(wait), {});
      b_.set_before(body->terminator());
      if (s.by_tma()) make(OpKind::ProxyFence, {}, {});
      make(OpKind::RingRelease, {ring, counter}, {});
      replace(s, loads, ring, counter);
    }
    for (Block *role : {producer, compute}) {
      b_.set_block(role);
      b_.create_typed(OpKind::Yield, {}, {}, {}, f_.loc);
    }
  }

private:
  Value *make(OpKind kind, std::vector<Value *> operands, Attrs attrs) {
    Op *op = b_.create(kind, std::move(operands), std::move(attrs), loc_);
    TKC_CHECK(op, "{} in a pipelined loop", ir::def(kind).name.s);
    if (op->results.empty()) return nullptr;
    if (op->result()->type.is_tile()) op->result()->layout = layout_;
    return op->result();
  }
  Value *integer(DType t, int64_t v) {
    Value *c = b_.constant_int(t, v, loc_);
    c->layout = layout_;
    return c;
  }
  Value *cast(Value *v, DType t) { return v->type.dtype == t ? v : make(OpKind::Cast, {v}, Attrs::one("dtype", t)); }

  // Iterations of a loop, as u32; step is positive. Bounds may lie anywhere in their type.
  Value *trip_count(Value *lo, Value *hi, Value *step) {
    Value *span = make(OpKind::Sub, {cast(hi, DType::I64), cast(lo, DType::I64)}, {});
    Value *wide = cast(step, DType::I64);
    Value *some = make(OpKind::Max, {span, integer(DType::I64, 0)}, {});
    Value *up = make(OpKind::Add, {some, make(OpKind::Sub, {wide, integer(DType::I64, 1)}, {})}, {});
    return cast(make(OpKind::Div, {up, wide}, {}), DType::U32);
  }

  // fill(lo), fill(lo + step), .. as a loop: the code of a copy stands once.
  template <typename F> void prologue(int64_t items, Value *lo, Value *step, F &&fill) {
    std::vector<Value *> operands = {integer(DType::U32, 0), integer(DType::U32, items), integer(DType::U32, 1), lo};
    Op *loop = b_.create_typed(OpKind::For, operands, {lo->type}, {}, loc_);
    loop->result()->layout = layout_;
    Block *body = new_body(loop, {Type::scalar(DType::U32), lo->type});
    b_.set_block(body);
    fill(body->args[1], body->args[0]);
    Value *next = make(OpKind::Add, {body->args[1], step}, {});
    b_.create_typed(OpKind::Yield, {next}, {}, {}, loc_);
  }

  Block *new_body(Op *loop, const std::vector<Type> &args) {
    Block *body = f_.new_block(loop);
    loop->regions = {body};
    for (const Type &t : args) {
      Value *arg = f_.new_value(t);
      arg->block = body;
      arg->index = int64_t(body->args.size());
      arg->layout = layout_;
      body->args.push_back(arg);
    }
    return body;
  }

  // Gives a loop one more carried scalar; what an iteration hands on is still to be added to its yield.
  Value *carry(Op *loop, DType t, int64_t first, const char *name) {
    b_.set_before(loop);
    return carry(loop, integer(t, first), name);
  }
  Value *carry(Op *loop, Value *first, const char *name) {
    Block *body = loop->regions[0];
    loop->operands.push_back(first);
    Value *arg = f_.new_value(first->type, name);
    arg->block = body;
    arg->index = int64_t(body->args.size());
    arg->layout = layout_;
    body->args.push_back(arg);
    Value *after = f_.new_value(first->type);
    after->op = loop;
    after->index = int64_t(loop->results.size());
    after->layout = layout_;
    loop->results.push_back(after);
    return arg;
  }
  // A scalar that counts the iterations of a loop from 0.
  Value *carry_counter(Op *loop) {
    Value *counter = carry(loop, DType::U32, 0, "c");
    Op *yield = loop->regions[0]->terminator();
    b_.set_before(yield);
    yield->operands.push_back(make(OpKind::Add, {counter, integer(DType::U32, 1)}, {}));
    return counter;
  }
  // Whether the item of an iteration has arrived, asked in the one before it, where its last product is still to come:
  // the answer takes as long as a read of shared memory.
  Value *carry_test(Op *loop, Value *ring, Value *counter) {
    Block *body = loop->regions[0];
    Value *arrived = carry(loop, DType::Bool, 0, "arrived");
    Op *yield = body->terminator(), *at = yield;
    for (Op *op : body->ops)
      if (op->kind == OpKind::Mma) at = op;
    b_.set_before(at);
    Value *next = make(OpKind::Add, {counter, integer(DType::U32, 1)}, {});
    yield->operands.push_back(make(OpKind::RingTest, {ring, next}, {}));
    return arrived;
  }

  static Attrs ring_attrs(const LoopSchedule &s, bool producer) {
    Attrs a;
    a.set("stages", s.stages);
    a.set("transport", s.transport);
    if (s.by_tma()) a.set("producer", int64_t(producer));
    a.set("stage_bytes", s.stage_bytes);
    a.set("bytes", s.slot_bytes());
    std::vector<int64_t> offsets;
    std::vector<std::string> tensors;
    auto add = [&](const SmemLayout &smem, int64_t offset, std::string name) {
      a.set(fmt::format("smem{}", offsets.size()), smem);
      offsets.push_back(offset);
      tensors.push_back(std::move(name));
    };
    for (const RingField &f : s.fields)
      if (f.part.copy < 0) add(f.smem, f.offset, tensor_name(*f.load));
    for (const RecordCopy &r : s.records) {
      SmemLayout words = plain_smem(r.words().shape, dtype_bytes(ir::kRecordWord));
      words.bytes = r.bytes;
      add(words, r.offset, root_name(*r.load));
    }
    a.set("field_offset", std::move(offsets));
    a.set("tensors", std::move(tensors));
    return a;
  }

  std::vector<std::vector<Op *>> loads_of(const LoopSchedule &s) {
    ir::Uses uses(f_);
    std::vector<std::vector<Op *>> out;
    for (const RingField &field : s.fields) {
      out.emplace_back();
      if (!field.store) {
        // Shared memory gives every layout, so a conversion of what was read is a read of its own.
        bool plain = false;
        for (const ir::Use &u : uses.of(field.load->result()))
          if (u.op->kind == OpKind::ConvertLayout)
            out.back().push_back(u.op);
          else
            plain = true;
        if (plain) out.back().push_back(field.load);
      } else {
        for (const ir::Use &u : uses.of(field.store->result())) out.back().push_back(u.op);
      }
    }
    return out;
  }

  // A value that the copies need, made again at the builder's place. `body`: what is inside it is made for the
  // iteration of its counter `iv`; `role`: so is everything else that is defined in it (null: outer values are used as
  // they are).
  Value *again(Value *v, const Block *body, Value *iv, const Block *role, std::map<const Value *, Value *> &made) {
    if (v == body->args[0] && iv) return iv;
    if (auto it = made.find(v); it != made.end()) return it->second;
    bool inside = !v->is_arg() && (v->op->block == body || v->op->block == remade_);
    if (v->is_arg() || (!inside && !role)) return v;
    std::vector<Value *> operands;
    for (Value *x : v->op->operands) operands.push_back(again(x, body, iv, role, made));
    Op *copy = b_.create_typed(v->op->kind, operands, {v->type}, v->op->attrs, v->op->loc);
    if (!role) copy->attrs.erase("in_bounds"); // also made where the loop does not have the iteration
    copy->result()->layout = v->type.is_tile() ? std::optional(layout_) : std::nullopt; // a scalar, or a view
    copy->result()->name = v->name;
    return made[v] = copy->result();
  }

  void fill(const LoopSchedule &s, Value *ring, Value *iv, Value *counter, Value *enabled, const Block *role = nullptr,
            std::map<const Value *, Value *> made = {}) {
    auto at = [&](Value *v) { return again(v, s.loop->regions[0], iv, role, made); };
    auto emit = [&](const Op &load, std::vector<Value *> operands, Attrs a) {
      operands.insert(operands.end(), {ring, counter, enabled});
      SourceLoc loop_loc = std::exchange(loc_, load.loc);
      make(OpKind::RingFill, std::move(operands), std::move(a));
      loc_ = loop_loc;
    };
    for (const RingField &field : s.fields) {
      if (field.part.copy >= 0) continue;
      const Op &load = *field.load;
      std::vector<Value *> operands;
      for (Value *v : load.operands) operands.push_back(at(v));
      Attrs a;
      for (const char *key : {"sizes", "drop", "gather", "in_bounds", "divisor", "extent_divisor"})
        if (load.attrs.has(key)) a.set(key, load.attrs.ints(key));
      a.set("field", s.ring_field(field));
      a.set("read", field.read);
      if (s.by_tma() && field.tensor.box.empty()) a.set("bulk", field.tensor.bytes);
      if (s.by_tma() && !field.tensor.box.empty()) {
        a.set("box", field.tensor.box);
        a.set("swizzle", field.tensor.swizzle);
      }
      emit(load, std::move(operands), std::move(a));
    }
    int64_t number =
        int64_t(std::count_if(s.fields.begin(), s.fields.end(), [](const RingField &f) { return f.part.copy < 0; }));
    for (const RecordCopy &r : s.records) {
      std::vector<Value *> operands = {at(const_cast<Value *>(r.record()))};
      for (size_t d = 1; d <= r.positions(); d++) operands.push_back(at(r.load->operand(d)));
      operands.push_back(integer(DType::I32, r.begin / 8));
      emit(*r.load, std::move(operands), record_attrs(s, r, number++));
    }
  }
  // Of a fill with words of a record: one position in each dim of the tensor, and a range of its words.
  static Attrs record_attrs(const LoopSchedule &s, const RecordCopy &r, int64_t field) {
    std::vector<int64_t> sizes(r.positions(), 1), drop(r.positions(), 1);
    sizes.push_back(r.bytes / 8);
    drop.push_back(0);
    Attrs a;
    a.set("sizes", sizes);
    a.set("drop", drop);
    a.set("gather", std::vector<int64_t>(sizes.size(), 0));
    const int64_t words = r.record()->type.shape.back(), start = r.begin / 8;
    for (auto [key, last] : {std::pair<const char *, int64_t>{"in_bounds", 1},
                             {"divisor", start ? start & -start : int64_t(1) << 30},
                             {"extent_divisor", words & -words}}) {
      if (!r.load->attrs.has(key)) continue;
      std::vector<int64_t> list = r.load->attrs.ints(key);
      list.resize(r.positions());
      list.push_back(last);
      a.set(key, list);
    }
    a.set("field", field);
    a.set("read", r.read);
    if (s.by_tma()) a.set("bulk", r.bytes);
    return a;
  }

  // The loop of the producer role, which counts items from `first` on (null: 0). Returns the counter behind it.
  Value *produce(const LoopSchedule &s, Value *ring, Block *producer, std::map<const Value *, Value *> &made,
                 Value *first) {
    Block *body = s.loop->regions[0];
    b_.set_block(producer);
    auto outer = [&](Value *v) { return again(v, body, nullptr, f_.body, made); };
    std::vector<Value *> operands;
    for (size_t i = 0; i < 3; i++) operands.push_back(outer(s.loop->operand(i)));
    for (const RingField &field : s.fields) // what does not depend on the iteration, outside the loop
      for (Value *v : field.load->operands)
        if (!v->is_arg() && v->op->block != body) outer(v);
    operands.push_back(first ? first : integer(DType::U32, 0));
    Op *loop = b_.create_typed(OpKind::For, operands, {Type::scalar(DType::U32)}, {}, s.loop->loc);
    loop->result()->layout = layout_;
    Block *copies = new_body(loop, {operands[0]->type, Type::scalar(DType::U32)});
    b_.set_block(copies);
    Value *iv = copies->args[0], *counter = copies->args[1];
    make(OpKind::RingAcquire, {ring, counter}, {});
    fill(s, ring, iv, counter, integer(DType::Bool, 1), f_.body, made);
    make(OpKind::RingPublish, {ring, counter}, s.by_tma() ? Attrs::one("tx_bytes", s.tx_bytes()) : Attrs());
    b_.create_typed(OpKind::Yield, {make(OpKind::Add, {counter, integer(DType::U32, 1)}, {})}, {}, {}, loc_);
    return loop->result();
  }

  // ---- rings that run on over tiles

  // The producer's loop over tiles, with the one that copies inside; the counter runs through both.
  void produce_tiles(const LoopSchedule &s, Value *ring, Block *producer, std::map<const Value *, Value *> &made) {
    Op *tiles = s.loop->block->parent;
    Block *tile = tiles->regions[0];
    loc_ = tiles->loc;
    b_.set_block(producer);
    std::vector<Value *> operands;
    for (size_t i = 0; i < 3; i++) operands.push_back(again(tiles->operand(i), tile, nullptr, f_.body, made));
    operands.push_back(integer(DType::U32, 0));
    Op *loop = b_.create_typed(OpKind::For, operands, {Type::scalar(DType::U32)}, {}, loc_);
    loop->result()->layout = layout_;
    Block *body = new_body(loop, {operands[0]->type, Type::scalar(DType::U32)});
    made[tile->args[0]] = body->args[0];
    loc_ = s.loop->loc;
    Value *next = produce(s, ring, body, made, body->args[1]);
    b_.set_block(body);
    b_.create_typed(OpKind::Yield, {next}, {}, {}, loc_);
  }

  // Gives a loop and the loop over tiles around it one more carried scalar that counts all iterations of the inner one.
  Value *carry_counter_over_tiles(Op *loop) {
    Op *tiles = loop->block->parent;
    b_.set_before(tiles);
    Value *outer = carry(tiles, integer(DType::U32, 0), "c"), *counter = carry(loop, outer, "c");
    tiles->regions[0]->terminator()->operands.push_back(loop->results.back());
    b_.set_before(loop->regions[0]->terminator());
    loop->regions[0]->terminator()->operands.push_back(make(OpKind::Add, {counter, integer(DType::U32, 1)}, {}));
    return counter;
  }
  // Where the copies are, S - 1 items ahead: the number of the item in its tile, the tile, and `of_tile`, what the
  // places of the copies need of the tile.
  struct Ahead {
    Value *item, *tile;
    std::vector<Value *> of_tile;
    std::vector<Value *> all() const {
      std::vector<Value *> out{item, tile};
      out.insert(out.end(), of_tile.begin(), of_tile.end());
      return out;
    }
    static Ahead from(const std::vector<Value *> &values, size_t at) {
      return {values[at], values[at + 1], {values.begin() + int64_t(at) + 2, values.end()}};
    }
  };
  // Scalars of the loop over tiles that a value is made of.
  static void collect(Value *v, const Block *body, const Block *tile, std::vector<Value *> &out) {
    if (!v->op || (v->op->block != body && v->op->block != tile)) return;
    if (v->op->block == tile && v->type.is_tile()) {
      if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
      return;
    }
    for (Value *x : v->op->operands) collect(x, body, tile, out);
  }

public:
  // All threads copy, and item after item of tile after tile is one sequence.
  void without_roles_over_tiles(const LoopSchedule &s) {
    Op *loop = s.loop, *tiles = loop->block->parent;
    Block *body = loop->regions[0], *tile = tiles->regions[0];
    loc_ = loop->loc;
    std::vector<std::vector<Op *>> loads = loads_of(s);
    std::vector<Value *> of_tile;
    for (const RingField &field : s.fields)
      for (Value *v : field.load->operands) collect(v, body, tile, of_tile);
    b_.set_before(tiles);
    Value *ring = make(OpKind::RingAlloc, {}, ring_attrs(s, false));
    if (s.by_tma()) {
      make(OpKind::ProxyFence, {}, {});
      make(OpKind::BlockBarrier, {}, Attrs::one("scope", std::string("block")));
    }
    Value *lo = loop->operand(0), *step = loop->operand(2), *one = integer(DType::U32, 1);
    Value *trips = trip_count(lo, loop->operand(1), step);
    Value *all = make(OpKind::Mul, {trips, trip_count(tiles->operand(0), tiles->operand(1), tiles->operand(2))}, {});
    Value *last = make(OpKind::Sub, {trips, one}, {});

    remade_ = tile;
    auto at_tile = [&](Value *number) {
      std::map<const Value *, Value *> made{{tile->args[0], number}};
      std::vector<Value *> out;
      for (Value *v : of_tile) out.push_back(again(v, body, nullptr, nullptr, made));
      return out;
    };
    auto fill_item = [&](const Ahead &at, Value *counter) {
      Value *enabled = make(OpKind::Lt, {counter, all}, {});
      Value *iv = make(OpKind::Add, {lo, make(OpKind::Mul, {cast(at.item, lo->type.dtype), step}, {})}, {});
      std::map<const Value *, Value *> made{{tile->args[0], at.tile}};
      for (size_t i = 0; i < of_tile.size(); i++) made[of_tile[i]] = at.of_tile[i];
      fill(s, ring, iv, counter, enabled, nullptr, made);
      if (s.by_tma())
        make(OpKind::RingPublish, {ring, counter, enabled}, Attrs::one("tx_bytes", s.tx_bytes()));
      else
        make(OpKind::RingPublish, {ring, counter}, {});
    };
    // Behind the last item of a tile comes the first of the block's next one. Behind the last of all nothing is copied,
    // and nothing may be read: it stays at its tile.
    auto next = [&](const Ahead &at) {
      Value *tile_after = make(OpKind::Add, {at.tile, tiles->operand(2)}, {});
      Value *crosses =
          make(OpKind::And,
               {make(OpKind::Eq, {at.item, last}, {}), make(OpKind::Lt, {tile_after, tiles->operand(1)}, {})}, {});
      std::vector<Type> types;
      for (Value *v : at.all()) types.push_back(v->type);
      Op *choice = b_.create_typed(OpKind::If, {crosses}, types, {}, loc_);
      for (Value *v : choice->results) v->layout = layout_;
      choice->regions = {f_.new_block(choice), f_.new_block(choice)};
      Block *behind = b_.block();
      b_.set_block(choice->regions[0]);
      Ahead first{integer(DType::U32, 0), tile_after, at_tile(tile_after)};
      b_.create_typed(OpKind::Yield, first.all(), {}, {}, loc_);
      b_.set_block(choice->regions[1]);
      Ahead same = at;
      same.item = make(OpKind::Add, {at.item, integer(DType::U32, 1)}, {});
      b_.create_typed(OpKind::Yield, same.all(), {}, {}, loc_);
      b_.set_block(behind);
      return Ahead::from(choice->results, 0);
    };

    Ahead at{integer(DType::U32, 0), tiles->operand(0), at_tile(tiles->operand(0))};
    { // the first S - 1 items
      std::vector<Value *> operands = {integer(DType::U32, 0), integer(DType::U32, s.stages - 1), one};
      std::vector<Type> types;
      for (Value *v : at.all()) operands.push_back(v), types.push_back(v->type);
      Op *first = b_.create_typed(OpKind::For, operands, types, {}, loc_);
      for (Value *v : first->results) v->layout = layout_;
      types.insert(types.begin(), Type::scalar(DType::U32));
      Block *items = new_body(first, types);
      b_.set_block(items);
      Ahead item = Ahead::from(items->args, 1);
      fill_item(item, items->args[0]);
      b_.create_typed(OpKind::Yield, next(item).all(), {}, {}, loc_);
      at = Ahead::from(first->results, 0);
    }
    Value *counter = carry_counter_over_tiles(loop);
    std::vector<Value *> inside;
    for (Value *v : at.all()) {
      inside.push_back(carry(loop, carry(tiles, v, ""), ""));
      tile->terminator()->operands.push_back(loop->results.back());
    }
    Ahead ahead = Ahead::from(inside, 0);
    // At the body's start: whatever the fills and what follows them need is made before what was there.
    std::vector<Op *> rest = std::exchange(body->ops, {});
    b_.set_block(body);
    if (s.by_tma()) make(OpKind::ProxyFence, {}, {}); // behind the reads of the item before
    make(OpKind::RingWait, {ring, counter}, Attrs::one("pending", s.stages - 2));
    fill_item(ahead, make(OpKind::Add, {counter, integer(DType::U32, s.stages - 1)}, {}));
    Ahead after = next(ahead);
    body->ops.insert(body->ops.end(), rest.begin(), rest.end());
    for (Value *v : after.all()) body->terminator()->operands.push_back(v);
    remade_ = nullptr;
    replace(s, loads, ring, counter);
  }

private:
  void replace(const LoopSchedule &s, const std::vector<std::vector<Op *>> &loads, Value *ring, Value *counter) {
    for (size_t field = 0; field < s.fields.size(); field++) {
      const RingField &f = s.fields[field];
      for (Op *load : loads[field]) {
        Value *v = load->result();
        b_.set_before(load);
        Attrs a;
        a.set("field", s.ring_field(f));
        a.set("dtype", v->type.dtype);
        if (f.part.copy >= 0) {
          a.set("at", f.part.at);
          a.set("smem", f.smem);
          a.set("tensor", tensor_name(*f.load));
        }
        Op *op = b_.create(OpKind::RingLoad, {ring, counter}, std::move(a), load->loc);
        TKC_CHECK(op, "ring_load in a pipelined loop");
        op->results = {v};
        v->op = op;
        load->results.clear();
        load->operands.clear();
        erase(load);
      }
      if (s.fields[field].store) erase(s.fields[field].store);
      if (!s.fields[field].load->results.empty()) erase(s.fields[field].load);
    }
  }

  ir::Function &f_;
  ir::Builder b_;
  RegLayout layout_;              // of scalars
  const Block *remade_ = nullptr; // the body of a loop over tiles, whose values are made again
  SourceLoc loc_;
};

} // namespace

void rewrite_loops(ir::Function &f, const FunctionSchedule &s, Diagnostics &diags) {
  Rewrite r(f, diags);
  for (const LoopSchedule &l : s.loops)
    if (l.unroll > 1) l.loop->attrs.set("slots", l.unroll); // ops/control_lower.cpp
  if (s.producer_warps)
    r.with_roles(s.loops, s.producer_warps);
  else
    for (const LoopSchedule &l : s.loops) l.over_tiles ? r.without_roles_over_tiles(l) : r.without_roles(l);
}

} // namespace tkc::passes

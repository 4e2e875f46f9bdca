#include "passes/protocol_skeleton.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include "passes/protocol_keys.h"
#include <algorithm>
#include <numeric>
#include <set>

namespace tkc::passes::protocol {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

class Extract {
public:
  Extract(const ir::Function &f, bool tensor_copies, Obstacle &obstacle)
      : f_(f), tensor_copies_(tensor_copies), obstacle_(obstacle), keys_(f) {}

  std::optional<Skeleton> run() {
    const Op *roles = ir::roles_of(f_);
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind == OpKind::RingAlloc) add_ring(*op);
      if (op->kind == OpKind::InlinePtx) no_synchronisation(*op);
    });
    if (failed_) return std::nullopt;
    if (out_.rings.empty()) return std::move(out_);
    overlaps();
    barriers_apart();
    fields();
    if (roles) {
      around_roles(*roles);
      for (size_t b = 1; b < roles->regions.size(); b++)
        for (size_t a = 0; a < b; a++) pair_loops(*roles, a, b);
    }
    demand_counters();
    if (roles) {
      join_nests();
      for (size_t r = 0; r < roles->regions.size(); r++)
        role(roles->attrs.get<std::vector<std::string>>("names")[r], roles->attrs.ints("warps")[r], *roles->regions[r]);
    } else {
      for (const Ring &r : out_.rings)
        if (r.producer)
          fail(*r.op, "a ring with a producer in a kernel without roles");
        else if (r.tma)
          barrier_after_start(*r.op);
      join_nests();
      role("warp", f_.warps, *f_.body);
    }
    if (failed_) return std::nullopt;
    components();
    return std::move(out_);
  }

private:
  void fail(const Op &op, std::string text) {
    if (failed_) return;
    failed_ = true;
    obstacle_ = {&op, std::move(text)};
  }

  void no_synchronisation(const Op &op) {
    for (const char *word : {"bar.sync", "bar.arrive", "bar.red", "barrier", "cp.async", "cp.reduce"})
      if (op.attrs.s("text").find(word) != std::string::npos)
        fail(op, fmt::format("`inline_ptx` with `{}`: synchronisation by hand is not followed", word));
  }

  // ---- rings
  void add_ring(const Op &op) {
    Ring r;
    r.op = &op;
    r.stages = op.attrs.i("stages");
    r.producer = ir::has_producer(op);
    r.tma = ir::by_tma(op) && tensor_copies_;
    r.mbarrier = r.producer || r.tma;
    r.begin = op.attrs.i("offset");
    r.end = r.begin + op.attrs.i("bytes");
    if (ir::has_mbarriers(op)) r.barriers = op.attrs.i("barrier_offset");
    int64_t needed = r.stages * op.attrs.i("stage_bytes");
    if (r.stages < 1 || r.stages > 16) return fail(op, fmt::format("a ring of {} slots", r.stages));
    if (needed > r.end - r.begin) return fail(op, fmt::format("{} bytes hold no {} slots", r.end - r.begin, r.stages));
    if (r.mbarrier && op.block != f_.body) fail(op, "a ring by mbarriers is made inside another op");
    ring_[&op] = int(out_.rings.size());
    out_.rings.push_back(std::move(r));
  }
  void overlaps() {
    for (Ring &a : out_.rings)
      for (size_t j = 0; j < out_.rings.size(); j++)
        if (const Ring &b = out_.rings[j]; &a != &b && a.begin < b.end && b.begin < a.end) {
          a.overlaps.push_back(int(j));
          if (a.tma && !b.tma) fail(*a.op, "a ring by tensor copies has bytes of a ring by cp.async");
        }
  }
  // Nothing else lies where mbarriers do, at any time.
  void barriers_apart() {
    std::vector<std::pair<int64_t, int64_t>> used, barriers;
    for (const Ring &r : out_.rings) {
      used.emplace_back(r.begin, r.end);
      if (r.barriers >= 0) barriers.emplace_back(r.barriers, r.barriers + ir::mbarrier_bytes(*r.op));
    }
    ir::walk(f_.body, [&](const Op *op) {
      if (auto range = bytes_of(*op); range.second > range.first) used.push_back(range);
    });
    used.insert(used.end(), barriers.begin(), barriers.end());
    for (const auto &b : barriers) {
      auto meets = [&](const auto &u) { return u.first < b.second && b.first < u.second; };
      if (std::count_if(used.begin(), used.end(), meets) > 1)
        fail(*out_.rings[0].op, fmt::format("something else lies where the mbarriers at {} do", b.first));
    }
  }
  // Without roles: the mbarriers' initialisation is visible to all warps before anything is done with the ring.
  void barrier_after_start(const Op &ring) {
    bool started = false;
    for (const Op *op : f_.body->ops) {
      if (op == &ring) started = true;
      if (!started || op == &ring) continue;
      if (op->kind == OpKind::BlockBarrier && op->attrs.s("scope") == "block") return;
      bool uses = ir::is_ring_op(op->kind) && ir::ring_of(*op) == &ring;
      for (Block *r : op->regions)
        ir::walk(r, [&](const Op *inner) { uses |= ir::is_ring_op(inner->kind) && ir::ring_of(*inner) == &ring; });
      if (uses) return fail(*op, "no block barrier stands between the initialisation of the mbarriers and their use");
    }
  }
  // Each thread copies the same bytes of a field every time.
  void fields() {
    std::map<std::pair<const Op *, int64_t>, const Op *> first;
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind == OpKind::RingStore && (op->attrs.i("field") < 0 || op->attrs.i("field") >= 14))
        fail(*op, "a ring of more than 14 fields");
      if (op->kind != OpKind::RingFill) return;
      auto [it, added] = first.emplace(std::pair(ir::ring_of(*op), op->attrs.i("field")), op);
      if (!added && !(it->second->attrs.get<RegLayout>("read") == op->attrs.get<RegLayout>("read")))
        fail(*op, "two fills of one field are dealt out to the threads differently");
      bool tma = out_.rings[size_t(ring_of(*op))].tma;
      if (!added && tma && (boxes(*it->second) != boxes(*op) || copied_bytes(*it->second) != copied_bytes(*op)))
        fail(*op, "two fills of one field copy other boxes");
      if (op->attrs.i("field") < 0 || op->attrs.i("field") >= 14) fail(*op, "a ring of more than 14 fields");
    });
  }

  // The roles start at a block barrier, which makes the mbarriers of the rings made before it visible.
  void around_roles(const Op &roles) {
    bool before = true;
    for (const Op *op : f_.body->ops) {
      if (op == &roles) {
        before = false;
        continue;
      }
      if (op->kind == OpKind::RingAlloc) {
        if (!before) fail(*op, "its mbarriers are initialised after the roles have started");
      } else if (op->kind != OpKind::Return && has_events(*op)) {
        fail(*op, "synchronises outside of the roles of a kernel that has some");
      }
    }
    if (roles.block != f_.body) fail(roles, "roles inside another op");
    const std::vector<int64_t> &warps = roles.attrs.ints("warps");
    std::vector<int> filled_by(out_.rings.size(), -1);
    std::set<std::pair<int, int>> reads; // ring, role
    for (int role = 0; role < int(roles.regions.size()); role++)
      ir::walk(roles.regions[size_t(role)], [&](const Op *op) {
        if (!ir::is_ring_op(op->kind)) return;
        Ring &ring = out_.rings[size_t(ring_of(*op))];
        if (ring.tma && !ring.producer) fail(*op, "a ring by tensor copies without a producer in a kernel with roles");
        if (!ring.producer) return;
        ring.sides.copies |= op->kind == OpKind::RingFill;
        ring.sides.stores |= op->kind == OpKind::RingStore;
        bool fills = op->kind == OpKind::RingFill || op->kind == OpKind::RingStore || op->kind == OpKind::RingAcquire ||
                     op->kind == OpKind::RingPublish;
        int &producer = filled_by[size_t(ring_of(*op))];
        if (!fills) {
          if (reads.insert({ring_of(*op), role}).second) ring.sides.readers += warps[size_t(role)];
        } else if (producer < 0) {
          producer = role;
          ring.sides.producers = warps[size_t(role)];
        } else if (producer != role) {
          fail(*op, "a second role fills this ring");
        }
        if (reads.count({ring_of(*op), producer})) fail(*op, "a role fills a ring and reads it");
      });
    for (const Ring &ring : out_.rings)
      if (ring.producer && (!ring.sides.producers || !ring.sides.readers))
        fail(*ring.op, "no role fills or reads this ring");
      else if (ring.tma && ring.sides.stores)
        fail(*ring.op, "tensor copies and plain stores fill one ring");
  }
  int ring_of(const Op &op) const { return ring_.at(ir::ring_of(op)); }

  // ---- events
  static bool own_barrier(const Op &op) { return op.attrs.has("scratch_offset"); }
  // Of shared memory that an op uses other than as a ring.
  static std::pair<int64_t, int64_t> bytes_of(const Op &op) {
    int64_t begin = 0, end = 0;
    if (op.kind == OpKind::ScratchStore || op.kind == OpKind::ScratchLoad) {
      const Op &store = op.kind == OpKind::ScratchStore ? op : *op.operand(0)->op;
      begin = store.attrs.i("offset");
      end = begin + store.attrs.get<SmemLayout>("smem").bytes;
    } else if (own_barrier(op)) {
      begin = op.attrs.i("scratch_offset");
      end = begin + ir::def(op).scratch(op);
    }
    return {begin, end};
  }
  std::vector<int> touched(const Op &op) const {
    auto [begin, end] = bytes_of(op);
    std::vector<int> out;
    for (size_t r = 0; r < out_.rings.size(); r++)
      if (begin < out_.rings[r].end && out_.rings[r].begin < end) out.push_back(int(r));
    return out;
  }
  bool has_events(const Op &op) {
    auto [it, fresh] = events_.try_emplace(&op, false);
    if (!fresh) return it->second;
    bool any = ir::is_ring_op(op.kind) || op.kind == OpKind::RingAlloc || op.kind == OpKind::Return ||
               (op.kind == OpKind::ProxyFence && tensor_copies_) || own_barrier(op) ||
               (op.kind == OpKind::BlockBarrier && op.attrs.s("scope") == "block") || !touched(op).empty();
    if (op.kind != OpKind::InlinePtx)
      for (const Block *b : op.regions)
        for (const Op *inner : b->ops) any |= has_events(*inner);
    return events_[&op] = any;
  }

  // ---- loops that run equally often in two roles
  struct Control {
    const Op *op;
    const Op *parent; // the loop or branch around it, and which of its regions it stands in
    size_t region;
    std::vector<int> rings;
  };
  void controls(const Block &b, const Op *parent, size_t region, std::vector<Control> &out) {
    for (const Op *op : b.ops) {
      if (op->regions.empty() || !has_events(*op)) continue;
      Control c{op, parent, region, {}};
      for (Block *r : op->regions)
        ir::walk(r, [&](const Op *inner) {
          if (ir::is_ring_op(inner->kind)) c.rings.push_back(ring_of(*inner));
        });
      out.push_back(std::move(c));
      for (size_t r = 0; r < op->regions.size(); r++) controls(*op->regions[r], op, r, out);
    }
  }
  // Loops and branches of role b that run as those of role a do: over a common ring, inside of a pair or of nothing,
  // and with equal bounds.
  void pair_loops(const Op &roles, size_t role_a, size_t role_b) {
    std::vector<Control> mine, theirs;
    controls(*roles.regions[role_a], nullptr, 0, mine);
    controls(*roles.regions[role_b], nullptr, 0, theirs);
    std::map<const Op *, const Op *> partner{{nullptr, nullptr}};
    for (const Control &a : mine) {
      const Control *other = nullptr;
      bool found = false;
      for (const Control &b : theirs) {
        bool common = std::any_of(a.rings.begin(), a.rings.end(),
                                  [&](int r) { return std::find(b.rings.begin(), b.rings.end(), r) != b.rings.end(); });
        if (a.op->kind != b.op->kind || !common || partner.count(b.op)) continue;
        auto around = partner.find(b.parent);
        if (around == partner.end() || around->second != a.parent || a.region != b.region) continue;
        other = &b;
        size_t bounds = a.op->kind == OpKind::For ? 3 : a.op->kind == OpKind::If ? 1 : 0;
        found = bounds > 0;
        for (size_t i = 0; i < bounds; i++) found &= keys_.equal(a.op->operand(i), b.op->operand(i));
        if (!found) continue;
        partner[b.op] = a.op;
        int both = stream(*a.op);
        // One that a third role's loop has been paired with before: two of the three are then compared only once.
        if (stream_.try_emplace(b.op, both).second && a.op->kind == OpKind::For)
          keys_.declare_equal(a.op->regions[0]->args[0], b.op->regions[0]->args[0]);
        break;
      }
      if (!found && other)
        out_.mismatch = fmt::format("the bounds of a loop or the condition of a branch of role `{}` are not the same "
                                    "expressions as those of role `{}`, or not known to be: `{}`",
                                    role_name(roles, role_a), role_name(roles, role_b), ir::def(*a.op).name.s);
    }
  }
  static const std::string &role_name(const Op &roles, size_t role) {
    return roles.attrs.get<std::vector<std::string>>("names")[role];
  }
  int stream(const Op &op) {
    auto [it, fresh] = stream_.try_emplace(&op, out_.streams);
    if (fresh) out_.streams++;
    return it->second;
  }

  // ---- counters
  // The value without added constants: a carried scalar or null.
  const Value *base(const Value *v, int64_t &add) const {
    while (v->op) {
      if (auto k = constant_of(v)) {
        add += *k;
        return nullptr;
      }
      if (v->op->kind != OpKind::Add && v->op->kind != OpKind::Sub) break;
      bool sub = v->op->kind == OpKind::Sub;
      if (auto k = constant_of(v->op->operand(1))) {
        add += sub ? -*k : *k;
        v = v->op->operand(0);
      } else if (auto k0 = constant_of(v->op->operand(0)); k0 && !sub) {
        add += *k0;
        v = v->op->operand(1);
      } else {
        break;
      }
    }
    return v;
  }
  // A loop whose bounds and step are constants: the proof runs it as it is, if its own counter names items.
  static bool counted(const Op &loop) {
    if (loop.kind != OpKind::For) return false;
    auto step = constant_of(loop.operand(2));
    return constant_of(loop.operand(0)) && constant_of(loop.operand(1)) && step && *step > 0;
  }
  // What a carried value is made of: those that flow into it. Empty: v is not carried.
  std::vector<const Value *> sources(const Value *v) const {
    if (v->is_arg() && v->block->parent) {
      const Op &loop = *v->block->parent;
      size_t i = size_t(v->index);
      if (loop.kind == OpKind::For && i == 0 && counted(loop)) return {loop.operand(0)};
      if (loop.kind == OpKind::For && i > 0)
        return {loop.operand(2 + i), loop.regions[0]->terminator()->operand(i - 1)};
      if (loop.kind == OpKind::While && v->block == loop.regions[0])
        return {loop.operand(i), loop.regions[1]->terminator()->operand(i)};
      if (loop.kind == OpKind::While) return {loop.regions[0]->args[i]};
    } else if (v->op) {
      size_t i = size_t(v->index);
      if (v->op->kind == OpKind::For) return {v->op->regions[0]->args[i + 1]};
      if (v->op->kind == OpKind::While) return {v->op->regions[0]->args[i]};
      if (v->op->kind == OpKind::If)
        return {v->op->regions[0]->terminator()->operand(i), v->op->regions[1]->terminator()->operand(i)};
    }
    return {};
  }
  void demand(const Value *v, const Op &user) {
    int64_t add = 0;
    const Value *b = base(v, add);
    if (!b || var_.count(b)) return;
    std::vector<const Value *> from = sources(b);
    if (from.empty() || !has_events(b->op ? *b->op : *b->block->parent))
      return fail(user, "its counter is neither a loop's counter plus a constant nor a constant");
    var_[b] = out_.vars++;
    for (const Value *s : from) demand(s, user);
  }
  void demand_counters() {
    ir::walk(f_.body, [&](const Op *op) {
      if (ir::is_ring_op(op->kind)) demand(op->operand(ir::ring_operand(*op) + 1), *op);
    });
  }
  Counter counter(const Value *v) const {
    Counter c;
    const Value *b = base(v, c.add);
    if (b) c.var = var_.at(b);
    return c;
  }

  // ---- code
  void role(const std::string &name, int64_t warps, const Block &body) {
    out_.roles.push_back({name, warps, {}});
    code_ = &out_.roles.back().code;
    label_ = 0;
    block(body);
    emit(Act::Exit, body.terminator());
  }
  Instr &emit(Act act, const Op *op) {
    Instr &i = code_->emplace_back();
    i.act = act;
    i.op = op;
    return i;
  }
  int here() const { return int(code_->size()); }
  // Where a jump ends.
  int label() { return label_ = here(); }
  // Two barriers of a role with nothing between them order no more than one, but cost states.
  void barrier(const Op &op) {
    if (code_->empty() || code_->back().act != Act::Barrier || label_ == here()) emit(Act::Barrier, &op);
  }

  void block(const Block &b) {
    for (const Op *op : b.ops)
      if (!failed_ && has_events(*op)) one(*op);
  }
  void one(const Op &op) {
    switch (op.kind) {
    case OpKind::For: return loop(op, nullptr, *op.regions[0]);
    case OpKind::While: return loop(op, op.regions[0], *op.regions[1]);
    case OpKind::If: return branch(op);
    case OpKind::Return:
      if (op.block != f_.body) emit(Act::Exit, &op);
      return;
    case OpKind::BlockBarrier: return barrier(op);
    case OpKind::ProxyFence: emit(Act::Fence, &op); return;
    case OpKind::RingAlloc:
      if (!out_.rings[size_t(ring_.at(&op))].mbarrier) emit(Act::NewRing, &op).ring = ring_.at(&op);
      return;
    case OpKind::ScratchStore:
    case OpKind::ScratchLoad: touch(op, op.kind == OpKind::ScratchStore); return;
    default: break;
    }
    if (ir::is_ring_op(op.kind)) return ring_op(op);
    if (!own_barrier(op)) return fail(op, "synchronises in a way that the proof does not know");
    // It writes its scratch, waits for the other warps and reads.
    touch(op, true);
    barrier(op);
    touch(op, false);
  }
  void touch(const Op &op, bool writes) {
    std::vector<int> rings = touched(op);
    if (rings.empty()) return;
    Instr &i = emit(Act::Touch, &op);
    i.touched = std::move(rings);
    i.writes = writes;
  }

  // Whether the last operand of a ring_wait in a loop is true only where a test of the same item has said so: it is
  // carried from false, and what an iteration hands on is the test of the item that the next one waits for.
  bool answered(const Op &wait) const {
    const Value *arrived = wait.operand(2);
    const Op *loop = arrived->is_arg() ? arrived->block->parent : nullptr;
    if (!loop || loop->kind != OpKind::For || wait.block != arrived->block) return false;
    const Value *first = loop->operand(2 + size_t(arrived->index));
    if (constant_of(first) != 0) return false;
    const Op *yield = arrived->block->terminator(), *test = yield->operand(size_t(arrived->index) - 1)->op;
    if (!test || test->kind != OpKind::RingTest || ring_of(*test) != ring_of(wait)) return false;
    // The test's counter is what the wait's counter becomes.
    int64_t tested = 0, waited = 0, step = 0;
    const Value *x = base(test->operand(1), tested), *y = base(wait.operand(1), waited);
    if (!x || x != y || !y->is_arg() || y->block != arrived->block) return false;
    return base(yield->operand(size_t(y->index) - 1), step) == y && tested == waited + step;
  }
  void ring_op(const Op &op) {
    const Ring &ring = out_.rings[size_t(ring_of(op))];
    Instr i;
    i.op = &op;
    i.ring = ring_of(op);
    i.counter = counter(op.operand(ir::ring_operand(op) + 1));
    switch (op.kind) {
    case OpKind::RingFill:
      i.act = Act::Fill;
      i.field = int(op.attrs.i("field"));
      if (ring.tma) i.bytes = copied_bytes(op);
      if (!enabled(op, i)) return;
      break;
    case OpKind::RingStore:
      i.act = Act::Fill;
      i.field = int(op.attrs.i("field"));
      break;
    case OpKind::RingLoad:
      i.act = Act::Load;
      i.field = int(op.attrs.i("field"));
      break;
    case OpKind::RingPublish:
      i.act = Act::Publish;
      if (!ring.tma) break;
      i.bytes = op.attrs.i_or("tx_bytes", 0);
      if (op.operands.size() > 2 && !enabled(op, i)) return;
      break;
    case OpKind::RingRelease:
      if (!ring.producer) return; // nobody waits for it
      i.act = Act::Release;
      break;
    case OpKind::RingAcquire:
      if (!ring.producer) return fail(op, "a ring without a producer has nothing to acquire");
      i.act = Act::Acquire;
      break;
    case OpKind::RingTest: return; // does nothing to the barrier; who believes it is checked at the wait
    default:
      if (op.operands.size() > 2 && !answered(op)) return fail(op, "a wait relies on a test of another item");
      i.act = Act::Wait;
      i.pending = ring.mbarrier ? 0 : op.attrs.i("pending");
      if (i.pending < 0) return fail(op, fmt::format("{} groups may be pending", i.pending));
    }
    code_->push_back(std::move(i));
    if (op.kind == OpKind::RingWait && ring.tma && !ring.producer) emit(Act::Barrier, &op);
  }
  static std::vector<int64_t> boxes(const Op &fill) {
    if (!fill.attrs.has("box")) return {};
    std::vector<int64_t> out = fill.attrs.ints("box");
    out.push_back(fill.attrs.i("swizzle"));
    return out;
  }
  // What the tensor or bulk copies of a fill complete on the barrier: whole boxes, whatever lies outside of the tensor.
  static int64_t copied_bytes(const Op &fill) {
    if (!fill.attrs.has("box")) return fill.attrs.i_or("bulk", 0);
    int64_t bytes = dtype_bytes(fill.operand(0)->type.dtype);
    const std::vector<int64_t> &box = fill.attrs.ints("box"), &sizes = fill.attrs.ints("sizes");
    for (size_t d = 0; d < box.size(); d++) bytes *= (sizes[d] + box[d] - 1) / box[d] * box[d];
    return bytes;
  }

  // False: the copy is never made, or the kernel has a fault.
  bool enabled(const Op &op, Instr &i) {
    const Value *v = op.operand(ir::ring_operand(op) + 2);
    if (auto k = constant_of(v)) return *k != 0;
    const char *unknown = "when it copies is neither always nor whenever its loop has the iteration";
    if (!v->op || v->op->kind != OpKind::Lt) return fail(op, unknown), false;
    Counter item = counter_if_known(v->op->operand(0));
    const Value *trips = v->op->operand(1);
    if (item.var == -2) return fail(op, unknown), false;
    for (const Op *loop = op.block->parent; loop; loop = loop->block->parent) {
      if (loop->kind != OpKind::For || !keys_.is_trip_count(trips, *loop)) continue;
      for (size_t k = 1; k < loop->regions[0]->args.size(); k++) {
        const Value *arg = loop->regions[0]->args[k];
        auto it = var_.find(arg);
        auto first = constant_of(loop->operand(2 + k));
        if (it == var_.end() || it->second != item.var || !first) continue;
        if (!(counter(loop->regions[0]->terminator()->operand(k - 1)) == Counter{item.var, 1})) continue;
        i.stream = stream(*loop);
        i.ahead = int(std::clamp<int64_t>(item.add + *first - 1, -1, INT16_MAX));
        return true;
      }
    }
    // Of a loop over tiles that is one loop with the loop inside: the counter runs through both.
    for (const Op *outer = op.block->parent; outer; outer = outer->block->parent) {
      const Op *inner = innermost_of(*outer, trips);
      for (size_t k = 1; inner && k < inner->regions[0]->args.size(); k++) {
        auto it = var_.find(inner->regions[0]->args[k]);
        const Value *start = inner->operand(2 + k);
        if (it == var_.end() || it->second != item.var || !start->is_arg() || start->block != outer->regions[0])
          continue;
        auto first = start->index > 0 ? constant_of(outer->operand(size_t(2 + start->index))) : std::nullopt;
        if (!first || !(counter(inner->regions[0]->terminator()->operand(k - 1)) == Counter{item.var, 1})) continue;
        i.stream = stream(*inner);
        i.ahead = int(std::clamp<int64_t>(item.add + *first - 1, -1, INT16_MAX));
        return true;
      }
    }
    // Before its loop: the next one that runs so often.
    for (const Op *at = &op; at; at = at->block->parent) {
      const std::vector<Op *> &ops = at->block->ops;
      for (auto it = std::find(ops.begin(), ops.end(), at); it != ops.end(); ++it) {
        if ((*it)->kind != OpKind::For || *it == at || !has_events(**it)) continue;
        const Op *loop = keys_.is_trip_count(trips, **it) ? *it : innermost_of(**it, trips);
        if (!loop) continue;
        i.stream = stream(*loop);
        i.iteration = item;
        return true;
      }
      if (at->block->parent && !counted(*at->block->parent)) break;
    }
    return fail(op, unknown), false;
  }
  // Of two loops that are one (join_nests), the inner one if its body runs so often in all; else null.
  const Op *innermost_of(const Op &outer, const Value *times) {
    auto it = flat_.find(&outer);
    if (it == flat_.end() || it->second->kind != OpKind::For || flat_.count(it->second)) return nullptr;
    if (!times->op || times->op->kind != OpKind::Mul) return nullptr;
    bool product =
        keys_.is_trip_count(times->op->operand(0), *it->second) && keys_.is_trip_count(times->op->operand(1), outer);
    return product ? it->second : nullptr;
  }
  Counter counter_if_known(const Value *v) const {
    Counter c;
    const Value *b = base(v, c.add);
    if (!b) return c;
    auto it = var_.find(b);
    c.var = it == var_.end() ? -2 : it->second;
    return c;
  }

  using Assign = std::vector<std::pair<int, std::optional<Counter>>>;
  void assign(Assign pairs, const Op &op) {
    if (!pairs.empty()) emit(Act::Assign, &op).assign = std::move(pairs);
  }
  // to[i] = from[i] for those that count
  Assign flow(const std::vector<Value *> &to, const std::vector<Value *> &from, size_t skip_to = 0,
              size_t skip_from = 0) const {
    Assign out;
    for (size_t i = 0; i + skip_to < to.size(); i++)
      if (auto it = var_.find(to[i + skip_to]); it != var_.end())
        out.emplace_back(it->second, counter(from[i + skip_from]));
    return out;
  }
  void end(const std::vector<Value *> &args, Assign &out) const {
    for (const Value *v : args)
      if (auto it = var_.find(v); it != var_.end()) out.emplace_back(it->second, std::nullopt);
  }

  // ---- nests of loops and branches that are one loop to the other roles
  // What a loop's body does besides an inner loop or branch is nothing, and counters run on through both: as sequences
  // of events, `for s { for i { .. } }` and `for s { if c { .. } }` are one loop that runs some number of times. Left
  // as they are, iterations that do nothing would let one role run any distance ahead of another. Returns the inner
  // one.
  //
  // Barriers of the role's own warps may stand between and are left out of the nest. All warps of a role run one
  // program with one control flow, so all come to each of them; a phase that one warp's wait has seen over lets the
  // others through as well, so no barrier keeps a role from going on; and what it orders is not counted upon.
  bool private_to_role(const Op &op) {
    if (!has_events(op)) return true;
    if (ir::is_ring_op(op.kind) || op.kind == OpKind::RingAlloc || op.kind == OpKind::Return ||
        op.kind == OpKind::ProxyFence || !touched(op).empty())
      return false;
    for (const Block *b : op.regions)
      for (const Op *inner : b->ops)
        if (!private_to_role(*inner)) return false;
    return true;
  }
  const Op *only_inner(const Op &loop) {
    if (loop.kind != OpKind::For || (counted(loop) && var_.count(loop.regions[0]->args[0]))) return nullptr;
    const Block &body = *loop.regions[0];
    const Op *inner = nullptr;
    for (const Op *op : body.ops) {
      if (private_to_role(*op)) continue;
      if (inner) return nullptr;
      inner = op;
    }
    bool is_for = inner && inner->kind == OpKind::For, is_if = inner && inner->kind == OpKind::If;
    if (!is_for && !is_if) return nullptr;
    if (is_for && counted(*inner) && var_.count(inner->regions[0]->args[0])) return nullptr;
    if (is_if)
      for (const Op *op : inner->regions[1]->ops)
        if (!private_to_role(*op)) return nullptr;
    auto same = [&](const Value *v, const Value *as) {
      int64_t add = 0;
      return base(v, add) == as && add == 0;
    };
    std::set<const Value *> through; // results of the inner one that are the counter behind it
    for (size_t k = 1; k < body.args.size(); k++) {
      const Value *arg = body.args[k], *next = body.terminator()->operand(k - 1);
      if (!var_.count(arg) || same(next, arg)) continue;
      if (next->op != inner) return nullptr;
      size_t j = size_t(next->index);
      if (!same(is_for ? inner->operand(3 + j) : inner->regions[1]->terminator()->operand(j), arg)) return nullptr;
      through.insert(next);
    }
    for (size_t j = 0; j < inner->results.size(); j++)
      if (var_.count(is_for ? inner->regions[0]->args[j + 1] : inner->results[j]) && !through.count(inner->results[j]))
        return nullptr;
    return inner;
  }
  // Of loops that run equally often, all or none.
  void join_nests() {
    std::map<int, std::vector<const Op *>> by_stream;
    for (const auto &[op, s] : stream_) by_stream[s].push_back(op);
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::For || !has_events(*op) || flat_.count(op)) return;
      std::vector<const Op *> all = stream_.count(op) ? by_stream[stream_[op]] : std::vector<const Op *>{op};
      std::map<const Op *, const Op *> inner;
      std::set<int> streams;
      for (const Op *o : all) {
        const Op *in = only_inner(*o);
        if (!in) return;
        inner[o] = in;
        streams.insert(stream(*in));
      }
      if (streams.size() != 1 || (all.size() > 1 && by_stream[*streams.begin()].size() != all.size())) return;
      flat_.insert(inner.begin(), inner.end());
    });
  }
  void nest(const Op &loop) {
    std::vector<const Op *> levels{&loop};
    while (flat_.count(levels.back())) levels.push_back(flat_.at(levels.back()));
    assign(flow(loop.regions[0]->args, loop.operands, 1, 3), loop);
    int head = label();
    emit(Act::Branch, &loop).stream = stream(*levels.back());
    for (size_t i = 1; i < levels.size(); i++)
      if (levels[i]->kind == OpKind::For)
        assign(flow(levels[i]->regions[0]->args, levels[i]->operands, 1, 3), *levels[i]);
    block(*levels.back()->regions[0]);
    for (size_t i = levels.size(); i-- > 0;) {
      const Op &op = *levels[i];
      const Block &body = *op.regions[0];
      if (op.kind == OpKind::If) {
        assign(flow(op.results, body.terminator()->operands), op);
        continue;
      }
      assign(flow(body.args, body.terminator()->operands, 1), op);
      if (i == 0) {
        emit(Act::Jump, &op).target = head;
        loop_ends(head, head, true);
      }
      leave(op, body.args, 1, {});
    }
  }
  void leave(const Op &loop, const std::vector<Value *> &args, size_t first, const std::vector<Value *> &more) {
    Assign after;
    for (size_t i = 0; i < loop.results.size(); i++)
      if (auto it = var_.find(loop.results[i]); it != var_.end())
        after.emplace_back(it->second, counter(args[i + first]));
    end(args, after);
    end(more, after);
    assign(std::move(after), loop);
  }

  static bool waits(const Instr &i) { return i.act == Act::Acquire || i.act == Act::Wait || i.act == Act::Barrier; }
  // condition: of a while loop.
  void loop(const Op &op, const Block *condition, const Block &body) {
    if (flat_.count(&op)) return nest(op);
    const std::vector<Value *> &args = condition ? condition->args : body.args;
    size_t first = condition ? 0 : 1; // argument that is carried
    Assign start = flow(args, op.operands, first, condition ? 0 : 3);
    bool runs_as_it_is = counted(op) && var_.count(args[0]);
    if (runs_as_it_is) start.emplace_back(var_.at(args[0]), Counter{-1, *constant_of(op.operand(0))});
    assign(std::move(start), op);
    int head = label();
    if (condition) block(*condition);
    int test = here();
    if (runs_as_it_is) {
      Instr &b = emit(Act::Test, &op);
      b.counter = {var_.at(args[0]), 0};
      b.limit = *constant_of(op.operand(1));
    } else {
      emit(Act::Branch, &op).stream = stream(op);
    }
    if (condition) assign(flow(body.args, condition->args), op);
    block(body);
    Assign again = flow(args, body.terminator()->operands, first);
    if (runs_as_it_is) again.emplace_back(var_.at(args[0]), Counter{var_.at(args[0]), *constant_of(op.operand(2))});
    assign(std::move(again), op);
    emit(Act::Jump, &op).target = head;
    loop_ends(head, test, !runs_as_it_is);
    leave(op, args, first, condition ? body.args : std::vector<Value *>());
  }
  // The code of a loop stands from `head` to here; the instruction at `test` leaves it.
  void loop_ends(int head, int test, bool stops) {
    // Ops inside `if` or inner loops may not be met in an iteration.
    std::vector<int> skipped(code_->size() + 1, 0);
    for (int i = head; i < here(); i++)
      if (const Instr &in = (*code_)[size_t(i)]; (in.act == Act::Branch || in.act == Act::Test) && i != test)
        for (int k = i; k < in.target; k++) skipped[size_t(k)] = 1;
    for (int i = head; i < here(); i++) stops &= !waits((*code_)[size_t(i)]) || skipped[size_t(i)];
    (*code_)[size_t(test)].stops = stops;
    (*code_)[size_t(test)].target = label();
  }

  void branch(const Op &op) {
    int test = here();
    emit(Act::Branch, &op).stream = stream(op);
    block(*op.regions[0]);
    assign(flow(op.results, op.regions[0]->terminator()->operands), op);
    int jump = here();
    emit(Act::Jump, &op);
    (*code_)[size_t(test)].target = label();
    block(*op.regions[1]);
    assign(flow(op.results, op.regions[1]->terminator()->operands), op);
    (*code_)[size_t(jump)].target = label();
  }

  // ---- which counters count the items of which rings
  void components() {
    size_t vars = size_t(out_.vars), rings = out_.rings.size();
    std::vector<size_t> parent(vars + rings);
    std::iota(parent.begin(), parent.end(), size_t(0));
    auto find = [&](size_t x) {
      while (parent[x] != x) x = parent[x] = parent[parent[x]];
      return x;
    };
    for (const Role &role : out_.roles)
      for (const Instr &i : role.code) {
        if (i.ring >= 0 && i.counter.var >= 0) parent[find(size_t(i.counter.var))] = find(vars + size_t(i.ring));
        for (const auto &[to, from] : i.assign)
          if (from && from->var >= 0) parent[find(size_t(to))] = find(size_t(from->var));
      }
    std::map<size_t, int> period, name;
    for (size_t r = 0; r < rings; r++) {
      int &p = period.try_emplace(find(vars + r), 1).first->second;
      p = std::lcm(p, int(2 * out_.rings[r].stages));
      name.emplace(find(vars + r), int(r));
    }
    for (size_t r = 0; r < rings; r++) out_.rings[r].period = period[find(vars + r)];
    for (size_t v = 0; v < vars; v++) {
      auto it = name.find(find(v));
      out_.component.push_back(it == name.end() ? -1 : it->second);
    }
    for (size_t r = 0; r < rings; r++) out_.rings[r].component = name[find(vars + r)];
  }

  const ir::Function &f_;
  bool tensor_copies_;
  Obstacle &obstacle_;
  Keys keys_;
  Skeleton out_;
  bool failed_ = false;
  std::vector<Instr> *code_ = nullptr;
  int label_ = 0; // of the role: the last place in its code where a jump ends
  std::map<const Op *, int> ring_, stream_;
  std::map<const Op *, const Op *> flat_; // loops of nests that are one loop -> the next one inside
  std::map<const Op *, bool> events_;
  std::map<const Value *, int> var_;
};

} // namespace

std::optional<Skeleton> extract(const ir::Function &f, bool tensor_copies, Obstacle &obstacle) {
  return Extract(f, tensor_copies, obstacle).run();
}

} // namespace tkc::passes::protocol

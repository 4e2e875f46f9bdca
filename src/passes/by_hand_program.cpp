#include "passes/by_hand_program.h"
#include "ir/by_hand.h"
#include "passes/by_hand_terms.h"
#include "passes/protocol_keys.h"
#include <algorithm>

namespace tkc::passes::protocol {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

constexpr int64_t kMostTrips = 1024; // of a loop that is followed iteration by iteration

class Extract {
public:
  Extract(const ir::Function &f, Obstacle &obstacle) : f_(f), obstacle_(obstacle), keys_(f), terms_(out_) {}

  std::optional<ByHandProgram> run() {
    const Op *roles = ir::roles_of(f_);
    ir::walk(f_.body, [&](const Op *op) {
      if (op->kind != OpKind::SharedAlloc && op->kind != OpKind::BarrierAlloc) return;
      add(*op);
      if (op->block != f_.body) fail(*op, "shared memory and mbarriers are made outside of loops, branches and roles");
    });
    if (failed_) return std::nullopt;
    demand(*f_.body);
    if (roles) {
      before_roles(*roles);
      for (size_t b = 1; b < roles->regions.size(); b++)
        for (size_t a = 0; a < b; a++) pair(*roles->regions[a], *roles->regions[b]);
      for (size_t r = 0; r < roles->regions.size() && !failed_; r++)
        role(roles->attrs.get<std::vector<std::string>>("names")[r], roles->attrs.ints("warps")[r], *roles->regions[r]);
    } else {
      role("warp", f_.warps, *f_.body);
    }
    if (failed_) return std::nullopt;
    terms_.group();
    return std::move(out_);
  }

private:
  void fail(const Op &op, std::string text) {
    if (failed_) return;
    failed_ = true;
    obstacle_ = {&op, std::move(text)};
  }

  void add(const Op &op) {
    std::vector<std::string> &names = op.kind == OpKind::SharedAlloc ? out_.slot_names : out_.barrier_names;
    first_[&op] = int(names.size());
    const std::string &name = op.result()->name;
    for (int64_t i = 0; i < ir::slots_of(op); i++)
      names.push_back(ir::slots_of(op) == 1 ? fmt::format("`{}`", name) : fmt::format("`{}[{}]`", name, i));
  }

  // ---- what has to be followed
  static bool barrier(const Op &op) {
    return (op.kind == OpKind::BlockBarrier && op.attrs.s("scope") == "block") || op.attrs.has("scratch_offset");
  }
  static bool event(const Op &op) {
    if (op.kind == OpKind::BlockBarrier || op.attrs.has("scratch_offset")) return barrier(op);
    return ir::is_by_hand(op.kind) && op.kind != OpKind::SharedAlloc && op.kind != OpKind::BarrierAlloc &&
           op.kind != OpKind::ElectThread && op.kind != OpKind::TmaPrefetch;
  }
  bool has_events(const Op &op) {
    auto [it, fresh] = events_.try_emplace(&op, false);
    if (!fresh) return it->second;
    bool any = event(op) || (op.kind == OpKind::Return && op.block != f_.body);
    if (op.kind != OpKind::InlinePtx)
      for (const Block *b : op.regions)
        for (const Op *inner : b->ops) any |= has_events(*inner);
    return events_[&op] = any;
  }
  // A loop whose iterations are followed one by one.
  static std::optional<int64_t> trips(const Op &loop) {
    auto lo = constant_of(loop.operand(0)), hi = constant_of(loop.operand(1)), step = constant_of(loop.operand(2));
    if (!lo || !hi || !step || *step <= 0) return std::nullopt;
    int64_t n = *hi > *lo ? (*hi - *lo + *step - 1) / *step : 0;
    return n <= kMostTrips ? std::optional(n) : std::nullopt;
  }
  // Makes the variables of everything that names a slot, a parity or a choice.
  void demand(const Block &b) {
    for (const Op *op : b.ops) {
      if (!has_events(*op)) continue;
      if (ir::is_by_hand(op->kind))
        for (int64_t i = 0; i < ir::places(op->kind); i++)
          if (terms_.of(ir::place(*op, i).slot) < 0)
            fail(*op, fmt::format("which slot of `{}` this is cannot be followed: it must be made of constants, "
                                  "counters of loops that start at a constant, and scalars that loops carry",
                                  ir::place(*op, i).made->result()->name));
      if (op->kind == OpKind::MbarrierWaitParity && terms_.of(op->operand(0)) < 0)
        fail(*op, "this parity cannot be followed: it must be made of constants, counters of loops that start at a "
                  "constant, and scalars that loops carry");
      if (op->kind == OpKind::If && !chooses_thread(*op)) terms_.of(op->operand(0));
      if (op->kind == OpKind::While) terms_.of(op->regions[0]->terminator()->operand(0));
      if (op->kind == OpKind::For && trips(*op)) terms_.of(op->regions[0]->args[0]);
      for (const Block *r : op->regions) demand(*r);
    }
  }
  static bool chooses_thread(const Op &op) {
    const Op *condition = op.operand(0)->op;
    return condition && condition->kind == OpKind::ElectThread;
  }

  void before_roles(const Op &roles) {
    for (const Op *op : f_.body->ops) {
      if (op == &roles || !has_events(*op)) continue;
      if (op->kind != OpKind::If || !chooses_thread(*op)) {
        fail(*op, "outside of roles mbarriers are initialised, and nothing else");
        continue;
      }
      for (const Op *inner : op->regions[0]->ops) {
        if (!event(*inner)) continue;
        auto slot = constant_of(ir::place(*inner).slot);
        if (inner->kind != OpKind::MbarrierInit || !slot)
          return fail(*inner, "outside of roles mbarriers of constant numbers are initialised, and nothing else");
        int at = first_.at(ir::place(*inner).made) + int(*slot);
        for (auto [other, count] : out_.initialised)
          if (other == at) return fail(*inner, "an mbarrier is initialised twice");
        out_.initialised.emplace_back(at, inner->attrs.i("count"));
      }
      if (op->block == f_.body && position(op) > position(&roles)) fail(*op, "this comes after the roles");
    }
  }

  // ---- loops that run equally often in two roles
  struct Control {
    const Op *op, *parent;
    size_t region;
    std::vector<const Op *> made; // buffers and mbarriers that it uses
  };
  void controls(const Block &b, const Op *parent, size_t region, std::vector<Control> &out) {
    for (const Op *op : b.ops) {
      if (op->regions.empty() || !has_events(*op) || (op->kind == OpKind::If && chooses_thread(*op))) continue;
      Control c{op, parent, region, {}};
      for (Block *r : op->regions)
        ir::walk(r, [&](const Op *inner) {
          for (int64_t i = 0; i < ir::places(inner->kind); i++) c.made.push_back(ir::place(*inner, i).made);
        });
      out.push_back(std::move(c));
      for (size_t r = 0; r < op->regions.size(); r++) controls(*op->regions[r], op, r, out);
    }
  }
  void pair(const Block &role_a, const Block &role_b) {
    std::vector<Control> mine, theirs;
    controls(role_a, nullptr, 0, mine);
    controls(role_b, nullptr, 0, theirs);
    std::map<const Op *, const Op *> partner{{nullptr, nullptr}};
    for (const Control &a : mine)
      for (const Control &b : theirs) {
        bool common = std::any_of(a.made.begin(), a.made.end(), [&](const Op *m) {
          return std::find(b.made.begin(), b.made.end(), m) != b.made.end();
        });
        if (a.op->kind != b.op->kind || !common || partner.count(b.op)) continue;
        auto around = partner.find(b.parent);
        if (around == partner.end() || around->second != a.parent || a.region != b.region) continue;
        size_t bounds = a.op->kind == OpKind::For ? 3 : a.op->kind == OpKind::If ? 1 : 0;
        bool equal = bounds > 0;
        for (size_t i = 0; i < bounds; i++) equal &= keys_.equal(a.op->operand(i), b.op->operand(i));
        if (!equal) break;
        partner[b.op] = a.op;
        int both = stream(*a.op);
        if (stream_.try_emplace(b.op, both).second && a.op->kind == OpKind::For)
          keys_.declare_equal(a.op->regions[0]->args[0], b.op->regions[0]->args[0]);
        break;
      }
  }
  int stream(const Op &op) {
    auto [it, fresh] = stream_.try_emplace(&op, out_.streams);
    if (fresh) out_.streams++;
    return it->second;
  }

  // ---- code
  void role(const std::string &name, int64_t warps, const Block &body) {
    out_.roles.push_back({name, warps, {}});
    code_ = &out_.roles.back().code;
    block(body);
    emit(Do::Exit, body.terminator());
  }
  Step &emit(Do act, const Op *op) {
    Step &s = code_->emplace_back();
    s.act = act;
    s.op = op;
    s.elected = ir::elected(*op);
    return s;
  }
  int here() const { return int(code_->size()); }
  void block(const Block &b) {
    for (const Op *op : b.ops)
      if (!failed_ && (has_events(*op) || carries(*op))) one(*op);
  }
  // A loop or branch without events whose results are looked at.
  bool carries(const Op &op) const {
    if (op.regions.empty()) return false;
    return std::any_of(op.results.begin(), op.results.end(), [&](const Value *v) { return terms_.variable(v); });
  }
  void one(const Op &op) {
    switch (op.kind) {
    case OpKind::For: return loop(op, nullptr, *op.regions[0]);
    case OpKind::While: return loop(op, op.regions[0], *op.regions[1]);
    case OpKind::If: return chooses_thread(op) ? block(*op.regions[0]) : branch(op);
    case OpKind::Return:
      if (op.block != f_.body) emit(Do::Exit, &op);
      return;
    default: break;
    }
    if (barrier(op)) {
      if (code_->empty() || code_->back().act != Do::Barrier || label_ == here()) emit(Do::Barrier, &op);
      return;
    }
    by_hand(op);
  }

  void by_hand(const Op &op) {
    Step s;
    s.op = &op;
    s.elected = ir::elected(op);
    for (int64_t i = 0; i < ir::places(op.kind); i++) {
      ir::Place p = ir::place(op, i);
      bool slot = p.made->kind == OpKind::SharedAlloc;
      (slot ? s.slots : s.barriers) = first_.at(p.made);
      (slot ? s.slot : s.barrier) = terms_.of(p.slot);
      (slot ? s.slot_count : s.barrier_count) = int(ir::slots_of(*p.made));
    }
    auto tile_bytes = [&] {
      ir::Type t = ir::slot_type(*ir::place(op).made);
      return t.elements() * dtype_bytes(t.dtype);
    };
    switch (op.kind) {
    case OpKind::SharedLoad: s.act = Do::Load; break;
    case OpKind::SharedStore: s.act = Do::Store; break;
    case OpKind::CopyAsync: s.act = Do::Copy; break;
    case OpKind::CommitGroup: s.act = Do::Commit; break;
    case OpKind::WaitGroup:
      s.act = Do::WaitGroup;
      s.pending = op.attrs.i("pending");
      break;
    case OpKind::CopyAsyncBulk:
    case OpKind::CopyAsyncTx:
    case OpKind::TmaLoad:
      s.act = Do::Bulk;
      s.bytes = tile_bytes();
      s.expects = op.kind == OpKind::CopyAsyncBulk;
      break;
    case OpKind::TmaStore:
    case OpKind::TmaReduce: s.act = Do::BulkRead; break;
    case OpKind::BulkCommitGroup: s.act = Do::BulkCommit; break;
    case OpKind::BulkWaitGroup:
      s.act = Do::BulkWait;
      s.pending = op.attrs.i("pending");
      break;
    case OpKind::ProxyFence: s.act = Do::Fence; break;
    case OpKind::MbarrierInit:
      s.act = Do::Init;
      s.count = op.attrs.i("count");
      break;
    case OpKind::MbarrierInval: s.act = Do::Inval; break;
    case OpKind::MbarrierArrive:
      s.act = Do::Arrive;
      s.count = op.attrs.i("count");
      s.state = state_of(op.result());
      break;
    case OpKind::MbarrierExpectTx:
      s.act = Do::Expect;
      s.bytes = op.attrs.i("bytes");
      break;
    case OpKind::MbarrierArriveExpectTx:
      s.act = Do::Arrive;
      s.bytes = op.attrs.i("bytes");
      break;
    case OpKind::MbarrierArriveCopies:
      s.act = Do::ArriveCopies;
      s.noinc = op.attrs.i("noinc");
      break;
    case OpKind::MbarrierWait:
      s.act = Do::WaitState;
      s.state = state_of(op.operand(0));
      break;
    case OpKind::MbarrierWaitParity:
      s.act = Do::WaitParity;
      s.value = terms_.of(op.operand(0));
      break;
    case OpKind::MbarrierArriveAndWait: {
      s.act = Do::Arrive;
      s.state = int(out_.vars.size());
      out_.vars.push_back({true, -1});
      code_->push_back(s);
      s.act = Do::WaitState;
      break;
    }
    default: return fail(op, "this op is not followed");
    }
    code_->push_back(std::move(s));
  }
  int state_of(const Value *v) {
    auto [it, fresh] = states_.try_emplace(v, int(out_.vars.size()));
    if (fresh) out_.vars.push_back({true, -1});
    return it->second;
  }

  using Assign = std::vector<std::pair<int, int>>;
  void assign(Assign pairs, const Op &op) {
    if (!pairs.empty()) emit(Do::Assign, &op).assign = std::move(pairs);
  }
  Assign flow(const std::vector<Value *> &to, const std::vector<Value *> &from, size_t skip_to = 0,
              size_t skip_from = 0) {
    Assign out;
    for (size_t i = 0; i + skip_to < to.size(); i++)
      if (auto var = terms_.variable(to[i + skip_to])) out.emplace_back(*var, terms_.of(from[i + skip_from]));
    return out;
  }
  void end(const std::vector<Value *> &args, Assign &out) const {
    for (const Value *v : args)
      if (auto var = terms_.variable(v)) out.emplace_back(*var, -1);
  }

  // The next choice, or a condition that is followed.
  Step &choose(const Op &op, int condition) {
    Step &s = emit(condition >= 0 ? Do::Test : Do::Branch, &op);
    s.elected = false;
    if (condition >= 0)
      s.value = condition;
    else
      s.stream = stream(op);
    return s;
  }

  void loop(const Op &op, const Block *condition, const Block &body) {
    const std::vector<Value *> &args = condition ? condition->args : body.args;
    size_t first = condition ? 0 : 1; // argument that is carried
    auto counter = condition ? std::nullopt : terms_.variable(args[0]);
    Assign start = flow(args, op.operands, first, condition ? 0 : 3);
    if (counter) start.emplace_back(*counter, terms_.of(op.operand(0)));
    assign(std::move(start), op);
    int head = label_ = here();
    int test = -1;
    if (condition) {
      block(*condition);
      test = terms_.of(condition->terminator()->operand(0));
    } else if (trips(op)) {
      Term below{Term::Op::Arith, 0, OpKind::Lt, {terms_.of(args[0]), terms_.of(op.operand(1)), -1}};
      out_.terms.push_back(below);
      test = int(out_.terms.size()) - 1;
    }
    int at = here();
    choose(op, test);
    if (condition) assign(flow(body.args, condition->args), op);
    block(body);
    Assign again = flow(args, body.terminator()->operands, first);
    if (counter) again.emplace_back(*counter, terms_.sum(terms_.of(args[0]), *constant_of(op.operand(2))));
    assign(std::move(again), op);
    emit(Do::Jump, &op).target = head;
    (*code_)[size_t(at)].target = label_ = here();
    Assign after;
    for (size_t i = 0; i < op.results.size(); i++)
      if (auto var = terms_.variable(op.results[i])) after.emplace_back(*var, terms_.of(args[i + first]));
    end(args, after);
    if (condition) end(body.args, after);
    assign(std::move(after), op);
  }

  void branch(const Op &op) {
    int at = here();
    choose(op, terms_.of(op.operand(0)));
    block(*op.regions[0]);
    assign(flow(op.results, op.regions[0]->terminator()->operands), op);
    int jump = here();
    emit(Do::Jump, &op);
    (*code_)[size_t(at)].target = label_ = here();
    block(*op.regions[1]);
    assign(flow(op.results, op.regions[1]->terminator()->operands), op);
    (*code_)[size_t(jump)].target = label_ = here();
  }

  const ir::Function &f_;
  Obstacle &obstacle_;
  Keys keys_;
  ByHandProgram out_;
  Terms terms_;
  bool failed_ = false;
  std::vector<Step> *code_ = nullptr;
  int label_ = 0; // the last place in the code where a jump ends
  std::map<const Op *, int> first_, stream_;
  std::map<const Op *, bool> events_;
  std::map<const Value *, int> states_;
};

} // namespace

std::optional<ByHandProgram> extract_by_hand(const ir::Function &f, Obstacle &obstacle) {
  return Extract(f, obstacle).run();
}

} // namespace tkc::passes::protocol

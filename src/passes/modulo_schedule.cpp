#include "passes/modulo_schedule.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include "passes/effects.h"
#include "passes/passes.h"
#include "support/check.h"
#include <array>
#include <cmath>
#include <map>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

constexpr int kPeriod = 64;      // units of a period
constexpr int kResources = 4;    // issue, tensor, shared, global
constexpr double kGrowth = 1.03; // from one II that is tried to the next
constexpr const char *kNames[kResources] = {"issue", "tensor pipe", "shared memory", "L2"};

std::array<double, kResources> resources(const Work &w) { return {w.issue, w.tensor, w.shared, w.global}; }

struct Edge {
  int from, to;
  double latency;
  int distance;
};

// Everything that must keep its order with others of its kind.
bool is_ordered(const Op &op) {
  switch (op.kind) {
  case OpKind::Load: // of what a loop writes too: through the stores
  case OpKind::ScratchStore:
  case OpKind::ScratchLoad:
  case OpKind::RingLoad: return false;
  default: return !is_pure(op) || !op.regions.empty();
  }
}

// Its issue counts where ops follow each other: it stands ahead of its users.
bool is_read(const Op &op) {
  return op.kind == OpKind::Load || op.kind == OpKind::RingLoad || op.kind == OpKind::ScratchLoad;
}

class Modulo {
public:
  Modulo(const Op &loop, OpWork &work) : body_(loop.regions[0]), work_(work) {}

  ModuloSchedule run() {
    nodes();
    edges();
    ModuloSchedule out;
    std::array<double, kResources> sums{};
    for (const ModuloOp &o : ops_) {
      auto r = resources(o.work);
      for (int k = 0; k < kResources; k++) sums[size_t(k)] += r[size_t(k)];
      // As PlanWork has it: loads and reads of slots are issued ahead, and their issue counts alone.
      out.in_order +=
          is_read(*o.op) ? o.work.issue : std::max({o.work.serial, o.work.issue, o.work.tensor, o.work.shared});
      if (waits(o)) out.in_order += work_.latency(*o.op);
    }
    auto most = std::max_element(sums.begin(), sums.end());
    out.resources = *most;
    out.bound = kNames[most - sums.begin()];
    out.recurrence = recurrence(std::max(out.in_order, 1.0));
    if (out.recurrence > out.resources) out.bound = "carried chain";
    double least = std::max({out.resources, out.recurrence, 1.0});
    heights();
    // Iterations one after the other, with loads that run ahead, always are a schedule.
    double most_ii = std::max(out.in_order, std::ceil(least));
    out.ii = std::ceil(least);
    while (!place(out.ii)) {
      out.ii = std::min(std::ceil(out.ii * kGrowth), most_ii);
      if (out.ii < most_ii) continue;
      sequence(out.ii);
      break;
    }
    out.length = length();
    for (ModuloOp &o : ops_) {
      o.stage = int64_t(std::floor(o.start / out.ii + 1e-9));
      out.stages = std::max(out.stages, o.stage + 1);
    }
    lives(out);
    out.ops = std::move(ops_);
    return out;
  }

private:
  bool waits(const ModuloOp &o) const { return o.op->kind == OpKind::Load && !work_.is_copied(o.op); }

  void nodes() {
    for (const Op *op : body_->ops) {
      if (op == body_->terminator()) continue;
      ModuloOp o;
      o.op = op;
      o.work = work_.of(*op);
      o.duration = busiest(o.work);
      o.latency = std::max(o.duration, o.work.serial) + work_.latency(*op);
      number_[op] = int(ops_.size());
      ops_.push_back(std::move(o));
    }
  }

  void edges() {
    auto connect = [&](int from, int to, double latency, int distance) {
      edges_.push_back({from, to, latency, distance});
    };
    auto need = [&](auto &self, const Op *op, int to) -> void {
      for (const Value *v : op->operands) {
        int distance = 0;
        if (v->is_arg() && v->block == body_ && v->index > 0) {
          v = body_->terminator()->operand(size_t(v->index) - 1);
          distance = 1;
        }
        if (!v->op) continue;
        if (auto it = number_.find(v->op); it != number_.end())
          connect(it->second, to, ops_[size_t(it->second)].latency, distance);
      }
      for (const Block *r : op->regions)
        for (const Op *inner : r->ops) self(self, inner, to);
    };
    int first = -1, last = -1;
    std::vector<int> reads; // of slots since the last ordered op
    for (size_t i = 0; i < ops_.size(); i++) {
      const Op *op = ops_[i].op;
      int n = int(i);
      need(need, op, n);
      if (op->kind == OpKind::RingLoad) {
        if (last >= 0) connect(last, n, ops_[size_t(last)].latency, 0);
        reads.push_back(n);
      }
      if (!is_ordered(*op)) continue;
      if (last >= 0) connect(last, n, ops_[size_t(last)].duration, 0);
      for (int r : reads) connect(r, n, ops_[size_t(r)].duration, 0);
      reads.clear();
      if (first < 0) first = n;
      last = n;
    }
    if (first >= 0) connect(last, first, ops_[size_t(last)].duration, 1);
    into_.resize(ops_.size());
    for (size_t e = 0; e < edges_.size(); e++) into_[size_t(edges_[e].to)].push_back(int(e));
  }

  // Whether no cycle of dependences takes longer than the iterations that it spans.
  bool holds(double ii) const {
    std::vector<double> at(ops_.size(), 0);
    double most = 1; // of a way that meets no op twice
    for (const ModuloOp &o : ops_) most += o.latency;
    for (;;) {
      bool changed = false;
      for (const Edge &e : edges_)
        if (double t = at[size_t(e.from)] + e.latency - ii * e.distance; t > at[size_t(e.to)] + 1e-6)
          at[size_t(e.to)] = t, changed = true;
      if (!changed) return true;
      if (*std::max_element(at.begin(), at.end()) > most) return false;
    }
  }
  double recurrence(double most) const {
    double low = 0, high = most;
    while (!holds(high)) high *= 2; // latencies that the sum of the ops does not have
    while (high - low > std::max(1.0, high / 256)) {
      double middle = (low + high) / 2;
      (holds(middle) ? high : low) = middle;
    }
    return low == 0 ? 0 : std::ceil(high);
  }

  // The longest way from each op to the end of the iteration.
  void heights() {
    height_.assign(ops_.size(), 0);
    for (size_t i = ops_.size(); i-- > 0;) height_[i] = ops_[i].latency;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t k = edges_.size(); k-- > 0;) {
        const Edge &e = edges_[k];
        if (e.distance) continue;
        double h = e.latency + height_[size_t(e.to)];
        if (h > height_[size_t(e.from)] + 1e-6) height_[size_t(e.from)] = h, changed = true;
      }
    }
    order_.resize(ops_.size());
    for (size_t i = 0; i < order_.size(); i++) order_[i] = int(i);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return height_[size_t(a)] > height_[size_t(b)] + 1e-6; });
  }

  // ---- one II

  // Instructions of ops that do not depend on each other interleave: an op takes what is left of its resources from its
  // first unit on, no more in a unit than it would alone, until it has what it needs. False: some dependence over
  // iterations does not hold.
  bool place(double ii) {
    double unit = ii / kPeriod;
    std::array<std::array<double, kPeriod>, kResources> used{};
    std::vector<double> done(ops_.size());
    std::vector<bool> placed(ops_.size(), false);
    for (int n : order_) {
      ModuloOp &o = ops_[size_t(n)];
      double early = 0;
      for (int e : into_[size_t(n)])
        if (const Edge &edge = edges_[size_t(e)]; placed[size_t(edge.from)])
          early = std::max(early, ops_[size_t(edge.from)].start + done[size_t(edge.from)] + edge.latency -
                                      ops_[size_t(edge.from)].latency - ii * edge.distance);
      auto need = resources(o.work);
      double end = early;
      o.start = early;
      bool begun = false;
      for (int k = 0; k < kResources; k++) {
        double rate = o.duration > 0 ? need[size_t(k)] / o.duration : 0; // of its time alone
        double left = need[size_t(k)];
        for (int64_t u = int64_t(early / unit); left > 1e-9; u++) {
          if (u > int64_t(early / unit) + 8 * kPeriod) return false;
          double &at = used[size_t(k)][size_t(u % kPeriod)];
          double from = std::max(early, double(u) * unit), part = (double(u) + 1) * unit - from;
          double take = std::min({left, unit - at, rate * part});
          if (take <= 1e-9) continue;
          if (!begun && k == 0) o.start = from, begun = true;
          at += take;
          left -= take;
          end = std::max(end, from + take / rate);
        }
      }
      done[size_t(n)] = std::max(end - o.start + o.latency - o.duration, o.latency);
      placed[size_t(n)] = true;
    }
    for (const Edge &e : edges_)
      if (ops_[size_t(e.to)].start + 1e-6 < ops_[size_t(e.from)].start + done[size_t(e.from)] + e.latency -
                                                ops_[size_t(e.from)].latency - ii * e.distance)
        return false;
    return true;
  }
  // In program order; loads before their users by their latency, which may be iterations ahead.
  void sequence(double ii) {
    double now = 0, first = 0;
    for (ModuloOp &o : ops_) {
      o.start = now;
      bool read = is_read(*o.op);
      now += (read ? o.work.issue : std::max({o.work.serial, o.work.issue, o.work.tensor, o.work.shared})) +
             (waits(o) ? work_.latency(*o.op) : 0);
    }
    for (size_t i = ops_.size(); i-- > 0;) {
      ModuloOp &o = ops_[i];
      if (o.op->kind != OpKind::Load || waits(o)) continue;
      double user = ii;
      for (const Edge &e : edges_)
        if (e.from == int(i) && !e.distance) user = std::min(user, ops_[size_t(e.to)].start);
      o.start = user - o.latency;
      first = std::min(first, o.start);
    }
    double shift = std::ceil(-first / ii - 1e-9) * ii;
    for (ModuloOp &o : ops_) o.start += shift;
  }
  double length() const {
    double end = 0;
    for (const ModuloOp &o : ops_) end = std::max(end, o.start + o.latency);
    return end;
  }

  // ---- registers

  void lives(ModuloSchedule &out) const {
    constexpr int64_t kPiece = 32; // of an operand that a product reads from shared memory, as live_registers has it
    std::array<double, kPeriod> alive{};
    auto live = [&](double from, double to, int64_t n) {
      double unit = out.ii / kPeriod;
      auto first = int64_t(std::floor(from / unit)), last = int64_t(std::ceil(to / unit));
      for (int64_t u = first; u < last; u++) alive[size_t(((u % kPeriod) + kPeriod) % kPeriod)] += double(n);
    };
    // The end of a value's last use in its iteration, and in the next one if it is carried.
    std::map<const Value *, std::pair<double, double>> ends; // the end of the last use; the start of the first
    auto use = [&](auto &self, const Op *op, const ModuloOp &at) -> void {
      for (const Value *v : op->operands) {
        // An operand that the op replaces piece by piece ends where it starts.
        bool replaced = op->kind == OpKind::Mma && op->operands.size() > 2 && v == op->operand(2);
        double end = at.start + (replaced ? 0 : at.duration);
        auto [it, fresh] = ends.try_emplace(v, end, at.start);
        it->second = {std::max(it->second.first, end), std::min(it->second.second, at.start)};
      }
      for (const Block *r : op->regions)
        for (const Op *inner : r->ops) self(self, inner, at);
    };
    for (const ModuloOp &o : ops_) use(use, o.op, o);
    std::map<const Value *, int64_t> outside;
    for (const ModuloOp &o : ops_) {
      for (const Value *v : o.op->operands) {
        bool inside = v->op && number_.count(v->op);
        bool carried = v->is_arg() && v->block == body_;
        if (!inside && !carried) outside[v] = tile_registers(v);
      }
      for (const Value *r : o.op->results) {
        int64_t n = tile_registers(r);
        auto it = ends.find(r);
        if (!n || it == ends.end()) continue;
        bool piece = o.op->kind == OpKind::RingLoad || o.op->kind == OpKind::ScratchLoad;
        if (o.op->kind == OpKind::ScratchStore || (o.op->kind == OpKind::Load && work_.is_copied(o.op))) continue;
        double from = o.start + (o.op->kind == OpKind::Load ? 0 : o.latency);
        if (piece && it->second.second - o.start < out.ii / 2) n = std::min(n, kPiece);
        live(std::min(from, it->second.first), it->second.first, n);
      }
    }
    // A carried tile lives from the op that makes it to its last use one iteration later.
    for (size_t i = 1; i < body_->args.size(); i++) {
      const Value *arg = body_->args[i], *next = body_->terminator()->operand(i - 1);
      int64_t n = tile_registers(arg);
      auto it = ends.find(arg);
      if (!n) continue;
      double made = 0;
      if (auto number = next->op ? number_.find(next->op) : number_.end(); number != number_.end())
        made = ops_[size_t(number->second)].start;
      double end = out.ii + (it == ends.end() ? 0 : it->second.first);
      double from = made;
      if (auto own = ends.find(next); own != ends.end()) from = std::max(from, own->second.first); // counted above
      live(std::min(from, end), end, n);
    }
    double most = *std::max_element(alive.begin(), alive.end());
    for (const auto &[v, n] : outside) most += double(n);
    out.registers = int64_t(most);
  }

  const Block *body_;
  OpWork &work_;
  std::vector<ModuloOp> ops_;
  std::map<const Op *, int> number_;
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> into_; // edges by the op that they lead to
  std::vector<double> height_;
  std::vector<int> order_; // by height
};

} // namespace

const ModuloOp &ModuloSchedule::of(const Op *op) const {
  for (const ModuloOp &o : ops)
    if (o.op == op) return o;
  TKC_UNREACHABLE("an op of another loop");
}

std::string ModuloSchedule::to_string() const {
  return fmt::format("II {:.0f} cycles, bound by {} (resources {:.0f}, carried chain {:.0f}), would overlap {} "
                     "iteration{} in {} registers; in program order {:.0f} cycles",
                     ii, bound, resources, recurrence, stages, stages == 1 ? "" : "s", registers, in_order);
}

bool has_modulo_schedule(const Op &loop) {
  for (const Op *op : loop.regions[0]->ops)
    if (op->kind == OpKind::For || op->kind == OpKind::While || op->kind == OpKind::InlinePtx) return false;
  return true;
}

ModuloSchedule modulo_schedule(const Op &loop, OpWork &work) { return Modulo(loop, work).run(); }

} // namespace tkc::passes

#include "passes/layout_work.h"
#include "ir/op_def.h"
#include <algorithm>

namespace tkc::passes {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Value;

int64_t trip_estimate(const Op &loop) {
  int64_t bounds[3];
  for (size_t i = 0; i < 3; i++) {
    const Op *c = loop.operand(i)->op;
    if (!c || c->kind != OpKind::Constant) return 64; // a run-time trip count
    bounds[i] = c->attrs.i("value");
  }
  return bounds[2] > 0 && bounds[1] > bounds[0] ? (bounds[1] - bounds[0] + bounds[2] - 1) / bounds[2] : 0;
}

namespace {
double slowest(const Work &w) { return std::max({w.serial, w.issue, w.tensor, w.shared}); }
} // namespace

void PlanWork::add(const Op *op, const Work &w) {
  BodyWork &body = of(op->block);
  body.work += w;
  // Reads of slots are issued ahead and overlap with what is before their users.
  body.in_order += op->kind == OpKind::Load || op->kind == OpKind::RingItem ? w.issue : slowest(w);
  if (!op->results.empty()) latency_[size_t(op->result()->id)] += w.serial;
}

void PlanWork::add_conversion(const Value *v, const Op *user, const Work &w, bool shared, bool reread) {
  if (!shared) {
    BodyWork &body = of(v->op ? v->op->block : v->block);
    body.work += w;
    body.in_order += reread ? w.issue : slowest(w);
  }
  double &waits = waiting_[user];
  waits = std::max(waits, w.serial);
}

BodyWork &PlanWork::of(const Block *block) {
  for (BodyWork &w : bodies_)
    if (w.body == block) return w;
  return bodies_.emplace_back(BodyWork{block});
}

// The longest path of latencies from a carried tile that depends on itself to the end of the iteration, where all
// carried tiles are there: a warp issues in order, so the next iteration starts no earlier.
double PlanWork::recurrence(const Block *body) const {
  double longest = 0;
  std::vector<double> since; // by value id: since the carried tile was there; negative: does not depend on it
  for (size_t i = 1; i < body->args.size(); i++) {
    since.assign(latency_.size(), -1);
    auto at = [&](const Value *v) -> double & { return since[size_t(v->id)]; };
    at(body->args[i]) = 0;
    for (const Op *op : body->ops) {
      double start = -1;
      for (const Value *v : op->operands) start = std::max(start, at(v));
      if (start < 0) continue;
      if (auto waits = waiting_.find(op); waits != waiting_.end()) start += waits->second;
      if (op->kind == OpKind::Yield && at(op->operand(i - 1)) >= 0) longest = std::max(longest, start);
      for (const Value *r : op->results) at(r) = start + latency_[size_t(r->id)];
    }
  }
  return longest;
}

void PlanWork::sum_up(LayoutPlan &plan) const {
  plan.bodies = bodies_;
  plan.cycles = plan.slots = 0;
  for (BodyWork &w : plan.bodies) {
    plan.slots += w.executions * (w.work.issue + w.work.shared);
    if (const Op *loop = w.body->parent; loop && loop->kind == OpKind::For) w.work.recurrence = recurrence(w.body);
    plan.cycles += w.executions * w.work.cycles();
  }
}

} // namespace tkc::passes

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

void PlanWork::add(const Op *op, const Work &w) {
  of(op->block).work += w;
  if (!op->results.empty()) latency_[size_t(op->result()->id)] += w.serial;
}

void PlanWork::add_conversion(const Value *v, const Op *user, const Work &w, bool shared) {
  if (!shared) of(v->op ? v->op->block : v->block).work += w;
  double &slowest = waiting_[user];
  slowest = std::max(slowest, w.serial);
}

PlanWork::BlockWork &PlanWork::of(const Block *block) {
  for (BlockWork &w : blocks_)
    if (w.block == block) return w;
  return blocks_.emplace_back(BlockWork{block});
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

double PlanWork::cycles() const {
  double sum = 0;
  for (BlockWork w : blocks_) {
    if (const Op *loop = w.block->parent; loop && loop->kind == OpKind::For) w.work.recurrence = recurrence(w.block);
    sum += w.executions * w.work.cycles();
  }
  return sum;
}

double PlanWork::slots() const {
  double sum = 0;
  for (const BlockWork &w : blocks_) sum += w.executions * (w.work.issue + w.work.shared);
  return sum;
}

} // namespace tkc::passes

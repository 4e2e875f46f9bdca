#include "interp/roles.h"
#include <algorithm>
#include <thread>

namespace tkc::interp {

using ir::Op;
using ir::OpKind;

namespace {
const std::string &role_name(const Op &roles, size_t role) {
  return roles.attrs.get<std::vector<std::string>>("names")[role];
}
} // namespace

Roles::Roles(const Op &roles) : op_(roles), held_(roles.regions.size()), ended_(roles.regions.size(), false) {
  for (size_t r = 0; r < roles.regions.size(); r++)
    ir::walk(roles.regions[r], [&](const Op *op) {
      if (op->kind != OpKind::RingPush && op->kind != OpKind::RingPop) return;
      Queue &q = queues_[op->operand(0)];
      if (int64_t stages = op->operand(0)->op->attrs.i("stages")) q.slots = size_t(stages);
      if (op->kind == OpKind::RingPop) q.popped[r] = 0;
    });
}

void Roles::next_turn() {
  do turn_ = (turn_ + 1) % ended_.size();
  while (ended_[turn_] && std::find(ended_.begin(), ended_.end(), false) != ended_.end());
  turns_.notify_all();
}

template <typename Ready> bool Roles::wait(Ctx &ctx, const Op &op, const std::string &what, Ready &&ready) {
  std::unique_lock guard(lock_);
  while (!stuck_ && !ready()) {
    if (++idle_ > ended_.size()) { // every role has had its turn since one got on
      stuck_ = true;
      culprit_ = ctx.role();
      turns_.notify_all();
      break;
    }
    next_turn();
    turns_.wait(guard, [&] { return turn_ == ctx.role() || stuck_; });
  }
  idle_ = 0;
  if (!stuck_) return true;
  ctx.trap(op, fmt::format("deadlock: role `{}` waits for ever for {}", role_name(op_, ctx.role()), what));
  return false;
}

void Roles::await(Ctx &ctx, const Op &op, const std::string &what, const std::function<bool()> &ready) {
  wait(ctx, op, what, ready);
}

void Roles::push(Ctx &ctx, const Op &push, RingItem item) {
  Queue &q = queue(push);
  if (!wait(ctx, push, fmt::format("a free slot of ring `{}`", push.operand(0)->name),
            [&] { return q.items.size() < q.slots; }))
    return;
  q.pushed++;
  q.items.push_back(std::move(item));
}

void Roles::pop(Ctx &ctx, const Op &pop) {
  Queue &q = queue(pop);
  if (!wait(ctx, pop, fmt::format("an item of ring `{}`", pop.operand(0)->name),
            [&] { return q.waiting(ctx.role()) > 0; }))
    return;
  held_[ctx.role()][&pop] = q.items[q.items.size() - size_t(q.waiting(ctx.role()))];
  q.popped[ctx.role()]++;
  int64_t most = 0;
  for (const auto &[role, n] : q.popped) most = std::max(most, q.pushed - n);
  while (int64_t(q.items.size()) > most) q.items.pop_front();
}

void Roles::body(Ctx &ctx, size_t role) {
  {
    std::unique_lock guard(lock_);
    turns_.wait(guard, [&] { return turn_ == role || stuck_; });
    if (stuck_) return;
  }
  ctx.run_region(op_.regions[role], {});
  std::unique_lock guard(lock_);
  ended_[role] = true;
  idle_ = 0;
  if (ctx.trapped() && culprit_ == SIZE_MAX) {
    culprit_ = role;
    stuck_ = true;
  }
  next_turn();
}

void Roles::run(Ctx &ctx) {
  size_t n = op_.regions.size();
  std::vector<Ctx> roles;
  roles.reserve(n);
  for (size_t r = 0; r < n; r++) {
    roles.push_back(ctx);
    roles.back().enter_role(*this, r);
  }
  std::vector<std::thread> threads;
  for (size_t r = 1; r < n; r++) threads.emplace_back([&, r] { body(roles[r], r); });
  body(roles[0], 0);
  for (std::thread &t : threads) t.join();
  if (culprit_ != SIZE_MAX) return ctx.fail_as(roles[culprit_]);
  for (const auto &[ring, q] : queues_)
    for (const auto &[role, popped] : q.popped)
      if (popped != q.pushed)
        return ctx.trap(op_, fmt::format("{} of {} items of ring `{}` were never popped by role `{}`",
                                         q.pushed - popped, q.pushed, ring->name, role_name(op_, role)));
}

void run_roles(Ctx &ctx, const Op &roles) { Roles(roles).run(ctx); }

} // namespace tkc::interp

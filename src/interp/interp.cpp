#include "interp/interp.h"
#include "ir/activity.h"
#include "support/stop.h"
#include <algorithm>
#include <cmath>
#include <thread>
#include <unordered_map>
#include <unordered_set>

namespace tkc::interp {

Tile::Tile(DType t, std::vector<int64_t> s) : dtype(t), shape(std::move(s)) {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  if (is_float())
    f.resize(size_t(n), round_to(t, 0));
  else
    i.resize(size_t(n));
}

int64_t Tile::size() const { return int64_t(is_float() ? f.size() : i.size()); }

// What is known of a function before it runs: how many values it has, and which operands are the last use of a value in
// the block that defines it or in a branch of that block, of which one is taken. Only those may be moved out: a value
// from outside a loop is needed by the next iteration.
class Plan {
public:
  explicit Plan(const ir::Function &f) { visit(f.body, {}); }
  int64_t values() const { return values_; }
  bool last_use(const ir::Op &op, size_t i) const {
    auto it = last_.find(&op);
    return it != last_.end() && i < 64 && it->second >> i & 1;
  }

private:
  using Set = std::unordered_set<const ir::Value *>;
  void count(const ir::Value *v) { values_ = std::max(values_, v->id + 1); }

  // Returns the values that the block uses, its own included. `spent`: values from outside that nothing after it uses.
  Set visit(const ir::Block *block, const Set &spent) {
    Set own = spent, used;
    for (const ir::Value *v : block->args) {
      count(v);
      // The condition region of a `while` sees the carried values that its body needs next.
      bool condition = block->parent && block->parent->kind == ir::OpKind::While && block->parent->regions[0] == block;
      if (!condition) own.insert(v);
    }
    for (const ir::Op *op : block->ops)
      for (const ir::Value *v : op->results) count(v), own.insert(v);
    for (auto it = block->ops.rbegin(); it != block->ops.rend(); ++it) {
      const ir::Op *op = *it;
      Set inside, last;
      if (op->kind == ir::OpKind::If)
        for (const ir::Value *v : own)
          if (!used.contains(v)) last.insert(v);
      for (const ir::Block *region : op->regions) inside.merge(visit(region, last));
      uint64_t mask = 0;
      for (size_t i = 0; i < op->operands.size() && i < 64; i++) {
        const ir::Value *v = op->operands[i];
        bool once = std::count(op->operands.begin(), op->operands.end(), v) == 1;
        if (once && own.contains(v) && !used.contains(v) && !inside.contains(v)) mask |= uint64_t(1) << i;
      }
      if (mask) last_.emplace(op, mask);
      used.insert(op->operands.begin(), op->operands.end());
      used.merge(inside);
    }
    return used;
  }

  int64_t values_ = 0;
  std::unordered_map<const ir::Op *, uint64_t> last_;
};

Value Ctx::take(const ir::Op &op, size_t i) {
  Value &v = values_[size_t(op.operand(i)->id)];
  if (mode_.activity && !mode_.activity->live(op.operand(i))) return {};
  if (mode_.recording) return v;
  return plan_->last_use(op, i) ? std::move(v) : v;
}

void Ctx::leave(const ir::Op &op) {
  yielded_.clear();
  for (size_t i = 0; i < op.operands.size(); i++) yielded_.push_back(take(op, i));
}

std::vector<Value> Ctx::run_region(const ir::Block *block, std::vector<Value> args) {
  TKC_CHECK(args.size() == block->args.size(), "a region with {} arguments runs with {}", block->args.size(),
            args.size());
  for (size_t i = 0; i < args.size(); i++) set(block->args[i], std::move(args[i]));
  const ir::Op *parent = block->parent;
  bool loop = parent && (parent->kind == ir::OpKind::For || parent->kind == ir::OpKind::While);
  bool recording = std::exchange(mode_.recording, mode_.recording && !loop);
  run_block(block);
  mode_.recording = recording;
  return trapped() ? std::vector<Value>() : std::move(yielded_);
}

void Ctx::run_recording(const ir::Block *block, std::vector<Value> args) {
  for (size_t i = 0; i < args.size(); i++) set(block->args[i], std::move(args[i]));
  run_block(block);
}

void Ctx::report_gradient(const ir::Op &op, const std::vector<Value> &gradient) {
  if (!launch_->on_gradient) return;
  const ir::Block *body = op.regions[0];
  std::vector<Value> inputs;
  for (size_t i = 0; i < body->args.size(); i++) inputs.push_back(get(op.operand(i)));
  auto value = [&](const std::vector<Value> &at) -> std::optional<Launch::Gradient::Sum> {
    Mode outer = set_mode({});
    std::vector<Value> out = run_region(body, at);
    set_mode(outer);
    if (trapped()) {
      trap_.reset();
      return std::nullopt;
    }
    Launch::Gradient::Sum sum;
    for (size_t i = 0; i < out.size(); i++) {
      const Tile &y = std::get<Tile>(out[i]), &c = tile(op.operand(inputs.size() + i));
      for (size_t k = 0; k < y.f.size(); k++) {
        sum.value += y.f[k] * c.f[k];
        sum.magnitude += std::fabs(y.f[k] * c.f[k]);
      }
    }
    return sum;
  };
  launch_->on_gradient({op, inputs, gradient, value});
}

void Ctx::run_block(const ir::Block *block) {
  yielded_.clear();
  // Every iteration of a loop passes here.
  if (stop_requested() && !block->ops.empty()) return trap(*block->ops.front(), stop_reason()->message);
  for (const ir::Op *op : block->ops) {
    if (mode_.activity && !mode_.activity->executes(*op)) continue;
    ir::def(*op).interp.f(*this, *op);
    if (trapped()) return;
  }
}

void Ctx::trap(const ir::Op &op, std::string message) {
  if (!trap_) trap_ = Trap{op.loc, std::move(message)};
}

void Ctx::print(const std::string &text) {
  if (!launch_->print) return;
  std::lock_guard guard(*print_lock_);
  launch_->print(text);
}

Result run(const Launch &launch) {
  const ir::Function &f = *launch.function;
  Plan plan(f);
  std::mutex print_lock;
  TKC_CHECK(launch.args.size() == f.body->args.size(), "`{}` has {} arguments, not {}", f.name, f.body->args.size(),
            launch.args.size());
  auto start = [&](Ctx &ctx) {
    ctx.launch_ = &launch;
    ctx.plan_ = &plan;
    ctx.print_lock_ = &print_lock;
    ctx.grid = launch.grid;
    ctx.program.assign(launch.grid.size(), 0);
    ctx.values_.resize(size_t(plan.values()));
  };
  if (f.kind == ir::FunctionKind::Reference) {
    Ctx ctx;
    start(ctx);
    std::vector<Value> results = ctx.run_region(f.body, launch.args);
    return {std::move(ctx.trap_), std::move(results)};
  }

  int64_t blocks = 1;
  for (int64_t n : launch.grid) blocks *= std::max<int64_t>(n, 0);
  // Blocks are handed out in order, so every block before one that trapped has been started and runs to its end: the
  // first trap by block number is found whatever the number of threads.
  std::atomic<int64_t> next{0}, first_trap{blocks};
  std::mutex result_lock;
  Result result;
  auto work = [&] {
    Ctx ctx;
    start(ctx);
    for (int64_t n; (n = next.fetch_add(1)) < first_trap.load();) {
      int64_t rest = n;
      for (size_t d = 0; d < ctx.grid.size(); d++) {
        ctx.program[d] = rest % ctx.grid[d];
        rest /= ctx.grid[d];
      }
      ctx.run_region(f.body, launch.args);
      if (!ctx.trap_) continue;
      std::lock_guard guard(result_lock);
      if (n < first_trap.load()) {
        first_trap = n;
        result.trap = std::move(ctx.trap_);
      }
      return;
    }
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < std::min(launch.threads, blocks); t++) others.emplace_back(work);
  work();
  for (std::thread &t : others) t.join();
  return result;
}

} // namespace tkc::interp

#include "interp/reverse.h"
#include <cmath>

namespace tkc::interp {

Reverse::Reverse(Ctx &ctx, const ir::Activity &activity) : ctx_(ctx), activity_(activity), at_(ctx.value_count()) {}

const Tile &Reverse::operand(const ir::Op &op, size_t i) const {
  TKC_CHECK(def(op).derivative.reads_operand(i), "the derivative of `{}` looks at operand {} without saying so",
            def(op).name.s, i);
  return ctx_.tile(op.operand(i));
}

const Tile &Reverse::result(const ir::Op &op, size_t i) const {
  TKC_CHECK(def(op).derivative.reads_results(), "the derivative of `{}` looks at its result without saying so",
            def(op).name.s);
  return ctx_.tile(op.result(i));
}

const Value &Reverse::carried(const ir::Op &op, size_t i) const { return ctx_.get(op.operand(i)); }

Cotangent Reverse::take(const ir::Value *v) { return std::exchange(at_[size_t(v->id)], {}); }

Cotangent &Reverse::into(const ir::Op &op, size_t i) {
  const ir::Value *v = op.operand(i);
  TKC_CHECK(activity_.active(v), "a cotangent for operand {} of `{}`, which is not active", i, def(op).name.s);
  Cotangent &c = at_[size_t(v->id)];
  if (c.empty()) c.resize(size_t(v->type.elements()));
  return c;
}

void Reverse::add(const ir::Op &op, size_t i, Cotangent c) {
  if (wants(op, i)) accumulate(op.operand(i), std::move(c));
}

void Reverse::accumulate(const ir::Value *v, Cotangent c) {
  TKC_CHECK(c.empty() || int64_t(c.size()) == v->type.elements(), "a cotangent of {} elements for {}", c.size(),
            v->type.str());
  Cotangent &sum = at_[size_t(v->id)];
  if (sum.empty()) {
    sum = std::move(c);
    return;
  }
  for (size_t k = 0; k < c.size(); k++) sum[k] += c[k];
}

void Reverse::block(const ir::Block *b, std::vector<Cotangent> yielded) {
  const ir::Op *end = b->terminator();
  for (size_t i = 0; i < yielded.size(); i++)
    if (activity_.active(end->operand(i))) accumulate(end->operand(i), std::move(yielded[i]));
  for (size_t i = b->ops.size() - 1; i-- > 0;) {
    const ir::Op &op = *b->ops[i];
    bool zero = true;
    for (const ir::Value *v : op.results) zero &= at_[size_t(v->id)].empty();
    if (zero) continue;
    const ir::Derivative &d = def(op).derivative;
    TKC_CHECK(d.kind == ir::Derivative::Kind::Rule, "`{}` has a cotangent and no derivative", def(op).name.s);
    d.rule(*this, op);
    if (ctx_.trapped()) return;
    for (const ir::Value *v : op.results) at_[size_t(v->id)].clear();
  }
}

void Reverse::run_recording(const ir::Block *body, std::vector<Value> args) {
  Ctx::Mode outer = ctx_.set_mode({&activity_, true});
  ctx_.run_recording(body, std::move(args));
  ctx_.set_mode(outer);
}

static int64_t bytes(const std::vector<Value> &values) {
  int64_t total = 0;
  for (const Value &v : values)
    if (auto *t = std::get_if<Tile>(&v)) total += 8 * t->size();
  return total;
}

std::vector<Cotangent> Reverse::loop(const ir::Block *body, int64_t trips, std::vector<Value> start,
                                     std::vector<Cotangent> end, const Counter &counter) {
  size_t first = counter ? 1 : 0; // argument of the body that is carried
  for (size_t i = 0; i < start.size(); i++)
    if (!activity_.live(body->args[first + i])) start[i] = {};
  auto args = [&](int64_t k, std::vector<Value> carried) {
    if (!counter) return carried;
    carried.insert(carried.begin(), counter(k));
    return carried;
  };
  // Iterations from one saved state to the next.
  constexpr int64_t kLittle = int64_t(32) << 20;
  int64_t stretch =
      bytes(start) <= kLittle / std::max<int64_t>(trips, 1) ? trips : int64_t(std::ceil(std::sqrt(double(trips))));
  stretch = std::max<int64_t>(stretch, 1);

  Ctx::Mode outer = ctx_.set_mode({&activity_, false});
  auto step = [&](int64_t k, std::vector<Value> carried) { return ctx_.run_region(body, args(k, std::move(carried))); };
  std::vector<std::vector<Value>> coarse;
  for (int64_t k = 0; k < trips && !ctx_.trapped(); k += stretch) {
    coarse.push_back(start);
    if (k + stretch >= trips) break;
    for (int64_t j = k; j < k + stretch && !ctx_.trapped(); j++) start = step(j, std::move(start));
  }
  while (!coarse.empty() && !ctx_.trapped()) {
    int64_t begin = int64_t(coarse.size() - 1) * stretch, stop = std::min(begin + stretch, trips);
    std::vector<std::vector<Value>> fine;
    fine.push_back(std::move(coarse.back()));
    coarse.pop_back();
    for (int64_t k = begin; k + 1 < stop && !ctx_.trapped(); k++) fine.push_back(step(k, fine.back()));
    for (int64_t k = stop; k-- > begin && !ctx_.trapped();) {
      run_recording(body, args(k, std::move(fine.back())));
      fine.pop_back();
      if (ctx_.trapped()) break;
      block(body, std::move(end));
      end.clear();
      for (size_t i = first; i < body->args.size(); i++) end.push_back(take(body->args[i]));
    }
  }
  ctx_.set_mode(outer);
  return end;
}

std::vector<Value> gradient(Ctx &ctx, const ir::Op &grad) {
  const ir::Block *body = grad.regions[0];
  ir::Activity activity(grad);
  TKC_CHECK(!activity.fault(), "`grad` of `{}`, which has no derivative", def(*activity.fault()).name.s);
  size_t inputs = body->args.size();
  std::vector<Value> args;
  for (size_t i = 0; i < inputs; i++) args.push_back(ctx.get(grad.operand(i)));
  std::vector<Cotangent> cotangents;
  for (size_t i = inputs; i < grad.operands.size(); i++) cotangents.push_back(ctx.tile(grad.operand(i)).f);

  Reverse r(ctx, activity);
  Ctx::Mode outer = ctx.set_mode({&activity, true});
  ctx.run_recording(body, std::move(args));
  if (!ctx.trapped()) r.block(body, std::move(cotangents));
  ctx.set_mode(outer);
  std::vector<Value> out;
  if (ctx.trapped()) return out;
  for (const ir::Value *v : body->args) {
    Tile t(DType::F64, v->type.shape);
    if (Cotangent c = r.take(v); !c.empty()) t.f = std::move(c);
    out.emplace_back(std::move(t));
  }
  return out;
}

} // namespace tkc::interp

// Derivatives of loops and branches: the way that the program took, walked back.
#include "ops/adjoint.h"
#include "ops/loop.h"

namespace tkc::ops {

static std::vector<Cotangent> take_results(Reverse &r, const Op &op) {
  std::vector<Cotangent> out;
  for (const ir::Value *v : op.results) out.push_back(r.take(v));
  return out;
}

void adjoint_For(Reverse &r, const Op &op) {
  std::optional<Iterations> trips = iterations(r.ctx(), op);
  if (!trips) return;
  std::vector<interp::Value> start;
  for (size_t i = 3; i < op.operands.size(); i++) start.push_back(r.carried(op, i));
  std::vector<Cotangent> c = r.loop(op.regions[0], trips->count, std::move(start), take_results(r, op),
                                    [&](int64_t k) { return trips->at(k); });
  for (size_t i = 0; i < c.size(); i++) r.add(op, i + 3, std::move(c[i]));
}

void adjoint_While(Reverse &r, const Op &op) {
  std::vector<interp::Value> start, carried;
  for (size_t i = 0; i < op.operands.size(); i++) start.push_back(r.carried(op, i));
  // A first run counts the iterations.
  int64_t trips = 0;
  carried = start;
  interp::Ctx &ctx = r.ctx();
  while (true) {
    std::vector<interp::Value> go = ctx.run_region(op.regions[0], std::move(carried));
    if (ctx.trapped()) return;
    carried.clear();
    for (const ir::Value *arg : op.regions[0]->args) carried.push_back(ctx.release(arg));
    if (!std::get<interp::Tile>(go.at(0)).i[0]) break;
    carried = ctx.run_region(op.regions[1], std::move(carried));
    if (ctx.trapped()) return;
    trips++;
  }
  std::vector<Cotangent> c = r.loop(op.regions[1], trips, std::move(start), take_results(r, op), nullptr);
  for (size_t i = 0; i < c.size(); i++) r.add(op, i, std::move(c[i]));
}

void adjoint_If(Reverse &r, const Op &op) {
  bool taken = r.operand(op, 0).i[0] != 0;
  r.block(op.regions[taken ? 0 : 1], take_results(r, op));
}

} // namespace tkc::ops

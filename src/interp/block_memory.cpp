#include "interp/block_memory.h"
#include "interp/roles.h"
#include "ir/by_hand.h"

namespace tkc::interp {

using ir::Op;

namespace {
constexpr int64_t kMost = (1 << 20) - 1; // arrivals of a phase, and bytes, both ways

std::optional<size_t> index_of(Ctx &ctx, const Op &op, int64_t which) {
  ir::Place p = ir::place(op, which);
  int64_t at = ctx.scalar_i(p.slot), slots = ir::slots_of(*p.made);
  if (at >= 0 && at < slots) return size_t(at);
  ctx.trap(op, fmt::format("slot {} of `{}`, which has {}", at, p.made->result()->name, slots));
  return std::nullopt;
}
} // namespace

std::optional<Tile> *slot_of(Ctx &ctx, const Op &op, int64_t which) {
  auto at = index_of(ctx, op, which);
  return at ? &ctx.memory(ir::place(op, which).made->result()).slots[*at] : nullptr;
}

BlockMemory::Mbarrier *mbarrier_of(Ctx &ctx, const Op &op, int64_t which) {
  auto at = index_of(ctx, op, which);
  if (!at) return nullptr;
  const ir::Value *made = ir::place(op, which).made->result();
  BlockMemory::Mbarrier &m = ctx.memory(made).barriers[*at];
  if (m.live || op.kind == ir::OpKind::MbarrierInit) return &m;
  ctx.trap(op, fmt::format("mbarrier {} of `{}` is not initialised", *at, made->name));
  return nullptr;
}

int64_t threads_of(const Op &op) { return ir::elected(op) ? 1 : 32 * ir::warps_of(op.block); }

void arrive(Ctx &ctx, const Op &op, BlockMemory::Mbarrier &m, int64_t arrivals, int64_t bytes) {
  m.tx += bytes;
  if (m.tx > kMost || m.tx < -kMost) return ctx.trap(op, fmt::format("{} bytes are expected in a phase", m.tx));
  if (arrivals > m.pending)
    return ctx.trap(op, fmt::format("{} arrivals in a phase that expects {} more", arrivals, m.pending));
  m.pending -= arrivals;
  if (m.pending || m.tx) return;
  m.phase++;
  m.pending = m.expected;
}

void wait_phase(Ctx &ctx, const Op &op, const BlockMemory::Mbarrier &m, int64_t phase, bool parity) {
  auto over = [&] { return parity ? (m.phase & 1) != phase : m.phase >= phase; };
  if (ctx.roles())
    ctx.roles()->await(ctx, op, fmt::format("a phase of `{}`", ir::place(op).made->result()->name), over);
  else if (!over())
    ctx.trap(op,
             fmt::format("deadlock: the block waits for ever for a phase of `{}`", ir::place(op).made->result()->name));
}

} // namespace tkc::interp

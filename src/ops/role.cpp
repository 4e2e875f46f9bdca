// Roles: several tile programs in one block, each executed by warps of its own, which hand tiles to each other through
// rings. One role pushes into a ring, every other role that names it pops all of its items in order. What stands here
// is what the source says; passes/lower_rings.cpp turns pushes and pops into slots, counters and waits (ops/ring.cpp).
#include "interp/roles.h"
#include "ir/ring.h"
#include "ops/common.h"
#include "support/check.h"

namespace tkc::ops {

namespace {

const Op &ring_made(const Op &op, size_t i) {
  const ir::Value *v = op.operand(i);
  TKC_CHECK(v->op && v->op->kind == OpKind::RingAlloc, "`{}` of something else than a ring", def(op).name.s);
  return *v->op;
}
// The ring_pop behind operand 0, of which the op reads or frees the item.
const Op &item_popped(const Op &op) {
  const ir::Value *v = op.operand(0);
  TKC_CHECK(v->op && v->op->kind == OpKind::RingPop, "`{}` of something else than an item", def(op).name.s);
  return *v->op;
}

void infer_roles(InferCtx &ctx, Op &op) { has_operands(ctx, op, 0, 0); }
void interp_roles(interp::Ctx &ctx, const Op &op) { interp::run_roles(ctx, op); }

void infer_ring_alloc(InferCtx &ctx, Op &op) {
  default_attr(op, "stages", int64_t(2));
  default_attr(op, "transport", std::string("cp_async"));
  if (has_operands(ctx, op, 0, 0)) ctx.result(Type::token());
}
void interp_ring_alloc(interp::Ctx &, const Op &) {} // the queue belongs to the run of the roles

void infer_push(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, SIZE_MAX)) return;
  const Op &ring = ring_made(op, 0);
  size_t fields = ring.attrs.get<std::vector<std::string>>("fields").size();
  if (!has_operands(ctx, op, fields + 1, fields + 1)) return;
  for (size_t i = 0; i < fields; i++) {
    if (!is_tile(ctx, op, i + 1, kAny)) return;
    TKC_CHECK(op.operand(i + 1)->type == ir::ring_field(ring, i), "field {} of a push is a {}", i,
              op.operand(i + 1)->type.str());
  }
}
void interp_push(interp::Ctx &ctx, const Op &op) {
  interp::RingItem item;
  for (size_t i = 1; i < op.operands.size(); i++) item.push_back(ctx.tile(op.operand(i)));
  ctx.roles()->push(ctx, op, std::move(item));
}

void infer_pop(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1)) return;
  ring_made(op, 0);
  ctx.result(Type::token());
}
void interp_pop(interp::Ctx &ctx, const Op &op) { ctx.roles()->pop(ctx, op); }

void infer_item(InferCtx &ctx, Op &op) {
  if (!has_operands(ctx, op, 1, 1)) return;
  ctx.result(ir::ring_field(ring_made(item_popped(op), 0), size_t(op.attrs.i("field"))));
}
void interp_item(interp::Ctx &ctx, const Op &op) {
  ctx.set(op.result(), ctx.roles()->item(ctx, item_popped(op))[size_t(op.attrs.i("field"))]);
}

void infer_drop(InferCtx &ctx, Op &op) {
  if (has_operands(ctx, op, 1, 1)) item_popped(op);
}
void interp_drop(interp::Ctx &, const Op &) {}

constexpr ir::Effect kOrder = {-1, ir::Space::Control, ir::Access::ReadWrite};

#define TKC_ROLES_EXAMPLE                                                                                              \
  "ring f: { t: f32[16, 32], most: f32[16] } stages 2;\n"                                                              \
  "role rows warps 2 {                      // one role makes tiles ..\n"                                              \
  "  let t = load(x[:, :]);\n"                                                                                         \
  "  f.push({ t: exp(t), most: max(t, axis = 1) });\n"                                                                 \
  "}\n"                                                                                                                \
  "role sums warps 1 {                      // .. and another one takes them\n"                                        \
  "  let item = f.pop();\n"                                                                                            \
  "  let t = item.t * item.most[:, None];\n"                                                                           \
  "  release(item);                         // the slot is free from here on; else after the last read of `item`\n"    \
  "  store(y[:, :], t);\n"                                                                                             \
  "}"

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr ir::Derivative kKernelsOnly = ir::no_derivative("rings and roles are for kernels; a reference has none");

constexpr OpDef kRoles = {
    .name = "roles",
    .source = "-",
    .signature = "roles(warps: ints)",
    .doc =
        "`role NAME warps N { ... }`: the block's warps part; each role is a program of its own, executed by N warps "
        "(a power of two; chosen by the compiler where it is left out) at the same time as the others. A role sees "
        "the scalars, tensors and rings of the kernel; tiles cross through rings alone.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = kOrder,
    .derivative = kKernelsOnly,
    .infer = infer_roles,
    .interp = interp_roles,
    .lower = lower_Roles};

constexpr OpDef kRingAlloc = {
    .name = "ring_alloc",
    .source = "-",
    .signature = "ring_alloc(stages: int = 0, transport: cp_async|mbarrier|tma = cp_async)",
    .doc = "`ring f: { a: f32[16, 32], .. } stages S;`: a queue of at most S items (2 to 8, `auto`: as many as fit, up "
           "to 4), each a record of tiles, from one role to one or more others. It is S slots of shared memory of "
           "`stage_bytes` each. Field f of a slot starts `field_offset`[f] bytes into it and has the layout `smem`f.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = Effect{-1, Space::Shared, Access::ReadWrite},
    .layout = {LayoutKind::Anchor},
    .derivative = kKernelsOnly,
    .infer = infer_ring_alloc,
    .interp = interp_ring_alloc,
    .lower = lower_RingAlloc};

constexpr OpDef kRingPush = {
    .name = "ring_push",
    .source = "-",
    .signature = "ring_push(ring: tile, values: tile...)",
    .doc = "`f.push({ a: x, b: y })` waits until a slot is free, fills it and hands it over. A field whose value is a "
           "`load` in the same place, of a tensor that the kernel never writes, is copied without passing through "
           "registers, and the role does not wait for it.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = {kOrder, Effect{-1, Space::Shared, Access::Write}},
    .derivative = kKernelsOnly,
    .infer = infer_push,
    .interp = interp_push,
    .lower = lower_RingPush};

constexpr OpDef kRingPop = {
    .name = "ring_pop",
    .source = "-",
    .signature = "ring_pop(ring: tile)",
    .doc =
        "`let x = f.pop();` waits for the next item of ring f. Every role that pops a ring gets all of its items, in "
        "the order in which they were pushed. An item holds its slot until it is released: behind its last read, or "
        "where `release` says so. A role may hold several.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = {kOrder, Effect{-1, Space::Shared, Access::ReadWrite}},
    .derivative = kKernelsOnly,
    .infer = infer_pop,
    .interp = interp_pop,
    .lower = lower_RingPop};

constexpr OpDef kRingItem = {.name = "ring_item",
                             .source = "-",
                             .signature = "ring_item(item: tile, field: int)",
                             .doc = "`x.a`: a field of an item, read from its slot in the layout that its users want.",
                             .example = TKC_ROLES_EXAMPLE,
                             .effects = Effect{-1, Space::Shared, Access::Read},
                             .layout = {LayoutKind::Anchor},
                             .derivative = kKernelsOnly,
                             .infer = infer_item,
                             .interp = interp_item,
                             .lower = lower_RingItem};

constexpr OpDef kRingDrop = {
    .name = "ring_drop",
    .source = "-",
    .signature = "ring_drop(item: tile)",
    .doc = "`release(x)` gives the slot of an item back, in the block that popped it; it cannot be read any more.",
    .example = TKC_ROLES_EXAMPLE,
    .effects = {kOrder, Effect{-1, Space::Shared, Access::ReadWrite}},
    .derivative = kKernelsOnly,
    .infer = infer_drop,
    .interp = interp_drop,
    .lower = lower_RingDrop};

} // namespace tkc::ir

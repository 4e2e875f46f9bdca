// The passes, each in a file of its own name that opens with what it does. pipeline.cpp has the order and the reasons.
#pragma once
#include "ir/ir.h"
#include "passes/pass_manager.h"

namespace tkc::passes {

bool loop_over_tiles(ir::Function &f, PassContext &context);
// The loop that it makes, and whether a loop stands directly in it.
inline bool is_tile_loop(const ir::Op &op) { return op.kind == ir::OpKind::For && op.attrs.has("tiles"); }
inline bool over_tiles(const ir::Op &loop) { return loop.block->parent && is_tile_loop(*loop.block->parent); }
bool infer_layouts(ir::Function &f, PassContext &context);
bool place_shared(ir::Function &f, PassContext &context);
bool lower_rings(ir::Function &f, PassContext &context);
bool lower_conversions(ir::Function &f, PassContext &context);
bool pair_products(ir::Function &f, PassContext &context);
bool check_registers(ir::Function &f, PassContext &context);
bool allocate_shared(ir::Function &f, PassContext &context);
bool place_barriers(ir::Function &f, PassContext &context);
bool wait_for_launches(ir::Function &f, PassContext &context);
bool order_memory(ir::Function &f, PassContext &context);

// Registers of a thread for a tile; 0 for what is made anew where it is used.
int64_t tile_registers(const ir::Value *v);
// Registers of a thread that tiles need at least, where most are alive: operands that products read from a ring piece
// by piece count as pieces. Of a function that is laid out.
int64_t live_registers(const ir::Function &f);

// Every pass in order.
std::vector<Pass> pipeline();

} // namespace tkc::passes

// A tile that cannot lie in the registers of its block is a fault of the program, which no schedule can mend: it is
// reported before code is made of it, instead of code that lives in local memory.
//
// A thread has at most 255 registers of 32 bits, and an SM 64 Ki for all threads of a block. What lives at one time is
// counted: each tile, and the tiles that a loop carries together. A tile that is made and used piece by piece (loaded
// and stored again) needs less than its size, so a single one may have twice the registers.
#include "ir/op_def.h"
#include "passes/passes.h"
#include "passes/shared_buffers.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <map>

namespace tkc::passes {

namespace {

constexpr int64_t kThread = 255, kBlock = 65536;

// Of each thread; bools live in predicates or in parts of registers and count as bits.
int64_t registers(const ir::Value *v) {
  if (!v->type.is_tile() || !v->layout) return 0;
  int64_t bits = std::max<int64_t>(is_bool(v->type.dtype) ? 1 : dtype_bits(v->type.dtype), 1);
  return (int64_t(v->layout->live_regs().size()) * bits + 31) / 32;
}

// Made of constants and positions alone: computed anew where it is used, never kept.
bool is_cheap(const ir::Value *v) {
  return v->op && ir::def(*v->op).effects.pure() &&
         (ir::def(*v->op).layout.kind == ir::LayoutKind::Free || v->op->kind == ir::OpKind::Broadcast);
}

} // namespace

int64_t tile_registers(const ir::Value *v) { return is_cheap(v) ? 0 : registers(v); }

bool check_registers(ir::Function &f, PassContext &context) {
  int64_t threads = std::max<int64_t>(ir::block_warps(f), 1) * 32, most = std::min(kThread, kBlock / threads);
  bool reported = false;
  auto check = [&](int64_t need, int64_t times, SourceLoc loc, const std::string &what) {
    if (need <= times * (most + 1) || reported) return;
    reported = true; // what is made of it would only be reported again
    context.diags.report(loc.valid() ? loc : f.loc, DiagKind::too_many_registers, what, f.name, need, threads, most);
  };
  ir::walk(f.body, [&](ir::Op *op) {
    for (const ir::Value *v : op->results)
      if (!is_cheap(v))
        check(registers(v), 2, op->loc,
              v->name.empty() ? v->type.str() : fmt::format("`{}`: {}", v->name, v->type.str()));
    if (op->kind != ir::OpKind::For && op->kind != ir::OpKind::While) return;
    int64_t carried = 0;
    std::string names;
    for (const ir::Value *v : op->results) {
      int64_t n = registers(v);
      carried += n;
      if (n > 1) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", v->name);
    }
    check(carried, 1, op->loc, "what the loop carries (" + names + ")");
  });
  return false;
}

int64_t live_registers(const ir::Function &f) {
  constexpr int64_t kPiece = 32; // of an operand that a product reads from shared memory
  ProgramOrder order(f);
  std::map<const ir::Value *, std::pair<int64_t, int64_t>> life; // positions of the first and the last op
  auto lives_at = [&](const ir::Value *v, int64_t at) {
    auto [it, fresh] = life.try_emplace(v, at, at);
    it->second = {std::min(it->second.first, at), std::max(it->second.second, at)};
  };
  ir::walk(f.body, [&](const ir::Op *op) {
    auto [begin, end] = order.of(op);
    for (const ir::Value *v : op->results) lives_at(v, op->regions.empty() ? begin : end);
    for (const ir::Block *region : op->regions)
      for (const ir::Value *v : region->args) lives_at(v, begin); // and where it is used: then comes what is handed on
    for (const ir::Value *v : op->operands) {
      int64_t last = begin;
      // What an inner loop takes from outside is there in every iteration.
      const ir::Block *home = v->op ? v->op->block : v->block;
      for (const ir::Block *b = op->block; b != home && b->parent; b = b->parent->block)
        last = std::max(last, order.of(b->parent).second);
      lives_at(v, last);
    }
  });
  // What only products use, in the block where it is read from shared memory, transposed or not.
  std::map<const ir::Value *, bool> by_products;
  ir::walk(f.body, [&](const ir::Op *op) {
    for (const ir::Value *v : op->operands) {
      if (v->op && v->op->kind == ir::OpKind::Transpose) v = v->op->operand(0);
      if (v->op && v->op->kind == ir::OpKind::ScratchLoad && op->kind != ir::OpKind::Transpose)
        by_products.try_emplace(v, true).first->second &= op->kind == ir::OpKind::Mma && op->block == v->op->block;
    }
  });
  auto piecewise = [&](const ir::Value *v) {
    if (v->op && v->op->kind == ir::OpKind::Transpose) v = v->op->operand(0);
    if (!v->op || v->op->kind == ir::OpKind::RingLoad) return v->op != nullptr;
    auto it = by_products.find(v);
    return it != by_products.end() && it->second;
  };
  std::map<int64_t, int64_t> changes;
  for (const auto &[v, range] : life) {
    if (is_cheap(v)) continue;
    int64_t n = registers(v);
    if (piecewise(v)) n = std::min(n, kPiece);
    changes[range.first] += n;
    changes[range.second] -= n;
  }
  int64_t most = 0, now = 0;
  for (const auto &[at, n] : changes) most = std::max(most, now += n);
  return most;
}

} // namespace tkc::passes

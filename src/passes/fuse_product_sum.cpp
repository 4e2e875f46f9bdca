// Lets a product add to its accumulator what is added to it afterwards: mma(a, b) + x is mma(a, b, x).
//
//   %p = mma %a, %b                          %s = mma %a, %b, %x
//   %s = add %p, %x                   ->
//
// Method: the product must have no accumulator yet, the same type as the sum, no other use, and stand in the block of
// the sum. Of two products the later one takes the earlier as its accumulator, so a chain of sums is a chain of
// products. The fused product stands where the sum stood: x may be computed after the product.
//
// Limits: x - mma(a, b) would need the negation of an operand and is left alone. The sum is rounded once less.
#include "passes/cleanup.h"

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

bool fuse_product_sum(ir::Function &f, PassContext &) {
  ir::Uses uses(f); // a fused product has the sum's uses: its own value is new, so no list goes stale
  bool changed = false;
  std::vector<Op *> sums;
  ir::walk(f.body, [&](Op *op) {
    if (op->kind == OpKind::Add) sums.push_back(op);
  });
  for (Op *sum : sums) {
    Op *product = nullptr;
    size_t other = 0;
    for (size_t i = 0; i < 2; i++) {
      Op *m = sum->operand(i)->op;
      if (!m || m->kind != OpKind::Mma || m->operands.size() != 2 || m->block != sum->block ||
          uses.of(m->result()).size() != 1 || m->result()->type != sum->result()->type)
        continue;
      if (product && ir::position(product) > ir::position(m)) continue;
      product = m;
      other = 1 - i;
    }
    if (!product) continue;
    product->operands.push_back(sum->operand(other));
    ir::erase(product);
    ir::insert_before(sum, product);
    ir::replace_uses(f.body, sum->result(), product->result());
    if (!sum->result()->name.empty()) product->result()->name = sum->result()->name;
    ir::erase(sum);
    changed = true;
    uses = ir::Uses(f);
  }
  return changed;
}

} // namespace tkc::passes

// Writes down what is certain about memory accesses.
//
//   load %x, %row, %zero {sizes = [4, 64], ..}   ->   .. {.., in_bounds = [0, 1], divisor = [4, 1073741824],
//                                                          extent_divisor = [1, 64]}
//
// Method: Facts. A dim is in bounds if 0 <= start and start + size <= extent follow from the grid, the `where` facts,
// loop bounds and conditions around the access. Code generation drops masks and chooses wider accesses from these
// attributes.
//
// Limits: the positions of a gather are not looked into. Facts hold where the op stands: who moves it drops them.
#include "ir/by_hand.h"
#include "passes/cleanup.h"
#include "passes/facts.h"

namespace tkc::passes {

using ir::OpKind;

bool annotate_accesses(ir::Function &f, PassContext &) {
  Facts facts(f);
  bool changed = false;
  ir::walk(f.body, [&](ir::Op *op) {
    if (op->kind != OpKind::Load && op->kind != OpKind::Store &&
        !(op->kind >= OpKind::AtomicAdd && op->kind <= OpKind::AtomicCas) && !ir::is_copy(op->kind))
      return;
    const std::vector<int64_t> &gather = op->attrs.ints("gather");
    std::vector<int64_t> in_bounds, divisor, extent_divisor;
    for (size_t d = 0; d < gather.size(); d++) {
      in_bounds.push_back(!gather[d] && facts.in_bounds(*op, int64_t(d)));
      divisor.push_back(gather[d] ? 1 : facts.divisor(facts.value(op->operand(d + 1))));
      extent_divisor.push_back(facts.divisor(facts.extent(op->operand(0), int64_t(d))));
    }
    for (auto [key, list] :
         {std::pair{"in_bounds", &in_bounds}, {"divisor", &divisor}, {"extent_divisor", &extent_divisor}}) {
      if (op->attrs.has(key) && op->attrs.ints(key) == *list) continue;
      op->attrs.set(key, *list);
      changed = true;
    }
  });
  return changed;
}

} // namespace tkc::passes

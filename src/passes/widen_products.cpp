// Products of fp8 where the target has no such instruction: in f16, which holds every fp8 number exactly.
//
//   %p = mma %a, %b : e4m3            %a2 = cast %a {f16}   %b2 = cast %b {f16}
//                              ->     %p = mma %a2, %b2
//
// The result is the same but for the order of additions. Common subexpressions share the casts of one tile.
#include "ir/builder.h"
#include "passes/cleanup.h"

namespace tkc::passes {

using ir::Op;
using ir::OpKind;
using ir::Value;

static bool has_instruction(const ir::Target &target, DType sum) {
  constexpr int kHalfSums = 87; // the PTX version that brought fp8 products into f16
  return target.has(ir::kFp8) && (sum != DType::F16 || target.ptx_version >= kHalfSums);
}

bool widen_products(ir::Function &f, PassContext &context) {
  std::vector<Op *> products;
  ir::walk(f.body, [&](Op *op) {
    if (op->kind != OpKind::Mma) return;
    DType t = op->operand(0)->type.dtype;
    if (dtype_bits(t) == 8 && is_float(t) && !has_instruction(context.target, op->result()->type.dtype))
      products.push_back(op);
  });
  for (Op *product : products)
    for (size_t i = 0; i < 2; i++) {
      Value *x = product->operand(i);
      Op *cast = f.new_op(OpKind::Cast, product->loc);
      cast->operands = {x};
      cast->attrs.set("dtype", DType::F16);
      Value *wide = f.new_value(ir::Type::tile(DType::F16, x->type.shape), x->name);
      wide->op = cast;
      cast->results = {wide};
      ir::insert_before(product, cast);
      product->operands[i] = wide;
    }
  return !products.empty();
}

} // namespace tkc::passes

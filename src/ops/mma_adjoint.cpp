// Derivative of the matrix product c + a b: g b^T, a^T g and g.
#include "ops/adjoint.h"
#include "ops/matrix_product.h"

namespace tkc::ops {

static std::vector<double> transposed(const std::vector<double> &x, int64_t rows, int64_t columns) {
  std::vector<double> t(x.size());
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) t[size_t(j * rows + i)] = x[size_t(i * columns + j)];
  return t;
}

void adjoint_Mma(Reverse &r, const Op &op) {
  const interp::Tile &a = r.operand(op, 0), &b = r.operand(op, 1);
  int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  const Cotangent &g = r.of(op);
  if (r.wants(op, 0)) matrix_product(g.data(), transposed(b.f, k, n).data(), r.into(op, 0).data(), m, k, n);
  if (r.wants(op, 1)) matrix_product(transposed(a.f, m, k).data(), g.data(), r.into(op, 1).data(), k, n, m);
  if (op.operands.size() == 3) r.add(op, 2, r.take(op.result()));
}

} // namespace tkc::ops

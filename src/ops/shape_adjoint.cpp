// Derivatives of ops that move elements: cotangents go back the way that the elements came.
#include "ops/adjoint.h"
#include "ops/boxes.h"

namespace tkc::ops {

namespace {

const Ints &shape_of(const ir::Value *v) { return v->type.shape; }

// Adds the box at `from` of g, an array of shape `g_shape`, to the box at `to` of operand i.
void add_box(Reverse &r, const Op &op, size_t i, const Cotangent &g, const Ints &g_shape, const Ints &from,
             const Ints &to, const Ints &box) {
  if (!r.wants(op, i)) return;
  Cotangent &out = r.into(op, i);
  Ints sg = row_major(g_shape), so = row_major(shape_of(op.operand(i)));
  for_rows(box, sg, so, dot(from, sg), dot(to, so), [&](int64_t n, int64_t a, int64_t b) {
    for (int64_t k = 0; k < n; k++) out[size_t(b + k)] += g[size_t(a + k)];
  });
}

// What an array keeps of a cotangent when a box of it has been replaced.
void clear_box(Cotangent &g, const Ints &shape, const Ints &at, const Ints &box) {
  Ints s = row_major(shape);
  for_rows(box, s, s, dot(at, s), 0, [&](int64_t n, int64_t a, int64_t) { std::fill_n(g.begin() + a, n, 0.0); });
}

void taken_out(Reverse &r, const Op &op, const Ints &starts) {
  const Ints &box = op.attrs.ints("sizes");
  add_box(r, op, 0, r.of(op), box, Ints(box.size(), 0), starts, box);
}

void put_in(Reverse &r, const Op &op, const Ints &starts) {
  const Ints &box = shape_of(op.operand(1)), &shape = shape_of(op.operand(0));
  Cotangent g = r.take(op.result());
  add_box(r, op, 1, g, shape, starts, Ints(box.size(), 0), box);
  if (!r.wants(op, 0)) return;
  clear_box(g, shape, starts, box);
  r.add(op, 0, std::move(g));
}

Ints run_time_starts(Reverse &r, const Op &op, size_t first) {
  Ints starts;
  for (size_t i = first; i < op.operands.size(); i++) starts.push_back(r.operand(op, i).as_i(0));
  return starts;
}

} // namespace

void adjoint_Reshape(Reverse &r, const Op &op) { r.add(op, 0, r.take(op.result())); }

void adjoint_Broadcast(Reverse &r, const Op &op) {
  if (!r.wants(op, 0)) return;
  const Cotangent &g = r.of(op);
  Cotangent &out = r.into(op, 0);
  const Ints &x = shape_of(op.operand(0)), &y = shape_of(op.result());
  Ints to(y.size(), 0), strides = row_major(x);
  for (size_t d = 0; d < x.size(); d++) to[d] = x[d] == 1 ? 0 : strides[d];
  bool constant = to.empty() || to.back() == 0;
  for_rows(y, row_major(y), to, 0, 0, [&](int64_t n, int64_t a, int64_t b) {
    if (!constant) {
      for (int64_t k = 0; k < n; k++) out[size_t(b + k)] += g[size_t(a + k)];
      return;
    }
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += g[size_t(a + k)];
    out[size_t(b)] += sum;
  });
}

void adjoint_Transpose(Reverse &r, const Op &op) {
  if (!r.wants(op, 0)) return;
  const Cotangent &g = r.of(op);
  Cotangent &out = r.into(op, 0);
  const Ints &y = shape_of(op.result());
  Ints strides = row_major(shape_of(op.operand(0))), to;
  for (int64_t d : op.attrs.ints("perm")) to.push_back(strides[size_t(d)]);
  int64_t step = to.empty() ? 0 : to.back();
  for_rows(y, row_major(y), to, 0, 0, [&](int64_t n, int64_t a, int64_t b) {
    for (int64_t k = 0; k < n; k++) out[size_t(b + k * step)] += g[size_t(a + k)];
  });
}

void adjoint_Concat(Reverse &r, const Op &op) {
  const Cotangent &g = r.of(op);
  const Ints &y = shape_of(op.result());
  size_t axis = size_t(op.attrs.i("axis"));
  Ints from(y.size(), 0);
  for (size_t i = 0; i < op.operands.size(); i++) {
    const Ints &box = shape_of(op.operand(i));
    add_box(r, op, i, g, y, from, Ints(y.size(), 0), box);
    from[axis] += box[axis];
  }
}

void adjoint_Slice(Reverse &r, const Op &op) { taken_out(r, op, op.attrs.ints("starts")); }
void adjoint_Insert(Reverse &r, const Op &op) { put_in(r, op, op.attrs.ints("starts")); }
void adjoint_DynSlice(Reverse &r, const Op &op) { taken_out(r, op, run_time_starts(r, op, 1)); }
void adjoint_DynUpdate(Reverse &r, const Op &op) { put_in(r, op, run_time_starts(r, op, 2)); }

} // namespace tkc::ops

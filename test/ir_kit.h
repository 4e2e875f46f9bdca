// Functions of the IR made by hand, and their interpretation.
#pragma once
#include "interp/interp.h"
#include "ir/builder.h"
#include <doctest/doctest.h>
#include <initializer_list>
#include <memory>

namespace tkc::test {

using ir::OpKind;
using Ints = std::vector<int64_t>;

inline interp::Tile floats(DType t, Ints shape, std::vector<double> f) {
  interp::Tile x(t, std::move(shape));
  REQUIRE(x.f.size() == f.size());
  x.f = std::move(f);
  return x;
}
inline interp::Tile ints(DType t, Ints shape, std::vector<int64_t> i) {
  interp::Tile x(t, std::move(shape));
  REQUIRE(x.i.size() == i.size());
  x.i = std::move(i);
  return x;
}
// first, first + 1, ...
inline interp::Tile counting(DType t, Ints shape, int64_t first = 0) {
  interp::Tile x(t, std::move(shape));
  for (size_t k = 0; k < x.f.size(); k++) x.f[k] = double(first + int64_t(k));
  for (size_t k = 0; k < x.i.size(); k++) x.i[k] = first + int64_t(k);
  return x;
}
inline ir::Attrs attrs(std::initializer_list<std::pair<const char *, ir::Attr>> list) {
  ir::Attrs a;
  for (const auto &[k, v] : list) a.set(k, v);
  return a;
}

struct Kit {
  SourceManager sources;
  Diagnostics diags{sources};
  ir::Function f;
  ir::Builder b{f, diags};
  std::vector<interp::Value> args;
  std::vector<std::unique_ptr<interp::Storage>> storages;
  std::vector<std::string> printed;

  explicit Kit(ir::FunctionKind kind = ir::FunctionKind::Reference, int64_t grid_rank = 1) {
    f.kind = kind;
    f.body = f.new_block(nullptr);
    f.grid.assign(size_t(grid_rank), ir::SizeExpr::constant(1));
    b.set_block(f.body);
  }

  ir::Value *argument(ir::Block *block, ir::Type type) {
    ir::Value *v = f.new_value(std::move(type));
    v->block = block;
    v->index = int64_t(block->args.size());
    block->args.push_back(v);
    return v;
  }
  // An argument of the function with this value.
  ir::Value *tile(interp::Tile t) {
    ir::Value *v = argument(f.body, ir::Type::tile(t.dtype, t.shape));
    args.push_back(std::move(t));
    return v;
  }
  // A tensor argument, row-major unless strides are given; its memory is `storage` of the result.
  struct Tensor {
    ir::Value *value;
    interp::Storage *storage;
  };
  Tensor tensor(interp::Tile init, Ints extents = {}, Ints strides = {}, int64_t offset = 0) {
    auto s = std::make_unique<interp::Storage>();
    s->name = "x";
    s->dtype = init.dtype;
    s->f = init.f;
    s->i = init.i;
    if (extents.empty()) extents = init.shape;
    if (strides.empty()) {
      strides.assign(extents.size(), 1);
      for (size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
    }
    ir::Value *v = argument(f.body, ir::Type::tensor(init.dtype, extents));
    args.push_back(interp::TensorRef{s.get(), offset, extents, strides});
    storages.push_back(std::move(s));
    return {v, storages.back().get()};
  }

  ir::Op *create(OpKind kind, std::vector<ir::Value *> operands, ir::Attrs a = {}) {
    ir::Op *op = b.create(kind, std::move(operands), std::move(a), {});
    INFO(diags.render_all());
    REQUIRE(op != nullptr);
    return op;
  }
  ir::Value *value(OpKind kind, std::vector<ir::Value *> operands, ir::Attrs a = {}) {
    return create(kind, std::move(operands), std::move(a))->result();
  }
  ir::Value *i32(int64_t v) { return b.constant_int(DType::I32, v, {}); }
  void end(OpKind kind, std::vector<ir::Value *> values) { b.create_typed(kind, std::move(values), {}, {}, {}); }

  interp::Result run(Ints grid = {1}, int64_t threads = 1) {
    interp::Launch l;
    l.function = &f;
    l.args = args;
    l.grid = std::move(grid);
    l.threads = threads;
    l.print = [this](const std::string &text) { printed.push_back(text); };
    return interp::run(l);
  }
  // Returns the values and runs.
  std::vector<interp::Tile> eval(std::vector<ir::Value *> values) {
    end(OpKind::Return, values);
    interp::Result r = run();
    REQUIRE_MESSAGE(!r.trap, (r.trap ? r.trap->message : ""));
    std::vector<interp::Tile> out;
    for (interp::Value &v : r.results) out.push_back(std::get<interp::Tile>(v));
    return out;
  }
  interp::Tile eval(ir::Value *v) { return eval(std::vector{v})[0]; }
  std::string trap(ir::Value *v) {
    end(OpKind::Return, {v});
    interp::Result r = run();
    return r.trap ? r.trap->message : "";
  }
};

// One op of tile operands, in a reference.
inline interp::Tile apply(OpKind kind, std::vector<interp::Tile> operands, ir::Attrs a = {}) {
  Kit k;
  std::vector<ir::Value *> values;
  for (interp::Tile &t : operands) values.push_back(k.tile(std::move(t)));
  ir::Value *v = k.value(kind, values, std::move(a));
  interp::Tile t = k.eval(v);
  CHECK(t.dtype == v->type.dtype);
  CHECK(t.shape == v->type.shape);
  return t;
}

// Reproducible numbers.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  double uniform(double lo, double hi) { return lo + (hi - lo) * double(next() >> 11) * 0x1p-53; }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
};

} // namespace tkc::test

// Random kernels: every value that is made can reach an output, so two versions of a kernel that give equal outputs for
// random inputs compute the same. Values stay small, loops short, divisors positive.
#pragma once
#include "ir_kit.h"

namespace tkc::test {

class RandomKernel {
public:
  explicit RandomKernel(uint64_t seed) : rng_(seed), kit_(ir::FunctionKind::Kernel, 1) {
    ir::Function &f = kit_.f;
    f.name = "random";
    f.grid = {ir::SizeExpr::make(ir::SizeExpr::Op::CDiv, ir::SizeExpr::symbol("N"), ir::SizeExpr::constant(4))};
    x_ = param("x", DType::F32, {ir::kDynamic, 8}, {ir::SizeExpr::symbol("N"), ir::SizeExpr::constant(8)},
               ir::ParamMode::In, {8, 8});
    n_ = param("n", DType::I32, {16}, {ir::SizeExpr::constant(16)}, ir::ParamMode::In, {16});
    y_ = param("y", DType::F32, {4, 8}, {ir::SizeExpr::constant(4), ir::SizeExpr::constant(8)}, ir::ParamMode::Out,
               {4, 8});
    z_ = param("z", DType::I32, {8}, {ir::SizeExpr::constant(8)}, ir::ParamMode::InOut, {8});
    f.sizes = {"N"};
    ir::Value *size = kit_.argument(f.body, ir::Type::scalar(DType::I32));
    size->name = "N";
    interp::Tile n(DType::I32, {});
    n.i[0] = 8;
    kit_.args.push_back(n);
    values_.push_back(size);
    values_.push_back(kit_.value(OpKind::ProgramId, {}, attrs({{"axis", int64_t(0)}})));
    for (int64_t k = 0; k < 3; k++) leaf();
    body(10 + rng_.below(20), 2);
    for (int64_t k = 0; k < 2; k++) store();
    kit_.end(OpKind::Return, {});
  }

  ir::Function &function() { return kit_.f; }
  Kit &kit() { return kit_; }

  // Runs any function with the same parameters on fresh memory; the contents of y and z afterwards.
  struct Output {
    std::string trap;
    std::vector<double> y;
    std::vector<int64_t> z;
  };
  Output run(const ir::Function &f) {
    Output out;
    for (auto &s : kit_.storages) {
      Random fill(17);
      for (double &v : s->f) v = std::round(fill.uniform(-20, 20)) / 4;
      for (int64_t &v : s->i) v = fill.below(9) - 3;
    }
    interp::Launch l;
    l.function = &f;
    l.args = kit_.args;
    l.grid = {2};
    l.print = [](const std::string &) {};
    interp::Result r = interp::run(l);
    if (r.trap) out.trap = r.trap->message;
    out.y = kit_.storages[2]->f;
    out.z = kit_.storages[3]->i;
    return out;
  }

private:
  ir::Value *param(const char *name, DType t, Ints type_shape, std::vector<ir::SizeExpr> dims, ir::ParamMode mode,
                   Ints shape) {
    ir::Param p;
    p.name = name;
    p.type = ir::Type::tensor(t, type_shape);
    p.dims = std::move(dims);
    p.mode = mode;
    kit_.f.params.push_back(p);
    ir::Value *v = kit_.tensor(interp::Tile(t, shape)).value;
    v->type = p.type;
    v->name = name;
    return v;
  }

  ir::Value *pick(auto &&wanted) {
    std::vector<ir::Value *> fit;
    for (ir::Value *v : values_)
      if (wanted(v->type)) fit.push_back(v);
    return fit.empty() ? nullptr : fit[size_t(rng_.below(int64_t(fit.size())))];
  }
  ir::Value *pick_type(const ir::Type &t) {
    return pick([&](const ir::Type &u) { return u == t; });
  }
  ir::Value *any_number() {
    return pick([](const ir::Type &t) { return t.dtype == DType::F32 || t.dtype == DType::I32; });
  }
  ir::Value *add(OpKind kind, std::vector<ir::Value *> operands, ir::Attrs a = {}) {
    ir::Value *v = kit_.value(kind, std::move(operands), std::move(a));
    if (rng_.below(3) == 0) v->name = std::string(1, char('a' + rng_.below(4)));
    values_.push_back(v);
    return v;
  }
  ir::Value *small_int() { return kit_.i32(rng_.below(5)); }

  // A constant, as such or spread over a shape, with the special values of identities being likely.
  ir::Value *constant(const ir::Type &t) {
    static const double special[] = {0.0, -0.0, 1.0, 2.0, 0.5, -1.0, 3.25};
    ir::Value *c = t.dtype == DType::F32
                       ? kit_.b.constant(t.dtype, special[rng_.below(7)], {})
                       : kit_.b.constant_int(t.dtype, t.dtype == DType::Bool ? rng_.below(2) : rng_.below(4) - 1, {});
    if (!t.is_scalar()) c = kit_.value(OpKind::Broadcast, {c}, attrs({{"shape", t.shape}}));
    values_.push_back(c);
    return c;
  }
  ir::Value *operand(const ir::Type &t) {
    ir::Value *v = rng_.below(3) ? pick_type(t) : nullptr;
    return v ? v : constant(t);
  }

  void leaf() {
    switch (rng_.below(5)) {
    case 0: load_x(); break;
    case 1:
      add(OpKind::Load, {n_, small_int()},
          attrs({{"sizes", Ints{8}},
                 {"drop", Ints{0}},
                 {"gather", Ints{0}},
                 {"has_mask", int64_t(0)},
                 {"has_other", int64_t(0)}}));
      break;
    case 2: add(OpKind::Iota, {}, attrs({{"n", int64_t(8)}, {"dtype", DType::I32}})); break;
    case 3: constant(ir::Type::scalar(rng_.below(2) ? DType::I32 : DType::F32)); break;
    case 4: // a tensor that the kernel writes
      add(OpKind::Load, {z_, small_int()},
          attrs({{"sizes", Ints{8}},
                 {"drop", Ints{0}},
                 {"gather", Ints{0}},
                 {"has_mask", int64_t(0)},
                 {"has_other", int64_t(0)}}));
      break;
    }
  }
  void load_x() {
    ir::Value *row = pick_type(ir::Type::scalar(DType::I32));
    add(OpKind::Load, {x_, row, kit_.i32(0)},
        attrs({{"sizes", Ints{4, 8}},
               {"drop", Ints{0, 0}},
               {"gather", Ints{0, 0}},
               {"has_mask", int64_t(0)},
               {"has_other", int64_t(0)}}));
  }

  void arithmetic() {
    static const OpKind ints[] = {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Min,
                                  OpKind::Max, OpKind::And, OpKind::Or,  OpKind::Xor};
    static const OpKind floats[] = {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Min, OpKind::Max, OpKind::Div};
    static const OpKind compares[] = {OpKind::Eq, OpKind::Ne, OpKind::Lt, OpKind::Le, OpKind::Gt, OpKind::Ge};
    ir::Value *a = any_number();
    if (!a) return;
    ir::Value *b = operand(a->type);
    if (rng_.below(2)) std::swap(a, b);
    bool is_f = a->type.dtype == DType::F32;
    switch (rng_.below(6)) {
    case 0: add(compares[rng_.below(6)], {a, b}); break;
    case 1: {
      ir::Value *c = operand(a->type.with_dtype(DType::Bool));
      add(OpKind::Where, {c, a, b});
      break;
    }
    case 2:
      if (is_f) {
        add(rng_.below(2) ? OpKind::Neg : OpKind::Abs, {a});
      } else { // a divisor above zero
        ir::Value *d = kit_.i32(1 + rng_.below(4));
        if (!a->type.is_scalar()) d = kit_.value(OpKind::Broadcast, {d}, attrs({{"shape", a->type.shape}}));
        add(rng_.below(2) ? OpKind::Div : OpKind::Rem, {a, d});
      }
      break;
    default: add(is_f ? floats[rng_.below(6)] : ints[rng_.below(8)], {a, b});
    }
  }

  void shape() {
    ir::Value *v = any_number();
    if (!v) return;
    switch (rng_.below(5)) {
    case 0: add(OpKind::Cast, {v}, attrs({{"dtype", v->type.dtype == DType::F32 ? DType::I32 : DType::F32}})); break;
    case 1:
      if (v->type.is_scalar())
        add(OpKind::Broadcast, {v}, attrs({{"shape", rng_.below(2) ? Ints{8} : Ints{4, 8}}}));
      else if (v->type.rank() == 1)
        add(OpKind::Broadcast, {kit_.value(OpKind::ExpandDims, {v}, attrs({{"axis", int64_t(0)}}))},
            attrs({{"shape", Ints{4, 8}}}));
      else
        add(OpKind::Transpose, {kit_.value(OpKind::Transpose, {v}, attrs({{"perm", Ints{1, 0}}}))},
            attrs({{"perm", Ints{1, 0}}}));
      break;
    case 2:
      if (!v->type.is_scalar()) add(OpKind::ReduceSum, {v}, attrs({{"axis", int64_t(0)}}));
      break;
    case 3: add(OpKind::Reshape, {v}, attrs({{"shape", v->type.shape}})); break;
    case 4:
      if (v->type.rank() == 2)
        add(OpKind::Reshape, {kit_.value(OpKind::Reshape, {v}, attrs({{"shape", Ints{32}}}))},
            attrs({{"shape", Ints{4, 8}}}));
      break;
    }
  }

  // Runs `make` in a new region; what it defines goes out of scope.
  ir::Block *region(ir::Op *op, auto &&make) {
    ir::Block *outer = kit_.b.block(), *r = kit_.f.new_block(op);
    op->regions.push_back(r);
    kit_.b.set_block(r);
    std::vector<ir::Value *> scope = values_;
    make(r);
    values_ = scope;
    kit_.b.set_block(outer);
    return r;
  }

  void control(int64_t depth) {
    std::vector<ir::Value *> init;
    std::vector<ir::Type> types;
    for (int64_t k = rng_.below(3); k > 0; k--)
      if (ir::Value *v = any_number()) init.push_back(v), types.push_back(v->type);
    auto yield = [&] {
      std::vector<ir::Value *> out;
      for (const ir::Type &t : types) out.push_back(operand(t));
      kit_.end(OpKind::Yield, out);
    };
    ir::Op *op = nullptr;
    switch (rng_.below(3)) {
    case 0: {
      std::vector<ir::Value *> operands = {kit_.i32(rng_.below(2)), small_int(), kit_.i32(1 + rng_.below(2))};
      operands.insert(operands.end(), init.begin(), init.end());
      op = kit_.b.create_typed(OpKind::For, operands, types, {}, {});
      region(op, [&](ir::Block *r) {
        values_.push_back(kit_.argument(r, ir::Type::scalar(DType::I32)));
        for (const ir::Type &t : types) values_.push_back(kit_.argument(r, t));
        body(2 + rng_.below(6), depth - 1);
        yield();
      });
      break;
    }
    case 1: {
      ir::Value *cond = operand(ir::Type::scalar(DType::Bool));
      op = kit_.b.create_typed(OpKind::If, {cond}, types, {}, {});
      for (int k = 0; k < 2; k++)
        region(op, [&](ir::Block *) {
          body(1 + rng_.below(4), depth - 1);
          yield();
        });
      break;
    }
    case 2: { // counts down
      init.insert(init.begin(), small_int());
      types.insert(types.begin(), ir::Type::scalar(DType::I32));
      op = kit_.b.create_typed(OpKind::While, init, types, {}, {});
      region(op, [&](ir::Block *r) {
        for (const ir::Type &t : types) values_.push_back(kit_.argument(r, t));
        body(rng_.below(3), 0);
        kit_.end(OpKind::Yield, {kit_.value(OpKind::Gt, {r->args[0], kit_.i32(0)})});
      });
      region(op, [&](ir::Block *r) {
        for (const ir::Type &t : types) values_.push_back(kit_.argument(r, t));
        body(1 + rng_.below(4), depth - 1);
        std::vector<ir::Value *> out = {kit_.value(OpKind::Sub, {r->args[0], kit_.i32(1)})};
        for (size_t k = 1; k < types.size(); k++) out.push_back(operand(types[k]));
        kit_.end(OpKind::Yield, out);
      });
      break;
    }
    }
    for (ir::Value *v : op->results) values_.push_back(v);
  }

  void store() {
    if (rng_.below(2)) {
      ir::Value *v = operand(ir::Type::tile(DType::F32, {4, 8}));
      kit_.create(
          OpKind::Store, {y_, small_int(), kit_.i32(0), v},
          attrs({{"sizes", Ints{4, 8}}, {"drop", Ints{0, 0}}, {"gather", Ints{0, 0}}, {"has_mask", int64_t(0)}}));
    } else {
      ir::Value *v = operand(ir::Type::tile(DType::I32, {8}));
      kit_.create(OpKind::Store, {z_, small_int(), v},
                  attrs({{"sizes", Ints{8}}, {"drop", Ints{0}}, {"gather", Ints{0}}, {"has_mask", int64_t(0)}}));
    }
  }

  void body(int64_t ops, int64_t depth) {
    for (int64_t k = 0; k < ops; k++) {
      int64_t what = rng_.below(20);
      if (what < 9)
        arithmetic();
      else if (what < 13)
        shape();
      else if (what < 15)
        leaf();
      else if (what < 17)
        store();
      else if (depth > 0)
        control(depth);
    }
  }

  Random rng_;
  Kit kit_;
  ir::Value *x_, *n_, *y_, *z_;
  std::vector<ir::Value *> values_;
};

} // namespace tkc::test

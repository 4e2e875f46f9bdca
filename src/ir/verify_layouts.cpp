// Layouts: absent before laid_out, consistent from then on.
#include "ir/product.h"
#include "ir/verify_rules.h"
#include "layout/convert.h"
#include "layout/fragments.h"

namespace tkc::ir {

namespace {

class Layouts {
public:
  Layouts(const Function &f, Stage stage, Faults &faults) : f_(f), stage_(stage), faults_(faults) {}

  void run() {
    if (stage_ >= Stage::laid_out && (f_.warps < 1 || (f_.warps & (f_.warps - 1)))) {
      faults_.add("{} warps: not a power of two", f_.warps);
      return;
    }
    for (const Value *v : f_.body->args) value(v);
    each(*f_.body, [&](const Op &op) {
      for (const Block *r : op.regions)
        for (const Value *v : r->args)
          if (op.kind != OpKind::InlinePtx) value(v);
      for (const Value *v : op.results) value(v);
      if (stage_ == Stage::typed && made_after_layouts(op.kind))
        faults_.add(op, "is made by passes after the layout search");
    });
    if (stage_ == Stage::typed || !faults_.list.empty()) return;
    each(*f_.body, [&](const Op &op) { rule(op); });
  }

private:
  // Every op but those of the meaning of inline PTX, which is never lowered.
  template <typename F> void each(const Block &b, F &&f) {
    for (const Op *op : b.ops) {
      f(*op);
      if (op->kind == OpKind::InlinePtx) continue;
      for (const Block *r : op->regions) each(*r, f);
    }
  }

  void value(const Value *v) {
    auto fault = [&](const std::string &text) {
      if (v->op) return faults_.add(*v->op, "{}", text);
      faults_.add("block argument %{}: {}", v->name, text);
    };
    if (stage_ == Stage::typed) {
      if (v->layout) fault("has a layout before the layout search");
      return;
    }
    if (!v->type.is_tile()) {
      if (v->layout) fault("a layout on a value that is not a tile");
      return;
    }
    if (!v->layout) return fault("has no layout");
    if (v->layout->shape != v->type.shape)
      return fault(
          fmt::format("its layout has shape {}, the value {}", shape_str(v->layout->shape), shape_str(v->type.shape)));
    if (!v->layout->is_valid()) return fault("its layout is not valid: " + v->layout->to_string());
    int64_t warps = warps_of(v->op ? v->op->block : v->block);
    if (v->layout->num_warps() != warps)
      fault(fmt::format("its layout is for {} warps, {} have it", v->layout->num_warps(), warps));
  }

  // Scalars are the same in every thread, those from outside of a role too.
  void equal(const Op &op, const char *what, const Value *a, const Value *b) {
    if (!a->type.is_tile() || !b->type.is_tile() || *a->layout == *b->layout) return;
    if (a->type.is_scalar() && b->type.is_scalar()) return;
    faults_.add(op, "{} differ in layout: {} and {}", what, a->layout->to_string(), b->layout->to_string());
  }
  void equal(const Op &op, const char *what, const std::vector<Value *> &a, size_t skip_a,
             const std::vector<Value *> &b, size_t skip_b) {
    for (size_t i = 0; i + skip_a < a.size() && i + skip_b < b.size(); i++)
      equal(op, what, a[i + skip_a], b[i + skip_b]);
  }

  void rule(const Op &op) {
    switch (op.kind) {
    case OpKind::For: {
      const Block &b = *op.regions[0];
      equal(op, "an initial value and its argument", op.operands, 3, b.args, 1);
      equal(op, "an argument and the yielded value", b.args, 1, b.terminator()->operands, 0);
      equal(op, "a result and the yielded value", op.results, 0, b.terminator()->operands, 0);
      return;
    }
    case OpKind::While:
      for (const Block *r : op.regions) equal(op, "an initial value and its argument", op.operands, 0, r->args, 0);
      equal(op, "an argument and the yielded value", op.operands, 0, op.regions[1]->terminator()->operands, 0);
      equal(op, "a result and the yielded value", op.results, 0, op.regions[1]->terminator()->operands, 0);
      return;
    case OpKind::If:
      for (const Block *r : op.regions)
        equal(op, "a result and the yielded value", op.results, 0, r->terminator()->operands, 0);
      return;
    case OpKind::Mma: return mma(op);
    case OpKind::ConvertLayout: return conversion(op);
    default: break;
    }
    const LayoutRule &r = def(op).layout;
    switch (r.kind) {
    case LayoutKind::None:
    case LayoutKind::Free:
    case LayoutKind::Anchor: return;
    case LayoutKind::Pointwise: return pointwise(op);
    case LayoutKind::Structural: return structural(op, r);
    }
  }

  void pointwise(const Op &op) {
    const Value *first = op.results.empty() ? nullptr : op.result();
    for (const std::vector<Value *> *list : {&op.operands, &op.results})
      for (const Value *v : *list) {
        if (!v->type.is_tile()) continue;
        if (!first) first = v;
        if (v->type.shape == first->type.shape) equal(op, "operands and results", first, v);
      }
  }

  void structural(const Op &op, const LayoutRule &r) {
    if (op.operands.empty() || op.results.empty() || !op.operand(0)->type.is_tile()) return;
    const RegLayout &to = *op.result()->layout;
    bool scalar = op.operand(0)->type.is_scalar();
    const RegLayout from = scalar ? replicated({}, to.num_warps()) : *op.operand(0)->layout;
    std::optional<RegLayout> forward = r.forward ? r.forward(op, from) : std::nullopt;
    if (forward && *forward == to) return;
    std::optional<RegLayout> backward = r.backward ? r.backward(op, to) : std::nullopt;
    if (backward && *backward == from) return;
    if (def(op).scratch && def(op).scratch(op) > 0) return; // goes through memory: any layouts
    faults_.add(op, "the result's layout {} does not follow from the operand's {}{}", to.to_string(), from.to_string(),
                forward    ? "; expected " + forward->to_string()
                : backward ? "; expected from " + backward->to_string()
                           : "");
  }

  // What the target offers cannot make a conversion inside a warp necessary where none exists, so this asks for less
  // than the planner: data that must change its warp needs shared memory.
  void conversion(const Op &op) {
    if (stage_ >= Stage::scheduled && !stays_in_warp(*op.operand(0)->layout, *op.result()->layout))
      faults_.add(op, "moves data between warps and must have become stores, a barrier and loads of a scratch buffer");
  }

  // Operands of a product have the lanes and warps of the instruction's fragments; their registers may be in any order.
  void mma(const Op &op) {
    for (const char *key : {"shape", "tiling", "transposed"})
      if (!op.attrs.has(key)) return faults_.add(op, "attribute `{}` is missing", key);
    const std::string &name = op.attrs.s("shape");
    if (name == "fma") return equal(op, "accumulator and result", op.results, 0, op.operands, 2);
    const std::vector<int64_t> &t = op.attrs.ints("tiling");
    if (t.size() != 3 || t[0] * t[1] * t[2] != warps_of(op.block))
      return faults_.add(op, "`tiling` is not one of {} warps", warps_of(op.block));
    // The instruction's A is the tile's B where the product is transposed; f32 operands are rounded to tf32.
    bool transposed = op.attrs.i("transposed") != 0;
    DType dtype = op.operand(transposed ? 1 : 0)->type.dtype;
    const MmaShape *shape = find_mma_shape(name, dtype == DType::F32 ? DType::TF32 : dtype);
    if (!shape) return faults_.add(op, "there is no instruction {} of {}", name, dtype_name(dtype));
    WarpTiling tiling = warp_tiling(op);
    auto operand = [&](const Value *v, Role role, const char *what) {
      RegLayout want = mma_operand_layout(*shape, role, v->type.shape, tiling, transposed);
      if (!same_lanes(*v->layout, want) || !register_map(*v->layout, want))
        faults_.add(op, "{} has layout {}; the instruction needs {}", what, v->layout->to_string(), want.to_string());
    };
    operand(op.operand(0), Role::A, "a");
    operand(op.operand(1), Role::B, "b");
    if (op.operands.size() > 2) operand(op.operand(2), Role::C, "c");
    operand(op.result(), Role::C, "the result");
    equal(op, "accumulator and result", op.results, 0, op.operands, 2);
  }

  const Function &f_;
  Stage stage_;
  Faults &faults_;
};

} // namespace

void verify_layouts(const Function &f, Stage stage, Faults &faults) { Layouts(f, stage, faults).run(); }

} // namespace tkc::ir

// Attributes, inferred types and effects.
#include "ir/by_hand.h"
#include "ir/verify_rules.h"

namespace tkc::ir {

namespace {

// One letter an attribute: i int64, l list of int64, s string, t dtype, m shared-memory layout, n the number of a
// constant.
struct AttrRule {
  const char *key;
  char type;
};

std::vector<AttrRule> required_attrs(OpKind kind) {
  switch (kind) {
  case OpKind::Constant: return {{"dtype", 't'}, {"value", 'n'}};
  case OpKind::Iota: return {{"n", 'i'}, {"dtype", 't'}};
  case OpKind::Cast:
  case OpKind::Bitcast: return {{"dtype", 't'}};
  case OpKind::Reshape:
  case OpKind::Broadcast: return {{"shape", 'l'}};
  case OpKind::Transpose: return {{"perm", 'l'}};
  case OpKind::ProgramId:
  case OpKind::NumPrograms:
  case OpKind::TileCoordinate:
  case OpKind::ExpandDims:
  case OpKind::Concat:
  case OpKind::Dim:
  case OpKind::ReduceSum:
  case OpKind::ReduceProd:
  case OpKind::ReduceMax:
  case OpKind::ReduceMin:
  case OpKind::ReduceAny:
  case OpKind::ReduceAll:
  case OpKind::ArgMax:
  case OpKind::ArgMin: return {{"axis", 'i'}};
  case OpKind::CumSum:
  case OpKind::CumProd:
  case OpKind::CumMax:
  case OpKind::CumMin: return {{"axis", 'i'}, {"reverse", 'i'}, {"exclusive", 'i'}};
  case OpKind::Slice: return {{"starts", 'l'}, {"sizes", 'l'}};
  case OpKind::Insert: return {{"starts", 'l'}};
  case OpKind::DynSlice: return {{"sizes", 'l'}};
  case OpKind::Mma: return {{"acc", 't'}, {"precision", 's'}};
  case OpKind::Subview: return {{"ranges", 'l'}};
  case OpKind::RecordField:
    return {{"dtype", 't'}, {"shape", 'l'}, {"offset", 'i'}, {"pitch", 'l'}, {"swizzle", 'i'}, {"field", 's'}};
  case OpKind::Load: return {{"sizes", 'l'}, {"drop", 'l'}, {"gather", 'l'}, {"has_mask", 'i'}, {"has_other", 'i'}};
  case OpKind::Store:
  case OpKind::AtomicAdd:
  case OpKind::AtomicMax:
  case OpKind::AtomicMin:
  case OpKind::AtomicAnd:
  case OpKind::AtomicOr:
  case OpKind::AtomicXor:
  case OpKind::AtomicExch:
  case OpKind::AtomicCas: return {{"sizes", 'l'}, {"drop", 'l'}, {"gather", 'l'}, {"has_mask", 'i'}};
  case OpKind::Assert: return {{"message", 's'}};
  case OpKind::Print: return {{"format", 's'}};
  case OpKind::Grad: return {{"inputs", 'i'}};
  case OpKind::Roles: return {{"warps", 'l'}};
  case OpKind::RingAlloc: return {{"stages", 'i'}, {"transport", 's'}};
  case OpKind::RingItem: return {{"field", 'i'}};
  case OpKind::BlockBarrier: return {{"scope", 's'}};
  case OpKind::ScratchStore: return {{"smem", 'm'}};
  case OpKind::SharedAlloc: return {{"dtype", 't'}, {"shape", 'l'}, {"slots", 'i'}};
  case OpKind::BarrierAlloc: return {{"slots", 'i'}};
  case OpKind::CopyAsync:
  case OpKind::CopyAsyncBulk:
  case OpKind::CopyAsyncTx:
  case OpKind::TmaLoad:
  case OpKind::TmaStore:
  case OpKind::TmaPrefetch: return {{"sizes", 'l'}, {"drop", 'l'}, {"gather", 'l'}};
  case OpKind::TmaReduce: return {{"sizes", 'l'}, {"drop", 'l'}, {"gather", 'l'}, {"how", 's'}};
  case OpKind::WaitGroup: return {{"pending", 'i'}};
  case OpKind::BulkWaitGroup: return {{"pending", 'i'}, {"read", 'i'}};
  case OpKind::MbarrierInit:
  case OpKind::MbarrierArrive: return {{"count", 'i'}};
  case OpKind::MbarrierExpectTx:
  case OpKind::MbarrierArriveExpectTx: return {{"bytes", 'i'}};
  case OpKind::MbarrierArriveCopies: return {{"noinc", 'i'}};
  default: return {};
  }
}

bool has_type(const Attr &a, char type, DType dtype) {
  switch (type) {
  case 'i': return std::holds_alternative<int64_t>(a);
  case 'l': return std::holds_alternative<std::vector<int64_t>>(a);
  case 's': return std::holds_alternative<std::string>(a);
  case 't': return std::holds_alternative<DType>(a);
  case 'm': return std::holds_alternative<SmemLayout>(a);
  case 'n': return is_float(dtype) ? std::holds_alternative<double>(a) : std::holds_alternative<int64_t>(a);
  }
  return false;
}

const Attr *find_attr(const Op &op, std::string_view key) {
  for (const auto &[k, v] : op.attrs.list())
    if (k == key) return &v;
  return nullptr;
}

bool is_global_access(OpKind kind) {
  return kind == OpKind::Load || kind == OpKind::Store || is_copy(kind) ||
         (kind >= OpKind::AtomicAdd && kind <= OpKind::AtomicCas);
}

class Types {
public:
  Types(const Function &f, Faults &faults) : f_(f), faults_(faults) {
    // Inference makes values, so it runs in a function that shares nothing but the description.
    shadow_.kind = f.kind;
    shadow_.name = f.name;
    shadow_.params = f.params;
    shadow_.sizes = f.sizes;
    shadow_.grid = f.grid;
    shadow_.warps = f.warps;
    shadow_.facts = f.facts;
    shadow_.body = f.body;
  }

  void check(const Op &op) {
    if (!attributes(op)) return;
    switch (op.kind) {
    case OpKind::For:
    case OpKind::While:
    case OpKind::If:
    case OpKind::Roles:
    case OpKind::Yield:
    case OpKind::Return: return; // verify_structure
    case OpKind::ConvertLayout: return convert(op);
    case OpKind::ScratchStore: return scratch_store(op);
    case OpKind::ScratchLoad: return scratch_load(op);
    case OpKind::BlockBarrier:
      if (!op.operands.empty() || !op.results.empty()) faults_.add(op, "takes and gives nothing");
      if (op.attrs.s("scope") != "block" && op.attrs.s("scope") != "warp") faults_.add(op, "unknown scope");
      return;
    default: break;
    }
    if ((op.kind == OpKind::DynSlice || op.kind == OpKind::DynUpdate || op.kind == OpKind::Grad) &&
        f_.kind == FunctionKind::Kernel)
      faults_.add(op, "is for references only");
    infer(op);
    effects(op);
  }

private:
  bool attributes(const Op &op) {
    bool ok = true;
    for (const AttrRule &rule : required_attrs(op.kind)) {
      const Attr *a = find_attr(op, rule.key);
      DType dtype = rule.type == 'n' && op.attrs.has("dtype") ? op.attrs.dtype("dtype") : DType::I32;
      if (a && has_type(*a, rule.type, dtype)) continue;
      faults_.add(op, "attribute `{}` is {}", rule.key, a ? "of another type" : "missing");
      ok = false;
    }
    if (ok && is_global_access(op.kind)) ok = access(op);
    return ok;
  }

  // Lists that have one entry per tensor dim.
  bool access(const Op &op) {
    if (op.operands.empty() || !op.operand(0)->type.is_tensor()) {
      faults_.add(op, "needs a tensor");
      return false;
    }
    bool ok = true;
    for (const char *key : {"sizes", "drop", "gather", "in_bounds", "divisor"}) {
      const Attr *a = find_attr(op, key);
      if (!a) continue; // the facts are optional
      const auto *list = std::get_if<std::vector<int64_t>>(a);
      if (list && int64_t(list->size()) == op.operand(0)->type.rank()) continue;
      faults_.add(op, "attribute `{}` must have one entry per dim of the tensor", key);
      ok = false;
    }
    return ok;
  }

  void infer(const Op &op) {
    Op copy = op;
    copy.results.clear();
    Diagnostics diags(sources_);
    InferCtx ctx(shadow_, copy, {}, diags);
    def(op).infer.f(ctx, copy);
    if (ctx.failed()) return faults_.add(op, "{}", diags.all().empty() ? "inference fails" : diags.all()[0].text);
    if (copy.results.size() != op.results.size())
      return faults_.add(op, "has {} results; inference gives {}", op.results.size(), copy.results.size());
    for (size_t i = 0; i < copy.results.size(); i++)
      if (copy.result(i)->type != op.result(i)->type)
        faults_.add(op, "result {} is a {}; inference gives {}", i, op.result(i)->type.str(),
                    copy.result(i)->type.str());
    for (const auto &[key, value] : copy.attrs.list())
      if (const Attr *a = find_attr(op, key); !a)
        faults_.add(op, "attribute `{}` is missing", key);
      else if (!(print_attr(*a) == print_attr(value)))
        faults_.add(op, "attribute `{}` is {}; inference gives {}", key, print_attr(*a), print_attr(value));
  }

  void convert(const Op &op) {
    if (op.operands.size() != 1 || op.results.size() != 1 || !op.operand(0)->type.is_tile() ||
        op.operand(0)->type != op.result()->type)
      faults_.add(op, "needs one tile and gives the same type");
  }
  void scratch_store(const Op &op) {
    if (op.operands.size() != 1 || !op.operand(0)->type.is_tile() || op.results.size() != 1 ||
        op.result()->type != Type::token())
      return faults_.add(op, "needs one tile and gives a token");
    const SmemLayout &smem = op.attrs.get<SmemLayout>("smem");
    if (smem.shape != op.operand(0)->type.shape || !smem.is_valid() ||
        smem.elem_bytes != dtype_bytes(op.operand(0)->type.dtype))
      faults_.add(op, "`smem` does not fit {}", op.operand(0)->type.str());
  }
  void scratch_load(const Op &op) {
    const Op *store = op.operands.size() == 1 ? op.operand(0)->op : nullptr;
    if (!store || store->kind != OpKind::ScratchStore || op.results.size() != 1)
      return faults_.add(op, "needs the token of a scratch_store and gives one tile");
    if (store->operands.size() == 1 && op.result()->type != store->operand(0)->type)
      faults_.add(op, "gives a {}, stored was a {}", op.result()->type.str(), store->operand(0)->type.str());
  }

  void effects(const Op &op) {
    for (const Value *v : op.operands)
      if (v->op && v->op->kind == OpKind::RecordField && op.kind != OpKind::Load && op.kind != OpKind::Store &&
          op.kind != OpKind::Dim && op.kind != OpKind::RingFill)
        faults_.add(op, "takes a field of records, which only load, store, dim and ring_fill do");
    const Effects &e = def(op).effects;
    for (int i = 0; i < e.count; i++) {
      const Effect &x = e.list[i];
      if (x.operand < 0) continue;
      if (size_t(x.operand) >= op.operands.size()) {
        faults_.add(op, "an effect names operand {}", int(x.operand));
        continue;
      }
      const Value *v = op.operand(size_t(x.operand));
      if (x.space != Space::Global) continue;
      if (!v->type.is_tensor()) {
        faults_.add(op, "accesses operand {}, which is a {}", int(x.operand), v->type.str());
        continue;
      }
      v = root_tensor(v);
      if (x.access == Access::Read || v->op || v->block != f_.body) continue;
      size_t arg = 0;
      for (const Param &p : f_.params) {
        if (!p.present) continue;
        if (int64_t(arg++) == v->index && p.mode == ParamMode::In)
          faults_.add(op, "writes the `in` parameter `{}`", p.name);
      }
    }
  }

  const Function &f_;
  Faults &faults_;
  Function shadow_;
  SourceManager sources_;
};

} // namespace

void verify_types(const Function &f, Faults &faults) {
  Types types(f, faults);
  walk(f.body, [&](const Op *op) { types.check(*op); });
}

} // namespace tkc::ir

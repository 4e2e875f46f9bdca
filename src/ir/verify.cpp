#include "ir/verify_rules.h"
#include <algorithm>
#include <unordered_set>

namespace tkc::ir {

const char *stage_name(Stage stage) {
  switch (stage) {
  case Stage::typed: return "typed";
  case Stage::laid_out: return "laid_out";
  case Stage::scheduled: return "scheduled";
  case Stage::allocated: return "allocated";
  }
  TKC_UNREACHABLE("stage");
}

namespace {

std::string types_text(const std::vector<Value *> &values) {
  std::string out;
  for (const Value *v : values) out += (out.empty() ? "" : ", ") + v->type.str();
  return "(" + out + ")";
}

bool same_types(const std::vector<Value *> &a, const std::vector<Value *> &b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (a[i]->type != b[i]->type) return false;
  return true;
}

std::vector<Value *> from(const std::vector<Value *> &v, size_t begin) {
  return {v.begin() + int64_t(std::min(begin, v.size())), v.end()};
}

class Structure {
public:
  Structure(const Function &f, Faults &faults) : f_(f), faults_(faults) {}

  void run() {
    if (!f_.body) return faults_.add("the function has no body");
    if (f_.body->parent) faults_.add("the body has a parent op");
    header();
    block(*f_.body);
  }

private:
  void header() {
    std::vector<Type> expected;
    for (const Param &p : f_.params) {
      bool fits =
          f_.kind == FunctionKind::Kernel ? p.type.is_tensor() || p.type.is_scalar() : p.type.kind != TypeKind::None;
      if (!fits) faults_.add("parameter `{}` is a {}", p.name, p.type.str());
      if (p.type.is_tensor()) {
        if (int64_t(p.dims.size()) != p.type.rank())
          faults_.add("parameter `{}` has {} dims for rank {}", p.name, p.dims.size(), p.type.rank());
        else
          for (size_t d = 0; d < p.dims.size(); d++)
            if (p.type.shape[d] != (p.dims[d].is_const() ? p.dims[d].value() : kDynamic))
              faults_.add("extent {} of parameter `{}` is {}, its dim {}", d, p.name, p.type.shape[d], p.dims[d].str());
      }
      if (!p.present && !p.optional) faults_.add("parameter `{}` is absent but not optional", p.name);
      if (p.present) expected.push_back(p.type);
    }
    for (size_t i = 0; i < f_.sizes.size(); i++) expected.push_back(Type::scalar(DType::I32));
    const std::vector<Value *> &args = f_.body->args;
    if (args.size() != expected.size())
      return faults_.add("the entry block has {} arguments for {} parameters and sizes", args.size(), expected.size());
    for (size_t i = 0; i < args.size(); i++)
      if (args[i]->type != expected[i])
        faults_.add("entry argument {} is a {}, the parameter a {}", i, args[i]->type.str(), expected[i].str());
    if (f_.kind == FunctionKind::Kernel && (f_.warps < 0 || f_.warps > 32 || (f_.warps & (f_.warps - 1))))
      faults_.add("{} warps: not a power of two up to 32", f_.warps);
  }

  void define(const Value *v) {
    if (!defined_.insert(v).second) faults_.add("value %{} (id {}) is defined twice", v->name, v->id);
    if (!ids_.insert(v->id).second) faults_.add("two values have id {}", v->id);
    if (v->type.kind == TypeKind::None) faults_.add("value %{} (id {}) has no type", v->name, v->id);
    if (v->type.is_tile()) {
      if (v->type.rank() > max_rank) faults_.add("value %{} has rank {}", v->name, v->type.rank());
      for (int64_t e : v->type.shape)
        if (e < 0 || (e == 0 && f_.kind == FunctionKind::Kernel))
          faults_.add("value %{} has an extent of {}", v->name, e);
    }
  }

  void block(const Block &b) {
    size_t mark = scope_.size();
    for (size_t i = 0; i < b.args.size(); i++) {
      const Value *v = b.args[i];
      if (v->op || v->block != &b || v->index != int64_t(i))
        faults_.add("block argument %{} is not linked to its block", v->name);
      define(v);
      scope_.push_back(v);
    }
    if (b.ops.empty()) faults_.add("a block is empty");
    OpKind end = b.parent ? OpKind::Yield : OpKind::Return;
    for (size_t i = 0; i < b.ops.size(); i++) {
      const Op *op = b.ops[i];
      bool last = i + 1 == b.ops.size();
      bool terminator = op->kind == OpKind::Yield || op->kind == OpKind::Return;
      if (last && op->kind != end)
        faults_.add(*op, "a block of {} must end with {}", b.parent ? "an op" : "a function", def(end).name.s);
      if (!last && terminator) faults_.add(*op, "stands before the end of its block");
      if (op->block != &b) faults_.add(*op, "is not linked to its block");
      if (!ops_.insert(op).second) {
        faults_.add(*op, "stands in two places");
        continue;
      }
      bool whole = true;
      for (const Value *v : op->operands)
        if (!v) {
          faults_.add(*op, "has a null operand");
          whole = false;
        } else if (!defined_.count(v)) {
          faults_.add(*op, "operand %{} is used before its definition or out of its scope", v->name);
        }
      for (const Block *r : op->regions)
        if (!r || r->parent != op) {
          faults_.add(*op, "a region is not linked to its op");
          whole = false;
        }
      if (whole && control(*op))
        for (const Block *r : op->regions) block(*r);
      for (size_t k = 0; k < op->results.size(); k++) {
        const Value *v = op->results[k];
        if (v->op != op || v->block || v->index != int64_t(k)) faults_.add(*op, "result {} is not linked to its op", k);
        define(v);
        scope_.push_back(v);
      }
    }
    for (; scope_.size() > mark; scope_.pop_back()) defined_.erase(scope_.back());
  }

  bool expect_regions(const Op &op, size_t n) {
    if (op.regions.size() == n) return true;
    faults_.add(op, "has {} regions, not {}", op.regions.size(), n);
    return false;
  }
  void expect(const Op &op, const char *what, const std::vector<Value *> &have, const std::vector<Value *> &want) {
    if (!same_types(have, want)) faults_.add(op, "{} are {}, not {}", what, types_text(have), types_text(want));
  }
  std::vector<Value *> yielded(const Block *b) {
    const Op *t = b->terminator();
    if (!t || t->kind != OpKind::Yield) return {};
    for (const Value *v : t->operands)
      if (!v) return {};
    return t->operands;
  }

  bool control(const Op &op) {
    switch (op.kind) {
    case OpKind::For: {
      if (!expect_regions(op, 1)) return false;
      if (op.operands.size() < 3) {
        faults_.add(op, "needs lo, hi and step");
        return false;
      }
      const Type &t = op.operand(0)->type;
      if (!t.is_scalar() || !is_integer(t.dtype) || op.operand(1)->type != t || op.operand(2)->type != t)
        faults_.add(op, "lo, hi and step must be integers of one type");
      const Block *b = op.regions[0];
      if (b->args.empty() || b->args[0]->type != t) {
        faults_.add(op, "the first argument of the body must be a {}", t.str());
        return false;
      }
      expect(op, "carried arguments", from(b->args, 1), from(op.operands, 3));
      expect(op, "yielded values", yielded(b), from(op.operands, 3));
      expect(op, "results", op.results, from(op.operands, 3));
      return true;
    }
    case OpKind::While: {
      if (!expect_regions(op, 2)) return false;
      std::vector<Value *> cond = yielded(op.regions[0]);
      if (cond.size() != 1 || cond[0]->type != Type::scalar(DType::Bool))
        faults_.add(op, "the first region must yield one bool");
      expect(op, "arguments of the condition", op.regions[0]->args, op.operands);
      expect(op, "arguments of the body", op.regions[1]->args, op.operands);
      expect(op, "yielded values", yielded(op.regions[1]), op.operands);
      expect(op, "results", op.results, op.operands);
      return true;
    }
    case OpKind::If:
      if (!expect_regions(op, 2)) return false;
      if (op.operands.size() != 1 || op.operand(0)->type != Type::scalar(DType::Bool))
        faults_.add(op, "needs one bool");
      for (const Block *r : op.regions) {
        if (!r->args.empty()) faults_.add(op, "its regions take no arguments");
        expect(op, "yielded values", yielded(r), op.results);
      }
      return true;
    case OpKind::Roles:
      if (!op.attrs.has("warps") || op.attrs.ints("warps").size() != op.regions.size() || op.regions.empty()) {
        faults_.add(op, "does not say how many warps each of its regions has");
        return false;
      }
      if (op.block != f_.body || roles_of(f_) != &op)
        faults_.add(op, "stands inside another op, or is not the only one");
      for (const Block *r : op.regions)
        if (!r->args.empty() || !yielded(r).empty()) faults_.add(op, "its regions take and yield nothing");
      return true;
    case OpKind::InlinePtx: { // the region is the meaning of one element
      if (op.regions.empty()) return true;
      if (!expect_regions(op, 1)) return false;
      const Block *b = op.regions[0];
      bool fits = b->args.size() == op.operands.size() && op.results.size() == 1;
      for (size_t i = 0; fits && i < b->args.size(); i++)
        fits = b->args[i]->type == Type::scalar(op.operand(i)->type.dtype);
      std::vector<Value *> y = yielded(b);
      fits = fits && y.size() == 1 && y[0]->type == Type::scalar(op.result()->type.dtype);
      if (!fits) faults_.add(op, "its meaning must be a function of one element of each operand");
      return true;
    }
    case OpKind::Grad: { // the region is what is differentiated
      if (!expect_regions(op, 1)) return false;
      size_t inputs = size_t(std::clamp<int64_t>(op.attrs.i_or("inputs", 0), 0, int64_t(op.operands.size())));
      std::vector<Value *> at(op.operands.begin(), op.operands.begin() + int64_t(inputs));
      expect(op, "arguments of its region", op.regions[0]->args, at);
      std::vector<Value *> y = yielded(op.regions[0]), cotangents = from(op.operands, inputs);
      if (y.size() != cotangents.size())
        faults_.add(op, "has {} cotangents for {} values", cotangents.size(), y.size());
      for (size_t i = 0; i < std::min(y.size(), cotangents.size()); i++)
        if (!is_float(y[i]->type.dtype) || cotangents[i]->type != y[i]->type.with_dtype(DType::F64))
          faults_.add(op, "cotangent {} is a {} for a {}", i, cotangents[i]->type.str(), y[i]->type.str());
      return true;
    }
    case OpKind::Yield:
      if (!op.results.empty()) faults_.add(op, "has results");
      return expect_regions(op, 0);
    case OpKind::Return:
      if (!op.results.empty()) faults_.add(op, "has results");
      if (f_.kind == FunctionKind::Kernel && !op.operands.empty()) faults_.add(op, "a kernel returns nothing");
      if (!f_.result_names.empty() && op.operands.size() != f_.result_names.size())
        faults_.add(op, "returns {} values for {} results", op.operands.size(), f_.result_names.size());
      return expect_regions(op, 0);
    default: return expect_regions(op, 0);
    }
  }

  const Function &f_;
  Faults &faults_;
  std::unordered_set<const Value *> defined_;
  std::vector<const Value *> scope_;
  std::unordered_set<int64_t> ids_;
  std::unordered_set<const Op *> ops_;
};

} // namespace

void verify_structure(const Function &f, Faults &faults) { Structure(f, faults).run(); }

std::vector<std::string> verify(const Function &f, Stage stage) {
  Faults faults;
  verify_structure(f, faults);
  if (faults.list.empty()) verify_types(f, faults);
  if (faults.list.empty()) verify_layouts(f, stage, faults);
  if (faults.list.empty() && stage >= Stage::allocated) verify_shared(f, faults);
  return std::move(faults.list);
}

} // namespace tkc::ir

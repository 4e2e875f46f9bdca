// assert and print: calls that the driver's printf and assertion buffers serve.
#include "codegen/access.h"
#include "codegen/convert_float.h"
#include "codegen/nvvm.h"
#include "ops/lowering.h"
#include "support/check.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/MDBuilder.h"

namespace tkc::ops {

using codegen::LowerCtx;
using codegen::Regs;
using ir::Op;
using V = llvm::Value *;
namespace nvvm = codegen::nvvm;

namespace {

llvm::BasicBlock *new_block(LowerCtx &c, const char *name) {
  return llvm::BasicBlock::Create(c.b.getContext(), name, c.b.GetInsertBlock()->getParent());
}

// True where a register lies in the exact shape; null: everywhere.
V inside(LowerCtx &c, const RegLayout &l, int reg) {
  V all = nullptr;
  for (int64_t d = 0; d < int64_t(l.shape.size()); d++)
    all = codegen::both(c, all, codegen::inside_predicate(c, l, reg, d));
  return all;
}

std::string escaped(const std::string &text) { // for printf
  std::string out;
  for (char ch : text) out += ch == '%' ? "%%" : std::string(1, ch);
  return out;
}

// "{}" stands for a value, "{{" and "}}" for braces.
std::vector<std::string> split_format(const std::string &format) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < format.size(); i++) {
    std::string_view two = std::string_view(format).substr(i, 2);
    if (two == "{}")
      parts.emplace_back();
    else
      parts.back() += format[i];
    if (two == "{}" || two == "{{" || two == "}}") i++;
  }
  return parts;
}

// printf's conversion of a dtype, with enough digits to read the number back, and its argument. C has no pattern for
// bool: a string would need a pointer for each word.
struct Printed {
  const char *pattern;
  V argument;
};
Printed printed(LowerCtx &c, DType t, V x) {
  if (is_float(t)) {
    V wide = t == DType::F64 ? x : codegen::widen(c, t, {x})[0];
    const char *pattern = t == DType::F64 ? "%.17g" : t == DType::F32 ? "%.9g" : dtype_bits(t) <= 8 ? "%g" : "%.5g";
    return {pattern, wide};
  }
  bool wide = dtype_bits(t) == 64;
  llvm::Type *type = wide ? c.b.getInt64Ty() : c.b.getInt32Ty();
  V v = is_signed(t) ? c.b.CreateSExt(x, type) : c.b.CreateZExt(x, type);
  return {is_signed(t) || is_bool(t) ? (wide ? "%lld" : "%d") : (wide ? "%llu" : "%u"), v};
}

} // namespace

// Every thread checks what it holds; a fault ends the launch with message, file, line and kernel.
void lower_Assert(LowerCtx &c, const Op &op) {
  const ir::Value *x = op.operand(0);
  const RegLayout &l = c.layout(x);
  V ok = c.b.getTrue();
  for (int r : c.live_regs(x)) {
    V holds = c.regs(x)[size_t(r)];
    if (V in = inside(c, l, r)) holds = c.b.CreateOr(holds, c.b.CreateNot(in));
    ok = c.b.CreateAnd(ok, holds);
  }
  llvm::BasicBlock *fail = new_block(c, "assert.fail"), *after = new_block(c, "assert.end");
  c.b.CreateCondBr(ok, after, fail, llvm::MDBuilder(c.b.getContext()).createLikelyBranchWeights());
  c.b.SetInsertPoint(fail);
  std::string file = "kernel";
  int64_t line = 0;
  if (c.sources() && op.loc.valid()) {
    const SourceFile &f = c.sources()->file(op.loc.file);
    file = f.name().substr(f.name().find_last_of('/') + 1);
    line = f.position(op.loc.begin).line;
  }
  const std::string &message = op.attrs.s("message");
  nvvm::assertfail(c.b, message.empty() ? "assertion failed" : message, file, line, c.function.name);
  c.b.CreateUnreachable();
  c.b.SetInsertPoint(after);
}

// Thread 0 prints the line with the scalars; a tile stands in it by its name and follows element by element, each from
// the thread that owns it, as "name[i, j] = value".
void lower_Print(LowerCtx &c, const Op &op) {
  std::vector<std::string> parts = split_format(op.attrs.s("format"));
  TKC_CHECK(parts.size() == op.operands.size() + 1, "print: {} values for {} places", op.operands.size(),
            parts.size() - 1);
  auto name = [&](size_t i) {
    const ir::Value *v = op.operand(i);
    return v->name.empty() ? fmt::format("value{}", i) : v->name;
  };
  codegen::where(c, c.b.CreateICmpEQ(c.thread(), c.i32(0)), [&] {
    std::string text = escaped(parts[0]);
    std::vector<V> args;
    for (size_t i = 0; i < op.operands.size(); i++) {
      const ir::Value *v = op.operand(i);
      if (v->type.is_scalar()) {
        Printed p = printed(c, v->type.dtype, c.scalar(v));
        text += p.pattern;
        args.push_back(p.argument);
      } else {
        text += escaped(name(i) + ir::shape_str(v->type.shape));
      }
      text += escaped(parts[i + 1]);
    }
    nvvm::vprintf(c.b, text + "\n", args);
  });
  for (size_t i = 0; i < op.operands.size(); i++) {
    const ir::Value *v = op.operand(i);
    if (v->type.is_scalar()) continue;
    const RegLayout &l = c.layout(v);
    V owner = codegen::owner_predicate(c, l);
    for (int r : c.live_regs(v)) {
      if (uint32_t(r) & l.free_bits().reg) continue;
      codegen::where(c, codegen::both(c, owner, inside(c, l, r)), [&] {
        Printed p = printed(c, v->type.dtype, c.regs(v)[size_t(r)]);
        std::string text = escaped(name(i)) + "[";
        std::vector<V> args;
        for (int64_t d = 0; d < v->type.rank(); d++) {
          text += d ? ", %d" : "%d";
          args.push_back(c.coordinate(l, r, d));
        }
        args.push_back(p.argument);
        nvvm::vprintf(c.b, text + "] = " + p.pattern + "\n", args);
      });
    }
  }
}

} // namespace tkc::ops

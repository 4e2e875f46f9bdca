// PTX written by the user: one asm statement for each element.
#include "codegen/lower_ctx.h"
#include "codegen/nvvm.h"
#include "ops/lowering.h"
#include "support/check.h"

namespace tkc::ops {

using codegen::LowerCtx;
using codegen::Regs;
using ir::Op;
using V = llvm::Value *;
namespace nvvm = codegen::nvvm;

namespace {

// How a dtype passes through asm: a predicate, a 16-, 32- or 64-bit register, or a float register. There is no 8-bit
// register class: bytes stand in the low half of a 16-bit one.
struct Operand {
  const char *letter;
  llvm::Type *type;
};
Operand asm_operand(LowerCtx &c, DType t) {
  llvm::IRBuilder<> &b = c.b;
  if (is_bool(t)) return {"b", b.getInt1Ty()};
  if (t == DType::F32 || t == DType::TF32) return {"f", b.getFloatTy()};
  if (t == DType::F64) return {"d", b.getDoubleTy()};
  switch (dtype_bits(t)) {
  case 64: return {"l", b.getInt64Ty()};
  case 32: return {"r", b.getInt32Ty()};
  default: return {"h", b.getInt16Ty()};
  }
}

V to_operand(LowerCtx &c, DType t, V x) {
  llvm::Type *type = asm_operand(c, t).type;
  if (x->getType() == type) return x;
  if (dtype_bits(t) == 16) return c.b.CreateBitCast(x, type);
  return is_signed(t) ? c.b.CreateSExt(x, type) : c.b.CreateZExt(x, type);
}

V from_operand(LowerCtx &c, DType t, V x) {
  if (x->getType() == c.type(t)) return x;
  return dtype_bits(t) == 16 ? c.b.CreateBitCast(x, c.type(t)) : c.b.CreateTrunc(x, c.type(t));
}

// $N is an operand (the longest run of digits, so $10 is not $1 followed by 0); any other dollar is PTX's own.
std::string asm_text(const std::string &text, size_t operands) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') end++;
    if (end == i + 1) {
      out += "$$";
      continue;
    }
    std::string digits = text.substr(i + 1, end - i - 1);
    TKC_CHECK(digits.size() <= 4 && size_t(std::stoi(digits)) < operands, "inline_ptx: ${} of {} operands", digits,
              operands);
    out += "${" + digits + "}";
    i = end - 1;
  }
  return out;
}

} // namespace

void lower_InlinePtx(LowerCtx &c, const Op &op) {
  DType result = op.attrs.dtype("dtype");
  std::vector<const Regs *> in;
  nvvm::Asm code;
  code.text = asm_text(op.attrs.s("text"), op.operands.size() + 1);
  code.constraints = fmt::format("={}", asm_operand(c, result).letter);
  code.result = asm_operand(c, result).type;
  for (const ir::Value *v : op.operands) {
    in.push_back(&c.regs(v));
    code.constraints += fmt::format(",{}", asm_operand(c, v->type.dtype).letter);
  }
  if (op.attrs.s("effects") == "memory") {
    code.side_effects = true;
    code.constraints += ",~{memory}";
  }
  // What names other threads must not be moved under a condition.
  code.convergent = code.side_effects || code.text.find(".sync") != code.text.npos;
  Regs out = c.no_regs(op.result());
  for (int r : c.live_regs(op.result())) {
    std::vector<V> args;
    for (size_t i = 0; i < in.size(); i++)
      args.push_back(to_operand(c, op.operand(i)->type.dtype, (*in[i])[size_t(r)]));
    out[size_t(r)] = from_operand(c, result, nvvm::inline_asm(c.b, code, args));
  }
  c.set(op.result(), std::move(out));
}

} // namespace tkc::ops

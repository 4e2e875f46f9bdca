// Loads, stores and atomics. Without a predicate plain LLVM accesses are best: the optimiser sees through them. With
// one, inline asm under a predicate keeps the code straight; branches would cost a basic block per access.
#include "codegen/nvvm.h"
#include "support/check.h"
#include "llvm/IR/InlineAsm.h"
#include <array>

namespace tkc::codegen::nvvm {

using namespace llvm;

namespace {

const char *space_name(unsigned space) { return space == kShared ? ".shared" : ".global"; }

// Addresses as asm operands: 64 bits for global, 32 for shared.
V address_operand(Builder &b, unsigned space, V address) {
  return b.CreatePtrToInt(address, space == kShared ? b.getInt32Ty() : b.getInt64Ty());
}
const char *address_letter(unsigned space) { return space == kShared ? "r" : "l"; }

// The constraint letter of an asm operand by size. There is no 8-bit register class: bytes travel in i16.
const char *int_letter(unsigned bits) { return bits <= 16 ? "h" : bits == 32 ? "r" : "l"; }
Type *asm_int(Builder &b, Type *word) { return word->getIntegerBitWidth() < 16 ? b.getInt16Ty() : word; }

std::string vector_suffix(size_t n) { return n == 1 ? "" : fmt::format(".v{}", n); }

// {$first, ..., $last} or $first.
std::string operand_list(size_t first, size_t n) {
  if (n == 1) return fmt::format("${}", first);
  std::string s = "{";
  for (size_t i = 0; i < n; i++) s += fmt::format("{}${}", i ? ", " : "", first + i);
  return s + "}";
}

void annotate(Builder &b, Instruction *i, const Access &access, bool load) {
  MDNode *empty = MDNode::get(b.getContext(), {});
  if (load && access.nc) i->setMetadata(LLVMContext::MD_invariant_load, empty);
}

Type *result_struct(Builder &b, Type *t, size_t n) {
  return n == 1 ? t : StructType::get(b.getContext(), SmallVector<Type *, 8>(n, t));
}

} // namespace

Values ld(Builder &b, const Access &access, V address, Type *word, int64_t count, V predicate,
          std::span<Value *const> other) {
  size_t n = size_t(count);
  unsigned bits = word->getIntegerBitWidth();
  Values out;
  if (!predicate && !access.streaming) {
    Type *type = n == 1 ? word : static_cast<Type *>(FixedVectorType::get(word, unsigned(n)));
    LoadInst *l = b.CreateAlignedLoad(type, address, Align(uint64_t(access.alignment)));
    annotate(b, l, access, true);
    if (n == 1) return {l};
    for (size_t i = 0; i < n; i++) out.push_back(b.CreateExtractElement(l, uint64_t(i)));
    return out;
  }
  // Outputs $0.., then the address, then the predicate; `other` is tied to the outputs.
  Type *reg = asm_int(b, word);
  std::string text = predicate ? fmt::format("@${} ", n + 1) : "";
  text += fmt::format("ld{}{}{}{}.b{} {}, [${}];", space_name(access.space),
                      access.nc && access.space == kGlobal ? ".nc" : "", access.streaming && !access.nc ? ".cs" : "",
                      vector_suffix(n), bits, operand_list(0, n), n);
  std::string constraints;
  for (size_t i = 0; i < n; i++) constraints += fmt::format("={},", int_letter(bits));
  constraints += address_letter(access.space);
  SmallVector<Value *, 18> args = {address_operand(b, access.space, address)};
  if (predicate) {
    constraints += ",b";
    args.push_back(predicate);
    for (size_t i = 0; i < n; i++) {
      constraints += fmt::format(",{}", i);
      V o = other.empty() ? ConstantInt::get(word, 0) : other[i];
      args.push_back(b.CreateZExt(o, reg));
    }
  }
  // What may change must stay in order with stores and barriers; .nc is a pure function of address and predicate.
  if (!access.nc) constraints += ",~{memory}";
  V r = inline_asm(b, {text, constraints, result_struct(b, reg, n), !access.nc}, args);
  for (size_t i = 0; i < n; i++) out.push_back(b.CreateTrunc(n == 1 ? r : b.CreateExtractValue(r, unsigned(i)), word));
  return out;
}

void st(Builder &b, const Access &access, V address, std::span<Value *const> words, V predicate) {
  size_t n = words.size();
  Type *word = words[0]->getType();
  if (!predicate && !access.streaming) {
    V v = words[0];
    if (n > 1) {
      v = PoisonValue::get(FixedVectorType::get(word, unsigned(n)));
      for (size_t i = 0; i < n; i++) v = b.CreateInsertElement(v, words[i], uint64_t(i));
    }
    b.CreateAlignedStore(v, address, Align(uint64_t(access.alignment)));
    return;
  }
  unsigned bits = word->getIntegerBitWidth();
  Type *reg = asm_int(b, word);
  std::string text = predicate ? fmt::format("@${} ", n + 1) : "";
  text += fmt::format("st{}{}{}.b{} [$0], {};", space_name(access.space), access.streaming ? ".cs" : "",
                      vector_suffix(n), bits, operand_list(1, n));
  std::string constraints = address_letter(access.space);
  SmallVector<Value *, 18> args = {address_operand(b, access.space, address)};
  for (Value *w : words) {
    constraints += fmt::format(",{}", int_letter(bits));
    args.push_back(b.CreateZExt(w, reg));
  }
  if (predicate) {
    constraints += ",b";
    args.push_back(predicate);
  }
  inline_asm(b, {text, constraints + ",~{memory}", nullptr, true}, args);
}

namespace {

const char *atom_name(AtomOp op) {
  switch (op) {
  case AtomOp::Add: return ".add";
  case AtomOp::Min: return ".min";
  case AtomOp::Max: return ".max";
  case AtomOp::And: return ".and";
  case AtomOp::Or: return ".or";
  case AtomOp::Xor: return ".xor";
  case AtomOp::Exch: return ".exch";
  case AtomOp::Inc: return ".inc";
  case AtomOp::Dec: return ".dec";
  }
  TKC_UNREACHABLE("AtomOp");
}

struct AtomType {
  std::string suffix; // .noftz.f16x2
  const char *letter;
  Type *reg; // of the asm operand
};

AtomType atom_type(Builder &b, std::string_view type) {
  std::string dotted = "." + std::string(type);
  if (type == "f32") return {dotted, "f", b.getFloatTy()};
  if (type == "f64") return {dotted, "d", b.getDoubleTy()};
  if (type == "f16x2" || type == "bf16x2") return {".noftz" + dotted, "r", b.getInt32Ty()};
  if (type == "f16" || type == "bf16") return {".noftz" + dotted, "h", b.getInt16Ty()};
  if (type == "b16") return {dotted, "h", b.getInt16Ty()};
  if (type.ends_with("64")) return {dotted, "l", b.getInt64Ty()};
  return {dotted, "r", b.getInt32Ty()};
}

const char *scope(unsigned space) { return space == kShared ? ".relaxed.cta.shared" : ".relaxed.gpu.global"; }

} // namespace

V atom(Builder &b, unsigned space, AtomOp op, std::string_view type, V address, V value, V predicate) {
  AtomType t = atom_type(b, type);
  std::string text = predicate ? "@$3 " : "";
  text += fmt::format("atom{}{}{} $0, [$1], $2;", scope(space), atom_name(op), t.suffix);
  std::string constraints = fmt::format("={},{},{}", t.letter, address_letter(space), t.letter);
  SmallVector<Value *, 4> args = {address_operand(b, space, address), b.CreateBitCast(value, t.reg)};
  if (predicate) {
    constraints += ",b,0"; // a lane without the predicate gets its operand back
    args.push_back(predicate);
    args.push_back(Constant::getNullValue(t.reg));
  }
  V r = inline_asm(b, {text, constraints + ",~{memory}", t.reg, true}, args);
  return b.CreateBitCast(r, value->getType());
}

V atom_cas(Builder &b, unsigned space, std::string_view type, V address, V compare, V value, V predicate) {
  AtomType t = atom_type(b, type);
  std::string text = predicate ? "@$4 " : "";
  text += fmt::format("atom{}.cas{} $0, [$1], $2, $3;", scope(space), t.suffix);
  std::string constraints = fmt::format("={},{},{},{}", t.letter, address_letter(space), t.letter, t.letter);
  SmallVector<Value *, 5> args = {address_operand(b, space, address), b.CreateBitCast(compare, t.reg),
                                  b.CreateBitCast(value, t.reg)};
  if (predicate) {
    constraints += ",b,0";
    args.push_back(predicate);
    args.push_back(Constant::getNullValue(t.reg));
  }
  V r = inline_asm(b, {text, constraints + ",~{memory}", t.reg, true}, args);
  return b.CreateBitCast(r, value->getType());
}

void red(Builder &b, unsigned space, AtomOp op, std::string_view type, V address, std::span<Value *const> values,
         V predicate) {
  AtomType t = atom_type(b, type);
  size_t n = values.size();
  // The manual writes the vector before the type: red.global.v4.f32.add is red.global.add.v4.f32, noftz first.
  std::string suffix = t.suffix;
  if (n > 1) {
    size_t dot = suffix.rfind('.');
    suffix.insert(dot, vector_suffix(n));
  }
  std::string text = predicate ? fmt::format("@${} ", n + 1) : "";
  text += fmt::format("red{}{}{} [$0], {};", scope(space), atom_name(op), suffix, operand_list(1, n));
  std::string constraints = address_letter(space);
  SmallVector<Value *, 10> args = {address_operand(b, space, address)};
  for (Value *v : values) {
    constraints += fmt::format(",{}", t.letter);
    args.push_back(b.CreateBitCast(v, t.reg));
  }
  if (predicate) {
    constraints += ",b";
    args.push_back(predicate);
  }
  inline_asm(b, {text, constraints + ",~{memory}", nullptr, true}, args);
}

} // namespace tkc::codegen::nvvm

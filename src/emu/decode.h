// From the tree of the parser to Inst. Each instruction family registers one function per opcode root (`add`, `ld`,
// ...); it consumes the modifiers that it knows, fetches its operands and chooses a handler. A modifier left over, a
// wrong operand count or width, or an unknown root is an error that names the instruction.
//
// After the first failure of an instruction every call returns a harmless default, so the functions need no checks.
#pragma once
#include "emu/module.h"
#include <fmt/format.h>
#include <map>

namespace tkc::emu {

class Decoder {
public:
  Decoder(const PtxModule &module, Program &program, std::vector<PtxDiagnostic> &errors)
      : module_(module), program_(program), errors_(errors) {}
  // Decodes a kernel and the functions that it calls.
  void kernel(const PtxFunction &f);

  // ---- for the instruction families
  Inst out;
  Program &program() { return program_; }
  template <typename... Args> void fail(fmt::format_string<Args...> text, Args &&...args) {
    report(fmt::format(text, std::forward<Args>(args)...));
  }
  bool failed() const { return failed_; }

  bool take(std::string_view modifier);                                           // consumes it if present
  std::string_view take_any(std::initializer_list<std::string_view> modifiers);   // the one present, or ""
  std::string_view take_first(std::initializer_list<std::string_view> modifiers); // the one that stands first
  std::string_view take_prefixed(std::string_view prefix); // the first modifier that begins so, or ""
  bool has(std::string_view modifier) const;
  Type take_type(); // the first modifier that is a type
  std::optional<Type> maybe_type();
  void unsupported(); // "not in the supported subset"

  int64_t operand_count() const { return int64_t(inst_->operands.size()); }
  void need_operands(int64_t count) { need_operands(count, count); }
  void need_operands(int64_t least, int64_t most);
  const PtxOperand &operand(int64_t k) const;

  // Rows of register or immediate operands. `bits` is the width that the instruction needs; a register of another width
  // is an error, except where `wider` allows a larger one (ld, st, cvt).
  uint32_t source(int64_t k, Type t) { return source(operand(k), t); }
  uint32_t source(const PtxOperand &o, Type t, bool wider = false);
  uint32_t destination(int64_t k, Type t) { return destination(operand(k), t); }
  uint32_t destination(const PtxOperand &o, Type t, bool wider = false); // `_` is a scratch row
  uint32_t constant(uint64_t bits, int bytes);
  int register_bits(const PtxOperand &o) const; // 0 for anything but a register
  Type register_type(const PtxOperand &o) const { return function_->regs[size_t(o.reg)].type; }

  // Predicate slots.
  int32_t predicate(const PtxOperand &o, bool &negated); // source: register, !register or an immediate
  int32_t predicate_destination(const PtxOperand &o);    // `_` is a scratch slot

  // Elements of {a, b, ..}, or the operand itself as the only one.
  std::vector<const PtxOperand *> elements(int64_t k) const;
  uint32_t add_list(const std::vector<uint32_t> &rows);

  // [base + offset]: the row of the 64-bit base (a 32-bit register is zero-extended by the handlers: wide = false) and
  // the offset. A symbol becomes a constant row. A kernel parameter has its offset as address, a .param variable of a
  // call its local address.
  struct Address {
    uint32_t row = 0;
    bool wide = true;
    int64_t offset = 0;
    bool is_local_param = false; // a .param variable of a call or a formal parameter of a .func
  };
  Address address(const PtxOperand &o, Space space);
  // The constant address that a symbol stands for; fails if it is no variable.
  struct SymbolAddress {
    uint64_t bits = 0;
    int32_t symbol = -1;
    Space space = Space::Generic;
    bool is_local_param = false;
  };
  SymbolAddress symbol_address(const PtxOperand &o);
  std::optional<Special> special_register(std::string_view name) const;
  uint32_t special_row(Special s, int bytes);

  void branch_target(const PtxOperand &o); // sets out.target when the function ends
  void branch_table(const PtxOperand &o);  // sets out.list: Program::branch_tables
  void call(const PtxOperand *results, std::string_view name, const PtxOperand *arguments);
  Position position() const { return {inst_->line, inst_->loc_file, inst_->loc_line}; }

private:
  struct FunctionFrame {
    std::vector<int64_t> params, results; // local addresses
  };
  struct Fixup {
    int32_t pc;
    std::string_view name;
    int32_t scope;
    int32_t table; // -1: the target of the instruction itself
  };
  void report(std::string message);
  const PtxFunction *find_function(std::string_view name) const;
  void place_shared(const PtxFunction &kernel);
  void function(const PtxFunction &f);
  void instruction(const PtxInst &inst);
  int64_t place_local(int64_t bytes, int64_t align);
  const FunctionFrame &frame(const PtxFunction &f);
  uint32_t new_row(int bytes);
  uint32_t register_row(int32_t reg);
  int32_t find_label(std::string_view name, int32_t scope) const;
  int32_t symbol_index(std::string_view name);

  const PtxModule &module_;
  Program &program_;
  std::vector<PtxDiagnostic> &errors_;
  const PtxFunction *function_ = nullptr;
  const PtxInst *inst_ = nullptr;
  bool failed_ = false;
  int32_t first_pc_ = 0;                    // of the current function
  std::vector<std::string_view> modifiers_; // of the current instruction; a consumed one is ""
  std::vector<int64_t> rows_;               // of the registers of the current function; -1 = not placed yet
  std::vector<Fixup> fixups_;
  std::map<std::pair<int32_t, std::string_view>, int64_t> local_vars_; // (scope, name) in the current function
  std::map<std::pair<uint64_t, int>, uint32_t> constants_;
  std::map<std::pair<int, int>, uint32_t> special_rows_;
  std::map<std::pair<int32_t, uint64_t>, uint32_t> symbol_rows_;
  std::map<std::string, int64_t, std::less<>> shared_vars_; // of the module and of every function: name -> address
  std::map<int, uint32_t> scratch_rows_;
  int32_t scratch_predicate_ = -1;
  std::map<std::string_view, FunctionFrame> frames_;
  std::map<std::string_view, int32_t> entries_;                // decoded functions: first instruction
  std::vector<std::pair<int32_t, const PtxFunction *>> calls_; // instructions whose target is a function
};

// Several families may share a root (`add`): the first whose `accepts` is true of the first type modifier (Type::Pred
// if there is none) gets the instruction.
struct DecodeEntry {
  std::string_view root;
  void (*decode)(Decoder &);
  bool (*accepts)(Type);
};
inline bool any_type(Type) { return true; }
inline bool scalar_integer_type(Type t) {
  TypeClass c = type_class(t);
  return (c == TypeClass::Signed || c == TypeClass::Unsigned) && t != Type::U16x2 && t != Type::S16x2;
}
inline bool wide_float_type(Type t) { return t == Type::F32 || t == Type::F64; }
inline bool small_float_type(Type t) {
  return t == Type::F16 || t == Type::BF16 || t == Type::F16x2 || t == Type::BF16x2;
}
inline bool packed_type(Type t) {
  return small_float_type(t) || t == Type::F32x2 || t == Type::U16x2 || t == Type::S16x2;
}
inline bool bits_type(Type t) { return type_class(t) == TypeClass::Bits || t == Type::Pred; }

using DecodeTable = std::vector<DecodeEntry>;
} // namespace tkc::emu

// Everything tkc knows about an op, in one initialiser: src/ops/<family>.cpp defines it, src/ir/ops.def is only the
// index.
#pragma once
#include "ir/ir.h"
#include "support/diagnostics.h"
#include <span>

namespace tkc::interp {
class Ctx;
class Reverse;
} // namespace tkc::interp
namespace tkc::codegen {
class LowerCtx;
}

namespace tkc::ir {

struct Target;

// A text that must not be empty and a function that must not be null: a missing facet does not compile.
struct Text {
  const char *s;
  consteval Text(const char *text) : s(text) {
    if (!*text) throw "empty text";
  }
};
// With sanitizers GCC takes no function's address for a constant.
template <typename F> consteval bool is_null([[maybe_unused]] F *function) {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return function == nullptr;
#endif
}
template <typename F> struct Fn {
  F *f;
  consteval Fn(F *function) : f(function) {
    if (is_null(function)) throw "missing function";
  }
};

// Checks an op's operands and attributes and sets the types of its results.
class InferCtx {
public:
  InferCtx(Function &function, Op &op, std::span<const SourceLoc> operand_locs, Diagnostics &diags)
      : function_(function), op_(op), locs_(operand_locs), diags_(diags) {}
  // The op's one result.
  void result(Type type);
  // A user's fault at the op, or at one of its operands; the op then has no results.
  template <typename... Args> void error(DiagKind kind, const Args &...args) {
    failed_ = true;
    diags_.report(op_.loc, kind, args...);
  }
  template <typename... Args> void error_at(size_t operand, DiagKind kind, const Args &...args) {
    failed_ = true;
    diags_.report(operand < locs_.size() ? locs_[operand] : op_.loc, kind, args...);
  }
  bool failed() const { return failed_; }
  Function &function() { return function_; }

private:
  Function &function_;
  Op &op_;
  std::span<const SourceLoc> locs_;
  Diagnostics &diags_;
  bool failed_ = false;
};

enum class Space : uint8_t { Global, Shared, Control }; // Control: side effects that must not be dropped or reordered
enum class Access : uint8_t { Read, Write, ReadWrite };
struct Effect {
  int8_t operand; // -1: the op as a whole
  Space space;
  Access access;
};
// At most three effects; an op without effects is pure.
struct Effects {
  Effect list[3] = {};
  int8_t count = 0;
  constexpr Effects() = default;
  constexpr Effects(Effect a) : list{a}, count(1) {}
  constexpr Effects(Effect a, Effect b) : list{a, b}, count(2) {}
  bool pure() const { return count == 0; }
};

// How an op relates the register layouts of its operands and results.
enum class LayoutKind : uint8_t {
  None,       // no tile results, or control flow
  Free,       // any layout can be made at no cost (constants, iota)
  Pointwise,  // all tile operands and results share one layout
  Structural, // result 0's layout follows from operand 0's (forward) and, where backward is not null, the reverse
  Anchor,     // the layout search proposes layouts (products, memory accesses, scans)
};
using LayoutMap = std::optional<RegLayout>(const Op &, const RegLayout &);
struct LayoutRule {
  LayoutKind kind = LayoutKind::None;
  LayoutMap *forward = nullptr;  // operand layout -> result layout; nullopt: not expressible
  LayoutMap *backward = nullptr; // result layout -> operand layout
};

using ScratchFn = int64_t(const Op &);
using InferFn = void(InferCtx &, Op &);
using InterpFn = void(interp::Ctx &, const Op &);
using LowerFn = void(codegen::LowerCtx &, const Op &);

// What reverse mode (`grad`, interp/reverse.h) knows of an op: a rule that gives the cotangents of its operands from
// those of its results; or that its derivative is 0 wherever it exists; or why there is none. Ops that passes make have
// none.
using AdjointFn = void(interp::Reverse &, const Op &);
struct Derivative {
  enum class Kind : uint8_t { None, Zero, Rule } kind = Kind::None;
  const char *reason = "it is made by passes"; // None, Zero
  AdjointFn *rule = nullptr;
  // Values that the rule looks at and that must therefore be known again: bit i is operand i, the last bit but one
  // every operand from 30 on, the last bit all results.
  uint32_t reads = 0;

  static constexpr uint32_t kResults = uint32_t(1) << 31;
  static constexpr uint32_t kOperands = ~kResults;
  bool reads_operand(size_t i) const { return reads >> (i < 30 ? i : 30) & 1; }
  bool reads_results() const { return reads & kResults; }
};
consteval Derivative adjoint(AdjointFn *rule, uint32_t reads = 0) {
  if (is_null(rule)) throw "missing rule";
  return {Derivative::Kind::Rule, "", rule, reads};
}
consteval Derivative zero_derivative(const char *reason) {
  if (!*reason) throw "missing reason";
  return {Derivative::Kind::Zero, reason};
}
consteval Derivative no_derivative(const char *reason) {
  if (!*reason) throw "missing reason";
  return {Derivative::Kind::None, reason};
}

struct OpDef {
  Text name;   // in IR text, unique
  Text source; // the call's name in .tk source; several ops may share one (max: two operands, or axis =); "-" none
  // "max(x: tile, axis: int, keep: bool = false)": parameters in order. Kinds: tile (a tile or scalar value),
  // scalar (rank 0), view (an indexed tensor), tensor, shared (a slot of a buffer made by `shared`), barrier (an
  // mbarrier), state (what an arrival gives), int, ints, bool, type, string, enum names separated by |. Values are
  // operands, in order; slots and mbarriers are two operands each, behind all others: who made them, and which of its
  // slots (ir/by_hand.h). The rest become attributes of the same name. `= value` makes one optional; `tile?` an
  // optional value; `tile...` any number. Operand names come from here.
  Text signature;
  Text doc;     // what it means, with the mathematics; one paragraph
  Text example; // statements that run in a kernel body; lines starting with "# " are hidden in the manual
  Effects effects = {};
  int min_sm = 80;
  LayoutRule layout = {};
  // Bytes of block-shared scratch that the lowering needs with the layouts and attributes the op now has (exchange
  // between warps); null: never any. Such a lowering writes the scratch at attribute `scratch_offset`, waits at a block
  // barrier and reads it.
  ScratchFn *scratch = nullptr;
  Derivative derivative = {};
  Fn<InferFn> infer;
  Fn<InterpFn> interp;
  Fn<LowerFn> lower;
};

#define TKC_OP(kind, family) extern const OpDef k##kind;
#include "ir/ops.def"
#undef TKC_OP

const OpDef &def(OpKind kind);
inline const OpDef &def(const Op &op) { return def(op.kind); }
// Ops that no source makes: the last section of ops.def; and those of them that come after the layout search.
inline bool made_by_passes(OpKind kind) { return kind >= OpKind::BlockId; }
inline bool made_after_layouts(OpKind kind) { return kind >= OpKind::ConvertLayout; }
std::optional<OpKind> find_op(std::string_view ir_name);
std::vector<OpKind> find_source_ops(std::string_view source_name); // in the order of ops.def
const std::vector<OpKind> &all_ops();

// The parameters of a signature, parsed once.
struct SigParam {
  enum class Kind : uint8_t {
    Tile,
    Scalar,
    View,
    Tensor,
    Shared,
    Barrier,
    State,
    Int,
    Ints,
    Bool,
    Type,
    String,
    Enum
  } kind;
  std::string name;
  bool optional = false, variadic = false;
  std::string default_text;         // "" if none
  std::vector<std::string> choices; // Enum
  bool is_value() const { return kind <= Kind::State; }
  bool is_place() const { return kind == Kind::Shared || kind == Kind::Barrier; }
};
const std::vector<SigParam> &signature(OpKind kind);

} // namespace tkc::ir

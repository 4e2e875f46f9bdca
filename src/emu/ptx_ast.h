// PTX text as a tree, one node a statement: what the parser makes and the decoder reads. Names of registers are already
// resolved to indices; labels, variables and parameters are still names, because they may be declared later.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::emu {

enum class Type : uint8_t {
#define TKC_PTX_TYPE(name, ...) name,
#include "emu/ptx_type.def"
#undef TKC_PTX_TYPE
};
enum class TypeClass : uint8_t { Pred, Bits, Unsigned, Signed, Float };
std::string_view type_name(Type t);
int type_bits(Type t);
inline int type_bytes(Type t) { return (type_bits(t) + 7) / 8; }
TypeClass type_class(Type t);
std::optional<Type> parse_type(std::string_view name); // without the leading dot

enum class Space : uint8_t { Generic, Global, Shared, SharedCluster, Const, Local, Param };
std::string_view space_name(Space s);

struct PtxOperand {
  enum class Kind : uint8_t {
    Register,  // reg; negated for !%p
    Integer,   // bits
    Float32,   // 0f...: bits
    Float64,   // 0d... or a decimal literal: bits of the double
    Symbol,    // name (+ offset): variable, parameter, label, function or special register
    Vector,    // {parts}
    Address,   // [parts[0] + offset], and after a comma parts[1..]: coordinates of a tensor copy
    Pair,      // parts[0] | parts[1]
    Arguments, // (parts): call
    Sink,      // _
  };
  Kind kind = Kind::Integer;
  bool negated = false;
  int32_t reg = -1;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string_view name;
  std::vector<PtxOperand> parts;
};

struct PtxInst {
  std::string_view opcode; // with all modifiers, without the guard
  std::vector<PtxOperand> operands;
  int32_t guard = -1; // predicate register
  bool guard_negated = false;
  int32_t line = 0;
  int32_t scope = 0;
  int32_t loc_file = 0, loc_line = 0; // of the last .loc; 0 = none
};

struct PtxVar {
  std::string name;
  Space space = Space::Global;
  Type type = Type::B8;
  int64_t align = 1, bytes = 0;
  bool external = false;     // .extern: dynamic shared memory
  std::vector<uint8_t> init; // empty: zero (global, const) or undefined (shared, local)
  struct Relocation {
    int64_t at;       // byte offset in init of a 64-bit address
    std::string name; // of the variable it points to
    int64_t offset;
  };
  std::vector<Relocation> relocations;
  int32_t line = 0;
  int32_t scope = 0;
};

struct PtxReg {
  Type type;
  std::string name;
};

struct PtxLabel {
  std::string_view name;
  int32_t scope;
  int32_t target; // index of the next instruction
};

struct PtxBranchTable {
  std::string_view name;
  int32_t scope;
  std::vector<std::string_view> labels;
};

struct PtxParam {
  std::string name;
  Type type = Type::B8;
  int64_t align = 1, bytes = 0, offset = 0;
  bool array = false;           // declared as .b8 name[N]
  std::optional<Space> pointer; // .ptr, and the space it names (Generic if none)
};

struct PtxFunction {
  std::string name;
  bool entry = false, defined = false;
  int32_t line = 0;
  std::vector<PtxParam> params, results;
  int64_t required_threads[3] = {0, 0, 0}; // .reqntid; 0 = not given
  int64_t max_threads = 0;                 // .maxntid product; 0 = not given
  int64_t cluster[3] = {0, 0, 0};          // .reqnctapercluster
  std::vector<PtxReg> regs;
  std::vector<PtxVar> vars; // .local, .shared and .param of the body
  std::vector<int32_t> scope_parent;
  std::vector<PtxLabel> labels;
  std::vector<PtxBranchTable> tables;
  std::vector<PtxInst> code;
};

struct PtxModule {
  std::string text; // owns every string_view of the tree
  std::string version, target;
  std::vector<PtxFunction> functions;
  std::vector<PtxVar> vars;       // .global, .const, .shared
  std::vector<std::string> files; // .file index -> name
};

struct PtxDiagnostic {
  int32_t line;
  std::string message;
};

// Parses all of `module.text`. Goes on after an error at the next statement; stops after 50.
std::vector<PtxDiagnostic> parse_ptx_text(PtxModule &module);

} // namespace tkc::emu

// A decoded module: per kernel a flat instruction array with registers resolved to rows of a warp's register file.
//
// Register file of a warp: 32-bit words; a row is one value for each of the 32 lanes: 32 words for registers of up to
// 32 bits (8- and 16-bit ones zero-extended), 64 for 64-bit ones, 128 (low half row, high half row) for 128-bit ones.
// Immediates and special registers are rows as well, filled when the warp starts, so that every source operand is a
// row. Predicates are 32-bit lane masks in an array of their own; slot 0 is constant true.
#pragma once
#include "emu/emu.h"
#include <array>
#include <unordered_map>

namespace tkc::emu {

struct Warp;
struct Inst;
using Handler = void (*)(Warp &w, const Inst &i, uint32_t mask);

// How control goes on after an instruction: what the search for meeting points needs to know.
enum class Flow : uint8_t { Next, Branch, Table, Return, Exit };

// What the fields mean is the business of the instruction family that fills and reads them, except for run and guard.
struct Inst {
  Handler run = nullptr;
  int32_t guard = 0; // predicate slot; 0 = always
  bool guard_negated = false;
  Flow flow = Flow::Next;
  uint8_t n = 0;                    // element count of a vector or list
  std::array<uint8_t, 6> mode = {}; // small choices
  uint32_t d = 0, a = 0, b = 0, c = 0, e = 0;
  uint32_t list = 0;       // first of the operands in Program::lists
  int32_t reconverge = -1; // of a branch: where its sides meet again; -1 = nowhere
  int32_t target = -1;
  int64_t imm = 0;
};

struct Position {
  int32_t line = 0; // of the PTX text
  int32_t file = 0, source_line = 0;
};

struct Constant {
  uint32_t row;
  uint8_t bytes; // 4, 8 or 16
  uint64_t bits;
  int32_t symbol; // Program::symbols: the address of a variable is added; -1 = none
};

enum class Special : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  SmId,
  NsmId,
  GridId,
  LaneMaskEq,
  LaneMaskLe,
  LaneMaskLt,
  LaneMaskGe,
  LaneMaskGt,
  ClusterIdX,
  ClusterIdY,
  ClusterIdZ,
  NclusterIdX,
  NclusterIdY,
  NclusterIdZ,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusterCtaRank,
  ClusterNctaRank,
  TotalSharedSize,
  DynamicSharedSize,
};
struct SpecialRow {
  uint32_t row;
  uint8_t bytes; // 4 or 8
  Special what;
};

struct SharedVar {
  std::string name;
  int64_t offset = 0, bytes = 0; // offset: shared address
  bool dynamic = false;          // .extern: as long as the launch says
};

// The first bytes of a CTA's shared window are never mapped, as on sm_90, so that a null pointer is out of bounds.
constexpr int64_t kSharedStart = 1024;

struct CallArgument {
  int32_t from, to, bytes; // local addresses
};

struct Program {
  KernelInfo info;
  std::vector<Inst> code;
  std::vector<Position> where;
  std::vector<uint32_t> lists;
  std::vector<Constant> constants;
  std::vector<SpecialRow> specials;
  std::vector<std::string> symbols;    // names of .global and .const variables
  std::vector<CallArgument> arguments; // call: lists of these
  std::vector<SharedVar> shared;
  std::vector<std::vector<int32_t>> branch_tables; // brx.idx: targets
  uint32_t words = 0;                              // of the register file of a warp
  int32_t predicates = 1;
  int64_t local_bytes = 0;           // a thread
  int64_t shared_end = kSharedStart; // where dynamic shared memory begins
  bool orders_blocks = false;        // see emu.h: run by one host thread
  bool uses_copies = false;          // asynchronous ones, or mbarriers
};

struct Module {
  PtxModule ptx;
  uint64_t id = 0; // unique in the process
  std::vector<std::unique_ptr<Program>> programs;
};

} // namespace tkc::emu

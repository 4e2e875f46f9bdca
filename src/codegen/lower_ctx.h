// What an op's lowering sees: one thread of the kernel, in LLVM IR.
//
// A tile value is one LLVM scalar per register of its layout (RegLayout::num_regs() entries; registers that live_regs()
// leaves out are null and never computed). LLVM types: bool i1; integers iN; f16 half; bf16 bfloat; tf32 and f32 float;
// f64 double; e4m3, e5m2 and the other 8-bit formats i8 holding the bits.
#pragma once
#include "codegen/debug_lines.h"
#include "ir/op_def.h"
#include "ir/target.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace tkc::codegen {

using Regs = std::vector<llvm::Value *>;

// A tensor: base pointer (address space 1), extents (i32) and strides (i64, in elements).
struct TensorVal {
  llvm::Value *base = nullptr;
  std::vector<llvm::Value *> extents, strides;
  DType dtype = DType::F32;
  int64_t alignment = 1;               // bytes: of the base and of every stride but the innermost
  std::vector<int64_t> static_extents; // kDynamic where unknown
  bool read_only = false;              // never written by this kernel: ld.global.nc
  int64_t inner_divisor = 1;           // elements: divides a run-time innermost extent (1: nothing is known)
  bool any_strides = false;            // else the innermost stride is the constant 1
  int64_t field_rank = 0;              // the last dims are those of a field of records, whose bytes are permuted
  ir::ByteSwizzle swizzle;
};

class LowerCtx {
public:
  LowerCtx(llvm::Module &module, llvm::IRBuilder<> &builder, const ir::Function &function, const ir::Target &target)
      : b(builder), module(module), function(function), target(target) {}

  llvm::IRBuilder<> &b;
  llvm::Module &module;
  const ir::Function &function;
  const ir::Target &target;

  // ---- values
  const Regs &regs(const ir::Value *v) const;
  llvm::Value *scalar(const ir::Value *v) const { return regs(v)[0]; } // of a rank-0 value
  void set(const ir::Value *v, Regs r);
  const TensorVal &tensor(const ir::Value *v) const;
  void set_tensor(const ir::Value *v, TensorVal t);
  const RegLayout &layout(const ir::Value *v) const;
  // layout(v).live_regs(), computed once for each layout: the registers that a lowering must set.
  const std::vector<int> &live_regs(const ir::Value *v) const;
  Regs no_regs(const ir::Value *v) const { return Regs(size_t(layout(v).num_regs())); } // all null

  // ---- types and constants
  llvm::Type *type(DType t) const;
  llvm::Value *i32(int64_t v) const { return b.getInt32(uint32_t(v)); }
  llvm::Value *i64(int64_t v) const { return b.getInt64(uint64_t(v)); }
  llvm::Value *constant(DType t, double f, int64_t i) const; // f for float types, i for the others

  // ---- the thread
  llvm::Value *lane() const { return lane_; } // 0..31
  llvm::Value *warp() const { return warp_; } // 0..warps-1, uniform in the warp
  llvm::Value *thread() const { return thread_; }
  llvm::Value *program_id(int64_t axis) const { return program_id_[size_t(axis)]; }
  llvm::Value *num_programs(int64_t axis) const { return num_programs_[size_t(axis)]; }
  // The coordinates of the program, or tile, with this number (i32, below the product of the grid's extents): axis 0
  // fastest, or as the kernel's `order` has it.
  std::vector<llvm::Value *> coordinates(llvm::Value *number);
  // XOR over the set bits of lane and warp of the given basis vectors, as i32 (computed once, before the kernel's
  // body).
  llvm::Value *linear(std::span<const uint32_t> lane_bases, std::span<const uint32_t> warp_bases);
  // The coordinates of register `reg` of a layout along one dim, as i32: constant part of the register plus the
  // thread's part (added where the bits are disjoint, so that it folds into an immediate).
  llvm::Value *coordinate(const RegLayout &l, int64_t reg, int64_t dim);
  llvm::Value *shared_base() const { return shared_base_; } // ptr addrspace(3)

  // ---- roles
  // The warps that execute what is lowered now: the whole block, or those of a role (ir.h). lane(), warp() and thread()
  // count within it.
  int64_t role_warps() const { return role_warps_; }
  // Every thread of the role has come this far, and what each wrote to shared memory is visible to all.
  void role_barrier();
  // Lowers `body` for the warps [first, first + warps) of the block, with a named barrier of their own (0: the
  // block's). The caller has made the branch that only these warps take.
  template <typename F> void in_role(int64_t first, int64_t warps, int64_t barrier, F &&body) {
    Role outer = enter_role(first, warps, barrier);
    body();
    leave_role(std::move(outer));
  }
  std::unordered_set<const ir::Op *> plain_fills; // rings that this entry fills by plain stores too

  // ---- tensor copies: only the entry that assumes aligned tensors makes them
  bool tensor_copies() const { return aligned_; }
  // The generic address of the tensor map that an op with a `box` needs.
  llvm::Value *tensor_map(const ir::Op &fill) const;
  // Of an item of a ring, started by its ring_publish: one thread issues them together. By ring_alloc.
  std::map<const ir::Op *, std::vector<std::function<void(llvm::Value *barrier)>>> started;

  // ---- rings: slot and parity of counters that are carried, by counter and number of slots (ops/ring_slots.h)
  std::map<std::pair<llvm::Value *, int64_t>, std::pair<llvm::Value *, llvm::Value *>> ring_slots;

  // Lowers the ops of a region in place; the operands of its yield stay in the caller's hands.
  void lower_block(const ir::Block *block);
  // The source line of an op, for the instructions made from now on; lower_block calls it for every op.
  void set_location(SourceLoc loc);
  const SourceManager *sources() const { return debug_ ? &debug_->sources() : nullptr; }

private:
  friend class FunctionLowering;
  struct Role {
    int64_t warps, barrier;
    llvm::Value *warp, *thread;
    std::map<std::vector<uint32_t>, llvm::Value *> linear;
  };
  Role enter_role(int64_t first, int64_t warps, int64_t barrier);
  void leave_role(Role outer);
  llvm::Value *bits_part(llvm::Value *index, std::span<const uint32_t> bases);
  std::vector<Regs> regs_; // by ir::Value::id
  mutable std::unordered_map<RegLayout, std::vector<int>> live_;
  llvm::Instruction *entry_end_ = nullptr; // what is computed once goes before it
  DebugLines *debug_ = nullptr;            // null: no source lines
  llvm::DISubprogram *subprogram_ = nullptr;
  std::unordered_map<const ir::Value *, TensorVal> tensors_;
  std::map<std::vector<uint32_t>, llvm::Value *> linear_;
  llvm::Value *lane_ = nullptr, *warp_ = nullptr, *thread_ = nullptr, *shared_base_ = nullptr;
  std::vector<llvm::Value *> program_id_, num_programs_;
  int64_t role_warps_ = 0, role_barrier_ = 0;
  bool aligned_ = false;
  std::vector<llvm::Value *> tensor_maps_; // in the order of codegen::tensor_maps()
};

} // namespace tkc::codegen

// Shared pieces of the lowerings that move tiles: which elements a thread holds, where they lie in memory, under which
// predicate, and how registers become words of an access. A null predicate means "always".
#pragma once
#include "codegen/lower_ctx.h"
#include "codegen/nvvm.h"
#include <map>

namespace tkc::codegen {

// ---- registers
// The layout of a tile value; a scalar is replicated in every thread.
RegLayout value_layout(LowerCtx &c, const ir::Value *v);
// Register bits with a zero vector hold copies of the same elements; the register with those bits clear stands for all.
int64_t representative(const RegLayout &l, int64_t reg);
// How the coordinates that a register takes along a dim, over all threads, lie to the exact extent.
enum class Inside : uint8_t { All, Some, None };
Inside inside_extent(const RegLayout &l, int64_t reg, int64_t dim);
// True where register `reg` lies within the exact extent along the dim; null: in every thread.
llvm::Value *inside_predicate(LowerCtx &c, const RegLayout &l, int64_t reg, int64_t dim);
// True in the threads that own their elements: each element has one owner among the registers with no bit of
// RegLayout::free_bits().reg set. Null: every thread owns.
llvm::Value *owner_predicate(LowerCtx &c, const RegLayout &l);
llvm::Value *both(LowerCtx &c, llvm::Value *p, llvm::Value *q);
// The thread's part of the coordinate along a dim, i32.
llvm::Value *thread_coordinate(LowerCtx &c, const RegLayout &l, int64_t dim);
// The constant part of register `reg` along a dim.
int64_t register_coordinate(const RegLayout &l, int64_t reg, int64_t dim);
// True in the threads with all the given lane and warp bits zero; null if no bit is given.
llvm::Value *bits_clear(LowerCtx &c, uint32_t lane_bits, uint32_t warp_bits);

// Runs f in a basic block of its own, which the threads for which the condition holds enter; null: all, in place.
template <typename F> void where(LowerCtx &c, llvm::Value *condition, F &&f) {
  if (!condition) return f();
  llvm::Function *function = c.b.GetInsertBlock()->getParent();
  auto *then = llvm::BasicBlock::Create(c.b.getContext(), "do", function);
  auto *after = llvm::BasicBlock::Create(c.b.getContext(), "do.end", function);
  c.b.CreateCondBr(condition, then, after);
  c.b.SetInsertPoint(then);
  f();
  c.b.CreateBr(after);
  c.b.SetInsertPoint(after);
}

// ---- words
// In memory a bool is a byte; every other element is its register type.
llvm::Type *storage_type(LowerCtx &c, DType t);
// The integer type of the words of an access to `elements` elements: as wide as the access up to 32 bits, i64 for
// 64-bit elements.
llvm::Type *word_type(LowerCtx &c, DType t, int64_t elements);
std::vector<llvm::Value *> pack_words(LowerCtx &c, DType t, std::span<llvm::Value *const> elements);
std::vector<llvm::Value *> unpack_words(LowerCtx &c, DType t, std::span<llvm::Value *const> words, int64_t elements);

// A value of a lane or warp exchange as an integer of 8 to 64 bits and back.
llvm::Value *to_bits(LowerCtx &c, llvm::Value *v);
llvm::Value *from_bits(LowerCtx &c, llvm::Value *bits, llvm::Type *type);

// ---- shared memory
// Byte address in the block's shared memory: base + constant + index * scale.
llvm::Value *shared_address(LowerCtx &c, int64_t bytes, llvm::Value *index = nullptr, int64_t scale = 1);

// A value of an exchange in its slot of shared memory: 4 bytes, or 8 for 64-bit types.
void store_slot(LowerCtx &c, llvm::Value *address, llvm::Value *v, llvm::Value *predicate);
llvm::Value *load_slot(LowerCtx &c, llvm::Value *address, llvm::Type *type);
// `n` slots side by side, at most 16 bytes and aligned to all of them, appended to `out`; 0 where the predicate is
// false.
void load_slots(LowerCtx &c, llvm::Value *address, llvm::Type *type, int64_t n, std::vector<llvm::Value *> &out,
                llvm::Value *predicate = nullptr);

// ---- global memory
// A register of an integer value as a position: signed i32 or i64, whatever the integer's type.
llvm::Value *position_value(LowerCtx &c, const ir::Value *index, int64_t reg = 0);

// The tile of elements that a load, store or atomic touches, from the op's tensor, indices and attributes. `layout` is
// that of the value in registers.
class TileAccess {
public:
  TileAccess(LowerCtx &c, const ir::Op &op, const RegLayout &layout, const ir::Value *mask);

  // The widest access in elements (a power of two) that is one predicate, aligned and at most `max_bytes` long.
  int64_t vector_elements(int64_t max_bytes) const;
  // Registers of the vector that starts at the tile coordinate of `reg`, lowest address first.
  std::vector<int64_t> vector_regs(int64_t reg, int64_t elements) const;
  // The register that starts the vector which `reg` is part of.
  int64_t vector_start(int64_t reg, int64_t elements) const;
  // Registers that start a vector, ascending, one for each group of live registers. Copies are left out; with `owned`
  // also what RegLayout::free_bits() names as held by other threads.
  std::vector<int64_t> starts(int64_t elements, bool owned = false) const;

  // How many elements (a power of two, at most `most`) from each of starts(this) on are consecutive in memory and held
  // by one thread, whatever the alignment and the predicates.
  int64_t run_elements(int64_t most) const;

  llvm::Value *address(int64_t reg); // ptr addrspace(1)
  // Within the tensor, within the tile, and not masked; null: always. `along` (i32): of the element so many elements
  // after that of `reg` in its run; not for a masked access.
  llvm::Value *predicate(int64_t reg, llvm::Value *along = nullptr);
  int64_t alignment(int64_t elements) const; // bytes

private:
  struct Dim {
    int64_t tensor_dim = 0;
    const ir::Value *gather = nullptr; // the index tile, else a scalar start
    bool checked = false;              // may pass the tensor's extent
  };
  // Position along the tensor's dim, i32 or i64.
  llvm::Value *index(int64_t tile_dim, int64_t reg, llvm::Value *along = nullptr);
  llvm::Value *check(int64_t tile_dim, int64_t reg, llvm::Value *along);
  llvm::Value *term(llvm::Value *position, int64_t tensor_dim); // position * stride, i64
  // ---- fields of records, whose bytes are permuted: the address of the record, plus bytes within the field
  bool in_field(int64_t tensor_dim) const { return tensor_dim >= field_from_; }
  void field_parts();
  llvm::Value *field_address(llvm::Value *record, int64_t reg);
  const ir::Value *index_operand(int64_t tensor_dim) const { return op_.operand(size_t(1 + tensor_dim)); }
  llvm::Value *start(int64_t tensor_dim) const { return position_value(c_, index_operand(tensor_dim)); }
  llvm::Value *mask_reg(int64_t reg) const;
  bool in_vector(uint32_t basis, int64_t elements) const; // of a register bit: it moves within a vector
  bool uniform(int64_t elements) const;
  bool held_as_run(int64_t elements) const; // given that half as many are

  LowerCtx &c_;
  const ir::Op &op_;
  const TensorVal &tensor_;
  const RegLayout &layout_;
  TileSpace space_;
  std::vector<Dim> dims_; // of the tile
  const ir::Value *mask_;
  int64_t contiguous_ = -1;    // tile dim with stride 1, -1: none
  int64_t start_divisor_ = 1;  // of the contiguous dim's start, a power of two
  int64_t extent_divisor_ = 1; // of the contiguous dim's extent in the tensor
  int64_t element_bytes_ = 1;
  int64_t field_from_ = 0; // the first dim of the tensor whose bytes are permuted; its rank: none
  // Where all of it is linear over F2: the thread's bytes (i32), the bits that they can have, and those of the starts.
  bool field_linear_ = false;
  llvm::Value *field_thread_ = nullptr;
  int64_t field_reach_ = 0, field_start_ = 0;
  llvm::Type *element_ = nullptr; // in memory
  llvm::Value *base_ = nullptr;   // with the scalar starts; `thread_base_` with the thread's coordinates too
  llvm::Value *thread_base_ = nullptr, *uniform_predicate_ = nullptr;
  bool additive_ = false;
  std::vector<int> mask_regs_; // register of the tile -> of the mask
  std::map<uint32_t, llvm::Value *> rows_;
  std::map<std::pair<int64_t, int64_t>, llvm::Value *> checks_;
};

} // namespace tkc::codegen

// One function per PTX instruction that tkc emits, named as in the PTX manual. Inline asm stands in nvvm.cpp and
// nowhere else; an instruction that LLVM selects from plain IR by itself (add, ld, cvt between basic types) has no
// function here unless selecting it needs a particular form.
//
// Words: "i32" and "b32" are LLVM i32; a predicate is i1 (null: always). Shared addresses are ptr addrspace(3), global
// ones ptr addrspace(1). Whether the target has an instruction is the caller's business (ir::Target::has), except where
// a function here says otherwise.
#pragma once
#include "ir/target.h"
#include "support/dtype.h"
#include "llvm/IR/IRBuilder.h"
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkc::codegen::nvvm {

using Builder = llvm::IRBuilder<>;
using V = llvm::Value *;
using Values = std::vector<llvm::Value *>;

inline constexpr unsigned kGeneric = 0, kGlobal = 1, kShared = 3; // LLVM address spaces

// ---- special registers (i32)
V tid_x(Builder &b);
V ctaid_x(Builder &b);
V nctaid_x(Builder &b);

// ---- the launches before and behind this one (sm_90)

void griddepcontrol_wait(Builder &b);
void griddepcontrol_launch_dependents(Builder &b);
V laneid(Builder &b);

// ---- moving bits
// mov.b32 d, {a, b} / {a, b, c, d}: values of 8 or 16 bits (half, bfloat, i16, i8), the first in the low bits.
V mov_pack_b32(Builder &b, std::span<llvm::Value *const> parts);
Values mov_unpack_b32(Builder &b, V word, llvm::Type *part);
// prmt.b32: byte i of the result is byte `selector nibble i` of {y, x} (x: bytes 0..3, y: 4..7).
V prmt(Builder &b, V x, V y, V selector);

// ---- warp
// Any value of 1 to 64 bits (narrow ones travel widened, 64-bit ones as two words); all 32 lanes take part. `width`
// lanes (a power of two) form a segment that values do not leave: up and down give a lane its own value back at the
// border, idx counts lanes within the segment.
V shfl_sync_bfly(Builder &b, V value, V lane_mask);
V shfl_sync_idx(Builder &b, V value, V lane, int64_t width = 32);
V shfl_sync_up(Builder &b, V value, V delta, int64_t width = 32);
V shfl_sync_down(Builder &b, V value, V delta, int64_t width = 32);
enum class Redux : uint8_t { AddS32, MinS32, MaxS32, MinU32, MaxU32, And, Or, Xor };
V redux_sync(Builder &b, Redux op, V value); // i32, over the 32 lanes
V vote_sync_ballot(Builder &b, V predicate); // i32
V vote_sync_any(Builder &b, V predicate);
V vote_sync_all(Builder &b, V predicate);
V match_any_sync(Builder &b, V value); // i32 or i64 -> mask of the lanes with the same value
V activemask(Builder &b);
void bar_warp_sync(Builder &b);

// ---- block
void bar_sync(Builder &b, int64_t id);                  // all threads of the block
void bar_sync(Builder &b, int64_t id, int64_t threads); // a named barrier for some warps
void bar_arrive(Builder &b, int64_t id, int64_t threads);
V bar_red_and(Builder &b, int64_t id, V predicate); // i1, over all threads of the block
V bar_red_or(Builder &b, int64_t id, V predicate);
V bar_red_popc(Builder &b, int64_t id, V predicate); // i32
enum class Scope : uint8_t { Cta, Gpu, Sys };
void fence_acq_rel(Builder &b, Scope scope);
void fence_sc(Builder &b, Scope scope);

// ---- matrices
// ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans].shared.b16: lane l gives the address of row l % 8 of matrix l / 8.
Values ldmatrix(Builder &b, V address, int64_t count, bool trans);
// stmatrix (kStmatrix).
void stmatrix(Builder &b, V address, std::span<llvm::Value *const> words, bool trans);
V movmatrix_trans(Builder &b, V word);

// mma.sync.aligned.row.col. Operands are the fragment's registers in the manual's order: A and B as i32 words (elements
// packed, lowest index in the low bits; double for f64), C and D as float, i32 or double, with f16 accumulation as i32
// words of two. Shapes by name: m8n8k4 m16n8k4 m16n8k8 m16n8k16 (f64), m16n8k8 m16n8k16 (f16, bf16), m16n8k4 m16n8k8
// (tf32), m16n8k16 m16n8k32 (i8, u8, mixed), m16n8k32 (e4m3, e5m2, mixed).
struct Mma {
  const char *shape;
  DType a, b, acc;
  int a_regs, b_regs, c_regs;
  unsigned intrinsic;
  int min_sm, min_ptx; // PTX version times ten
};
// Null if no instruction has this shape and these types, or the target lacks it.
const Mma *find_mma(std::string_view shape, DType a, DType b, DType acc, const ir::Target &target);
std::span<const Mma> all_mma();
Values mma(Builder &b, const Mma &instr, std::span<llvm::Value *const> a_regs, std::span<llvm::Value *const> b_regs,
           std::span<llvm::Value *const> c_regs);

// ---- arithmetic
// The approximations' maximal errors are the PTX manual's: ex2 2^-22.5 relative (f32), lg2 2^-22.6 (relative outside,
// absolute inside (0.5, 2)), rcp 1 ulp, rsqrt 2^-22.9, sqrt 2^-23, div 2 ulp for |y| in [2^-126, 2^126], div.full 2 ulp
// for all y, sin and cos 2^-20.5 absolute in [-pi, pi], tanh 2^-11 relative. `.ftz` flushes subnormal inputs and
// results.
V ex2_approx_ftz_f32(Builder &b, V x);
V ex2_approx_f32(Builder &b, V x);
V lg2_approx_ftz_f32(Builder &b, V x);
V lg2_approx_f32(Builder &b, V x);
V rcp_approx_ftz_f32(Builder &b, V x);
V rcp_approx_ftz_f64(Builder &b, V x); // 2^-20 relative: a start for Newton steps
V rcp_rn_f32(Builder &b, V x);
V rsqrt_approx_ftz_f32(Builder &b, V x);
V rsqrt_approx_f32(Builder &b, V x);
V sqrt_approx_ftz_f32(Builder &b, V x);
V div_approx_ftz_f32(Builder &b, V x, V y);
V div_full_f32(Builder &b, V x, V y);
V sin_approx_ftz_f32(Builder &b, V x);
V cos_approx_ftz_f32(Builder &b, V x);
V tanh_approx_f32(Builder &b, V x);
V ex2_approx_f16x2(Builder &b, V x);      // <2 x half>
V ex2_approx_ftz_bf16x2(Builder &b, V x); // <2 x bfloat>; kBf16Native
V fma_rn(Builder &b, V x, V y, V z);      // one rounding; half, bfloat, float, double and pairs of the first two

// ---- conversions. Of two operands `lo` becomes the low half (the manual's order is the reverse).
V cvt_rn_bf16x2_f32(Builder &b, V lo, V hi);           // <2 x bfloat>
V cvt_rn_f16x2_f32(Builder &b, V lo, V hi);            // <2 x half>
V cvt_rn_satfinite_e4m3x2_f32(Builder &b, V lo, V hi); // i16; kFp8, as the next five
V cvt_rn_satfinite_e5m2x2_f32(Builder &b, V lo, V hi);
V cvt_rn_satfinite_e4m3x2_f16x2(Builder &b, V pair);
V cvt_rn_satfinite_e5m2x2_f16x2(Builder &b, V pair);
V cvt_rn_f16x2_e4m3x2(Builder &b, V pair); // <2 x half>
V cvt_rn_f16x2_e5m2x2(Builder &b, V pair);
V cvt_rna_tf32_f32(Builder &b, V x); // float with the low 13 bits zero

// ---- memory
struct Access {
  unsigned space = kGlobal; // kGlobal or kShared
  int64_t alignment = 1;    // bytes that the address is known to be a multiple of
  bool nc = false;          // ld.global.nc: the bytes never change while the kernel runs
  bool streaming = false;   // .cs: read or written once
};
// ld[.v2|.v4|.v8] of `count` words of an integer type (i8, i16, i32, i64), at most 16 bytes together (32: kWideGlobal).
// Under a predicate the lanes without it get `other` (one word per result; null: zeros). The address must be a multiple
// of the access' size.
Values ld(Builder &b, const Access &access, V address, llvm::Type *word, int64_t count, V predicate = nullptr,
          std::span<llvm::Value *const> other = {});
void st(Builder &b, const Access &access, V address, std::span<llvm::Value *const> words, V predicate = nullptr);

// atom.relaxed.gpu (global) or .cta (shared) on one element; gives the old value. `type` is the PTX type: u32 s32 b32
// u64 s64 b64 f32 f64 f16 bf16 f16x2 bf16x2 (b16 for cas); the value is an LLVM value of that size (float types or
// their bits as integers), the result has its LLVM type.
enum class AtomOp : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Inc, Dec };
V atom(Builder &b, unsigned space, AtomOp op, std::string_view type, V address, V value, V predicate = nullptr);
V atom_cas(Builder &b, unsigned space, std::string_view type, V address, V compare, V value, V predicate = nullptr);
// red: the same without a result; several values make the vector form .v2/.v4/.v8 (global, sm_90: f32, f16x2, bf16x2;
// add, and min and max for the half types).
void red(Builder &b, unsigned space, AtomOp op, std::string_view type, V address, std::span<llvm::Value *const> values,
         V predicate = nullptr);

// ---- asynchronous copies
// cp.async.ca (4, 8 bytes) or .cg (16 bytes).shared.global: both addresses are multiples of `bytes`. Where `valid` is
// false nothing is read and zeros are written; where `issue` is false there is no copy.
void cp_async(Builder &b, V to, V from, int64_t bytes, V valid = nullptr, V issue = nullptr);
void cp_async_commit_group(Builder &b);
void cp_async_wait_group(Builder &b, int64_t pending); // all groups of this thread but the last `pending` are complete
void cp_async_wait_all(Builder &b);

// Bulk and tensor copies (kTma) are of the asynchronous proxy. They complete `bytes` (of the whole box) on the
// mbarrier. cp.async.bulk.shared::cta.global: addresses and size are multiples of 16.
void cp_async_bulk_g2s(Builder &b, V to, V from, int64_t bytes, V barrier);
// cp.async.bulk.tensor.{1..5}d.shared::cta.global.tile: `to` is a multiple of 128, `map` the generic address of a
// tensor map, `at` the box's place (i32), innermost dim first; the inner one is a multiple of 16 bytes. What lies
// outside of the tensor arrives as zero. The name shared::cta is what sm_120 has an instruction for; shared::cluster
// makes a call there.
void cp_async_bulk_tensor_g2s(Builder &b, V to, V map, std::span<llvm::Value *const> at, V barrier);
// cp.async.bulk.tensor.{1..5}d.global.shared::cta.tile.bulk_group, and the same combined with what is there: parts of
// the thread's bulk group.
void cp_async_bulk_tensor_s2g(Builder &b, V from, V map, std::span<llvm::Value *const> at);
enum class BulkReduce : uint8_t { Add, Min, Max };
void cp_reduce_async_bulk_tensor_s2g(Builder &b, BulkReduce op, V from, V map, std::span<llvm::Value *const> at);
void cp_async_bulk_prefetch_tensor(Builder &b, V map, std::span<llvm::Value *const> at);
void cp_async_bulk_commit_group(Builder &b);
// All bulk groups of this thread but the last `pending` are complete, or with `read` have read their sources.
void cp_async_bulk_wait_group(Builder &b, int64_t pending, bool read);
// Accesses of this thread to shared memory by the generic proxy come before those of the asynchronous proxy that are
// ordered behind the fence (kTma).
void fence_proxy_async_shared_cta(Builder &b);
// i1: true in one thread of the warp; all its lanes must be here (kElect).
V elect_sync(Builder &b);

// ---- mbarriers: 8 bytes of shared memory each
void mbarrier_init(Builder &b, V barrier, int64_t count);
void mbarrier_inval(Builder &b, V barrier);
// One arrival (release, cta scope).
void mbarrier_arrive(Builder &b, V barrier);
// `count` arrivals; gives the state (i64) of the phase that they belong to. Without kHopper all but the last go first,
// by mbarrier.arrive.noComplete.
V mbarrier_arrive(Builder &b, V barrier, int64_t count, const ir::Target &target);
// So many more bytes of copies are expected in the phase (kTma).
void mbarrier_expect_tx(Builder &b, V barrier, int64_t bytes);
// Makes initialisations visible to the asynchronous proxy and to other blocks (kTma).
void fence_mbarrier_init(Builder &b);
// One arrival, after `bytes` more bytes of copies are expected in the phase (kTma).
void mbarrier_arrive_expect_tx(Builder &b, V barrier, int64_t bytes);
// The arrival of this thread comes when its cp.async up to here are complete; it is one of the expected count.
void cp_async_mbarrier_arrive_noinc(Builder &b, V barrier);
// The same arrival, but one more that the phase then expects.
void cp_async_mbarrier_arrive(Builder &b, V barrier);
// Waits until the phase of this state is over, as below.
void mbarrier_wait(Builder &b, V barrier, V state, const ir::Target &target);
// Waits until the phase with this parity (i32, 0 or 1) is over: mbarrier.try_wait where there is one, else test_wait,
// in a loop.
void mbarrier_wait_parity(Builder &b, V barrier, V parity, const ir::Target &target);
// Whether it is over, without waiting: mbarrier.test_wait.
V mbarrier_test_parity(Builder &b, V barrier, V parity);

// ---- calls and traps
// vprintf(format, packed arguments): int arguments of at most 32 bits as i32, wider as i64, floats as double.
void vprintf(Builder &b, llvm::StringRef format, std::span<llvm::Value *const> args);
// __assertfail: the launch ends with an assertion error; does not return (the block gets no terminator here).
void assertfail(Builder &b, llvm::StringRef message, llvm::StringRef file, int64_t line, llvm::StringRef function);
void trap(Builder &b);
V clock64(Builder &b);

// ---- inline asm of the user's (inline_ptx): LLVM's own syntax ($0, $1, ...; $$ for a dollar).
struct Asm {
  std::string text, constraints;
  llvm::Type *result = nullptr; // null: void; a struct for several outputs
  bool side_effects = false, convergent = false;
};
V inline_asm(Builder &b, const Asm &a, std::span<llvm::Value *const> args);

} // namespace tkc::codegen::nvvm

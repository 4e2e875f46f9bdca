// Asynchronous copies and what waits for them.
#include "codegen/nvvm.h"
#include "support/check.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace tkc::codegen::nvvm {

using namespace llvm;

namespace {
V call(Builder &b, Intrinsic::ID id, ArrayRef<V> args) { return b.CreateIntrinsic(id, {}, args); }
} // namespace

void cp_async(Builder &b, V to, V from, int64_t bytes, V valid, V issue) {
  Intrinsic::ID whole = 0, sized = 0;
  switch (bytes) {
  case 4:
    whole = Intrinsic::nvvm_cp_async_ca_shared_global_4;
    sized = Intrinsic::nvvm_cp_async_ca_shared_global_4_s;
    break;
  case 8:
    whole = Intrinsic::nvvm_cp_async_ca_shared_global_8;
    sized = Intrinsic::nvvm_cp_async_ca_shared_global_8_s;
    break;
  case 16:
    whole = Intrinsic::nvvm_cp_async_cg_shared_global_16;
    sized = Intrinsic::nvvm_cp_async_cg_shared_global_16_s;
    break;
  default: TKC_UNREACHABLE("cp.async of {} bytes", bytes);
  }
  V size = valid ? b.CreateSelect(valid, b.getInt32(unsigned(bytes)), b.getInt32(0)) : nullptr;
  if (!issue) {
    if (size)
      call(b, sized, {to, from, size});
    else
      call(b, whole, {to, from});
    return;
  }
  // Under a predicate instead of a branch: the loop around it stays one basic block.
  std::string text = fmt::format("@${} cp.async.{}.shared.global [$0], [$1], {}{};", size ? 3 : 2,
                                 bytes == 16 ? "cg" : "ca", bytes, size ? ", $2" : "");
  SmallVector<V, 4> args = {b.CreatePtrToInt(to, b.getInt32Ty()), b.CreatePtrToInt(from, b.getInt64Ty())};
  if (size) args.push_back(size);
  args.push_back(issue);
  inline_asm(b, {text, size ? "r,l,r,b,~{memory}" : "r,l,b,~{memory}", nullptr, true}, args);
}

void cp_async_commit_group(Builder &b) { call(b, Intrinsic::nvvm_cp_async_commit_group, {}); }

void cp_async_wait_group(Builder &b, int64_t pending) {
  call(b, Intrinsic::nvvm_cp_async_wait_group, {b.getInt32(unsigned(pending))});
}

void cp_async_wait_all(Builder &b) { call(b, Intrinsic::nvvm_cp_async_wait_all, {}); }

void cp_async_bulk_g2s(Builder &b, V to, V from, int64_t bytes, V barrier) {
  TKC_CHECK(bytes > 0 && bytes % 16 == 0, "cp.async.bulk of {} bytes", bytes);
  call(b, Intrinsic::nvvm_cp_async_bulk_global_to_shared_cta,
       {to, barrier, from, b.getInt32(unsigned(bytes)), PoisonValue::get(b.getInt64Ty()), b.getFalse()});
}

void cp_async_bulk_tensor_g2s(Builder &b, V to, V map, std::span<Value *const> at, V barrier) {
  constexpr Intrinsic::ID kByRank[] = {
      Intrinsic::nvvm_cp_async_bulk_tensor_g2s_cta_tile_1d, Intrinsic::nvvm_cp_async_bulk_tensor_g2s_cta_tile_2d,
      Intrinsic::nvvm_cp_async_bulk_tensor_g2s_cta_tile_3d, Intrinsic::nvvm_cp_async_bulk_tensor_g2s_cta_tile_4d,
      Intrinsic::nvvm_cp_async_bulk_tensor_g2s_cta_tile_5d};
  TKC_CHECK(at.size() >= 1 && at.size() <= 5, "a tensor copy of rank {}", at.size());
  SmallVector<V, 10> args = {to, barrier, map};
  args.append(at.begin(), at.end());
  args.append({PoisonValue::get(b.getInt64Ty()), b.getFalse()});
  call(b, kByRank[at.size() - 1], args);
}

namespace {
// Shared memory (null: none), map, place and no hint for the cache.
void bulk_tensor(Builder &b, std::span<const Intrinsic::ID> by_rank, V from, V map, std::span<Value *const> at) {
  TKC_CHECK(at.size() >= 1 && at.size() <= by_rank.size(), "a tensor copy of rank {}", at.size());
  SmallVector<V, 10> args;
  if (from) args.push_back(from);
  args.push_back(map);
  args.append(at.begin(), at.end());
  args.append({PoisonValue::get(b.getInt64Ty()), b.getFalse()});
  call(b, by_rank[at.size() - 1], args);
}
#define TKC_BY_RANK(name)                                                                                              \
  { Intrinsic::name##_1d, Intrinsic::name##_2d, Intrinsic::name##_3d, Intrinsic::name##_4d, Intrinsic::name##_5d }
} // namespace

void cp_async_bulk_tensor_s2g(Builder &b, V from, V map, std::span<Value *const> at) {
  constexpr Intrinsic::ID kByRank[] = TKC_BY_RANK(nvvm_cp_async_bulk_tensor_s2g_tile);
  bulk_tensor(b, kByRank, from, map, at);
}

void cp_reduce_async_bulk_tensor_s2g(Builder &b, BulkReduce op, V from, V map, std::span<Value *const> at) {
  constexpr Intrinsic::ID kByRank[][5] = {TKC_BY_RANK(nvvm_cp_async_bulk_tensor_reduce_add_tile),
                                          TKC_BY_RANK(nvvm_cp_async_bulk_tensor_reduce_min_tile),
                                          TKC_BY_RANK(nvvm_cp_async_bulk_tensor_reduce_max_tile)};
  bulk_tensor(b, kByRank[size_t(op)], from, map, at);
}

void cp_async_bulk_prefetch_tensor(Builder &b, V map, std::span<Value *const> at) {
  constexpr Intrinsic::ID kByRank[] = TKC_BY_RANK(nvvm_cp_async_bulk_tensor_prefetch_tile);
  bulk_tensor(b, kByRank, nullptr, map, at);
}
#undef TKC_BY_RANK

void cp_async_bulk_commit_group(Builder &b) { call(b, Intrinsic::nvvm_cp_async_bulk_commit_group, {}); }

void cp_async_bulk_wait_group(Builder &b, int64_t pending, bool read) {
  call(b, read ? Intrinsic::nvvm_cp_async_bulk_wait_group_read : Intrinsic::nvvm_cp_async_bulk_wait_group,
       {b.getInt32(unsigned(pending))});
}

void fence_proxy_async_shared_cta(Builder &b) { call(b, Intrinsic::nvvm_fence_proxy_async_shared_cta, {}); }

V elect_sync(Builder &b) { return b.CreateExtractValue(call(b, Intrinsic::nvvm_elect_sync, {b.getInt32(~0u)}), 1); }

void fence_mbarrier_init(Builder &b) { call(b, Intrinsic::nvvm_fence_mbarrier_init_release_cluster, {}); }

void mbarrier_arrive_expect_tx(Builder &b, V barrier, int64_t bytes) {
  TKC_CHECK(bytes >= 0 && bytes < 1 << 20, "{} bytes expected in a phase", bytes);
  call(b, Intrinsic::nvvm_mbarrier_arrive_expect_tx_scope_cta_space_cta, {barrier, b.getInt32(unsigned(bytes))});
}

void mbarrier_init(Builder &b, V barrier, int64_t count) {
  call(b, Intrinsic::nvvm_mbarrier_init_shared, {barrier, b.getInt32(unsigned(count))});
}

void mbarrier_arrive(Builder &b, V barrier) { call(b, Intrinsic::nvvm_mbarrier_arrive_shared, {barrier}); }

void cp_async_mbarrier_arrive_noinc(Builder &b, V barrier) {
  call(b, Intrinsic::nvvm_cp_async_mbarrier_arrive_noinc_shared, {barrier});
}

void cp_async_mbarrier_arrive(Builder &b, V barrier) {
  call(b, Intrinsic::nvvm_cp_async_mbarrier_arrive_shared, {barrier});
}

void mbarrier_inval(Builder &b, V barrier) { call(b, Intrinsic::nvvm_mbarrier_inval_shared, {barrier}); }

void mbarrier_expect_tx(Builder &b, V barrier, int64_t bytes) {
  TKC_CHECK(bytes >= 0 && bytes < 1 << 20, "{} bytes expected in a phase", bytes);
  call(b, Intrinsic::nvvm_mbarrier_expect_tx_scope_cta_space_cta, {barrier, b.getInt32(unsigned(bytes))});
}

V mbarrier_arrive(Builder &b, V barrier, int64_t count, const ir::Target &target) {
  if (count == 1) return call(b, Intrinsic::nvvm_mbarrier_arrive_shared, {barrier});
  if (target.has(ir::kHopper))
    return call(b, Intrinsic::nvvm_mbarrier_arrive_scope_cta_space_cta, {barrier, b.getInt32(unsigned(count))});
  call(b, Intrinsic::nvvm_mbarrier_arrive_noComplete_shared, {barrier, b.getInt32(unsigned(count - 1))});
  return call(b, Intrinsic::nvvm_mbarrier_arrive_shared, {barrier});
}

namespace {
void wait_loop(Builder &b, Intrinsic::ID id, V barrier, V phase) {
  Function *f = b.GetInsertBlock()->getParent();
  auto *wait = BasicBlock::Create(b.getContext(), "wait", f), *after = BasicBlock::Create(b.getContext(), "arrived", f);
  b.CreateBr(wait);
  b.SetInsertPoint(wait);
  b.CreateCondBr(call(b, id, {barrier, phase}), after, wait);
  b.SetInsertPoint(after);
}
} // namespace

void mbarrier_wait(Builder &b, V barrier, V state, const ir::Target &target) {
  wait_loop(b,
            target.has(ir::kHopper) ? Intrinsic::nvvm_mbarrier_try_wait_scope_cta_space_cta
                                    : Intrinsic::nvvm_mbarrier_test_wait_scope_cta_space_cta,
            barrier, state);
}

void mbarrier_wait_parity(Builder &b, V barrier, V parity, const ir::Target &target) {
  wait_loop(b,
            target.has(ir::kHopper) ? Intrinsic::nvvm_mbarrier_try_wait_parity_scope_cta_space_cta
                                    : Intrinsic::nvvm_mbarrier_test_wait_parity_scope_cta_space_cta,
            barrier, parity);
}

V mbarrier_test_parity(Builder &b, V barrier, V parity) {
  return call(b, Intrinsic::nvvm_mbarrier_test_wait_parity_scope_cta_space_cta, {barrier, parity});
}

} // namespace tkc::codegen::nvvm

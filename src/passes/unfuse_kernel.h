// The two halves of unfuse.cpp that know single ops: which ones are launches at all, and how the kernel of one is made.
#pragma once
#include "ir/clone.h"
#include "ir/op_def.h"
#include "passes/effects.h"
#include "passes/unfuse.h"
#include <map>
#include <set>

namespace tkc::passes {

// What is decided about a kernel that is split.
class SplitPlan {
public:
  SplitPlan(const ir::Function &f, std::string blocks) : f(f), blocks(std::move(blocks)), writes_(f) {}

  // Made again by every launch that reads it (unfuse.h says what). Control flow is if only numbers come out of it.
  bool free(const ir::Op &op) const;
  // Control flow that the host runs, or that becomes a condition of the launches inside of it.
  bool mixed(const ir::Op &op) const { return mixed_.count(&op) > 0; }
  void mix(const ir::Op &op) { mixed_.insert(&op); }
  // Only parameters, the block's number and counters of loops are needed to make v again.
  bool from_params(const ir::Value *v) const;
  // Making v again reads this tile.
  bool reads(const ir::Value *v, size_t tile) const;

  const ir::Function &f;
  std::string blocks;                       // the size that every kernel has: the number of blocks
  std::map<const ir::Value *, size_t> tile; // values that lie in memory between launches: index of Unfused::tiles

private:
  bool is_number(const ir::Value *v) const; // made of scalars, indices and constants
  bool is_free(const ir::Op &op) const;
  Writes writes_;
  std::set<const ir::Op *> mixed_;
  mutable std::map<const ir::Op *, bool> free_;
};

// A launch is inside of this region of a mixed op.
struct SplitPlace {
  const ir::Op *op = nullptr;
  size_t region = 0;
  bool guarded = false; // of a loop: some blocks have fewer iterations than the host's loop
  bool is_loop() const { return op->kind == ir::OpKind::For; }
};
using SplitPath = std::vector<SplitPlace>;

// Makes kernels and the steps that launch them.
class KernelMaker {
public:
  KernelMaker(const SplitPlan &plan, Unfused &out, Diagnostics &diags) : plan_(plan), out_(out), diags_(diags) {}
  // An op, with the stores that belong to it.
  UnfusedStep op(const ir::Op &op, const std::vector<const ir::Op *> &stores, const SplitPath &path);
  UnfusedStep copy(const ir::Value *from, size_t to_tile, const SplitPath &path);
  UnfusedStep move(size_t from_tile, size_t to_tile, const SplitPath &path);

private:
  const SplitPlan &plan_;
  Unfused &out_;
  Diagnostics &diags_;
  std::map<std::string, size_t> known_; // text of a kernel without its name -> index
};

} // namespace tkc::passes

#include "ops/shared_side.h"
#include "codegen/access.h"
#include "support/check.h"
#include <map>

namespace tkc::ops {

using namespace codegen;
using llvm::Value;

namespace {

// Addresses of a side's accesses: one register per class, the rest an immediate.
class Addresses {
public:
  Addresses(LowerCtx &c, const SmemSide &side, const SharedPlace &at)
      : c_(c), side_(side), at_(at), thread_(c.linear(side.lane, side.warp)) {}
  Value *operator()(const SmemAccess &a) {
    auto [it, fresh] = classes_.try_emplace(a.cls, nullptr);
    if (fresh) {
      uint32_t x = side_.classes.empty() ? 0 : side_.classes[size_t(a.cls)];
      Value *index = x ? c_.b.CreateXor(thread_, c_.i32(x)) : thread_;
      it->second = shared_address(c_, 0, at_.slot ? c_.b.CreateAdd(index, at_.slot) : index);
    }
    int64_t constant = at_.offset + int64_t(a.imm);
    return constant ? c_.b.CreateGEP(c_.b.getInt8Ty(), it->second, c_.i32(constant)) : it->second;
  }

private:
  LowerCtx &c_;
  const SmemSide &side_;
  SharedPlace at_;
  Value *thread_;
  std::map<int, Value *> classes_;
};

} // namespace

void store_side(LowerCtx &c, const SmemSide &side, const SharedPlace &at, int piece, const ir::Value *x) {
  DType t = x->type.dtype;
  bool matrix = side.inst != SmemInst::Vector;
  Value *storing = bits_clear(c, side.lane_mask, side.warp_mask);
  TKC_CHECK(!matrix || side.lane_mask == 0, "stmatrix by some lanes");
  // stmatrix has no predicate, and whole warps agree.
  where(c, matrix ? storing : nullptr, [&] {
    Addresses address(c, side, at);
    const Regs &regs = c.regs(x);
    for (const SmemAccess &a : side.accesses) {
      if (a.piece != piece) continue;
      std::vector<Value *> elements;
      for (int r : a.regs) elements.push_back(r < 0 ? nullptr : regs[size_t(r)]);
      std::vector<Value *> words = pack_words(c, t, elements);
      if (matrix)
        nvvm::stmatrix(c.b, address(a), words, side.inst == SmemInst::MatrixTrans);
      else
        nvvm::st(c.b, {nvvm::kShared, side.width}, address(a), words, storing);
    }
  });
}

void load_side(LowerCtx &c, const SmemSide &side, const SharedPlace &at, int piece, DType t, Regs &regs) {
  Addresses address(c, side, at);
  for (const SmemAccess &a : side.accesses) {
    if (a.piece != piece) continue;
    auto n = int64_t(a.regs.size());
    std::vector<Value *> words;
    if (side.inst == SmemInst::Vector) {
      llvm::Type *word = word_type(c, t, n);
      int64_t count = n * dtype_bytes(t) * 8 / int64_t(word->getIntegerBitWidth());
      words = nvvm::ld(c.b, {nvvm::kShared, side.width}, address(a), word, count);
    } else {
      words = nvvm::ldmatrix(c.b, address(a), side.matrices, side.inst == SmemInst::MatrixTrans);
    }
    std::vector<Value *> elements = unpack_words(c, t, words, n);
    for (size_t i = 0; i < a.regs.size(); i++)
      if (a.regs[i] >= 0) regs[size_t(a.regs[i])] = elements[i];
  }
}

Value *element_address(LowerCtx &c, const RegLayout &l, const SmemLayout &smem, const SharedPlace &at, int64_t reg) {
  std::vector<uint32_t> lane, warp;
  uint32_t used = 0;
  auto map = [&](const Basis &from, std::vector<uint32_t> &to) {
    for (uint32_t v : from) {
      to.push_back(smem.offset(v));
      used |= to.back();
    }
  };
  map(l.lane, lane);
  map(l.warp, warp);
  Value *thread = c.linear(lane, warp);
  uint32_t own = smem.offset(l.reg_part(reg));
  int64_t constant = at.offset;
  if (used & own)
    thread = c.b.CreateXor(thread, c.i32(own));
  else
    constant += own;
  return shared_address(c, constant, at.slot ? c.b.CreateAdd(thread, at.slot) : thread);
}

std::vector<int> missing_padding(const RegLayout &writer, const SmemLayout &smem, const std::vector<bool> &written,
                                 const std::vector<bool> &read) {
  std::vector<int> live = writer.live_regs(), out;
  if (int64_t(live.size()) == writer.num_regs()) return out;
  uint32_t copies = writer.free_bits().reg;
  for (int r = 0, next = 0; r < writer.num_regs(); r++) {
    if (next < int(live.size()) && live[size_t(next)] == r) {
      next++;
      continue;
    }
    if (uint32_t(r) & copies) continue;
    bool missing = false;
    for (int64_t w = 0; w < writer.num_warps() && !missing; w++)
      for (int64_t l = 0; l < 32 && !missing; l++) {
        size_t at = smem.offset(writer.linear(r, l, w));
        missing = at < read.size() && read[at] && !written[at];
      }
    if (missing) out.push_back(r);
  }
  return out;
}

} // namespace tkc::ops

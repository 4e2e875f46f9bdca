// The instruction families: one file each, which decodes and executes.
#pragma once
#include "emu/decode.h"

namespace tkc::emu {

void register_integer(DecodeTable &);  // exec_integer.cpp: integer arithmetic
void register_logic(DecodeTable &);    // exec_logic.cpp: bits, shifts, comparison, selection
void register_float(DecodeTable &);    // exec_float.cpp: f32 and f64
void register_packed(DecodeTable &);   // exec_packed.cpp: f16, bf16, their pairs, f32x2, 16-bit integer pairs
void register_approx(DecodeTable &);   // exec_approx.cpp: approximate functions
void register_convert(DecodeTable &);  // exec_convert.cpp: cvt
void register_move(DecodeTable &);     // exec_move.cpp: mov, cvta, isspacep
void register_memory(DecodeTable &);   // exec_memory.cpp: ld, st, prefetch
void register_atomic(DecodeTable &);   // exec_atomic.cpp: atom, red
void register_warp(DecodeTable &);     // exec_warp.cpp: shfl, vote, match, redux, activemask, elect
void register_matrix(DecodeTable &);   // exec_matrix.cpp: ldmatrix, stmatrix, movmatrix
void register_mma(DecodeTable &);      // exec_mma.cpp
void register_control(DecodeTable &);  // exec_control.cpp: bra, call, ret, exit, trap
void register_sync(DecodeTable &);     // exec_sync.cpp: bar, barrier, fence, membar
void register_mbarrier(DecodeTable &); // exec_mbarrier.cpp
void register_copy(DecodeTable &);     // exec_copy.cpp: cp.async, cp.async.bulk, cp.reduce.async.bulk
// exec_approx.cpp: the .approx and .full forms of roots that exec_float.cpp registers.
void decode_approximate_div(Decoder &d);
void decode_approximate_rcp(Decoder &d);
void decode_approximate_sqrt(Decoder &d);

inline void register_families(DecodeTable &t) {
  register_integer(t), register_logic(t), register_float(t), register_packed(t), register_approx(t),
      register_convert(t);
  register_move(t), register_memory(t), register_atomic(t), register_warp(t), register_matrix(t), register_mma(t);
  register_control(t), register_sync(t), register_mbarrier(t), register_copy(t);
}

} // namespace tkc::emu

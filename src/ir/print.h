// The text of a function: complete (parse_ir reads back all of it) and stable (it depends on the structure and on name
// hints alone, never on ids or addresses).
//
//   kernel softmax {
//     param x: in tensor<bf16>[?, 4096] dims [M, 4096]
//     size M
//     bind BM = "4"
//     grid (cdiv(M, 4))
//     warps 4
//     where M % 4 == 0
//     body (%x : tensor<bf16>[?, 4096], %M : i32) {
//       %pid = program_id : i32 {axis = 0}
//       %acc = for %lo, %M, %step, %init : tile<f32>[4, 64] {unroll = 2} layout(reg[..] lane[..] warp[..]) do (%k :
//       i32, %acc.1 : tile<f32>[4, 64]) {
//         yield %acc.1
//       }
//       return
//     }
//   }
//
// Values are named by their hints; the second value of a hint gets `.1`, the third `.2`, in order of appearance; values
// without a hint are numbered.
#pragma once
#include "ir/ir.h"

namespace tkc::ir {

struct PrintOptions {
  bool locations = false; // append loc(file, begin, end) to each op
};

std::string print(const Function &f, const PrintOptions &options = {});
// One op without its regions, as a message shows it; names are the hints.
std::string print_op(const Op &op);
// An attribute's value: 4, 1.5, "tf32", [1, 2], ["a"], f32, reg_layout[4, 64](...),
// smem_layout[4, 64](element bytes, bytes, alignment, smem[..]).
std::string print_attr(const Attr &attr);

} // namespace tkc::ir

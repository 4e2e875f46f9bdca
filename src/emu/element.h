// Read-modify-write of one element, for atomics and reducing copies.
#pragma once
#include "emu/ptx_ast.h"
#include <optional>
#include <string_view>

namespace tkc::emu {

enum class AtomicOp : uint8_t { Add, Min, Max, Inc, Dec, And, Or, Xor, Exch, Cas };
std::optional<AtomicOp> parse_atomic_op(std::string_view name);
// Is the operation defined for elements of the type?
bool atomic_fits(AtomicOp op, Type t);
// The new value. flush: subnormal f32 inputs and results become zero, as atomics on global memory have it.
uint64_t atomic_result(AtomicOp op, Type t, uint64_t old, uint64_t operand, uint64_t swap, bool flush);

} // namespace tkc::emu

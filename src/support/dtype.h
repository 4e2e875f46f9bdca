// Element types and their exact number formats: the one place where tkc rounds. The interpreter, the emulator, the file
// readers and the comparison all call these functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tkc {

enum class DType : uint8_t {
#define TKC_DTYPE(name, ...) name,
#include "support/dtype.def"
#undef TKC_DTYPE
};

enum class DTypeKind : uint8_t { Bool, Int, UInt, Float };

std::string_view dtype_name(DType t);
std::optional<DType> parse_dtype(std::string_view name);
const std::vector<DType> &all_dtypes();
int64_t dtype_bits(DType t);  // storage bits: 4 for e2m1, 8 for bool
int64_t dtype_bytes(DType t); // storage bytes of one element, rounded up
DTypeKind dtype_kind(DType t);
inline bool is_float(DType t) { return dtype_kind(t) == DTypeKind::Float; }
inline bool is_integer(DType t) { return dtype_kind(t) == DTypeKind::Int || dtype_kind(t) == DTypeKind::UInt; }
inline bool is_bool(DType t) { return t == DType::Bool; }
inline bool is_signed(DType t) { return dtype_kind(t) == DTypeKind::Int; }

// Nearest value of a float type, ties to even. f16, bf16, tf32, f32, f64 overflow to infinity; e4m3, e5m2, e2m1, ue4m3
// saturate to the largest finite value (cvt.rn.satfinite of the PTX manual), ue8m0 rounds up to a power of two
// (cvt.rp.satfinite). NaN stays NaN where the type has one.
double round_to(DType t, double x);
// As round_to, and tf32 by cvt.rna (ties away from zero), the rounding that mma operands get on sm_80.
double round_tf32_rna(double x);
// Two's-complement wrap of an integer to the type (bool: x != 0).
int64_t wrap_to(DType t, int64_t x);
// Conversion of a float to an integer type: truncation, saturation, NaN -> 0 (cvt.rzi.sat).
int64_t float_to_int(DType t, double x);

// The storage bits of a value that the type can hold exactly (round first), and back.
uint64_t encode_float(DType t, double x);
double decode_float(DType t, uint64_t bits);

} // namespace tkc

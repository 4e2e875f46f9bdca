#include "emu/element.h"
#include "emu/number.h"
#include <algorithm>

namespace tkc::emu {

std::optional<AtomicOp> parse_atomic_op(std::string_view name) {
  constexpr std::string_view names[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"};
  for (size_t k = 0; k < std::size(names); k++)
    if (names[k] == name) return AtomicOp(k);
  return std::nullopt;
}

bool atomic_fits(AtomicOp op, Type t) {
  TypeClass c = type_class(t);
  bool integer = (c == TypeClass::Signed || c == TypeClass::Unsigned) && (type_bits(t) == 32 || type_bits(t) == 64) &&
                 t != Type::U16x2 && t != Type::S16x2;
  bool small_float = t == Type::F16 || t == Type::BF16 || t == Type::F16x2 || t == Type::BF16x2;
  switch (op) {
  case AtomicOp::Add: return integer || small_float || t == Type::F32 || t == Type::F64;
  case AtomicOp::Min:
  case AtomicOp::Max: return integer || small_float;
  case AtomicOp::Inc:
  case AtomicOp::Dec: return t == Type::U32;
  case AtomicOp::And:
  case AtomicOp::Or:
  case AtomicOp::Xor: return t == Type::B32 || t == Type::B64;
  case AtomicOp::Exch: return t == Type::B32 || t == Type::B64;
  case AtomicOp::Cas: return t == Type::B16 || t == Type::B32 || t == Type::B64;
  }
  return false;
}

namespace {
uint16_t small_float(AtomicOp op, bool bf16, uint16_t x, uint16_t y) {
  double a = bf16 ? bfloat_to_float(x) : half_to_float(x), b = bf16 ? bfloat_to_float(y) : half_to_float(y);
  if (op == AtomicOp::Add) return bf16 ? to_bfloat(odd_add(a, b)) : to_half(odd_add(a, b));
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? kNan16 : std::isnan(a) ? y : x;
  bool first = op == AtomicOp::Min ? a < b || (a == b && x >> 15) : a > b || (a == b && !(x >> 15));
  return first ? x : y;
}
} // namespace

uint64_t atomic_result(AtomicOp op, Type t, uint64_t old, uint64_t operand, uint64_t swap, bool flush) {
  if (t == Type::F16x2 || t == Type::BF16x2) {
    uint64_t low = small_float(op, t == Type::BF16x2, uint16_t(old), uint16_t(operand));
    return low | uint64_t(small_float(op, t == Type::BF16x2, uint16_t(old >> 16), uint16_t(operand >> 16))) << 16;
  }
  if (t == Type::F16 || t == Type::BF16) return small_float(op, t == Type::BF16, uint16_t(old), uint16_t(operand));
  bool wide = type_bits(t) == 64, is_signed = type_class(t) == TypeClass::Signed;
  auto less = [&](uint64_t a, uint64_t b) {
    if (wide) return is_signed ? int64_t(a) < int64_t(b) : a < b;
    return is_signed ? int32_t(a) < int32_t(b) : uint32_t(a) < uint32_t(b);
  };
  switch (op) {
  case AtomicOp::Add: {
    if (t == Type::F64) return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(operand));
    if (t == Type::F32) {
      float a = std::bit_cast<float>(uint32_t(old)), b = std::bit_cast<float>(uint32_t(operand));
      if (flush) a = flush_subnormal(a), b = flush_subnormal(b);
      float r = a + b;
      if (flush) r = flush_subnormal(r);
      return r != r ? kNan32 : std::bit_cast<uint32_t>(r);
    }
    return wide ? old + operand : uint32_t(old + operand);
  }
  case AtomicOp::Min: return less(operand, old) ? operand : old;
  case AtomicOp::Max: return less(old, operand) ? operand : old;
  case AtomicOp::Inc: return old >= operand ? 0 : old + 1;
  case AtomicOp::Dec: return old == 0 || old > operand ? operand : old - 1;
  case AtomicOp::And: return old & operand;
  case AtomicOp::Or: return old | operand;
  case AtomicOp::Xor: return old ^ operand;
  case AtomicOp::Exch: return operand;
  case AtomicOp::Cas: return old == operand ? swap : old;
  }
  return old;
}

} // namespace tkc::emu

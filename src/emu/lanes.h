// Running a scalar function over the lanes of a warp. `lanewise<f>` is a Handler for any `R f(A, B, C, D)` whose
// operands are rows d, a, b, c, e of the instruction.
#pragma once
#include "emu/decode.h"
#include "emu/exec.h"
#include <bit>
#include <type_traits>

// Rows are identical or disjoint, so a lane never reads what another one wrote.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" // some functions do not vectorise, and need not
#define TKC_LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define TKC_LANES _Pragma("GCC ivdep")
#endif

namespace tkc::emu {

// Bit patterns of 16-bit floats as types, so that they choose overloads.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

template <typename T> struct Lane {
  using Row = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;
  static T get(Row r) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return std::bit_cast<T>(r);
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>)
      return T{uint16_t(r)};
    else
      return T(r);
  }
  static Row put(T x) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return std::bit_cast<Row>(x);
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>)
      return x.bits;
    else
      return Row(std::make_unsigned_t<T>(x));
  }
};

template <typename F> inline void run_lanes(uint32_t mask, F f) {
  if (mask == ~uint32_t(0)) {
    TKC_LANES
    for (int l = 0; l < 32; l++) f(l);
  } else {
    for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

template <auto F> struct Lanewise;
template <typename R, typename A, R (*F)(A)> struct Lanewise<F> {
  static void run(Warp &w, const Inst &i, uint32_t mask) {
    auto *d = w.row<typename Lane<R>::Row>(i.d);
    const auto *a = w.row<typename Lane<A>::Row>(i.a);
    run_lanes(mask, [=](int l) { d[l] = Lane<R>::put(F(Lane<A>::get(a[l]))); });
  }
};
template <typename R, typename A, typename B, R (*F)(A, B)> struct Lanewise<F> {
  static void run(Warp &w, const Inst &i, uint32_t mask) {
    auto *d = w.row<typename Lane<R>::Row>(i.d);
    const auto *a = w.row<typename Lane<A>::Row>(i.a);
    const auto *b = w.row<typename Lane<B>::Row>(i.b);
    run_lanes(mask, [=](int l) { d[l] = Lane<R>::put(F(Lane<A>::get(a[l]), Lane<B>::get(b[l]))); });
  }
};
template <typename R, typename A, typename B, typename C, R (*F)(A, B, C)> struct Lanewise<F> {
  static void run(Warp &w, const Inst &i, uint32_t mask) {
    auto *d = w.row<typename Lane<R>::Row>(i.d);
    const auto *a = w.row<typename Lane<A>::Row>(i.a);
    const auto *b = w.row<typename Lane<B>::Row>(i.b);
    const auto *c = w.row<typename Lane<C>::Row>(i.c);
    run_lanes(mask, [=](int l) { d[l] = Lane<R>::put(F(Lane<A>::get(a[l]), Lane<B>::get(b[l]), Lane<C>::get(c[l]))); });
  }
};
template <typename R, typename A, typename B, typename C, typename E, R (*F)(A, B, C, E)> struct Lanewise<F> {
  static void run(Warp &w, const Inst &i, uint32_t mask) {
    auto *d = w.row<typename Lane<R>::Row>(i.d);
    const auto *a = w.row<typename Lane<A>::Row>(i.a);
    const auto *b = w.row<typename Lane<B>::Row>(i.b);
    const auto *c = w.row<typename Lane<C>::Row>(i.c);
    const auto *e = w.row<typename Lane<E>::Row>(i.e);
    run_lanes(mask, [=](int l) {
      d[l] = Lane<R>::put(F(Lane<A>::get(a[l]), Lane<B>::get(b[l]), Lane<C>::get(c[l]), Lane<E>::get(e[l])));
    });
  }
};
template <auto F> constexpr Handler lanewise = &Lanewise<F>::run;

// Calls f.template operator()<T>() with the C++ type of a scalar integer type.
template <typename F> Handler for_integer(Decoder &d, Type t, F f) {
  if (t == Type::U16) return f.template operator()<uint16_t>();
  if (t == Type::U32) return f.template operator()<uint32_t>();
  if (t == Type::U64) return f.template operator()<uint64_t>();
  if (t == Type::S16) return f.template operator()<int16_t>();
  if (t == Type::S32) return f.template operator()<int32_t>();
  if (t == Type::S64) return f.template operator()<int64_t>();
  d.unsupported();
  return nullptr;
}

} // namespace tkc::emu

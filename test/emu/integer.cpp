#include "helper.h"
#include <algorithm>

using namespace emu_test;

namespace {
// Compares an instruction of two operands with a host function over all pairs of samples.
template <typename T, typename F> void binary(const std::string &text, F oracle) {
  CAPTURE(text);
  std::vector<T> a, b;
  pairs(samples<T>(40, 7), a, b);
  std::vector<T> d = probe<T>(text, a, b);
  size_t bad = 0;
  for (size_t i = 0; i < a.size(); i++)
    if (d[i] != T(oracle(a[i], b[i])) && ++bad < 4) {
      INFO("operands " << int64_t(a[i]) << ", " << int64_t(b[i]));
      CHECK(d[i] == T(oracle(a[i], b[i])));
    }
  CHECK(bad == 0);
}
template <typename T> void arithmetic(const std::string &t) {
  using U = std::make_unsigned_t<T>;
  binary<T>("add." + t + " %d, %a, %b;", [](T a, T b) { return T(U(a) + U(b)); });
  binary<T>("sub." + t + " %d, %a, %b;", [](T a, T b) { return T(U(a) - U(b)); });
  binary<T>("mul.lo." + t + " %d, %a, %b;", [](T a, T b) { return T(uint64_t(a) * uint64_t(b)); });
  binary<T>("min." + t + " %d, %a, %b;", [](T a, T b) { return std::min(a, b); });
  binary<T>("max." + t + " %d, %a, %b;", [](T a, T b) { return std::max(a, b); });
  binary<T>("div." + t + " %d, %a, %b;", [](T a, T b) -> T {
    if (b == 0) return T(-1);
    if (std::is_signed_v<T> && b == T(-1)) return T(U(0) - U(a));
    return T(a / b);
  });
  binary<T>("rem." + t + " %d, %a, %b;", [](T a, T b) -> T {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == T(-1)) return 0;
    return T(a % b);
  });
  binary<T>("mul.hi." + t + " %d, %a, %b;", [](T a, T b) {
    __extension__ typedef __int128 I;
    __extension__ typedef unsigned __int128 U; // the product of two of 64 bits without a sign passes I
    return T((U(I(a)) * U(I(b))) >> (8 * sizeof(T)));
  });
}
} // namespace

TEST_CASE("integer arithmetic wraps, in every width and sign") {
  arithmetic<int16_t>("s16");
  arithmetic<uint16_t>("u16");
  arithmetic<int32_t>("s32");
  arithmetic<uint32_t>("u32");
  arithmetic<int64_t>("s64");
  arithmetic<uint64_t>("u64");
}

TEST_CASE("saturating and wide forms") {
  binary<int32_t>("add.sat.s32 %d, %a, %b;",
                  [](int64_t a, int64_t b) { return std::clamp<int64_t>(a + b, INT32_MIN, INT32_MAX); });
  binary<int32_t>("sub.sat.s32 %d, %a, %b;",
                  [](int64_t a, int64_t b) { return std::clamp<int64_t>(a - b, INT32_MIN, INT32_MAX); });
  std::vector<int32_t> a, b;
  pairs(samples<int32_t>(30, 3), a, b);
  std::vector<int64_t> d = probe<int64_t>("mul.wide.s32 %d, %a, %b;", a, b);
  std::vector<uint64_t> u = probe<uint64_t>("mul.wide.u32 %d, %a, %b;", a, b);
  std::vector<int64_t> m = probe<int64_t>("mov.b64 %q0, 5; mad.wide.s32 %d, %a, %b, %q0;", a, b);
  for (size_t i = 0; i < a.size(); i++) {
    CHECK(d[i] == int64_t(a[i]) * b[i]);
    CHECK(u[i] == uint64_t(uint32_t(a[i])) * uint32_t(b[i]));
    CHECK(m[i] == int64_t(uint64_t(int64_t(a[i]) * b[i]) + 5));
  }
  std::vector<int32_t> w = probe<int32_t>("mul.wide.s16 %d, %a, %b;", std::vector<int16_t>{-3, 300, -32768},
                                          std::vector<int16_t>{7, 300, -32768});
  CHECK(w == std::vector<int32_t>{-21, 90000, 1 << 30});
}

TEST_CASE("multiply-add, sums of absolute differences, dot products") {
  std::vector<int32_t> a = samples<int32_t>(200, 1), b = samples<int32_t>(200, 2), c = samples<int32_t>(200, 3);
  auto lo = probe<int32_t>("mad.lo.s32 %d, %a, %b, %c;", a, b, c),
       hi = probe<int32_t>("mad.hi.s32 %d, %a, %b, %c;", a, b, c);
  auto sad = probe<uint32_t>("sad.s32 %d, %a, %b, %c;", a, b, c),
       usad = probe<uint32_t>("sad.u32 %d, %a, %b, %c;", a, b, c);
  auto dp = probe<int32_t>("dp4a.s32.s32 %d, %a, %b, %c;", a, b, c),
       mixed = probe<int32_t>("dp4a.u32.s32 %d, %a, %b, %c;", a, b, c);
  auto dp2 = probe<int32_t>("dp2a.hi.s32.u32 %d, %a, %b, %c;", a, b, c);
  for (size_t i = 0; i < a.size(); i++) {
    CHECK(lo[i] == int32_t(uint32_t(a[i]) * uint32_t(b[i]) + uint32_t(c[i])));
    CHECK(hi[i] == int32_t(uint32_t((int64_t(a[i]) * b[i]) >> 32) + uint32_t(c[i])));
    CHECK(sad[i] == uint32_t(c[i]) + uint32_t(std::abs(int64_t(a[i]) - b[i])));
    CHECK(usad[i] == uint32_t(c[i]) + uint32_t(std::abs(int64_t(uint32_t(a[i])) - int64_t(uint32_t(b[i])))));
    uint32_t sum = uint32_t(c[i]), sum_mixed = sum, sum2 = sum;
    for (int k = 0; k < 4; k++)
      sum += uint32_t(int8_t(a[i] >> 8 * k) * int8_t(b[i] >> 8 * k)),
          sum_mixed += uint32_t(uint8_t(a[i] >> 8 * k) * int8_t(b[i] >> 8 * k));
    for (int k = 0; k < 2; k++) sum2 += uint32_t(int16_t(a[i] >> 16 * k) * uint8_t(b[i] >> (16 + 8 * k)));
    CHECK(dp[i] == int32_t(sum));
    CHECK(mixed[i] == int32_t(sum_mixed));
    CHECK(dp2[i] == int32_t(sum2));
  }
}

TEST_CASE("carry chains add and multiply 128 bits") {
  __extension__ typedef unsigned __int128 U128;
  std::vector<uint64_t> a = samples<uint64_t>(100, 5), b = samples<uint64_t>(100, 6);
  // (a, b) + (b, a), upper half
  auto sum = probe<uint64_t>("add.cc.u64 %q0, %a, %b; addc.u64 %d, %b, %a;", a, b);
  auto difference = probe<uint64_t>("sub.cc.u64 %q0, %a, %b; subc.u64 %d, %b, %a;", a, b);
  for (size_t i = 0; i < a.size(); i++) {
    U128 x = U128(b[i]) << 64 | a[i], y = U128(a[i]) << 64 | b[i];
    CHECK(sum[i] == uint64_t((x + y) >> 64));
    CHECK(difference[i] == uint64_t((x - y) >> 64));
  }
  std::vector<uint32_t> c = samples<uint32_t>(100, 7), e = samples<uint32_t>(100, 8);
  auto product = probe<uint32_t>("mad.lo.cc.u32 %r0, %a, %b, 0xffffffff; madc.hi.u32 %d, %a, %b, 0;", c, e);
  for (size_t i = 0; i < c.size(); i++) CHECK(product[i] == uint32_t((uint64_t(c[i]) * e[i] + 0xffffffffu) >> 32));
}

TEST_CASE("bits: logic, shifts, counts, fields") {
  binary<uint32_t>("and.b32 %d, %a, %b;", [](uint32_t a, uint32_t b) { return a & b; });
  binary<uint64_t>("or.b64 %d, %a, %b;", [](uint64_t a, uint64_t b) { return a | b; });
  binary<uint16_t>("xor.b16 %d, %a, %b;", [](uint16_t a, uint16_t b) { return a ^ b; });
  binary<uint32_t>("not.b32 %d, %a;", [](uint32_t a, uint32_t) { return ~a; });
  binary<uint32_t>("cnot.b32 %d, %a;", [](uint32_t a, uint32_t) { return a == 0; });
  binary<uint32_t>("shl.b32 %d, %a, %b;", [](uint32_t a, uint32_t b) { return b > 31 ? 0 : a << b; });
  binary<uint32_t>("shr.u32 %d, %a, %b;", [](uint32_t a, uint32_t b) { return b > 31 ? 0 : a >> b; });
  binary<int32_t>("shr.s32 %d, %a, %b;",
                  [](int32_t a, int32_t b) { return uint32_t(b) > 31 ? (a < 0 ? -1 : 0) : a >> b; });
  binary<uint32_t>("shf.l.wrap.b32 %d, %a, %b, 7;", [](uint32_t a, uint32_t b) { return b << 7 | a >> 25; });
  binary<uint32_t>("shf.r.clamp.b32 %d, %a, %b, 40;", [](uint32_t, uint32_t b) { return b; });
  binary<uint32_t>("popc.b32 %d, %a;", [](uint32_t a, uint32_t) { return __builtin_popcount(a); });
  binary<uint32_t>("clz.b32 %d, %a;", [](uint32_t a, uint32_t) { return a ? __builtin_clz(a) : 32; });
  binary<uint32_t>("bfind.u32 %d, %a;", [](uint32_t a, uint32_t) { return a ? 31 - __builtin_clz(a) : -1; });
  binary<int32_t>("bfind.s32 %d, %a;",
                  [](int32_t a, int32_t) { return a == 0 || a == -1 ? -1 : 31 - __builtin_clz(a < 0 ? ~a : a); });
  binary<uint32_t>("bfind.shiftamt.u32 %d, %a;", [](uint32_t a, uint32_t) { return a ? __builtin_clz(a) : -1; });
  binary<uint32_t>("brev.b32 %d, %a;", [](uint32_t a, uint32_t) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k++) r |= (a >> k & 1) << (31 - k);
    return r;
  });
  binary<uint32_t>("bfe.u32 %d, %a, 5, 9;", [](uint32_t a, uint32_t) { return a >> 5 & 511; });
  binary<int32_t>("bfe.s32 %d, %a, 5, 9;", [](int32_t a, int32_t) { return int32_t(uint32_t(a) << 18) >> 23; });
  binary<int32_t>("bfe.s32 %d, %a, 28, 9;", [](int32_t a, int32_t) { return a >> 28; });
  binary<uint32_t>("bfi.b32 %d, %a, %b, 3, 8;",
                   [](uint32_t a, uint32_t b) { return (b & ~0x7f8u) | (a << 3 & 0x7f8u); });
  binary<uint32_t>("lop3.b32 %d, %a, %b, 0x0f0f0f0f, 0xca;",
                   [](uint32_t a, uint32_t b) { return (a & b) | (~a & 0x0f0f0f0fu); });
  binary<uint32_t>("prmt.b32 %d, %a, %b, 0x5410;", [](uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; });
  binary<uint32_t>("prmt.b32 %d, %a, %b, 0x00f8;", [](uint32_t a, uint32_t b) {
    uint32_t low = a & 255;
    return (a >> 7 & 1 ? 0xffu : 0) | (b >> 31 ? 0xff00u : 0) | low << 16 | low << 24;
  });
  binary<uint32_t>("fns.b32 %d, %a, 0, 2;", [](uint32_t a, uint32_t) {
    a &= a - 1;
    return a ? uint32_t(__builtin_ctz(a)) : ~0u;
  });
  binary<uint32_t>("bmsk.clamp.b32 %d, %a, %b;", [](uint32_t a, uint32_t b) {
    return a > 31 || b == 0 ? 0 : uint32_t((b > 31 ? ~0ull : (1ull << b) - 1) << a);
  });
  binary<int32_t>("szext.clamp.s32 %d, %a, 12;", [](int32_t a, int32_t) { return int32_t(uint32_t(a) << 20) >> 20; });
}

TEST_CASE("comparison, selection, predicates") {
  for (auto [name, code] :
       std::vector<std::pair<std::string, int>>{{"eq", 0}, {"ne", 1}, {"lt", 2}, {"le", 3}, {"gt", 4}, {"ge", 5}}) {
    auto holds = [code = code](auto a, auto b) {
      bool r[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
      return r[code];
    };
    binary<int32_t>("setp." + name + ".s32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", holds);
    binary<uint32_t>("setp." + name + ".u32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", holds);
    binary<int64_t>("setp." + name + ".s64 %p0, %a, %b; selp.b64 %d, 1, 0, %p0;", holds);
    binary<int16_t>("setp." + name + ".s16 %p0, %a, %b; selp.b16 %d, 1, 0, %p0;", holds);
    binary<uint32_t>("set." + name + ".u32.u32 %d, %a, %b;",
                     [&](uint32_t a, uint32_t b) { return holds(a, b) ? ~0u : 0u; });
    binary<uint32_t>("set." + name + ".f32.u32 %d, %a, %b;",
                     [&](uint32_t a, uint32_t b) { return holds(a, b) ? 0x3f800000u : 0u; });
  }
  binary<uint32_t>(
      "setp.hi.u32 %p0|%p1, %a, %b; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 2, 0, %p1; add.u32 %d, %r0, %r1;",
      [](uint32_t a, uint32_t b) { return a > b ? 1 : 2; });
  binary<uint32_t>("setp.eq.u32 %p2, %a, 7; setp.lt.and.u32 %p0|%p1, %a, %b, !%p2; selp.b32 %r0, 1, 0, %p0; selp.b32 "
                   "%r1, 2, 0, %p1; add.u32 %d, %r0, %r1;",
                   [](uint32_t a, uint32_t b) { return a == 7  ? 0
                                                       : a < b ? 1
                                                               : 2; });
  binary<uint32_t>("setp.lt.u32 %p0, %a, %b; setp.eq.u32 %p1, %a, 0; xor.pred %p2, %p0, %p1; and.pred %p3, %p2, %p0; "
                   "or.pred %p4, %p3, %p1; "
                   "not.pred %p5, %p4; selp.u32 %d, 3, 4, %p5;",
                   [](uint32_t a, uint32_t b) {
                     bool p = a < b, q = a == 0, r = ((p != q) && p) || q;
                     return !r ? 3 : 4;
                   });
  binary<int32_t>("slct.s32.s32 %d, %a, 9, %b;", [](int32_t a, int32_t b) { return b >= 0 ? a : 9; });
  binary<int32_t>("abs.s32 %d, %a;", [](int32_t a, int32_t) { return a < 0 ? int32_t(0u - uint32_t(a)) : a; });
  binary<int64_t>("neg.s64 %d, %a;", [](int64_t a, int64_t) { return int64_t(0 - uint64_t(a)); });
}

TEST_CASE("pairs of 16-bit integers, moves that pack and unpack") {
  binary<uint32_t>("add.u16x2 %d, %a, %b;", [](uint32_t a, uint32_t b) {
    return uint16_t(a + b) | (uint32_t(uint16_t((a >> 16) + (b >> 16))) << 16);
  });
  binary<uint32_t>("max.s16x2 %d, %a, %b;", [](uint32_t a, uint32_t b) {
    return uint16_t(std::max(int16_t(a), int16_t(b))) | uint32_t(uint16_t(std::max(int16_t(a >> 16), int16_t(b >> 16))))
                                                            << 16;
  });
  binary<uint32_t>("mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};",
                   [](uint32_t a, uint32_t) { return a << 16 | a >> 16; });
  binary<uint32_t>("mov.b32 {%h0, _}, %a; mov.b32 %d, {%h0, 5};",
                   [](uint32_t a, uint32_t) { return (a & 0xffff) | 5 << 16; });
  binary<uint64_t>(
      "mov.b64 {%r0, %r1}, %a; mov.b64 {%h0, %h1, %h2, %h3}, %b; mov.b32 %r2, {%h3, %h0}; mov.b64 %d, {%r1, %r2};",
      [](uint64_t a, uint64_t b) { return a >> 32 | (b >> 48 | (b & 0xffff) << 16) << 32; });
  binary<uint64_t>(
      "{ .reg .b128 %w; mov.b128 %w, {%a, %b}; mov.b128 {%q0, %q1}, %w; add.s64 %q1, %q1, %q1; xor.b64 %d, %q0, %q1; }",
      [](uint64_t a, uint64_t b) { return a ^ (b + b); });
}

// Helpers of the emulator's tests: small PTX modules, buffers, launches, and probes of single instructions.
#pragma once
#include "emu/emu.h"
#include <bit>
#include <cstring>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <type_traits>

namespace emu_test {

using namespace tkc::emu;

inline std::shared_ptr<const Module> parse(const std::string &body) {
  std::string text =
      body.find(".version") == body.npos ? ".version 8.7\n.target sm_120a\n.address_size 64\n" + body : body;
  ParseResult r = parse_ptx(text);
  for (const PtxDiagnostic &d : r.errors) FAIL_CHECK("line " << d.line << ": " << d.message);
  REQUIRE(r.module);
  return r.module;
}

template <typename T>
uint64_t upload(Memory &m, const std::vector<T> &v, const std::string &name = "in", Memory::Attributes a = {}) {
  uint64_t address = m.allocate(int64_t(v.size() * sizeof(T)), name, a);
  if (!v.empty()) std::memcpy(m.host(address), v.data(), v.size() * sizeof(T));
  return address;
}
template <typename T> std::vector<T> download(const Memory &m, uint64_t address, size_t count) {
  std::vector<T> v(count);
  if (count) std::memcpy(v.data(), m.host(address), count * sizeof(T));
  return v;
}

struct Shape {
  int64_t grid = 1, block = 32, dynamic_shared = 0;
};
template <typename... Args>
Report launch(const Module &module, Memory &memory, Shape shape, const Options &options, const Args &...args) {
  const KernelInfo *k = kernels(module).front();
  REQUIRE(k->params.size() == sizeof...(Args));
  ParamWriter w(*k);
  int64_t i = 0;
  (w.set(i++, args), ...);
  Launch l;
  l.grid[0] = shape.grid, l.block[0] = shape.block, l.dynamic_shared = shape.dynamic_shared;
  l.params = w.bytes();
  return run(module, k->name, memory, l, options);
}

inline std::string all_errors(const Report &r) {
  std::string s;
  for (const Error &e : r.errors) s += to_string(e) + "\n";
  return s;
}
inline void check_clean(const Report &r) {
  INFO(all_errors(r));
  CHECK(r.ok());
}
// The report's first error has this kind, and its message contains the text.
inline void check_error(const Report &r, ErrorKind kind, const std::string &text = "") {
  INFO(all_errors(r));
  REQUIRE_FALSE(r.ok());
  CHECK(error_name(r.errors[0].kind) == error_name(kind));
  CHECK(r.errors[0].message.find(text) != std::string::npos);
}
const std::vector<Policy> kPolicies = {Policy::Eager, Policy::Lazy, Policy::Random, Policy::Reverse};

// A kernel whose body runs with the thread index in %t; parameters `out` (in %out) and `in` (in %in). Registers to use:
// %r0..%r63 (b32), %f0..%f63 (f32), %d0..%d63 (b64), %h0..%h31 (b16), %p0..%p15.
inline std::string kernel(const std::string &body, const std::string &shared = "",
                          const std::string &more_params = "") {
  return shared + R"(
.visible .entry k(.param .u64 out, .param .u64 in)" +
         more_params + R"()
{
  .reg .pred %p<16>;
  .reg .b16 %h<32>;
  .reg .b32 %r<64>, %t;
  .reg .f32 %f<64>;
  .reg .b64 %d<64>, %out, %in;
  ld.param.u64 %out, [out];
  ld.param.u64 %in, [in];
  mov.u32 %t, %tid.x;
)" + body +
         "\n  ret;\n}\n";
}

// Executes `text` in one thread for each element: %d is the result, %a, %b, %c the operands, registers of the sizes of
// D, A, B, C (1 and 2 bytes: .b16). %p<8>, %r<8>, %q<8> (64 bits) and %h<8> are free.
template <typename D, typename A, typename B = uint32_t, typename C = uint32_t>
std::vector<D> probe(const std::string &text, const std::vector<A> &a, std::vector<B> b = {}, std::vector<C> c = {}) {
  size_t n = a.size();
  b.resize(n), c.resize(n);
  auto reg = [](size_t bytes) { return bytes <= 2 ? "b16" : bytes == 4 ? "b32" : "b64"; };
  auto mem = [](size_t bytes) { return bytes == 1 ? "u8" : bytes == 2 ? "b16" : bytes == 4 ? "b32" : "b64"; };
  std::string body =
      fmt::format(R"(
.visible .entry probe(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{{
  .reg .pred %p<8>, %go;
  .reg .b16 %h<8>;
  .reg .b32 %r<8>, %i, %n, %x, %y;
  .reg .b64 %q<8>, %at, %off;
  .reg .{} %d; .reg .{} %a; .reg .{} %b; .reg .{} %c;
  ld.param.u32 %n, [pn];
  mov.u32 %i, %ctaid.x; mov.u32 %x, %ntid.x; mov.u32 %y, %tid.x;
  mad.lo.s32 %i, %i, %x, %y;
  setp.ge.u32 %go, %i, %n;
  @%go bra DONE;
  mul.wide.u32 %off, %i, {}; ld.param.u64 %at, [pa]; add.s64 %at, %at, %off; ld.global.{} %a, [%at];
  mul.wide.u32 %off, %i, {}; ld.param.u64 %at, [pb]; add.s64 %at, %at, %off; ld.global.{} %b, [%at];
  mul.wide.u32 %off, %i, {}; ld.param.u64 %at, [pc]; add.s64 %at, %at, %off; ld.global.{} %c, [%at];
  {}
  mul.wide.u32 %off, %i, {}; ld.param.u64 %at, [pd]; add.s64 %at, %at, %off; st.global.{} [%at], %d;
DONE:
  ret;
}})",
                  reg(sizeof(D)), reg(sizeof(A)), reg(sizeof(B)), reg(sizeof(C)), sizeof(A), mem(sizeof(A)), sizeof(B),
                  mem(sizeof(B)), sizeof(C), mem(sizeof(C)), text, sizeof(D), mem(sizeof(D)));
  auto module = parse(body);
  Memory m;
  uint64_t pd = m.allocate(int64_t(n * sizeof(D)), "d"), pa = upload(m, a), pb = upload(m, b), pc = upload(m, c);
  Report r = launch(*module, m, {int64_t(n + 127) / 128, 128}, Options(), pd, pa, pb, pc, uint32_t(n));
  check_clean(r);
  return download<D>(m, pd, n);
}

struct Rng {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};
// Corner cases and random bits.
template <typename T> std::vector<T> samples(size_t n, uint64_t seed) {
  std::vector<T> v = {T(0),
                      T(1),
                      T(-1),
                      T(2),
                      T(std::make_unsigned_t<T>(1) << (8 * sizeof(T) - 1)),
                      T((std::make_unsigned_t<T>(1) << (8 * sizeof(T) - 1)) - 1),
                      T(7),
                      T(-7),
                      T(31),
                      T(32),
                      T(33)};
  Rng r{seed};
  while (v.size() < n) {
    uint64_t bits = r.next();
    v.push_back(T(bits >> (r.next() % 3 * 8 * sizeof(T) / 3))); // short ones too
  }
  return v;
}
// All pairs of a list, as two lists.
template <typename T> void pairs(const std::vector<T> &in, std::vector<T> &a, std::vector<T> &b) {
  for (T x : in)
    for (T y : in) a.push_back(x), b.push_back(y);
}
inline std::vector<float> float_samples(size_t n, uint64_t seed) {
  std::vector<float> v;
  for (uint32_t bits :
       {0x00000000u, 0x80000000u, 0x3f800000u, 0xbf800000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x00000001u,
        0x80000001u, 0x007fffffu, 0x00800000u, 0x7f7fffffu, 0xff7fffffu, 0x3f000000u, 0x3fc00000u, 0x40200000u,
        0x4b000000u, 0x4b000001u, 0x33800000u, 0x34000000u, 0x4f000000u, 0x4f800000u, 0x5f000000u})
    v.push_back(std::bit_cast<float>(bits));
  Rng r{seed};
  while (v.size() < n) {
    uint64_t bits = r.next();
    float x = std::bit_cast<float>(uint32_t(bits));
    if (bits >> 62 == 0) x = float(int32_t(bits) >> 8) * 0x1p-12f; // values that meet
    v.push_back(x);
  }
  return v;
}
inline uint32_t bits_of(float x) { return x != x ? 0x7fffffffu : std::bit_cast<uint32_t>(x); }

} // namespace emu_test

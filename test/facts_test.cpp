// Facts about integer scalars and memory accesses: what must be found, and that nothing false is.
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir_kit.h"
#include "passes/cleanup.h"
#include "passes/constant_eval.h"
#include "passes/facts.h"
#include "passes/poly.h"
#include "passes/prover.h"
#include <algorithm>
#include <set>
#include <unordered_map>

using namespace tkc;
using namespace tkc::test;
using namespace tkc::passes;

// ---- polynomials and proofs

TEST_CASE("polynomials") {
  Poly x = Poly::atom(0), y = Poly::atom(1);
  CHECK((x + y) * (x - y) == x * x - y * y);
  CHECK(((x + Poly(1)) * Poly(6) - Poly(6)).str() == "6*a0");
  CHECK((x - x).constant() == Int(0));
  CHECK((x * y * Poly(4) + Poly(6)).content() == 2);
  CHECK((x * Poly(4)).divided_by(2) == x * Poly(2));
  CHECK(!(x * Poly(4) + Poly(1)).divided_by(2));
  auto s = (x * y * Poly(3) + x - Poly(2)).split(0);
  REQUIRE(s);
  CHECK(s->coefficient == y * Poly(3) + Poly(1));
  CHECK(s->rest == Poly(-2));
  CHECK(!(x * x).split(0));
  CHECK((x * x + y).replace(0, y + Poly(1)) == y * y + Poly(3) * y + Poly(1));
  Poly big(Int(1) << 100);
  CHECK(!(big * big).is_known());
  CHECK(!(big * big * Poly(0) + x).is_known());
  CHECK(gcd(-12, 18) == 6);
  CHECK(gcd(0, -5) == 5);
}

TEST_CASE("proofs use bounds, integrality and choices, and nothing else") {
  Prover p;
  Poly m = Poly::atom(p.new_atom("m"));
  p.lower(0, 1, 0);
  p.upper(0, 1, 1000);
  Poly t = Poly::atom(p.new_atom("t"));
  p.lower(1, 1, 0);
  p.upper(1, 64, m * Poly(64) - Poly(1)); // 64 t <= 64 m - 1
  CHECK(p.nonnegative(m, nullptr));
  CHECK(!p.nonnegative(m - Poly(1), nullptr));
  CHECK(!p.nonnegative(Poly(0) - m, nullptr));
  CHECK(p.nonnegative(Poly(1000) - m, nullptr));
  CHECK(!p.nonnegative(Poly(999) - m, nullptr));
  CHECK(p.nonnegative((m - t - Poly(1)) * Poly(64), nullptr));
  CHECK(!p.nonnegative((m - t - Poly(1)) * Poly(64) - Poly(1), nullptr));
  Poly c = Poly::atom(p.new_atom("c"));
  p.one_of(2, {m, Poly(5)});
  CHECK(p.nonnegative(Poly(1000) - c, nullptr));
  CHECK(!p.nonnegative(c - Poly(1), nullptr));
  // A condition holds in its scope and in what that encloses.
  ir::Function f;
  ir::Block *outer = f.new_block(nullptr);
  ir::Op *op = f.new_op(OpKind::If, {});
  op->block = outer;
  ir::Block *inner = f.new_block(op), *other = f.new_block(op);
  p.assume(m - Poly(7), inner);
  CHECK(p.nonnegative(m - Poly(7), inner));
  CHECK(!p.nonnegative(m - Poly(8), inner));
  CHECK(!p.nonnegative(m - Poly(7), other));
  CHECK(!p.nonnegative(m - Poly(7), outer));
  // Facts about two atoms say something about the earlier one, unless the later one may be a guess.
  for (bool settled : {true, false}) {
    Prover r;
    Poly n = Poly::atom(r.new_atom("n"));
    if (!settled) r.settle();
    Poly k = Poly::atom(r.new_atom("k"));
    r.assume(k - Poly(3));
    r.assume(n - k * Poly(2), inner);
    CHECK(r.nonnegative(n - Poly(6), inner) == settled);
    CHECK(!r.nonnegative(n - Poly(7), inner));
    CHECK(!r.nonnegative(n, outer));
  }
  // Bounds are rounded to integers: 6 k <= 4 n + 3 is 3 k <= 2 n + 1, and 6 k >= 4 n - 3 is 3 k >= 2 n - 1.
  Prover w;
  Poly n = Poly::atom(w.new_atom("n")), k = Poly::atom(w.new_atom("k"));
  w.upper(1, 6, n * Poly(4) + Poly(3));
  w.lower(1, 6, n * Poly(4) - Poly(3));
  CHECK(w.nonnegative(n * Poly(2) + Poly(1) - k * Poly(3), nullptr));
  CHECK(!w.nonnegative(n * Poly(2) - k * Poly(3), nullptr));
  CHECK(w.nonnegative(k * Poly(3) - n * Poly(2) + Poly(1), nullptr));
  CHECK(!w.nonnegative(k * Poly(3) - n * Poly(2), nullptr));
  // a * b >= 1 with factors that are not negative.
  Prover q;
  Poly a = Poly::atom(q.new_atom("a")), b = Poly::atom(q.new_atom("b"));
  q.lower(0, 1, 0);
  q.lower(1, 1, 0);
  q.assume(a * b - Poly(1));
  CHECK(q.nonnegative(a - Poly(1), nullptr));
  CHECK(q.nonnegative(b - Poly(1), nullptr));
  CHECK(!q.nonnegative(b - Poly(2), nullptr));
}

// ---- what must be found

namespace {

struct Parsed {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<ir::Function> f;
  explicit Parsed(const std::string &text) {
    int32_t id = sources.add("test.tkir", text);
    f = ir::parse_ir(sources.file(id).text(), diags, id);
    INFO(diags.render_all());
    REQUIRE(f != nullptr);
    std::string faults;
    for (const std::string &s : ir::verify(*f, ir::Stage::typed)) faults += s + "\n";
    INFO(text);
    CHECK(faults == "");
  }
};

std::string i32(const char *name, int64_t v) {
  return fmt::format("%{} = constant : i32 {{dtype = i32, value = {}}}\n", name, v);
}

// Accesses of x, in order: "bounds divisors" per dim, as in "11 64,1".
std::string access_facts(const std::string &x, const std::string &header, const std::string &ops) {
  Parsed p(fmt::format("kernel k {{ param x: in {} {} body (%x : {}, %M : i32, %K : i32, %H : i32) {{\n"
                       "%zero = constant : i32 {{dtype = i32, value = 0}}\n{}return }} }}",
                       x, "size M size K size H " + header, x.substr(0, x.find(" dims")), ops));
  PassContext context{ir::default_target(), ir::default_part(ir::default_target()), p.diags};
  annotate_accesses(*p.f, context);
  CHECK(!annotate_accesses(*p.f, context));
  std::string out;
  ir::walk(p.f->body, [&](ir::Op *op) {
    if (op->kind != OpKind::Load) return;
    if (!out.empty()) out += "; ";
    for (int64_t b : op->attrs.ints("in_bounds")) out += char('0' + b);
    out += " ";
    for (int64_t d : op->attrs.ints("divisor"))
      out += (out.back() == ' ' ? "" : ",") + (d == Facts::kAny ? "any" : std::to_string(d));
  });
  return out;
}
std::string load2(const char *name, const char *i, const char *j, int64_t n, int64_t m) {
  return fmt::format("%{} = load %x, %{}, %{} : tile<f32>[{}, {}] {{sizes = [{}, {}], drop = [0, 0], gather = [0, 0], "
                     "has_mask = 0, has_other = 0}}\n",
                     name, i, j, n, m, n, m);
}
std::string load1(const char *name, const char *i, int64_t n) {
  return fmt::format(
      "%{} = load %x, %{} : tile<f32>[{}] {{sizes = [{}], drop = [0], gather = [0], has_mask = 0, has_other = 0}}\n",
      name, i, n, n);
}
const char *const k2d = "tensor<f32>[?, ?] dims [M, K]";
const char *const k1d = "tensor<f32>[?] dims [M]";
std::string pid(int axis = 0) { return fmt::format("%pid = program_id : i32 {{axis = {}}}\n", axis); }

} // namespace

TEST_CASE("rows of a tile: grid and divisibility") {
  std::string rows = i32("BM", 64) + pid() + "%r = mul %pid, %BM : i32\n" + load2("t", "r", "zero", 64, 8);
  CHECK(access_facts(k2d, "grid (cdiv(M, 64)) where M % 64 == 0", rows) == "10 64,any");
  CHECK(access_facts(k2d, "grid (cdiv(M, 64)) where M % 128 == 0", rows) == "10 64,any");
  CHECK(access_facts(k2d, "grid (M / 64)", rows) == "10 64,any");
  CHECK(access_facts(k2d, "grid (cdiv(M, 64))", rows) == "00 64,any");
  CHECK(access_facts(k2d, "grid (cdiv(M, 64)) where M % 32 == 0", rows) == "00 64,any");
  CHECK(access_facts(k2d, "grid (cdiv(M, 128)) where M % 128 == 0", rows) == "10 64,any");
  CHECK(access_facts(k2d, "grid (cdiv(M, 32)) where M % 64 == 0", rows) == "00 64,any");
  CHECK(access_facts(k2d, "grid (M) where M % 64 == 0", rows) == "00 64,any");
  // No proof that a product does not wrap: the powers of two that divide it stay. The grid says that K is at least 1.
  CHECK(access_facts(k2d, "grid (K)",
                     i32("c", 48) + pid() + "%r = mul %pid, %c : i32\n" + load2("t", "r", "zero", 1, 1)) ==
        "01 16,any");
}

TEST_CASE("whole dims and constant ranges") {
  const char *fixed = "tensor<f32>[?, 64] dims [M, 64]";
  CHECK(access_facts(fixed, "grid (M)", pid() + load2("t", "pid", "zero", 1, 64)) == "11 1,any");
  CHECK(access_facts(fixed, "grid (M)", i32("c", 60) + pid() + load2("t", "pid", "c", 1, 4)) == "11 1,60");
  CHECK(access_facts(fixed, "grid (M)", i32("c", 61) + pid() + load2("t", "pid", "c", 1, 4)) == "10 1,61");
  CHECK(access_facts(fixed, "grid (M)", i32("c", -4) + pid() + load2("t", "pid", "c", 1, 4)) == "10 1,4");
  CHECK(access_facts(fixed, "grid (M)", load2("t", "zero", "zero", 1, 65)) == "10 any,any");
  CHECK(access_facts(k1d, "grid (1) where M >= 4096", load1("t", "zero", 4096)) == "1 any");
  CHECK(access_facts(k1d, "grid (1) where M > 4094", load1("t", "zero", 4096)) == "0 any");
}

TEST_CASE("loops over a dim") {
  auto body = [](const char *lo, const char *hi, int64_t step, int64_t n, const std::string &more = "") {
    return i32("step", step) + fmt::format("for %{}, %{}, %step do (%k : i32) {{\n", lo, hi) + more +
           load1("t", more.empty() ? "k" : "i", n) + "yield\n}\n";
  };
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", body("zero", "M", 32, 32)) == "1 32");
  CHECK(access_facts(k1d, "grid (1)", body("zero", "M", 32, 32)) == "0 32");
  CHECK(access_facts(k1d, "grid (1)", body("zero", "M", 32, 1)) == "1 32");
  CHECK(access_facts("tensor<f32>[4096] dims [4096]", "grid (1)", i32("N", 4096) + body("zero", "N", 64, 64)) ==
        "1 64");
  CHECK(access_facts("tensor<f32>[4096] dims [4096]", "grid (1)", i32("N", 4097) + body("zero", "N", 64, 64)) ==
        "0 64");
  CHECK(access_facts(k1d, "grid (1) where M % 64 == 0 && K % 64 == 0 && K <= M", body("K", "M", 64, 64)) == "1 64");
  CHECK(access_facts(k1d, "grid (1) where K <= M && M % 64 == 0", body("zero", "K", 64, 64)) ==
        "1 64"); // 64 t < K <= 64 m
  CHECK(access_facts(k1d, "grid (1) where K <= M && M % 32 == 0", body("zero", "K", 64, 64)) == "0 64");
  CHECK(access_facts(k1d, "grid (1) where K <= M && K % 64 == 0", body("zero", "K", 64, 64)) == "1 64");
  // M - 1 - k counts down.
  std::string down = i32("one", 1) + "%last = sub %M, %one : i32\n";
  CHECK(access_facts(k1d, "grid (1)", down + body("zero", "M", 1, 1, "%i = sub %last, %k : i32\n")) == "1 1");
  CHECK(access_facts(k1d, "grid (1)", down + body("zero", "M", 1, 2, "%i = sub %last, %k : i32\n")) == "0 1");
  // Chunks: c * 64 for c in 0 : M / 64.
  std::string chunks = i32("C", 64) + "%n = div %M, %C : i32 {precise = 0}\n";
  CHECK(access_facts(k1d, "grid (1)", chunks + body("zero", "n", 1, 64, "%i = mul %k, %C : i32\n")) == "1 64");
  CHECK(access_facts(k1d, "grid (1)", chunks + body("zero", "n", 1, 65, "%i = mul %k, %C : i32\n")) == "0 64");
  // A nested loop whose lower bound is the outer counter.
  std::string nested = i32("s", 16) + "for %zero, %M, %s do (%k : i32) {\nfor %k, %M, %s do (%j : i32) {\n" +
                       load1("t", "j", 16) + "yield\n}\nyield\n}\n";
  CHECK(access_facts(k1d, "grid (1) where M % 16 == 0", nested) == "1 16");
}

TEST_CASE("carried offsets") {
  auto loop = [](const std::string &next, const char *init = "zero") {
    return i32("s", 32) + "%o = for %zero, %M, %s, %" + std::string(init) + " : i32 do (%k : i32, %i : i32) {\n" +
           load1("t", "i", 32) + next + "yield %n\n}\n";
  };
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", loop("%n = add %i, %s : i32\n")) == "1 32");
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", loop("%n = add %s, %i : i32\n")) == "1 32");
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", loop("%n = add %i, %k : i32\n")) == "0 32");
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", i32("c", 33) + loop("%n = add %i, %c : i32\n")) == "0 1");
  CHECK(access_facts(k1d, "grid (1) where M % 32 == 0", i32("c", 48) + loop("%n = mul %i, %c : i32\n", "c")) == "0 16");
}

TEST_CASE("a condition on what is only guessed says nothing about sizes") {
  // Before the body is looked at, %i may be any multiple of what divides its initial value, 0: a huge number, if
  // positive.
  std::string ops = i32("one", 1) +
                    "%o = for %zero, %M, %one, %zero : i32 do (%k : i32, %i : i32) {\n%a = gt %i, %zero : bool\n"
                    "%b = lt %i, %K : bool\n%c = and %a, %b : bool\nif %c do {\n" +
                    load1("t", "zero", 100) +
                    "yield\n} do {\nyield\n}\n"
                    "%n = add %i, %one : i32\nyield %n\n}\n";
  CHECK(access_facts("tensor<f32>[?] dims [K]", "grid (1)", ops) == "0 any");
  // What is true of sizes and program ids does.
  std::string sizes = pid() + "%c = lt %pid, %K : bool\nif %c do {\n" + load1("t", "zero", 1) + "yield\n} do {\n" +
                      load1("u", "zero", 1) + "yield\n}\n";
  CHECK(access_facts("tensor<f32>[?] dims [K]", "grid (M)", sizes) == "1 any; 0 any");
}

TEST_CASE("heads and batches: divisions of the program id") {
  std::string x = "tensor<f32>[?, ?] dims [M, H]";
  std::string ops =
      pid() + "%b = div %pid, %H : i32 {precise = 0}\n%h = rem %pid, %H : i32\n" + load2("t", "b", "h", 1, 1);
  CHECK(access_facts(x, "grid (M * H)", ops) == "11 1,1");
  CHECK(access_facts(x, "grid (M * H + 1) where H >= 1", ops) == "01 1,1");
  CHECK(access_facts(x, "grid (M * H + 1)", ops) == "00 1,1"); // with H = 0 the remainder is any number
  std::string fixed = i32("G", 8) + pid() +
                      "%b = div %pid, %G : i32 {precise = 0}\n%h = rem %pid, %G : i32\n%j = mul %h, %G : i32\n" +
                      load2("t", "b", "j", 1, 8);
  CHECK(access_facts("tensor<f32>[?, 64] dims [M, 64]", "grid (M * 8)", fixed) == "11 1,8");
  CHECK(access_facts("tensor<f32>[?, 63] dims [M, 63]", "grid (M * 8)", fixed) == "10 1,8");
  std::string shifts = i32("three", 3) + i32("seven", 7) + i32("mask", -8) + pid() +
                       "%b = shr %pid, %three : i32\n%h = and %pid, %seven : i32\n" + "%d = and %pid, %mask : i32\n" +
                       load2("t", "b", "h", 1, 1) + load2("u", "d", "zero", 1, 1);
  CHECK(access_facts("tensor<f32>[?, 8] dims [M, 8]", "grid (M * 8)", shifts) == "11 1,1; 01 8,any");
  CHECK(access_facts("tensor<f32>[?, 8] dims [M * 8, 8]", "grid (M * 8)", shifts) == "11 1,1; 11 8,any");
}

TEST_CASE("conditions and extrema") {
  std::string ops = i32("n", 16) + pid() +
                    "%r = mul %pid, %n : i32\n%e = add %r, %n : i32\n%c = le %e, %M : bool\n"
                    "if %c do {\n" +
                    load1("t", "r", 16) + "yield\n} do {\n" + load1("u", "r", 16) + "yield\n}\n";
  CHECK(access_facts(k1d, "grid (cdiv(M, 16)) where M <= 1000000", ops) == "1 16; 0 16");
  std::string both =
      pid() +
      "%c = lt %pid, %M : bool\n%d = gt %M, %zero : bool\n%b = and %c, %d : bool\n%n = not %b : bool\nif %n do {\n" +
      load1("t", "pid", 1) + "yield\n} do {\n" + load1("u", "pid", 1) + "yield\n}\n";
  CHECK(access_facts(k1d, "grid (K)", both) == "0 1; 1 1");
  std::string clamp = i32("one", 1) + pid() +
                      "%last = sub %M, %one : i32\n%m = min %pid, %last : i32\n%i = max %m, %zero : i32\n" +
                      load1("t", "i", 1);
  CHECK(access_facts(k1d, "grid (K) where M >= 1", clamp) == "1 1");
  CHECK(access_facts(k1d, "grid (K)", clamp) == "0 1"); // an empty tensor
  std::string select = pid() +
                       "%c = lt %pid, %M : bool\n%i = where %c, %zero, %zero : i32\n%j = if %c : i32 do {\nyield "
                       "%pid\n} do {\nyield %zero\n}\n" +
                       load1("t", "i", 1) + load1("u", "j", 1);
  CHECK(access_facts(k1d, "grid (K) where M >= 1", select) == "1 any; 0 1");
  CHECK(access_facts(k1d, "grid (K) where K <= M", select) == "1 any; 1 1");
}

TEST_CASE("parts of tensors") {
  std::string part =
      i32("c", 8) +
      "%e = add %c, %c : i32\n%p = subview %x, %c, %e : tensor<f32>[?] {ranges = [1]}\n"
      "%t = load %p, %zero : tile<f32>[8] {sizes = [8], drop = [0], gather = [0], has_mask = 0, has_other = 0}\n"
      "%u = load %p, %zero : tile<f32>[9] {sizes = [9], drop = [0], gather = [0], has_mask = 0, has_other = 0}\n";
  CHECK(access_facts(k1d, "grid (1) where M >= 16", part) == "1 any; 0 any");
  CHECK(access_facts(k1d, "grid (1) where M >= 15", part) == "0 any; 0 any");
  std::string row =
      pid() +
      "%p = subview %x, %pid : tensor<f32>[64] {ranges = [2, 0]}\n"
      "%t = load %p, %zero : tile<f32>[64] {sizes = [64], drop = [0], gather = [0], has_mask = 0, has_other = 0}\n";
  CHECK(access_facts("tensor<f32>[?, 64] dims [M, 64]", "grid (M)", row) == "1 any");
  std::string dim = pid() + "%p = subview %x, %pid, %M : tensor<f32>[?] {ranges = [1]}\n%n = dim %p : i32 {axis = 0}\n"
                            "for %zero, %n, %H do (%k : i32) {\n"
                            "%t = load %p, %k : tile<f32>[1] {sizes = [1], drop = [0], gather = [0], has_mask = 0, "
                            "has_other = 0}\nyield\n}\n";
  CHECK(access_facts(k1d, "grid (M) where H >= 1", dim) == "1 1");
  std::string loaded = "%b = load %x, %zero : f32 {sizes = [1], drop = [1], gather = [0], has_mask = 0, has_other = "
                       "0}\n%i = cast %b : i32 {dtype = i32}\n" +
                       load1("t", "i", 1);
  CHECK(access_facts(k1d, "grid (1) where M >= 1", loaded) == "1 any; 0 1");
}

// ---- that nothing false is found

namespace {

// Runs a kernel's integer scalars for one program and calls `visit` at every load.
struct Machine {
  const ir::Function &f;
  std::map<std::string, int64_t> sizes;
  std::vector<int64_t> program, grid;
  Random rng;
  std::unordered_map<const ir::Value *, int64_t> v = {};
  std::unordered_map<const ir::Value *, Ints> extents = {};
  std::function<void(const ir::Op &)> visit = {};
  int64_t steps = 0;
  bool stopped = false; // a fault of the program, or too long

  Ints block(const ir::Block &b) {
    for (const ir::Op *op : b.ops) {
      if (stopped || ++steps > 20000) return stopped = true, Ints();
      if (op->kind == OpKind::Yield) {
        Ints out;
        for (const ir::Value *x : op->operands) out.push_back(v[x]);
        return out;
      }
      run(*op);
    }
    return {};
  }
  void results(const ir::Op &op, const Ints &x) {
    for (size_t i = 0; i < op.results.size() && i < x.size(); i++) v[op.result(i)] = x[i];
  }
  void run(const ir::Op &op) {
    auto x = [&](size_t i) { return v.at(op.operand(i)); };
    switch (op.kind) {
    case OpKind::For: {
      Ints carried;
      for (size_t i = 3; i < op.operands.size(); i++) carried.push_back(x(i));
      const ir::Block &body = *op.regions[0];
      if (x(2) <= 0) return void(stopped = true);
      for (int64_t k = x(0); k < x(1) && !stopped; k += x(2)) {
        v[body.args[0]] = k;
        for (size_t i = 0; i < carried.size(); i++) v[body.args[i + 1]] = carried[i];
        carried = block(body);
      }
      return results(op, carried);
    }
    case OpKind::If: return results(op, block(*op.regions[x(0) ? 0 : 1]));
    case OpKind::ProgramId: v[op.result()] = program[size_t(op.attrs.i("axis"))]; return;
    case OpKind::NumPrograms: v[op.result()] = grid[size_t(op.attrs.i("axis"))]; return;
    case OpKind::Constant: v[op.result()] = op.attrs.i("value"); return;
    case OpKind::Dim: v[op.result()] = extents[op.operand(0)][size_t(op.attrs.i("axis"))]; return;
    case OpKind::Subview: {
      Ints out;
      size_t next = 1;
      for (size_t d = 0; d < op.attrs.ints("ranges").size(); d++) {
        int64_t whole = extents[op.operand(0)][d], r = op.attrs.ints("ranges")[d];
        if (r == 0) out.push_back(whole);
        if (r == 2) {
          int64_t i = x(next++);
          if (i < 0 || i >= whole) return void(stopped = true);
        }
        if (r != 1) continue;
        int64_t lo = std::clamp<int64_t>(x(next), 0, whole), hi = std::clamp(x(next + 1), lo, whole);
        next += 2;
        out.push_back(hi - lo);
      }
      extents[op.result()] = out;
      return;
    }
    case OpKind::Load:
      visit(op);
      v[op.result()] = rng.below(100) - 20;
      return;
    case OpKind::Return: return;
    default: break;
    }
    std::vector<Constant> operands;
    for (const ir::Value *o : op.operands) operands.push_back({o->type.dtype, 0, v.at(o)});
    auto c = evaluate(op, operands);
    if (!c) return void(stopped = true); // division by zero
    v[op.result()] = c->i;
  }
};

// A kernel of index arithmetic and one-element or wider loads.
struct IndexKernel {
  Random rng;
  Kit kit{ir::FunctionKind::Kernel, 2};
  std::vector<ir::Value *> ints, bools;
  std::vector<ir::Value *> tensors;

  using E = ir::SizeExpr;
  E sym(int64_t i) { return E::symbol(std::string(1, char('A' + i))); }
  E constant(int64_t v) { return E::constant(v); }
  int64_t small() {
    static const int64_t likely[] = {0, 1, 2, 3, 4, 8, 16, 16, 16, 24, 64};
    return likely[rng.below(11)];
  }
  int64_t positive() { return std::max<int64_t>(1, small()); }

  explicit IndexKernel(uint64_t seed) : rng(seed) {
    ir::Function &f = kit.f;
    f.name = "index";
    for (int64_t i = 0; i < 3; i++)
      if (rng.below(2))
        f.facts.push_back(E::make(E::Op::Eq, E::make(E::Op::Rem, sym(i), constant(positive())), constant(0)));
    if (rng.below(3) == 0)
      f.facts.push_back(E::make(E::Op(int(E::Op::Lt) + rng.below(4)), sym(rng.below(3)), sym(rng.below(3))));
    if (rng.below(3) == 0)
      f.facts.push_back(E::make(E::Op(int(E::Op::Lt) + rng.below(4)), sym(rng.below(3)), constant(positive())));
    if (rng.below(4) == 0)
      f.facts.push_back(E::make(E::Op::And,
                                E::make(E::Op::Eq, sym(0), E::make(E::Op::Mul, sym(1), constant(positive()))),
                                E::make(E::Op::Ge, sym(2), constant(1))));
    f.grid = {grid(), grid()};
    param({sym(0)});
    param({extent(), extent()});
    for (int64_t i = 0; i < 3; i++) {
      f.sizes.push_back(sym(i).name());
      ints.push_back(kit.argument(f.body, ir::Type::scalar(DType::I32)));
    }
    for (int64_t axis = 0; axis < 2; axis++) ints.push_back(kit.value(OpKind::ProgramId, {}, attrs({{"axis", axis}})));
    body(12 + rng.below(14), 3);
    load();
    kit.end(OpKind::Return, {});
  }
  E extent() {
    switch (rng.below(4)) {
    case 0: return constant(positive() * positive());
    case 1: return E::make(E::Op::Mul, sym(rng.below(3)), rng.below(2) ? constant(positive()) : sym(rng.below(3)));
    default: return sym(rng.below(3));
    }
  }
  E grid() {
    E s = sym(rng.below(3));
    switch (rng.below(6)) {
    case 0: return E::make(E::Op::Div, s, constant(positive()));
    case 1: return E::make(E::Op::Mul, s, rng.below(2) ? sym(rng.below(3)) : constant(positive()));
    case 2: return E::make(E::Op::Min, s, sym(rng.below(3)));
    case 3: return s;
    default: return E::make(E::Op::CDiv, s, constant(positive()));
    }
  }
  void param(std::vector<E> dims) {
    ir::Param p;
    p.name = std::string(1, char('x' + tensors.size()));
    Ints shape;
    for (const E &d : dims) shape.push_back(d.is_const() ? d.value() : ir::kDynamic);
    p.type = ir::Type::tensor(DType::I32, shape);
    p.dims = dims;
    kit.f.params.push_back(p);
    tensors.push_back(kit.argument(kit.f.body, p.type));
  }
  ir::Value *pick() {
    // Recent values are likelier: chains grow deep.
    size_t n = ints.size(), back = std::min<size_t>(n, size_t(1 + rng.below(int64_t(n))));
    return ints[n - 1 - size_t(rng.below(int64_t(back)))];
  }
  ir::Value *number(bool above_zero = false) { return kit.i32(above_zero ? positive() : small()); }
  ir::Value *either() { return rng.below(3) ? number() : pick(); }
  void add(ir::Value *v) { ints.push_back(v); }

  void arithmetic() {
    ir::Value *a = pick(), *r = nullptr;
    switch (rng.below(14)) {
    case 0:
    case 1: r = kit.value(OpKind::Add, {a, either()}); break;
    case 2: r = kit.value(OpKind::Sub, {a, either()}); break;
    case 3:
    case 4: r = kit.value(OpKind::Mul, {a, either()}); break;
    case 5: r = kit.value(OpKind::Div, {a, rng.below(2) ? number(true) : pick()}); break;
    case 6: r = kit.value(OpKind::Rem, {a, rng.below(2) ? number(true) : pick()}); break;
    case 7: r = kit.value(rng.below(2) ? OpKind::Min : OpKind::Max, {a, either()}); break;
    case 8: r = kit.value(rng.below(2) ? OpKind::Shl : OpKind::Shr, {a, kit.i32(rng.below(6))}); break;
    case 9: r = kit.value(OpKind::And, {a, kit.i32(rng.below(2) ? positive() - 1 : -positive())}); break;
    case 10:
      compare();
      r = kit.value(OpKind::Where, {bools.back(), a, either()});
      break;
    case 11: r = kit.value(OpKind::Abs, {a}); break;
    case 12: { // through other widths
      DType t = rng.below(2) ? DType::I8 : rng.below(2) ? DType::I64 : DType::U32;
      ir::Value *w = kit.value(OpKind::Cast, {a}, attrs({{"dtype", t}}));
      w = kit.value(rng.below(2) ? OpKind::Add : OpKind::Mul, {w, w});
      r = kit.value(OpKind::Cast, {w}, attrs({{"dtype", DType::I32}}));
      break;
    }
    default: r = kit.value(OpKind::Neg, {a});
    }
    add(r);
  }
  void compare() {
    static const OpKind kinds[] = {OpKind::Lt, OpKind::Le, OpKind::Gt, OpKind::Ge, OpKind::Eq, OpKind::Ne};
    bools.push_back(kit.value(kinds[rng.below(6)], {pick(), either()}));
    if (rng.below(3) == 0) bools.push_back(kit.value(OpKind::Not, {bools.back()}));
    if (bools.size() > 1 && rng.below(3) == 0)
      bools.push_back(kit.value(rng.below(2) ? OpKind::And : OpKind::Or,
                                {bools.back(), bools[size_t(rng.below(int64_t(bools.size())))]}));
  }
  void load() {
    ir::Value *t = tensors[size_t(rng.below(int64_t(tensors.size())))];
    size_t rank = t->type.shape.size();
    if (rank == 0) return;
    std::vector<ir::Value *> operands = {t};
    for (size_t d = 0; d < rank; d++) operands.push_back(pick());
    Ints sizes;
    for (size_t d = 0; d < rank; d++) sizes.push_back(rng.below(3) ? 1 : positive());
    kit.create(OpKind::Load, operands,
               attrs({{"sizes", sizes},
                      {"drop", Ints(rank, 0)},
                      {"gather", Ints(rank, 0)},
                      {"has_mask", int64_t(0)},
                      {"has_other", int64_t(0)}}));
  }
  void subview() {
    ir::Value *t = tensors[size_t(rng.below(2))];
    std::vector<ir::Value *> operands = {t};
    Ints ranges;
    for (size_t d = 0; d < t->type.shape.size(); d++) {
      ranges.push_back(rng.below(3));
      for (int64_t k = ranges.back() == 1 ? 2 : ranges.back() == 2 ? 1 : 0; k > 0; k--)
        operands.push_back(rng.below(2) ? pick() : number());
    }
    ir::Value *p = kit.value(OpKind::Subview, operands, attrs({{"ranges", ranges}}));
    tensors.push_back(p);
    if (p->type.rank() > 0) add(kit.value(OpKind::Dim, {p}, attrs({{"axis", int64_t(0)}})));
  }
  void region(ir::Op *op, auto &&make) {
    ir::Block *outer = kit.b.block(), *r = kit.f.new_block(op);
    op->regions.push_back(r);
    kit.b.set_block(r);
    auto a = ints, b = bools, c = tensors;
    make(r);
    ints = a, bools = b, tensors = c;
    kit.b.set_block(outer);
  }
  void control(int depth) {
    ir::Type t = ir::Type::scalar(DType::I32);
    if (rng.below(2)) {
      ir::Value *init = either();
      ir::Op *op =
          kit.b.create_typed(OpKind::For, {either(), pick(), rng.below(4) ? number(true) : pick(), init}, {t}, {}, {});
      region(op, [&](ir::Block *r) {
        ints.push_back(kit.argument(r, t));
        ir::Value *carried = kit.argument(r, t);
        ints.push_back(carried);
        body(2 + rng.below(5), depth - 1);
        ir::Value *next =
            rng.below(2) ? kit.value(rng.below(3) ? OpKind::Add : OpKind::Sub, {carried, either()}) : pick();
        kit.end(OpKind::Yield, {next});
      });
      add(op->result());
    } else {
      compare();
      ir::Op *op = kit.b.create_typed(OpKind::If, {bools.back()}, {t}, {}, {});
      for (int k = 0; k < 2; k++)
        region(op, [&](ir::Block *) {
          body(1 + rng.below(4), depth - 1);
          kit.end(OpKind::Yield, {pick()});
        });
      add(op->result());
    }
  }
  void body(int64_t n, int depth) {
    for (int64_t k = 0; k < n; k++) {
      int64_t what = rng.below(10);
      if (what < 5)
        arithmetic();
      else if (what < 8)
        load();
      else if (what < 9)
        subview();
      else if (depth > 0)
        control(depth);
    }
  }

  // Random sizes that satisfy the facts, small or huge.
  std::optional<std::map<std::string, int64_t>> sizes(Random &r) {
    for (int tries = 0; tries < 30; tries++) {
      std::map<std::string, int64_t> out;
      for (const std::string &s : kit.f.sizes) {
        int64_t scale = 1 + 15 * r.below(2);
        out[s] = r.below(8) ? r.below(7) * scale : (INT32_MAX - r.below(40)) / scale * scale;
      }
      auto lookup = [&](const std::string &s) { return std::optional(out.at(s)); };
      bool ok = true;
      for (const E &e : kit.f.facts) ok = ok && e.eval(lookup).value_or(0) != 0;
      for (const ir::Param &p : kit.f.params) // what a launch checks
        for (const E &e : p.dims) ok = ok && e.eval(lookup).value_or(-1) >= 0 && *e.eval(lookup) <= INT32_MAX;
      if (ok) return out;
    }
    return std::nullopt;
  }
};

} // namespace

TEST_CASE("every fact holds in every run") {
  int64_t accesses = 0, claims = 0, divisors = 0, checked = 0, refuted = 0;
  for (uint64_t seed = 0; seed < 1500; seed++) {
    IndexKernel k(seed);
    PassContext context{ir::default_target(), ir::default_part(ir::default_target()), k.kit.diags};
    annotate_accesses(k.kit.f, context);
    Facts facts(k.kit.f);
    INFO("seed " << seed);
    CAPTURE(ir::print(k.kit.f));
    std::set<std::pair<const ir::Op *, size_t>>
        reached; // dims of accesses, each counted once however often a loop meets it
    Random r(seed);
    for (int sample = 0; sample < 12; sample++) {
      auto sizes = k.sizes(r);
      if (!sizes) break;
      Machine m{k.kit.f, *sizes, {}, {}, Random(r.next())};
      bool launches = true;
      for (const ir::SizeExpr &g : k.kit.f.grid) {
        int64_t n = g.eval([&](const std::string &s) { return std::optional(sizes->at(s)); }).value_or(0);
        launches = launches && n >= 1 && n <= INT32_MAX;
        m.grid.push_back(n);
      }
      if (!launches) continue;
      for (int64_t n : m.grid) m.program.push_back(r.below(3) ? r.below(n) : r.below(2) * (n - 1));
      size_t arg = 0;
      for (const ir::Param &p : k.kit.f.params) {
        Ints e;
        for (const ir::SizeExpr &d : p.dims)
          e.push_back(*d.eval([&](const std::string &s) { return std::optional(sizes->at(s)); }));
        m.extents[k.kit.f.body->args[arg++]] = e;
      }
      for (const std::string &s : k.kit.f.sizes) m.v[k.kit.f.body->args[arg++]] = sizes->at(s);
      m.visit = [&](const ir::Op &op) {
        for (size_t d = 0; d < op.attrs.ints("in_bounds").size(); d++) {
          int64_t start = m.v.at(op.operand(d + 1)), size = op.attrs.ints("sizes")[d],
                  extent = m.extents.at(op.operand(0))[d];
          bool inside = start >= 0 && start + size <= extent;
          checked++;
          if (reached.emplace(&op, d).second) {
            accesses++;
            claims += op.attrs.ints("in_bounds")[d];
            divisors += op.attrs.ints("divisor")[d] > 1;
          }
          bool false_claim = (op.attrs.ints("in_bounds")[d] && !inside) || start % op.attrs.ints("divisor")[d] != 0 ||
                             extent % op.attrs.ints("extent_divisor")[d] != 0;
          if (!false_claim) continue;
          refuted++;
          FAIL_CHECK("dim " << d << " of `" << ir::print_op(op) << "`: start " << start << " = "
                            << facts.str(facts.value(op.operand(d + 1))) << ", extent " << extent << " = "
                            << facts.str(facts.extent(op.operand(0), int64_t(d))) << ", sizes A " << sizes->at("A")
                            << " B " << sizes->at("B") << " C " << sizes->at("C"));
        }
      };
      m.block(*k.kit.f.body);
      if (refuted > 3) return;
    }
  }
  MESSAGE(accesses << " accesses, checked " << checked << " times; " << claims << " in bounds, " << divisors
                   << " with a divisor");
  CHECK(claims > accesses / 12);
  CHECK(divisors > accesses / 5);
  CHECK(claims < accesses);
}

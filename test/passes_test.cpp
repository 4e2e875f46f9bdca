// Clean-up passes, the pass manager, and the facts about memory accesses.
#include "ir/parse.h"
#include "ir/print.h"
#include "ir_random.h"
#include "passes/cleanup.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace tkc;
using namespace tkc::test;
using namespace tkc::passes;
using ir::Stage;

namespace {

struct Parsed {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<ir::Function> f;
  PassContext context{ir::default_target(), ir::default_part(ir::default_target()), diags};
  explicit Parsed(const std::string &text) {
    int32_t id = sources.add("test.tkir", text);
    f = ir::parse_ir(sources.file(id).text(), diags, id);
    INFO(diags.render_all());
    REQUIRE(f != nullptr);
    check();
  }
  void check() {
    std::string faults;
    for (const std::string &s : ir::verify(*f, Stage::typed)) faults += s + "\n";
    INFO(ir::print(*f));
    CHECK(faults == "");
  }
};

using PassFn = bool(ir::Function &, PassContext &);

// The ops of a kernel with tensors and sizes at hand, before a pass and after it.
std::string kernel(const std::string &ops, const std::string &header = "") {
  return "kernel k {\n"
         "  param x: in tensor<f32>[?, 64] dims [M, 64]\n  param v: in tensor<i32>[?] dims [M]\n"
         "  param y: out tensor<f32>[?, 64] dims [M, 64]\n  param z: inout tensor<i32>[?] dims [M]\n  size M\n"
         "  grid (cdiv(M, 4), 3)\n" +
         header +
         "  body (%x : tensor<f32>[?, 64], %v : tensor<i32>[?], %y : tensor<f32>[?, 64], %z : tensor<i32>[?], %M : "
         "i32) {\n" +
         ops + "    return\n  }\n}\n";
}
// The ops between the entry's arguments and its return, without indentation.
std::string body(const ir::Function &f) {
  std::string text = ir::print(f), out;
  size_t at = text.find('\n', text.find("  body")) + 1, end = text.rfind("    return\n");
  for (size_t line = at; line < end;) {
    size_t next = text.find('\n', line) + 1;
    out += text.substr(text.find_first_not_of(' ', line), next - text.find_first_not_of(' ', line));
    line = next;
  }
  return out;
}
void check_passes(std::initializer_list<PassFn *> passes, const std::string &ops, const std::string &want) {
  Parsed p(kernel(ops));
  std::string before = body(*p.f);
  bool changed = false;
  for (PassFn *pass : passes) changed |= pass(*p.f, p.context);
  p.check();
  CHECK(body(*p.f) == want);
  CHECK(changed == (before != want));
}

// A store keeps its value alive. Consts used by most tests.
const std::string kZero = "%zero = constant : i32 {dtype = i32, value = 0}\n";
std::string keep(const std::string &value) {
  return "store %y, %zero, %zero, " + value + " {sizes = [4, 64], drop = [0, 0], gather = [0, 0], has_mask = 0}\n";
}
std::string keep_int(const std::string &value) {
  return "store %z, %zero, " + value + " {sizes = [1], drop = [1], gather = [0], has_mask = 0}\n";
}
const std::string kLoad = "%t = load %x, %zero, %zero : tile<f32>[4, 64] {sizes = [4, 64], drop = [0, 0], gather = [0, "
                          "0], has_mask = 0, has_other = 0}\n";
std::string i32(const char *name, int64_t v) {
  return fmt::format("%{} = constant : i32 {{dtype = i32, value = {}}}\n", name, v);
}
std::string f32(const char *name, const char *v) {
  return fmt::format("%{} = constant : f32 {{dtype = f32, value = {}}}\n", name, v);
}
std::string spread(const char *name, const char *of) {
  return fmt::format("%{} = broadcast %{} : tile<f32>[4, 64] {{shape = [4, 64]}}\n", name, of);
}

} // namespace

// ---- dead code

TEST_CASE("dead code: ops without effect go, effects stay") {
  check_passes({dead_code}, kZero + kLoad + "%e = exp %t : tile<f32>[4, 64] {precise = 0}\n", "");
  check_passes({dead_code}, kZero + kLoad + keep("%t"), kZero + kLoad + keep("%t"));
  std::string atomic = kZero + i32("c", 1) +
                       "%old = atomic_add %z, %zero, %c : i32 {sizes = [1], drop = [1], gather = [0], has_mask = 0}\n";
  check_passes({dead_code}, atomic, atomic);
  std::string memory =
      kZero +
      "%p = inline_ptx %zero : i32 {text = \"mov.u32 $0, $1;\", dtype = i32, effects = \"memory\", min_sm = 80}\n";
  check_passes({dead_code}, memory, memory);
  std::string pure = memory;
  pure.replace(pure.find("memory"), 6, "pure");
  check_passes({dead_code}, pure, "");
  std::string print = kZero + "%b = gt %M, %zero : bool\nassert %b {message = \"m\"}\n";
  check_passes({dead_code}, print, print);
}

TEST_CASE("dead code: carried values that feed only themselves go") {
  std::string head = kZero + i32("one", 1);
  check_passes({dead_code},
               head +
                   "%a, %b = for %zero, %M, %one, %zero, %one : i32, i32 do (%k : i32, %a.1 : i32, %b.1 : i32) {\n"
                   "%a.2 = add %a.1, %k : i32\n%b.2 = mul %b.1, %a.1 : i32\nyield %a.2, %b.2\n}\n" +
                   keep_int("%a"),
               head +
                   "%a = for %zero, %M, %one, %zero : i32 do (%k : i32, %a.1 : i32) {\n%a.2 = add %a.1, %k : "
                   "i32\nyield %a.2\n}\n" +
                   keep_int("%a"));
  // %b is needed where %a needs it.
  std::string both = head +
                     "%a, %b = for %zero, %M, %one, %zero, %one : i32, i32 do (%k : i32, %a.1 : i32, %b.1 : i32) {\n"
                     "%a.2 = add %a.1, %b.1 : i32\n%b.2 = mul %b.1, %k : i32\nyield %a.2, %b.2\n}\n" +
                     keep_int("%a");
  check_passes({dead_code}, both, both);
  // Nothing of the loop is needed.
  check_passes({dead_code}, head + "%a = for %zero, %M, %one, %zero : i32 do (%k : i32, %a.1 : i32) {\nyield %k\n}\n",
               "");
  // The effect is, the carried value is not.
  check_passes({dead_code},
               head + "%a = for %zero, %M, %one, %zero : i32 do (%k : i32, %a.1 : i32) {\n" + keep_int("%k") +
                   "yield %k\n}\n",
               head + "for %zero, %M, %one do (%k : i32) {\n" + keep_int("%k") + "yield\n}\n");
}

TEST_CASE("dead code: unused results of branches and while loops go") {
  std::string head = kZero + i32("one", 1) + "%c = gt %M, %one : bool\n";
  check_passes(
      {dead_code},
      head + "%a, %b = if %c : i32, i32 do {\nyield %one, %zero\n} do {\n%n = neg %M : i32\nyield %n, %M\n}\n" +
          keep_int("%b"),
      kZero + i32("one", 1) + "%c = gt %M, %one : bool\n%b = if %c : i32 do {\nyield %zero\n} do {\nyield %M\n}\n" +
          keep_int("%b"));
  check_passes({dead_code}, head + "%a = if %c : i32 do {\nyield %one\n} do {\nyield %M\n}\n" + keep_int("%M"),
               kZero + keep_int("%M"));
  check_passes({dead_code},
               head +
                   "%a, %b = while %M, %zero : i32, i32 do (%a.1 : i32, %b.1 : i32) {\n%q = gt %a.1, %zero : "
                   "bool\nyield %q\n} do "
                   "(%a.2 : i32, %b.2 : i32) {\n%a.3 = sub %a.2, %one : i32\n%b.3 = add %b.2, %a.2 : i32\nyield %a.3, "
                   "%b.3\n}\n" +
                   keep_int("%a"),
               kZero + i32("one", 1) +
                   "%a = while %M : i32 do (%a.1 : i32) {\n%q = gt %a.1, %zero : bool\nyield %q\n} do "
                   "(%a.2 : i32) {\n%a.3 = sub %a.2, %one : i32\nyield %a.3\n}\n" +
                   keep_int("%a"));
}

// ---- constants

TEST_CASE("constants: arithmetic of scalars") {
  auto folds = [](const std::string &ops, const std::string &result, const std::string &want) {
    std::string text = ops.find("%zero") == ops.npos ? kZero + ops : ops;
    Parsed p(kernel(text + "print " + result + " {format = \"{}\"}\n"));
    fold_constants(*p.f, p.context);
    dead_code(*p.f, p.context);
    p.check();
    INFO(body(*p.f));
    const ir::Op *op = p.f->body->ops[0];
    CHECK(p.f->body->ops.size() == 3);
    REQUIRE(op->kind == OpKind::Constant);
    CHECK(ir::print_attr(op->attrs.list()[1].second) == want);
  };
  std::string ab = i32("a", 7) + i32("b", -2);
  auto two = [&](const char *op, const char *type = "i32") {
    return ab + fmt::format("%r = {} %a, %b : {}\n", op, type);
  };
  folds(two("add"), "%r", "5");
  folds(two("sub"), "%r", "9");
  folds(two("mul"), "%r", "-14");
  folds(two("div", "i32 {precise = 0}"), "%r", "-3");
  folds(two("rem"), "%r", "1");
  folds(two("min"), "%r", "-2");
  folds(two("max"), "%r", "7");
  folds(two("and"), "%r", "6");
  folds(two("or"), "%r", "-1");
  folds(two("xor"), "%r", "-7");
  folds(two("shl"), "%r", "0"); // the amount counts as unsigned
  folds(two("shr"), "%r", "0");
  folds(two("lt", "bool"), "%r", "0");
  folds(two("ge", "bool"), "%r", "1");
  folds(i32("a", 2147483647) + i32("b", 1) + "%r = add %a, %b : i32\n", "%r", "-2147483648");
  folds("%a = constant : u64 {dtype = u64, value = -1}\n%b = constant : u64 {dtype = u64, value = 2}\n%r = div %a, %b "
        ": u64 {precise = 0}\n",
        "%r", "9223372036854775807");
  folds(f32("a", "0.1") + f32("b", "0.2") + "%r = add %a, %b : f32\n", "%r",
        ir::print_attr(ir::Attr(round_to(DType::F32, 0.1 + 0.2))));
  folds(f32("a", "3.7") + "%r = cast %a : i32 {dtype = i32}\n", "%r", "3");
  folds(i32("a", 257) + "%r = cast %a : bf16 {dtype = bf16}\n", "%r", "256.0");
  folds(f32("a", "1.0") + "%r = neg %a : f32\n", "%r", "-1.0");
  folds(i32("a", 5) + "%c = constant : bool {dtype = bool, value = 0}\n" + i32("b", 6) +
            "%r = where %c, %a, %b : i32\n",
        "%r", "6");
  folds("%p = num_programs : i32 {axis = 1}\n", "%p", "3");
  folds("%p = dim %x : i32 {axis = 1}\n", "%p", "64");
}

TEST_CASE("constants: what cannot be decided stays") {
  std::string stays = kZero + i32("a", 1) + "%d = div %a, %zero : i32 {precise = 0}\n" + keep_int("%d");
  check_passes({fold_constants}, stays, stays);
  stays = kZero + f32("a", "0.0") + "%d = div %a, %a : f32 {precise = 0}\nprint %d {format = \"{}\"}\n";
  check_passes({fold_constants}, stays, stays);
  stays = kZero + kLoad + f32("a", "0.0") + spread("b", "a") +
          "%m = mul %t, %b : tile<f32>[4, 64]\n%p = add %m, %b : tile<f32>[4, 64]\n" + keep("%p");
  check_passes({fold_constants}, stays, stays);
}

TEST_CASE("constants: identities of tiles") {
  auto same = [](const std::string &ops) { // ops make %r from %t
    Parsed p(kernel(kZero + kLoad + ops + keep("%r")));
    CHECK(fold_constants(*p.f, p.context));
    dead_code(*p.f, p.context);
    CHECK(body(*p.f) == kZero + kLoad + keep("%t"));
  };
  std::string one = f32("c", "1.0") + spread("o", "c"), minus = f32("c", "-0.0") + spread("o", "c"),
              plus = f32("c", "0.0") + spread("o", "c");
  same(one + "%r = mul %t, %o : tile<f32>[4, 64]\n");
  same(one + "%r = mul %o, %t : tile<f32>[4, 64]\n");
  same(one + "%r = div %t, %o : tile<f32>[4, 64] {precise = 0}\n");
  same(minus + "%r = add %t, %o : tile<f32>[4, 64]\n");
  same(plus + "%r = sub %t, %o : tile<f32>[4, 64]\n");
  same("%n = neg %t : tile<f32>[4, 64]\n%r = neg %n : tile<f32>[4, 64]\n");
  same("%r = cast %t : tile<f32>[4, 64] {dtype = f32}\n");
  same("%n = transpose %t : tile<f32>[64, 4] {perm = [1, 0]}\n%r = transpose %n : tile<f32>[4, 64] {perm = [1, 0]}\n");
  same("%n = reshape %t : tile<f32>[256] {shape = [256]}\n%r = reshape %n : tile<f32>[4, 64] {shape = [4, 64]}\n");
  same("%r = broadcast %t : tile<f32>[4, 64] {shape = [4, 64]}\n");
  same("%p = constant : bool {dtype = bool, value = 1}\n%b = broadcast %p : tile<bool>[4, 64] {shape = [4, 64]}\n" +
       one + "%r = where %b, %t, %o : tile<f32>[4, 64]\n");
  // The result's name moves to a value without one.
  Parsed p(kernel(kZero + "%1 = program_id : i32 {axis = 0}\n%row = add %1, %zero : i32\n" + keep_int("%row")));
  fold_constants(*p.f, p.context);
  CHECK(body(*p.f) == kZero + "%row = program_id : i32 {axis = 0}\n" + keep_int("%row"));
}

TEST_CASE("constants: division by a power of two, broadcasts, extents") {
  check_passes(
      {fold_constants, dead_code},
      kZero + kLoad + f32("c", "8.0") + spread("o", "c") + "%r = div %t, %o : tile<f32>[4, 64] {precise = 0}\n" +
          keep("%r"),
      kZero + kLoad +
          "%0 = constant : f32 {dtype = f32, value = 0.125}\n%1 = broadcast %0 : tile<f32>[4, 64] {shape = [4, 64]}\n"
          "%r = mul %t, %1 : tile<f32>[4, 64]\n" +
          keep("%r"));
  check_passes({fold_constants, dead_code},
               kZero +
                   "%s = cast %M : f32 {dtype = f32}\n%a = broadcast %s : tile<f32>[64] {shape = [64]}\n"
                   "%b = expand_dims %a : tile<f32>[1, 64] {axis = 0}\n%r = broadcast %b : tile<f32>[4, 64] {shape = "
                   "[4, 64]}\n" +
                   keep("%r"),
               kZero + "%s = cast %M : f32 {dtype = f32}\n%r = broadcast %s : tile<f32>[4, 64] {shape = [4, 64]}\n" +
                   keep("%r"));
  check_passes({fold_constants, dead_code}, kZero + "%d = dim %x : i32 {axis = 0}\n" + keep_int("%d"),
               kZero + keep_int("%M"));
  check_passes({fold_constants, dead_code},
               kZero +
                   "%p = subview %x, %zero, %zero, %M : tensor<f32>[?] {ranges = [2, 1]}\n%q = subview %x, %M, %M : "
                   "tensor<f32>[?, 64] {ranges = [1, 0]}\n"
                   "%d = dim %q : i32 {axis = 1}\n%e = dim %p : i32 {axis = 0}\n" +
                   keep_int("%d") + keep_int("%e"),
               kZero +
                   "%p = subview %x, %zero, %zero, %M : tensor<f32>[?] {ranges = [2, 1]}\n%d = constant : i32 {dtype = "
                   "i32, value = 64}\n"
                   "%e = dim %p : i32 {axis = 0}\n" +
                   keep_int("%d") + keep_int("%e"));
}

TEST_CASE("constants: control flow that is known") {
  std::string head = kZero + i32("one", 1) + "%c = gt %one, %zero : bool\n";
  check_passes({fold_constants, dead_code},
               head + "%a = if %c : i32 do {\n%p = add %M, %zero : i32\nyield %p\n} do {\nyield %one\n}\n" +
                   keep_int("%a"),
               kZero + keep_int("%M"));
  check_passes({fold_constants, dead_code},
               head + "%a = for %one, %zero, %one, %M : i32 do (%k : i32, %a.1 : i32) {\nyield %k\n}\n" +
                   keep_int("%a"),
               kZero + keep_int("%M"));
  check_passes(
      {fold_constants, dead_code},
      head +
          "%a = for %zero, %one, %one, %M : i32 do (%k : i32, %a.1 : i32) {\n%s = sub %a.1, %one : i32\nyield %s\n}\n" +
          keep_int("%a"),
      kZero + i32("one", 1) + "%s = sub %M, %one : i32\n" + keep_int("%s"));
  std::string twice = kZero + i32("one", 1) + i32("two", 2) +
                      "%a = for %zero, %two, %one, %M : i32 do (%k : i32, %a.1 : i32) {\nyield %k\n}\n" +
                      keep_int("%a");
  check_passes({fold_constants}, twice, twice);
}

// ---- common subexpressions

TEST_CASE("common subexpressions") {
  std::string ab = kZero + "%a = program_id : i32 {axis = 0}\n";
  check_passes({common_subexpressions},
               ab + "%b = program_id : i32 {axis = 0}\n%c = add %a, %M : i32\n%d = add %M, %b : i32\n" +
                   keep_int("%c") + keep_int("%d"),
               ab + "%c = add %a, %M : i32\n" + keep_int("%c") + keep_int("%c"));
  std::string stays = ab + "%b = program_id : i32 {axis = 1}\n%c = sub %a, %M : i32\n%d = sub %M, %a : i32\n" +
                      keep_int("%b") + keep_int("%c") + keep_int("%d");
  check_passes({common_subexpressions}, stays, stays);
  // Into regions, not out of them.
  std::string branches = ab +
                         "%c = gt %a, %M : bool\n%r = if %c : i32 do {\n%n = neg %a : i32\nyield %n\n} do {\n%n.1 = "
                         "neg %a : i32\nyield %n.1\n}\n" +
                         keep_int("%r");
  check_passes({common_subexpressions}, branches, branches);
  check_passes({common_subexpressions},
               ab + "%n = neg %a : i32\n" + keep_int("%n") + "for %zero, %M, %a do (%k : i32) {\n%m = neg %a : i32\n" +
                   keep_int("%m") + "yield\n}\n",
               ab + "%n = neg %a : i32\n" + keep_int("%n") + "for %zero, %M, %a do (%k : i32) {\n" + keep_int("%n") +
                   "yield\n}\n");
  // Loads of what is never written; the facts of the first hold.
  auto load = [](const char *name, const char *tensor, const char *facts = "") {
    return fmt::format(
        "%{} = load %{}, %a : tile<i32>[4] {{sizes = [4], drop = [0], gather = [0], has_mask = 0, has_other = 0{}}}\n",
        name, tensor, facts);
  };
  std::string use = "print %p, %q {format = \"{} {}\"}\n";
  check_passes({common_subexpressions},
               ab + load("p", "v", ", in_bounds = [0]") + load("q", "v", ", in_bounds = [1]") + use,
               ab + load("p", "v", ", in_bounds = [0]") + "print %p, %p {format = \"{} {}\"}\n");
  std::string written = ab + load("p", "z") + keep_int("%a") + load("q", "z") + use;
  check_passes({common_subexpressions}, written, written);
  check_passes({common_subexpressions}, ab + load("p", "z") + load("q", "z") + use,
               ab + load("p", "z") + "print %p, %p {format = \"{} {}\"}\n");
}

// ---- invariants

TEST_CASE("invariants leave loops") {
  auto load = [](const char *name, const char *tensor, const char *facts = "") {
    return fmt::format(
        "%{} = load %{}, %M : tile<i32>[4] {{sizes = [4], drop = [0], gather = [0], has_mask = 0, has_other = 0{}}}\n",
        name, tensor, facts);
  };
  std::string head = kZero + i32("one", 1);
  auto in_loop = [](const std::string &ops) { return "for %zero, %M, %one do (%k : i32) {\n" + ops + "yield\n}\n"; };
  std::string use = "print %p, %k {format = \"{} {}\"}\n";
  check_passes({hoist_invariants}, head + in_loop(load("p", "v", ", in_bounds = [1], divisor = [4]") + use),
               head + load("p", "v") + in_loop(use));
  std::string written = head + in_loop(load("p", "z") + keep_int("%k") + use);
  check_passes({hoist_invariants}, written, written);
  // Out of two loops, and a chain of ops at once.
  std::string inner =
      "for %zero, %M, %one do (%j : i32) {\n%a = add %M, %one : i32\n%b = neg %a : i32\n%c = sub %b, %k : i32\n" +
      keep_int("%c") + "yield\n}\n";
  check_passes(
      {hoist_invariants}, head + in_loop(inner),
      head + "%a = add %M, %one : i32\n%b = neg %a : i32\n" +
          in_loop("%c = sub %b, %k : i32\nfor %zero, %M, %one do (%j : i32) {\n" + keep_int("%c") + "yield\n}\n"));
  // What may stop the program only where the loop runs.
  std::string division = "%q = div %one, %M : i32 {precise = 0}\n" + keep_int("%q");
  check_passes({hoist_invariants}, head + in_loop(division), head + in_loop(division));
  std::string index =
      "%q = subview %x, %M : tensor<f32>[64] {ranges = [2, 0]}\n%d = dim %q : i32 {axis = 0}\n" + keep_int("%d");
  check_passes({hoist_invariants}, head + in_loop(index), head + in_loop(index));
  auto runs = [](const std::string &ops) { return "for %zero, %one, %one do (%k : i32) {\n" + ops + "yield\n}\n"; };
  check_passes({hoist_invariants}, head + runs(division),
               head + "%q = div %one, %M : i32 {precise = 0}\n" + runs(keep_int("%q")));
  std::string safe = "%q = div %M, %one : i32 {precise = 0}\n";
  check_passes({hoist_invariants}, head + in_loop(safe + keep_int("%q")), head + safe + in_loop(keep_int("%q")));
}

// ---- products

TEST_CASE("a sum joins the product before it") {
  std::string head = kZero + f32("f", "1.0") +
                     "%a = broadcast %f : tile<f32>[4, 64] {shape = [4, 64]}\n%b = broadcast %f : tile<f32>[64, 64] "
                     "{shape = [64, 64]}\n";
  auto mma = [](const char *name, const char *c = "") {
    return fmt::format("%{} = mma %a, %b{} : tile<f32>[4, 64] {{acc = f32, precision = \"tf32\"}}\n", name, c);
  };
  check_passes({fuse_product_sum}, head + mma("p") + kLoad + "%s = add %t, %p : tile<f32>[4, 64]\n" + keep("%s"),
               head + kLoad + mma("s", ", %t") + keep("%s"));
  check_passes({fuse_product_sum}, head + mma("p") + mma("q") + "%s = add %p, %q : tile<f32>[4, 64]\n" + keep("%s"),
               head + mma("p") + mma("s", ", %p") + keep("%s"));
  check_passes({fuse_product_sum},
               head + kLoad + mma("p") + "%s = add %p, %t : tile<f32>[4, 64]\n" + mma("q") +
                   "%r = add %s, %q : tile<f32>[4, 64]\n" + keep("%r"),
               head + kLoad + mma("s", ", %t") + mma("r", ", %s") + keep("%r"));
  std::string stays = head + kLoad + mma("p", ", %t") + "%s = add %p, %t : tile<f32>[4, 64]\n" + keep("%s");
  check_passes({fuse_product_sum}, stays, stays);
  stays = head + kLoad + mma("p") + "%s = add %p, %t : tile<f32>[4, 64]\n" + keep("%s") + keep("%p");
  check_passes({fuse_product_sum}, stays, stays);
  stays = head + kLoad + mma("p") + "%s = add %p, %p : tile<f32>[4, 64]\n" + keep("%s");
  check_passes({fuse_product_sum}, stays, stays);
  stays = head + kLoad + i32("one", 1) + mma("p") +
          "for %zero, %M, %one do (%k : i32) {\n%s = add %p, %t : tile<f32>[4, 64]\n" + keep("%s") + "yield\n}\n";
  check_passes({fuse_product_sum}, stays, stays);
}

// ---- all of them, on random kernels

namespace {

bool same_numbers(const std::vector<double> &a, const std::vector<double> &b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
  return true;
}

} // namespace

TEST_CASE("clean-up keeps what a kernel computes") {
  PassFn *const passes[] = {fold_constants, common_subexpressions, hoist_invariants, dead_code};
  int64_t changes[4] = {};
  for (uint64_t seed = 0; seed < 400; seed++) {
    RandomKernel k(seed + 1000);
    std::string text = ir::print(k.function());
    auto want = k.run(k.function());
    INFO(text);
    Random order(seed);
    Parsed p(text);
    for (int round = 0; round < 8; round++) {
      int64_t which = order.below(4);
      std::string before = ir::print(*p.f);
      bool changed = passes[which](*p.f, p.context);
      changes[which] += changed;
      std::string after = ir::print(*p.f);
      CHECK(changed == (before != after));
      p.check();
      auto got = k.run(*p.f);
      INFO("pass " << which << " made\n" << after);
      REQUIRE(got.trap == want.trap);
      REQUIRE(same_numbers(got.y, want.y));
      REQUIRE(got.z == want.z);
    }
  }
  for (int64_t n : changes) CHECK(n > 50);
}

// ---- the pass manager

namespace {

bool does_nothing(ir::Function &, PassContext &) { return false; }
bool adds_op(ir::Function &f, PassContext &context) {
  ir::Builder b(f, context.diags);
  b.set_before(f.body->terminator());
  b.constant_int(DType::I32, 1, {});
  return true;
}
bool lies(ir::Function &f, PassContext &context) { return adds_op(f, context), false; }
bool breaks(ir::Function &f, PassContext &) { return f.body->ops.pop_back(), true; }
bool rejects(ir::Function &f, PassContext &context) {
  context.diags.report(f.loc, DiagKind::syntax, "no");
  return false;
}

} // namespace

TEST_CASE("the pass manager runs, skips, stops and reports") {
  std::vector<Pass> list = {{"one", "adds an op", adds_op},
                            {"two", "does nothing", does_nothing},
                            {"needed", "adds an op", adds_op, std::nullopt, false},
                            {"three", "adds an op", adds_op}};
  auto run = [&](PassOptions options) {
    Parsed p(kernel(""));
    p.context.options = std::move(options);
    PassManager m(list);
    CHECK(m.run(*p.f, p.context) == PassManager::Outcome::ok);
    return std::pair(p.f->body->ops.size() - 1, m.time_report());
  };
  CHECK(run({}).first == 3);
  CHECK(run({.skip = {"one", "three"}}).first == 1);
  CHECK(run({.bisect = 0}).first == 1);
  CHECK(run({.bisect = 1}).first == 2);
  CHECK(run({.bisect = 2}).first == 2);
  CHECK(run({.bisect = 3}).first == 3);
  std::string report = run({.skip = {"three"}}).second;
  for (const char *part :
       {"pass", "total", "changed    adds an op", "unchanged  does nothing", "skipped    adds an op"})
    CHECK_MESSAGE(report.find(part) != std::string::npos, report);
}

TEST_CASE("the pass manager catches what passes do wrong") {
  auto problem = [](std::vector<Pass> list, PassOptions options, PassManager::Outcome outcome) {
    Parsed p(kernel(""));
    p.context.options = std::move(options);
    PassManager m(std::move(list));
    CHECK(m.run(*p.f, p.context) == outcome);
    return m.problem();
  };
  using Outcome = PassManager::Outcome;
  CHECK(problem({{"lies", "w", lies}}, {.check_unchanged = true}, Outcome::broken) ==
        "pass `lies` changed `k` but reports no change");
  CHECK(problem({{"lies", "w", lies}}, {.check_unchanged = false}, Outcome::ok) == "");
  std::string text = problem({{"breaks", "w", breaks}}, {}, Outcome::broken);
  CHECK_MESSAGE(text.find("`k` is not valid typed IR after pass `breaks`:\n") == 0, text);
  CHECK(problem({{"rejects", "w", rejects}, {"breaks", "w", breaks}}, {}, Outcome::rejected) == "");
  // A pass that reaches a stage is held to it, also where it reports no change.
  text = problem({{"layouts", "w", does_nothing, Stage::laid_out}}, {}, Outcome::broken);
  CHECK_MESSAGE(text.find("not valid laid_out IR after pass `layouts`") != std::string::npos, text);
  std::vector<Pass> list = {{"fold", "w", does_nothing}, {"layouts", "w", does_nothing, Stage::typed}};
  CHECK(problem(list, {.skip = {"fodl"}}, Outcome::broken) == "there is no pass `fodl`; did you mean `fold`?");
  CHECK(problem(list, {.skip = {"layouts"}}, Outcome::broken) ==
        "pass `layouts` cannot be skipped: later passes need it");
  CHECK(problem(list, {.dump_dir = "/dev/null/x"}, Outcome::broken).find("cannot write `/dev/null/x/000.input.tkir`") ==
        0);
}

TEST_CASE("dumps are numbered, say what changed, and can be read back") {
  std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("tkc-dump-{}", std::filesystem::hash_value(TKC_BINARY_DIR));
  std::filesystem::remove_all(dir);
  Parsed p(kernel(kZero));
  p.context.options.dump_dir = dir.string();
  PassManager m({{"dead_code", "w", dead_code}, {"twice", "w", dead_code}});
  CHECK(m.run(*p.f, p.context) == PassManager::Outcome::ok);
  std::vector<std::string> names;
  for (const auto &e : std::filesystem::directory_iterator(dir)) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"000.input.tkir", "001.dead_code.changed.tkir", "002.twice.unchanged.tkir"});
  auto read = [&](const char *name) {
    std::ifstream in(dir / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(read("002.twice.unchanged.tkir") == ir::print(*p.f));
  CHECK(body(*Parsed(read("000.input.tkir")).f) == kZero);
  std::filesystem::remove_all(dir);
}

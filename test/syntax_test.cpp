// Source text -> syntax tree: constructs, precedence, spans, printing, errors and their texts, recovery, limits.
#include "support/check.h"
#include "syntax/literals.h"
#include "syntax/parse.h"
#include "syntax/print_ast.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <doctest/doctest.h>
#include <fstream>
#include <unistd.h>

using namespace tkc;
using namespace tkc::ast;

namespace {

struct Parsed {
  SourceManager sources;
  Diagnostics diagnostics{sources};
  std::unique_ptr<File> file;
  explicit Parsed(const std::string &text) { file = parse_file(sources.add("t.tk", text), diagnostics); }
  std::string at(SourceLoc loc) const { return std::string(sources.text(loc)); }
  // "line:col text" of each diagnostic, in order of position, one a line.
  std::string errors() const {
    std::string out;
    for (const Diagnostic &d : diagnostics.all()) {
      LineColumn p = sources.file(0).position(d.loc.begin);
      out += fmt::format("{}:{} {}\n", p.line, p.column, d.text);
      for (const Diagnostic::Note &n : d.notes) out += fmt::format("  note {} {}\n", sources.describe(n.loc), n.text);
    }
    return out;
  }
};

// ---- a complete and unambiguous image of the tree, without positions
std::string dump(const Expr *e);
std::string dump(const std::vector<ExprPtr> &list) {
  std::string out;
  for (const ExprPtr &e : list) out += fmt::format(" {}", dump(e.get()));
  return out;
}
std::string dump(const std::vector<Arg> &args) {
  std::string out;
  for (const Arg &a : args) out += fmt::format(" {}{}", a.name ? a.name->text + "=" : "", dump(a.value.get()));
  return out;
}
std::string dump(const Expr *e) {
  if (!e) return "_";
  std::string generics = e->generics.empty() ? "" : fmt::format("<{}>", dump(e->generics).substr(1));
  switch (e->kind) {
  case ExprKind::Int: return fmt::format("{}", e->int_value);
  case ExprKind::Float: return fmt::format("{}f", e->float_value);
  case ExprKind::Bool: return e->int_value ? "true" : "false";
  case ExprKind::String: return quote_string(e->text);
  case ExprKind::None: return "None";
  case ExprKind::Name: return e->text + generics;
  case ExprKind::Unary: return fmt::format("({}{})", spelling(e->unary), dump(e->operands));
  case ExprKind::Binary: return fmt::format("({}{})", spelling(e->binary), dump(e->operands));
  case ExprKind::Ternary: return fmt::format("(?{})", dump(e->operands));
  case ExprKind::Call: return fmt::format("(call{} {}{}{})", dump(e->operands), e->text, generics, dump(e->args));
  case ExprKind::Shaped: return fmt::format("(shaped {}{}{})", e->text, generics, dump(e->operands));
  case ExprKind::Index: return fmt::format("(index{})", dump(e->operands));
  case ExprKind::Member: return fmt::format("(.{}{} {})", dump(e->operands), generics, e->text);
  case ExprKind::Range: return fmt::format("({}{})", e->has_length ? ":+" : ":", dump(e->operands));
  case ExprKind::Tuple: return fmt::format("(tuple{})", dump(e->operands));
  case ExprKind::List: return fmt::format("(list{})", dump(e->operands));
  case ExprKind::Record: return fmt::format("(record{})", dump(e->args));
  }
  return "";
}
std::string dump(const Type *t) {
  if (!t) return "_";
  if (t->kind == TypeKind::Named) return t->name.text;
  const char *kinds[] = {"", "tile", "tensor", "shared"};
  std::string args = t->element_args.empty() ? "" : fmt::format("<{}>", dump(t->element_args).substr(1));
  return fmt::format("({}{} {}{}{}{})", kinds[int(t->kind)], t->optional ? "?" : "", t->element.text, args,
                     dump(t->dims), t->any_strides ? " any" : "");
}
std::string dump(const std::vector<Name> &names) {
  std::string out;
  for (const Name &n : names) out += fmt::format(" {}", n.text);
  return out;
}
std::string dump(const std::vector<Field> &fields) {
  std::string out;
  for (const Field &f : fields) out += fmt::format(" {}:{}[{}]", f.name.text, f.element.text, dump(f.dims));
  return out;
}
std::string dump(const std::vector<GenericParam> &generics) {
  std::string out;
  for (const GenericParam &g : generics)
    out += fmt::format(" <{}: {} = {}>", g.name.text, dump(g.type.get()), dump(g.default_value.get()));
  return out;
}
std::string dump(const std::vector<StmtPtr> &body);
std::string dump(const Stmt &s) {
  std::string out;
  for (const Annotation &a : s.annotations) out += fmt::format("@{}[{}]", a.name.text, dump(a.args));
  switch (s.kind) {
  case StmtKind::Let:
    return out + fmt::format("({}{} {} {})", s.is_var ? "var" : "let", dump(s.targets), dump(s.type.get()),
                             dump(s.value.get()));
  case StmtKind::Assign:
    return out + fmt::format("({}= {} {})", s.assign_op ? spelling(*s.assign_op) : "", dump(s.target.get()),
                             dump(s.value.get()));
  case StmtKind::Expr: return out + dump(s.value.get());
  case StmtKind::If:
    return out + fmt::format("(if {} {}{})", dump(s.value.get()), dump(s.body),
                             s.has_else ? fmt::format(" else {}", dump(s.else_body)) : "");
  case StmtKind::For:
    return out + fmt::format("({}{} {} {} {})", s.unrolled ? "unroll" : "for", dump(s.targets), dump(s.value.get()),
                             dump(s.step.get()), dump(s.body));
  case StmtKind::While: return out + fmt::format("(while {} {})", dump(s.value.get()), dump(s.body));
  case StmtKind::Return: return out + fmt::format("(return {})", dump(s.value.get()));
  case StmtKind::Launch: return out + fmt::format("(launch {})", dump(s.value.get()));
  case StmtKind::Parallel: return out + fmt::format("(parallel {})", dump(s.body));
  case StmtKind::Block: return out + dump(s.body);
  case StmtKind::Ring:
    out += fmt::format("(ring{}", dump(s.targets));
    return out + fmt::format("{} {})", dump(s.fields), dump(s.value.get()));
  case StmtKind::Role: return out + fmt::format("(role{} {} {})", dump(s.targets), dump(s.value.get()), dump(s.body));
  }
  return "";
}
std::string dump(const std::vector<StmtPtr> &body) {
  std::string out = "{";
  for (const StmtPtr &s : body) out += fmt::format(" {}", dump(*s));
  return out + " }";
}
std::string dump(const Function &f) {
  const char *modes[] = {"", "out ", "inout "};
  std::string out = fmt::format("({} {}{}", spelling(f.kind), f.name.text, dump(f.generics));
  for (const Param &p : f.params)
    out += fmt::format(" [{}: {}{} = {}]", p.name.text, modes[int(p.mode)], dump(p.type.get()),
                       dump(p.default_value.get()));
  for (const ResultDecl &r : f.results)
    out += fmt::format(" -> {}: {}", r.name ? r.name->text : "_", dump(r.type.get()));
  if (f.has_grid) out += fmt::format(" grid{}{}", f.persistent ? " persistent" : "", dump(f.grid));
  if (f.order) out += fmt::format(" order {}{}", f.order->text, dump(f.order_args));
  if (f.warps) out += fmt::format(" warps {}", dump(f.warps.get()));
  if (!f.facts.empty()) out += fmt::format(" where{}", dump(f.facts));
  return out + " " + dump(f.body) + ")";
}
std::string dump(const Check &c) {
  std::string out = fmt::format("({} {}", c.is_bench ? "bench" : "verify", c.kernel.text);
  for (const StmtPtr &s : c.lets) out += fmt::format(" {}", dump(*s));
  for (const Binding &b : c.bindings) out += fmt::format(" (={} : {})", dump(b.targets), dump(b.value.get()));
  for (const Input &i : c.inputs) out += fmt::format(" (input {} {})", i.name.text, dump(i.value.get()));
  for (const Case &k : c.cases) {
    out += fmt::format(" (case {}", k.name.text);
    for (const CaseSetting &s : k.settings) out += fmt::format(" {}={}", s.name.text, dump(s.value.get()));
    out += k.gpu_only ? " gpu)" : ")";
  }
  for (const Tolerance &t : c.tolerances) {
    out += fmt::format(" (tolerance{} :", dump(t.outputs));
    for (const ToleranceItem &i : t.items) out += fmt::format(" {} {}", i.measure.text, dump(i.value.get()));
    out += ")";
  }
  for (const Locate &l : c.locates) {
    out += fmt::format(" (locate{} :", dump(l.outputs));
    for (const CaseSetting &s : l.items) out += fmt::format(" {}={}", s.name.text, dump(s.value.get()));
    out += ")";
  }
  return out + ")";
}
std::string dump(const File &f) {
  std::string out;
  for (const Import &i : f.imports) out += fmt::format("(import {}{})\n", i.name.text, i.is_path ? " path" : "");
  for (const Const &c : f.consts) out += fmt::format("(const {} {})\n", c.name.text, dump(c.value.get()));
  for (const Enum &e : f.enums) out += fmt::format("(enum {} :{})\n", e.name.text, dump(e.values));
  for (const Record &r : f.records)
    out += fmt::format("(record {}{}{})\n", r.name.text, dump(r.generics), dump(r.fields));
  for (const Function &fn : f.functions) out += dump(fn) + "\n";
  for (const Check &c : f.checks) out += dump(c) + "\n";
  return out;
}

// The tree of a text without errors; checks that printing it and parsing the print gives the same tree.
std::string tree(const std::string &text) {
  Parsed p(text);
  CAPTURE(text);
  CHECK(p.errors() == "");
  REQUIRE(p.file);
  std::string once = dump(*p.file), printed = print(*p.file);
  CAPTURE(printed);
  Parsed again(printed);
  CHECK(again.errors() == "");
  REQUIRE(again.file);
  CHECK(dump(*again.file) == once);
  CHECK(print(*again.file) == printed);
  return once;
}
std::string statements(const std::string &text) {
  std::string whole = tree("fn f() { " + text + " }"), head = "(fn f { ", tail = " })\n";
  if (whole.size() < head.size() + tail.size()) return whole;
  return whole.substr(head.size(), whole.size() - head.size() - tail.size());
}
std::string expression(const std::string &text) {
  std::string s = statements("x = " + text + ";");
  return s.size() > 6 ? s.substr(5, s.size() - 6) : s;
}
std::string errors_of(const std::string &text) { return Parsed(text).errors(); }

const char *kSoftmax = R"(// N is in <>: a compile-time value
kernel softmax<N: int = 4096, BM: int = 4>(x: tensor<bf16>[M, N], y: out tensor<bf16>[M, N])
    grid (cdiv(M, BM)) warps 4
{
    let rows = program_id(0) * BM :+ BM;                   // a range: start :+ length
    let t = f32(load(x[rows, :]));
    let e = exp(t - max(t, axis = 1)[:, None]);
    store(y[rows, :], bf16(e / sum(e, axis = 1)[:, None]));
}

reference softmax_ref(x: tensor<f64>[M, N]) -> tensor<f64>[M, N] {
    let e = exp(x - max(x, axis = 1)[:, None]);
    return e / sum(e, axis = 1)[:, None];
}

verify softmax {
    y = softmax_ref(x);
    input x = normal(0, 3);
    case one: M = 1, N = 1;    case tail: M = 7, N = 100;    case big: M = 32768, N = 4096 on gpu;
    tolerance y: rms 4e-3;
}
bench softmax { case llm: M = 32768, N = 4096;  bytes = 4 * M * N; }
)";

const char *kGemm = R"(
kernel gemm<BM: int = 128, BN: int = 128, BK: int = 64>(a: tensor<bf16>[M, K], b: tensor<bf16>[K, N], c: out tensor<bf16>[M, N])
    grid (cdiv(M, BM), cdiv(N, BN)) order grouped(8) warps 8
{
    let (i, j) = program_id() * (BM, BN);
    var acc = zeros<f32>[BM, BN];
    @pipeline(stages = 3, via = tma, producer = warp) for k in 0 : K step BK {
        acc = mma(load(a[i :+ BM, k :+ BK]), load(b[k :+ BK, j :+ BN]), acc);
    }
    store(c[i :+ BM, j :+ BN], bf16(acc));
}
)";

const char *kChain = R"(
kernel kda_chain<K: int = 128, V: int = 128, C: int = 32, BV: int = 32>(kp, qp, ak: tensor<bf16>[NH, NT, C, K], aq: tensor<bf16>[NH, NT, C, C],
        eg: tensor<f32>[NH, NT, K], beta: tensor<f32>[NH, NT, C], v: tensor<bf16>[NH, NT, C, V], o: out tensor<bf16>[NH, NT, C, V], s: inout tensor<f32>[NH, K, V])
    grid (cdiv(V, BV), NH)
{
    let (iv, h) = program_id();   let cols = iv * BV :+ BV;
    var S = load(s[h, :, cols]);
    for c in 0 : NT {
        let Sb = bf16(S);
        let r  = bf16(load(beta[h, c, :])[:, None] * (f32(load(v[h, c, :, cols])) - mma(load(kp[h, c, :, :]), Sb)));
        store(o[h, c, :, cols], bf16(mma(load(qp[h, c, :, :]), Sb) + mma(load(aq[h, c, :, :]), r)));
        S = load(eg[h, c, :])[:, None] * S + mma(load(ak[h, c, :, :]).T, r);
    }
    store(s[h, :, cols], S);
}
)";

std::string repeat(const std::string &s, int64_t n) {
  std::string out;
  for (int64_t i = 0; i < n; i++) out += s;
  return out;
}

// CPU time, so that a busy machine does not count.
double milliseconds(const std::string &text) {
  SourceManager sources;
  Diagnostics diagnostics(sources);
  int32_t id = sources.add("t.tk", text);
  std::clock_t start = std::clock();
  parse_file(id, diagnostics);
  return double(std::clock() - start) * 1000 / CLOCKS_PER_SEC;
}

} // namespace

// First, so that the first figure is the cold one.
TEST_CASE("time") {
  std::string sixty = std::string(kSoftmax) + kGemm + kChain, five_hundred = repeat(sixty, 9);
  double cold = milliseconds(sixty), warm = milliseconds(sixty);
  double large = milliseconds(five_hundred);
  fmt::print("parse: {} lines cold {:.2f} ms, warm {:.2f} ms; {} lines warm {:.2f} ms\n",
             std::count(sixty.begin(), sixty.end(), '\n'), cold, warm,
             std::count(five_hundred.begin(), five_hundred.end(), '\n'), large);
  CHECK(cold < 1000); // a sanitized build on a busy machine; the aim is 15
}

TEST_CASE("the samples of the design") {
  CHECK(tree(kSoftmax) ==
        "(kernel softmax <N: int = 4096> <BM: int = 4> [x: (tensor bf16 M N) = _] [y: out (tensor bf16 M N) = _]"
        " grid (call cdiv M BM) warps 4 {"
        " (let rows _ (:+ (* (call program_id 0) BM) BM))"
        " (let t _ (call f32 (call load (index x rows (: _ _)))))"
        " (let e _ (call exp (- t (index (call max t axis=1) (: _ _) None))))"
        " (call store (index y rows (: _ _)) (call bf16 (/ e (index (call sum e axis=1) (: _ _) None)))) })\n"
        "(reference softmax_ref [x: (tensor f64 M N) = _] -> _: (tensor f64 M N) {"
        " (let e _ (call exp (- x (index (call max x axis=1) (: _ _) None))))"
        " (return (/ e (index (call sum e axis=1) (: _ _) None))) })\n"
        "(verify softmax (= y : (call softmax_ref x)) (input x (call normal 0 3)) (case one M=1 N=1)"
        " (case tail M=7 N=100) (case big M=32768 N=4096 gpu) (tolerance y : rms 0.004f))\n"
        "(bench softmax (= bytes : (* (* 4 M) N)) (case llm M=32768 N=4096))\n");
  CHECK(tree(kGemm) ==
        "(kernel gemm <BM: int = 128> <BN: int = 128> <BK: int = 64> [a: (tensor bf16 M K) = _]"
        " [b: (tensor bf16 K N) = _] [c: out (tensor bf16 M N) = _] grid (call cdiv M BM) (call cdiv N BN)"
        " order grouped 8 warps 8 { (let i j _ (* (call program_id) (tuple BM BN)))"
        " (var acc _ (shaped zeros<f32> BM BN))"
        " @pipeline[ stages=3 via=tma producer=warp](for k (: 0 K) BK { (= acc (call mma"
        " (call load (index a (:+ i BM) (:+ k BK))) (call load (index b (:+ k BK) (:+ j BN))) acc)) })"
        " (call store (index c (:+ i BM) (:+ j BN)) (call bf16 acc)) })\n");
  std::string chain = tree(kChain);
  CHECK(chain.find("[kp: (tensor bf16 NH NT C K) = _] [qp: (tensor bf16 NH NT C K) = _]"
                   " [ak: (tensor bf16 NH NT C K) = _] [aq: (tensor bf16 NH NT C C) = _]") != std::string::npos);
  CHECK(chain.find("[s: inout (tensor f32 NH K V) = _] grid (call cdiv V BV) NH {") != std::string::npos);
  CHECK(chain.find("(= S (+ (* (index (call load (index eg h c (: _ _))) (: _ _) None) S)"
                   " (call mma (. (call load (index ak h c (: _ _) (: _ _))) T) r)))") != std::string::npos);
}

TEST_CASE("rings, roles and records") {
  CHECK(tree("kernel k() { ring f: { a: bf16[16, N], b: f32[4], } stages auto; ring g: { c: i32[1] };"
             " role make warps 4 { f.push({ a: x + 1, b: p ? q : r, }); } role take { g.pop().c; } }") ==
        "(kernel k { (ring f a:bf16[ 16 N] b:f32[ 4] auto) (ring g c:i32[ 1] _)"
        " (role make 4 { (call f push (record a=(+ x 1) b=(? p q r))) })"
        " (role take _ { (. (call g pop) c) }) })\n");
}

TEST_CASE("records and their types") {
  CHECK(tree("record R { a: f32[4]; } record S<C: int, T: type = bf16> { kp: T[C, 2 * C]; eg: f32[C]; }") ==
        "(record R a:f32[ 4])\n"
        "(record S <C: int = _> <T: type = bf16> kp:T[ C (* 2 C)] eg:f32[ C])\n");
  CHECK(
      tree("kernel k(x: out tensor<S<32, T = f32>>[NH, NT], y: tensor?<S<2 * N,>>[M], z: tensor<R>[M]) { }") ==
      "(kernel k [x: out (tensor S<32 T=f32> NH NT) = _] [y: (tensor? S<(* 2 N)> M) = _] [z: (tensor R M) = _] { })\n");
  CHECK(statements("let x = alloc<S<32, 4>>[NH, cdiv(T, 2)];") ==
        "(let x _ (shaped alloc<S<32 4>> NH (call cdiv T 2)))");
  CHECK(statements("store(x[h, c].kp[rows, :], load(x.kp[h, c]));") ==
        "(call store (index (. (index x h c) kp) rows (: _ _)) (call load (index (. x kp) h c)))");
  // The same characters shift and compare elsewhere.
  CHECK(expression("a<b>>c") == "(< a (>> b c))");
  CHECK(expression("x[a<b>>[c]]").find(">>") != std::string::npos);
}

TEST_CASE("precedence") {
  CHECK(expression("a + b * c") == "(+ a (* b c))");
  CHECK(expression("a * b + c") == "(+ (* a b) c)");
  CHECK(expression("a - b - c") == "(- (- a b) c)");
  CHECK(expression("a - (b - c)") == "(- a (- b c))");
  CHECK(expression("a / b % c * d") == "(* (% (/ a b) c) d)");
  CHECK(expression("a << b + c >> d") == "(>> (<< a (+ b c)) d)");
  CHECK(expression("a < b << c") == "(< a (<< b c))");
  CHECK(expression("a == b < c") == "(== a (< b c))");
  CHECK(expression("a < b == c >= d") == "(== (< a b) (>= c d))");
  CHECK(expression("a & b == c") == "(& a (== b c))");
  CHECK(expression("a ^ b & c") == "(^ a (& b c))");
  CHECK(expression("a | b ^ c") == "(| a (^ b c))");
  CHECK(expression("a && b | c") == "(&& a (| b c))");
  CHECK(expression("a || b && c || d") == "(|| (|| a (&& b c)) d)");
  CHECK(expression("a || b ? c && d : e") == "(? (|| a b) (&& c d) e)");
  CHECK(expression("a ? b : c ? d : e") == "(? a b (? c d e))");
  CHECK(expression("a ? b ? c : d : e") == "(? a (? b c d) e)");
  CHECK(expression("(a ? b : c) ? d : e") == "(? (? a b c) d e)");
  CHECK(expression("a + 1 : b || c") == "(: (+ a 1) (|| b c))");
  CHECK(expression("a ? b : c : d") == "(: (? a b c) d)");
  CHECK(expression("i * B :+ B") == "(:+ (* i B) B)");
  CHECK(expression("-a * b") == "(* (- a) b)");
  CHECK(expression("-a.f(b)[c]") == "(- (index (call a f b) c))");
  CHECK(expression("- ! ~x") == "(- (! (~ x)))");
  CHECK(expression("a - -b") == "(- a (- b))");
  CHECK(expression("!a && !b") == "(&& (! a) (! b))");
  CHECK(expression("a != b && c <= d || e > f") == "(|| (&& (!= a b) (<= c d)) (> e f))");
}

TEST_CASE("calls, indices, members, tuples, lists") {
  CHECK(expression("f()") == "(call f)");
  CHECK(expression("f(a, axis = 1, c : d,)") == "(call f a axis=1 (: c d))");
  CHECK(expression("x.f(1).T.g(b)") == "(call (. (call x f 1) T) g b)");
  CHECK(expression("x.f<i32, N = 4>(y)") == "(call x f<i32 N=4> y)");
  CHECK(expression("zeros<f32>[BM, BN,]") == "(shaped zeros<f32> BM BN)");
  CHECK(expression("zeros<f32>[]") == "(shaped zeros<f32>)");
  CHECK(expression("f(x)[:, None]") == "(index (call f x) (: _ _) None)");
  CHECK(expression("x[i, :, a:, :b, a:b, a :+ n, -1, None]") ==
        "(index x i (: _ _) (: a _) (: _ b) (: a b) (:+ a n) (- 1) None)");
  CHECK(expression("x[c ? a : b : d]") == "(index x (: (? c a b) d))");
  CHECK(expression("x[]") == "(index x)");
  CHECK(expression("x[i][j]") == "(index (index x i) j)");
  CHECK(expression("(a, b)") == "(tuple a b)");
  CHECK(expression("(a, (b, c),)") == "(tuple a (tuple b c))");
  CHECK(expression("(a)") == "a");
  CHECK(expression("(a,)") == "a");
  CHECK(expression("[1, 2, [x]]") == "(list 1 2 (list x))");
  CHECK(expression("[]") == "(list)");
  CHECK(expression("(a : b)") == "(: a b)");
  CHECK(expression("(a + b).T") == "(. (+ a b) T)");
}

TEST_CASE("generic arguments and comparisons") {
  CHECK(expression("f<a>(b)") == "(call f<a> b)");
  CHECK(expression("f<a + 1, (b < c), g(d), e[0], \"s\", -1, true,>(x)") ==
        "(call f<(+ a 1) (< b c) (call g d) (index e 0) \"s\" (- 1) true> x)");
  CHECK(expression("f<g<a>(b)>[c]") == "(shaped f<(call g<a> b)> c)");
  CHECK(expression("f<N = 2 * M>(x)") == "(call f<N=(* 2 M)> x)");
  CHECK(expression("cast<\n f32 >(x)") == "(call cast<f32> x)");
  CHECK(expression("a < b") == "(< a b)");
  CHECK(expression("a<b") == "(< a b)");
  CHECK(expression("a<b && c>d") == "(&& (< a b) (> c d))");
  CHECK(expression("i < n && m > (k)") == "(&& (< i n) (> m k))");
  CHECK(expression("i<n && m>(k)") == "(&& (< i n) (> m k))");
  CHECK(expression("f(a < b, c > (d))") == "(call f (< a b) (> c d))");
  CHECK(expression("where(a <b, c> (d), e)") == "(call where (< a b) (> c d) e)");
  CHECK(expression("a<(b) == (c>(d))") == "(== (< a b) (> c d))");
  CHECK(expression("a<b ? c : d>(e)") == "(? (< a b) c (> d e))");
  CHECK(expression("x[a<b]") == "(index x (< a b))");
  CHECK(expression("a<b | c>(d)") == "(| (< a b) (> c d))");
  CHECK(expression("a<b<<1") == "(< a (<< b 1))");
  CHECK(expression("f(x)<g<a>(b)") == "(< (call f x) (call g<a> b))");
  CHECK(statements("if i<n { x = y>(z); }") == "(if (< i n) { (= x (> y z)) })");
}

TEST_CASE("literals") {
  CHECK(expression("0x1F + 0b1010 + 1_000_000 + 0XfF_ff + 007") == "(+ (+ (+ (+ 31 10) 1000000) 65535) 7)");
  CHECK(expression("9223372036854775807") == "9223372036854775807");
  CHECK(expression("-9223372036854775808") == "(- -9223372036854775808)");
  CHECK(expression("0xffffffffffffffff") == "-1");
  CHECK(expression("1.5 + 1e-3 + 2E+4 + 1_0.2_5e2 + 0.1") == "(+ (+ (+ (+ 1.5f 0.001f) 20000f) 1025f) 0.1f)");
  CHECK(expression("1e22 + 123456789.0 + 5e-324") == "(+ (+ 1e+22f 123456789f) 5e-324f)");
  CHECK(expression(R"("a\n\t\r\0\\\"b // no comment é")") == R"("a\n\t\r\0\\\"b // no comment é")");
  CHECK(expression("true || false") == "(|| true false)");
  CHECK(expression("1 /* a * b ** / */ + /**/ 2 // c\n") == "(+ 1 2)");
  CHECK(tree("\xef\xbb\xbf// début\nconst a = 1;\r\n") == "(const a 1)\n");
}

TEST_CASE("statements") {
  CHECK(statements("let a = 1; var b; var c: f32; let d: tile<f32>[M, 4] = e;") ==
        "(let a _ 1) (var b _ _) (var c f32 _) (let d (tile f32 M 4) e)");
  CHECK(statements("let (a, b,) = f(); (a, b) = g(); let (c) = 1;") ==
        "(let a b _ (call f)) (= (tuple a b) (call g)) (let c _ 1)");
  CHECK(statements("a = 1; a += 1; a -= 1; a *= 1; a /= 1; a %= 1; a &= 1; a |= 1; a ^= 1; x[i, :] += 2;") ==
        "(= a 1) (+= a 1) (-= a 1) (*= a 1) (/= a 1) (%= a 1) (&= a 1) (|= a 1) (^= a 1) (+= (index x i (: _ _)) 2)");
  CHECK(statements("if a { b = 1; } else if c { } else { d(); }") ==
        "(if a { (= b 1) } else { (if c { } else { (call d) }) })");
  CHECK(statements("if (a < b) { } else { }") == "(if (< a b) { } else { })");
  CHECK(statements("for i in 0 : n { } for i in a : b step 2 * c { f(i); } unroll for i in 0 :+ 4 { }") ==
        "(for i (: 0 n) _ { }) (for i (: a b) (* 2 c) { (call f i) }) (unroll i (:+ 0 4) _ { })");
  CHECK(statements("while i < n { i += 1; } { x = 1; } return; return a; return (a, b);") ==
        "(while (< i n) { (+= i 1) }) { (= x 1) } (return _) (return a) (return (tuple a b))");
  CHECK(
      statements("@a @b(1, c = d) for i in 0 : n { } @c() while x { } @d return y; @e { } @f g(); @h() (a, b) = c;") ==
      "@a[]@b[ 1 c=d](for i (: 0 n) _ { }) @c[](while x { }) @d[](return y) @e[]{ } @f[](call g)"
      " @h[](= (tuple a b) c)");
}

TEST_CASE("declarations") {
  CHECK(tree("import nn; import \"common.tk\"; const A = 1 + 2; enum Act { none, relu, gelu, } enum B { x }") ==
        "(import nn)\n(import common.tk path)\n(const A (+ 1 2))\n(enum Act : none relu gelu)\n(enum B : x)\n");
  CHECK(tree("fn f(x, y) = x + y;") == "(fn f [x: _ = _] [y: _ = _] { (return (+ x y)) })\n");
  CHECK(tree("fn f<T: type = bf16, N, A: Act = relu, B: bool = true,>(a, b: tile<T>[N], c, d: i32 = 3, e = 4,) -> f32 "
             "{ }") ==
        "(fn f <T: type = bf16> <N: _ = _> <A: Act = relu> <B: bool = true> [a: (tile T N) = _] [b: (tile T N) = _]"
        " [c: i32 = 3] [d: i32 = 3] [e: _ = 4] -> _: f32 { })\n");
  CHECK(tree("fn f() -> (o: tile<f32>[N], s: f32,) { } fn g() -> (f32, bool) { } fn h() -> (f32) = 1.0;") ==
        "(fn f -> o: (tile f32 N) -> s: f32 { })\n(fn g -> _: f32 -> _: bool { })\n(fn h -> _: f32 { (return 1f) })\n");
  CHECK(tree("fn f() -> (out: f32, inout: f32, tile: f32, grid: i32) { }") ==
        "(fn f -> out: f32 -> inout: f32 -> tile: f32 -> grid: i32 { })\n");
  CHECK(tree("kernel k(x: tensor?<f32>[N], y: out tensor<f32>[M, N] strides(any), z: inout tensor<f32>[], w: i32,)"
             " where M % 16 == 0, N > 1, where K < (L) warps 2 * W order grouped(8, 2,) grid persistent (cdiv(M, 4), "
             "N,) { }") ==
        "(kernel k [x: (tensor? f32 N) = _] [y: out (tensor f32 M N any) = _] [z: inout (tensor f32) = _] [w: i32 = _]"
        " grid persistent (call cdiv M 4) N order grouped 8 2 warps (* 2 W) where (== (% M 16) 0) (> N 1) (< K L) { "
        "})\n");
  CHECK(tree("program p<N>(x: tensor<f32>[N]) where a { let t = alloc<f32>[N]; launch k<BM = 2>(x, t, n = 3); "
             "parallel { launch l(t); } }") ==
        "(program p <N: _ = _> [x: (tensor f32 N) = _] where a { (let t _ (shaped alloc<f32> N)) "
        "(launch (call k<BM=2> x t n=3)) (parallel { (launch (call l t)) }) })\n");
  CHECK(tree("kernel k() where a, warps 4 where b, order o where c, grid (1) { }") ==
        "(kernel k grid 1 order o warps 4 where a b c { })\n");
  CHECK(tree("kernel k() order morton grid () where a { }") == "(kernel k grid order morton where a { })\n");
  CHECK(tree("kernel k<A, B = 4>(s: shared<f32>[A]) { }") ==
        "(kernel k <A: _ = _> <B: _ = 4> [s: (shared f32 A) = _] { })\n");
  CHECK(tree("fn f(x : tile < f32 > [ N ] ) { }") == "(fn f [x: (tile f32 N) = _] { })\n");
}

TEST_CASE("verify and bench") {
  CHECK(tree("verify k { let n = 3; (o, s,) = ref(q); z = 1; input q = normal(0, 1); case a; case b on gpu;"
             " case c: M = 1, act = none, x = -1.5; tolerance o, s: rms 4e-3, max 1e-2; tolerance z: exact; }") ==
        "(verify k (let n _ 3) (= o s : (call ref q)) (= z : 1) (input q (call normal 0 1)) (case a) (case b gpu)"
        " (case c M=1 act=none x=(- 1.5f)) (tolerance o s : rms 0.004f max 0.01f) (tolerance z : exact _))\n");
  CHECK(tree("verify input { input = f(x); case = g(y); tolerance = h(); input case = 1; case tolerance: input = 2;"
             " tolerance input: exact; max = 3; }") ==
        "(verify input (= input : (call f x)) (= case : (call g y)) (= tolerance : (call h)) (= max : 3)"
        " (input case 1) (case tolerance input=2) (tolerance input : exact _))\n");
  CHECK(tree("verify k { o = f(); locate o, s: sequence = B, chunk = T / 16,; locate = g(); locate locate: input = 1; "
             "}") ==
        "(verify k (= o : (call f)) (= locate : (call g)) (locate o s : sequence=B chunk=(/ T 16)) (locate locate :"
        " input=1))\n");
  CHECK(tree("bench k { flops = 2 * M; bytes = 4; case a: M = 1, ; }") ==
        "(bench k (= flops : (* 2 M)) (= bytes : 4) (case a M=1))\n");
}

TEST_CASE("words with a meaning in one place are names elsewhere") {
  for (const char *word : {"grid",      "order", "grouped", "persistent", "warps",  "where", "case", "input",
                           "tolerance", "rms",   "max",     "exact",      "on",     "gpu",   "out",  "inout",
                           "strides",   "any",   "tile",    "tensor",     "shared", "locate"}) {
    std::string w = word;
    CHECK(statements("let " + w + " = " + w + "(" + w + ", " + w + " = 1)." + w + "[" + w + "] + " + w + "<f32>[4];") ==
          fmt::format("(let {0} _ (+ (index (. (call {0} {0} {0}=1) {0}) {0}) (shaped {0}<f32> 4)))", w));
    CHECK(tree(fmt::format("fn {0}<{0}: int>({0}: f32) = {0};", w)) ==
          fmt::format("(fn {0} <{0}: int = _> [{0}: f32 = _] {{ (return {0}) }})\n", w));
    CHECK(tree(fmt::format("import {0}; const {0} = 1; enum {0} {{ {0} }}", w)) ==
          fmt::format("(import {0})\n(const {0} 1)\n(enum {0} : {0})\n", w));
    CHECK(tree(fmt::format("verify {0} {{ {0} = f({0}); tolerance {0}: exact; locate {0}: {0} = {0}; }}", w)) ==
          fmt::format("(verify {0} (= {0} : (call f {0})) (tolerance {0} : exact _) (locate {0} : {0}={0}))\n", w));
  }
}

TEST_CASE("spans are byte-exact") {
  Parsed p("/* é */ kernel k<N: int = 4>(x, y: out tensor<f32>[N, M]) grid (a + b) order grouped(8) where M > 1 {\n"
           "  let (i, j): tile<f32>[N] = (a + b) * c.f<g>(d, e = h)[1, i :+ 2];\n"
           "  @p(q = 1) for i in 0 : n step 2 { z += -w; }\n"
           "  if a { } else if bb { }\n"
           "}\n"
           "verify k { case big: M = 1 on gpu; y = ref(x); }\n");
  REQUIRE(p.errors() == "");
  const Function &f = p.file->functions[0];
  CHECK(p.at(f.loc).substr(0, 10) == "kernel k<N");
  CHECK(f.loc.begin == 9); // bytes, not characters
  CHECK(p.at(f.loc).back() == '}');
  CHECK(p.at(f.name.loc) == "k");
  CHECK(p.at(f.generics[0].name.loc) == "N");
  CHECK(p.at(f.generics[0].type->loc) == "int");
  CHECK(p.at(f.generics[0].default_value->loc) == "4");
  CHECK(p.at(f.params[0].name.loc) == "x");
  CHECK(p.at(f.params[1].name.loc) == "y");
  CHECK(f.params[0].type == f.params[1].type);
  CHECK(p.at(f.params[0].type->loc) == "tensor<f32>[N, M]");
  CHECK(p.at(f.params[0].type->element.loc) == "f32");
  CHECK(p.at(f.params[0].type->dims[1]->loc) == "M");
  CHECK(p.at(f.grid[0]->loc) == "a + b");
  CHECK(p.at(f.order->loc) == "grouped");
  CHECK(p.at(f.facts[0]->loc) == "M > 1");
  const Stmt &let = *f.body[0];
  CHECK(p.at(let.loc) == "let (i, j): tile<f32>[N] = (a + b) * c.f<g>(d, e = h)[1, i :+ 2];");
  CHECK(p.at(let.targets[1].loc) == "j");
  CHECK(p.at(let.type->loc) == "tile<f32>[N]");
  CHECK(p.at(let.value->loc) == "(a + b) * c.f<g>(d, e = h)[1, i :+ 2]");
  CHECK(p.at(let.value->operands[0]->loc) == "(a + b)");
  const Expr &index = *let.value->operands[1];
  CHECK(p.at(index.loc) == "c.f<g>(d, e = h)[1, i :+ 2]");
  CHECK(p.at(index.operands[2]->loc) == "i :+ 2");
  const Expr &call = *index.operands[0];
  CHECK(p.at(call.loc) == "c.f<g>(d, e = h)");
  CHECK(p.at(call.name_loc) == "f");
  CHECK(p.at(call.generics[0].value->loc) == "g");
  CHECK(p.at(call.args[1].name->loc) == "e");
  CHECK(p.at(call.args[1].value->loc) == "h");
  const Stmt &loop = *f.body[1];
  CHECK(p.at(loop.loc) == "@p(q = 1) for i in 0 : n step 2 { z += -w; }");
  CHECK(p.at(loop.annotations[0].name.loc) == "p");
  CHECK(p.at(loop.value->loc) == "0 : n");
  CHECK(p.at(loop.step->loc) == "2");
  CHECK(p.at(loop.body[0]->value->loc) == "-w");
  CHECK(p.at(f.body[2]->else_body[0]->loc) == "if bb { }");
  const Check &check = p.file->checks[0];
  CHECK(p.at(check.loc) == "verify k { case big: M = 1 on gpu; y = ref(x); }");
  CHECK(p.at(check.cases[0].settings[0].value->loc) == "1");
  CHECK(p.at(check.bindings[0].targets[0].loc) == "y");
}

TEST_CASE("spelling of operators") {
  CHECK(std::string(spelling(UnaryOp::BitNot)) == "~");
  CHECK(std::string(spelling(BinaryOp::BitXor)) == "^");
  CHECK(expression("a ^ b") == "(^ a b)");
}

TEST_CASE("syntax errors: exact texts") {
  auto in_function = [](const std::string &body) { return errors_of("fn f() { " + body + " }"); };
  CHECK(in_function("let x = ;") == "1:18 unexpected `;`, expected an expression\n");
  CHECK(in_function("let = 3;") == "1:14 unexpected `=`, expected a name or `(`\n");
  CHECK(in_function("let x = 3\nlet y = 4;") == "1:19 expected `;` after `3`\n");
  CHECK(in_function("return x") == "1:19 unexpected `}`, expected `;`\n");
  CHECK(in_function("x = f(a b);") == "1:18 unexpected `b`, expected `,` or `)`\n");
  CHECK(in_function("x = (a + b;") == "1:20 unexpected `;`, expected `,` or `)`\n");
  CHECK(in_function("x = a[1 2];") == "1:18 unexpected `2`, expected `,` or `]`\n");
  CHECK(in_function("x = c ? a;") == "1:19 unexpected `;`, expected `:`\n");
  CHECK(in_function("x = 1.;") == "1:16 a float literal has digits after its point, as in `1.0`\n");
  CHECK(in_function("for i in 0 .. n { }") == "1:22 a range is written `lo : hi`\n");
  CHECK(in_function("for i in n { }") == "1:19 `for` runs over a range, as in `0 : n`\n");
  CHECK(in_function("for in in 0 : n { }") == "1:14 unexpected keyword `in`, expected a name\n");
  CHECK(in_function("if a = b { }") == "1:15 unexpected `=`, expected `{`; `==` compares\n");
  CHECK(in_function("if a b = 1;") == "1:15 unexpected `b`, expected `{`\n");
  CHECK(in_function("if a { } else b;") == "1:24 unexpected `b`, expected a block\n");
  CHECK(in_function("else { }") == "1:10 unexpected keyword `else`, expected a statement or `}`\n");
  CHECK(in_function("x = a < b < c;") == "1:20 comparisons do not chain; join two with `&&`\n");
  CHECK(in_function("x = a == b != c;") == "1:21 comparisons do not chain; join two with `&&`\n");
  CHECK(in_function("x = zeros <f32>[4];") ==
        "1:24 comparisons do not chain; generic arguments are written `name<..>(..)`, without a space\n");
  CHECK(in_function("x = a and b;") == "1:16 `and` is written `&&`\n");
  CHECK(in_function("3 = x;") == "1:10 only a name, an index expression or a tuple of names can be assigned\n");
  CHECK(in_function("(a, b) += x;") == "1:17 a tuple takes only `=`\n");
  CHECK(in_function("let x;") == "1:10 `let` needs a value; only a `var` may get it later\n");
  CHECK(in_function("var (a, b);") == "1:10 several names need a value\n");
  CHECK(in_function("f(3 = x);") == "1:12 the left side of `=` in an argument must be a name\n");
  CHECK(in_function("(f)(x);") == "1:10 only a name can be called\n");
  CHECK(in_function("f(x)(y);") == "1:10 only a name can be called\n");
  CHECK(in_function("x = None;") == "1:14 `None` stands only in an index, where it adds a dim of size 1\n");
  CHECK(in_function("x = zeros<f32>[:];") == "1:25 a dim of `zeros` must be a size\n");
  CHECK(in_function("@a let x = 3;") == "1:13 an annotation cannot stand before `let`\n");
  CHECK(in_function("let launch = 3;").find("unexpected keyword `launch`") != std::string::npos);
  CHECK(in_function("record f: 3;").find("1:10 unexpected keyword `record`") == 0);
  CHECK(errors_of("record R { }") == "1:8 record `R` has no field\n");
  CHECK(errors_of("record R { a: f32[4], b: f32[4] }").find("1:21 unexpected `,`, expected `;`") == 0);
  CHECK(errors_of("record R { a: f32; }").find("1:18 unexpected `;`, expected `[`") == 0);
  CHECK(errors_of("instantiate x { }") == "1:1 `instantiate` is reserved for a later version of the language\n");
  CHECK(errors_of("kernel k(x tensor<f32>[N]) { }") == "1:12 unexpected `tensor`, expected `,`, `)`, `:` or `=`\n");
  CHECK(errors_of("kernel k(x: tensor<f32 [N]) { }") == "1:24 unexpected `[`, expected `>`\n");
  CHECK(errors_of("kernel k(x: tensor) { }") ==
        "1:13 `tensor` needs an element type and dims, as in `tensor<f32>[N]`\n");
  CHECK(errors_of("kernel k(x: = 3) { }") == "1:13 unexpected `=`, expected a type\n");
  CHECK(errors_of("kernel k(x: tile<f32>[N] strides(any)) { }") == "1:26 only a tensor has strides\n");
  CHECK(errors_of("kernel k(x) { }") == "1:10 parameter `x` of a kernel needs a type\n");
  CHECK(errors_of("kernel k() -> f32 { }") == "1:12 a kernel returns nothing: its results are `out` parameters\n");
  CHECK(errors_of("kernel k() gird (1) { }") ==
        "1:12 unexpected `gird`, expected `grid`, `order`, `warps`, `where`, `{` or `@`\n");
  CHECK(errors_of("kernel k() grid (1) grid (2) { }") == "1:21 `grid` is given twice\n");
  CHECK(errors_of("fn f() -> (x + 1: f32) { }") == "1:14 unexpected `+`, expected `,`, `)` or `:`\n");
  CHECK(errors_of("enum A { }") == "1:6 enum `A` has no value\n");
  CHECK(errors_of("enum A { a b }") == "1:12 unexpected `b`, expected `,` or `}`\n");
  CHECK(errors_of("import 3;") == "1:8 unexpected `3`, expected a name or a string\n");
  CHECK(errors_of("const a = 3") == "1:12 unexpected end of file, expected `;`\n");
  CHECK(errors_of("let x = 3;") == "1:1 unexpected keyword `let`, expected a declaration\n");
  CHECK(errors_of("verify k { case a M = 1; }") == "1:19 unexpected `M`, expected `on`, `;` or `:`\n");
  CHECK(errors_of("verify k { tolerance y: abs 3; }") == "1:25 unexpected `abs`, expected `rms`, `max` or `exact`\n");
  CHECK(errors_of("verify k { locate y; }") == "1:20 unexpected `;`, expected `,` or `:`\n");
  CHECK(errors_of("verify k { tolerance y: rms; }") == "1:28 unexpected `;`, expected an expression\n");
  CHECK(errors_of("verify k { if a { } }") == "1:12 unexpected keyword `if`, expected an item or `}`\n");
  CHECK(errors_of("fn f(a,,b) { }") == "1:8 unexpected `,`, expected a name\n");
  CHECK(errors_of("fn f(,) { }") == "1:6 unexpected `,`, expected a name or `)`\n");
  CHECK(in_function("x = f(,);") == "1:16 unexpected `,`, expected an expression or `)`\n");
  CHECK(in_function("let x = 3,;") == "1:19 unexpected `,`, expected `;`\n");
}

TEST_CASE("lexical errors") {
  CHECK(errors_of("fn f() { x = 12abc + 0x + 0b12; }") ==
        "1:14 malformed number `12abc`\n1:22 malformed number `0x`\n1:27 malformed number `0b12`\n");
  CHECK(errors_of("fn f() { x = \"abc; }\nfn g() { y = ; }") ==
        "1:14 this string has no closing quote on its line\n2:14 unexpected `;`, expected an expression\n");
  CHECK(errors_of("fn f() { } /* x }") == "1:12 this comment has no closing `*/`\n");
  CHECK(errors_of("fn f() { x = a $ b; }") == "1:16 unexpected character `$`\n");
  CHECK(errors_of("fn f() { x = é; }") == "1:14 unexpected character `é`\n");
  CHECK(errors_of("fn f() { x = a é§ b; y = ; }") ==
        "1:16 unexpected characters\n1:26 unexpected `;`, expected an expression\n");
  CHECK(errors_of("fn f() { x = a \x01; }") == "1:16 unexpected control character 0x01\n");
  CHECK(errors_of("fn f() { x = a \x7f; }") == "1:16 unexpected control character 0x7f\n");
  CHECK(errors_of("const a = \"\\q\";") == "1:12 unknown escape `\\q`; known are \\n \\t \\r \\0 \\\\ \\\"\n");
  CHECK(errors_of("const a = 9223372036854775808;") ==
        "1:11 integer literal `9223372036854775808` does not fit into 64 bits\n");
  CHECK(errors_of("const a = -9223372036854775809;") ==
        "1:12 integer literal `9223372036854775809` does not fit into 64 bits\n");
  CHECK(errors_of("const a = 0x1_0000_0000_0000_0000;") ==
        "1:11 integer literal `0x1_0000_0000_0000_0000` does not fit into 64 bits\n");
  CHECK(errors_of("const a = 1e999;") == "1:11 float literal `1e999` is outside the range of f64\n");
}

TEST_CASE("every error of a file is reported, the rest is kept") {
  Parsed p("import nn;\n"
           "fn f() { let x = ; let y = 1; if y { z = ; } }\n"
           "kernel k(x: tensor<f32>[N] grid (1) { a = ; }\n"
           "fn g() { x = (1; for i in { w = ); } return 2; }\n"
           "}\n"
           "verify k { case a: M = ; case b: M = 1; y = f(; input x = normal(0, 1); }\n"
           "fn h() = 1;\n");
  CHECK(p.errors() == "2:18 unexpected `;`, expected an expression\n"
                      "2:42 unexpected `;`, expected an expression\n"
                      "3:28 unexpected `grid`, expected `,`, `strides`, `)` or `=`\n"
                      "3:43 unexpected `;`, expected an expression\n"
                      "4:16 unexpected `;`, expected `,` or `)`\n"
                      "4:27 unexpected `{`, expected an expression\n"
                      "4:33 unexpected `)`, expected an expression\n"
                      "5:1 unexpected `}`, expected a declaration\n"
                      "6:24 unexpected `;`, expected an expression\n"
                      "6:47 unexpected `;`, expected an expression or `)`\n");
  REQUIRE(p.file);
  CHECK(dump(*p.file) == "(import nn)\n(fn f { (let y _ 1) })\n(fn g { (return 2) })\n(fn h { (return 1) })\n"
                         "(verify k (input x (call normal 0 1)) (case b M=1))\n");
}

TEST_CASE("unclosed braces name the open one") {
  CHECK(errors_of("fn f() { if a {\n x = 1; }") ==
        "2:10 unexpected end of file, expected a statement or `}`\n  note t.tk:1:8 this `{` is not closed\n");
  CHECK(errors_of("fn f() {\n x = 1;\n\nfn g() { y = ; }") ==
        "4:1 unexpected keyword `fn`, expected a statement or `}`\n  note t.tk:1:8 this `{` is not closed\n"
        "4:14 unexpected `;`, expected an expression\n");
}

TEST_CASE("bytes that are no source text") {
  auto kinds = [](const std::string &text) {
    Parsed p(text);
    std::string out;
    for (const Diagnostic &d : p.diagnostics.all())
      out += fmt::format("{}@{} {}\n", diag_info(d.kind).name, d.loc.begin, d.text);
    CHECK(!p.file);
    return out;
  };
  CHECK(kinds("") == "empty_file@0 `t.tk` holds no declaration\n");
  CHECK(kinds(" // nothing\n/* */") == "empty_file@0 `t.tk` holds no declaration\n");
  CHECK(kinds(std::string("fn f() {\0 }", 11)) == "nul_byte@8 NUL byte at offset 8: this is not a text file\n");
  CHECK(kinds("// caf\xe9\n") == "not_utf8@6 `t.tk` is not UTF-8 text (byte 0xe9 at offset 6)\n");
  for (const char *bad : {"\x80", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98"})
    CHECK(kinds(std::string("//") + bad).substr(0, 11) == "not_utf8@2 ");
  CHECK(tree("// \xc2\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\nconst a = 1;") == "(const a 1)\n");
  std::string garbage(size_t(10) << 20, '\0');
  uint64_t state = 1;
  for (char &c : garbage) c = char((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  auto start = std::chrono::steady_clock::now();
  CHECK(kinds(garbage) == "file_too_large@0 `t.tk` has 10485760 bytes; a source file may have at most 4194304\n");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}

// Deterministic: the same pseudo-random stream each run.
struct Random {
  uint64_t state = 1;
  uint64_t below(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  }
};

TEST_CASE("random tokens: always errors or a tree, never more than the cap") {
  const std::vector<std::string> words = {
      "fn f", "kernel k", "let x",     "if ",   "{",        "}",      "(",     ")",       "[",     "]",
      "<",    ">",        ";",         ",",     "x ",       "1 ",     "+",     ":",       "? ",    "=",
      ".",    "else ",    "for i in ", "step ", "verify k", "case a", "\"s\"", "ring ",   "@a ",   "$",
      "/*",   "\"",       "enum E",    "grid ", "where ",   ":+",     "-> ",   "return ", "None ", "a<b>("};
  Random random;
  for (int64_t round = 0; round < 500; round++) {
    std::string text;
    for (int64_t i = 0; i < 120; i++) text += words[random.below(words.size())];
    Parsed p(text);
    CAPTURE(text);
    CHECK((p.file || p.diagnostics.has_errors()));
    CHECK(p.diagnostics.error_count() <= 220);
    if (!p.diagnostics.has_errors()) tree(text);
  }
}

TEST_CASE("mutated samples: an error or a tree that prints and parses") {
  const std::string sample = std::string(kSoftmax) + kGemm;
  Random random;
  int64_t accepted = 0;
  for (int64_t round = 0; round < 400; round++) {
    std::string text = sample;
    size_t at = random.below(text.size()), length = 1 + random.below(6);
    switch (random.below(3)) {
    case 0: text.erase(at, length); break;
    case 1: text.insert(at, text.substr(random.below(text.size()), length)); break;
    default: text[at] = char(32 + random.below(95));
    }
    Parsed p(text);
    CAPTURE(text);
    CHECK((p.file || p.diagnostics.has_errors()));
    CHECK(p.diagnostics.error_count() < 20);
    if (p.diagnostics.has_errors()) continue;
    tree(text);
    accepted++;
  }
  CHECK(accepted > 20); // names, numbers and comments changed
}

TEST_CASE("deep nesting is an error, moderate nesting is not") {
  const std::string deep = "nesting deeper than 500 levels";
  auto first = [](const std::string &text) {
    Parsed p(text);
    return p.diagnostics.all().empty() ? "" : p.diagnostics.all()[0].text;
  };
  const int64_t n = 20000;
  CHECK(first("const a = " + repeat("(", n) + "1" + repeat(")", n) + ";") == deep);
  CHECK(first("const a = " + repeat("(", n)) == deep);
  CHECK(first("const a = " + repeat("[", n) + repeat("]", n) + ";") == deep);
  CHECK(first("const a = " + repeat("x[", n) + "0" + repeat("]", n) + ";") == deep);
  CHECK(first("const a = " + repeat("f(", n) + repeat(")", n) + ";") == deep);
  CHECK(first("const a = " + repeat("f<", n) + "1" + repeat(">(x)", n) + ";") == deep);
  CHECK(first("fn f() " + repeat("{", n) + repeat("}", n)) == deep);
  CHECK(first("fn f() { " + repeat("if a { ", n) + repeat("}", n) + "}") == deep);
  CHECK(first("fn f() { " + repeat("for i in 0 : n { ", n) + repeat("}", n) + "}") == deep);
  CHECK(first("fn f() { if a { } " + repeat("else if a { } ", n) + "}") == deep);
  CHECK(first("const a = " + repeat("c ? 1 : ", n) + "2;") == deep);
  CHECK(first("const a = " + repeat("c ? ", n) + "1" + repeat(" : 2", n) + ";") == deep);
  CHECK(first(repeat("}", n)) == "unexpected `}`, expected a declaration");
  CHECK(first("fn f() { " + repeat("@a ", n) + "x(); }") == "");

  const std::string high = "expression of more than 1000 nested operators; name parts of it with `let`";
  CHECK(first("const a = " + repeat("- ", n) + "1;") == high);
  CHECK(first("const a = " + repeat("!", n) + "b;") == high);
  CHECK(first("const a = a" + repeat(" + a", n) + ";") == high);
  CHECK(first("const a = a" + repeat(" + a", 5000) + ";") == high);
  CHECK(first("const a = a" + repeat(".b", n) + ";") == high);
  CHECK(first("const a = a" + repeat("[0]", n) + ";") == high);
  CHECK(first("const a = a" + repeat(".b(1)", n) + ";") == high);
  CHECK(Parsed("const a = a" + repeat(" + a", n) + ";").diagnostics.error_count() == 1);

  CHECK(tree("const a = " + repeat("(", 490) + "1" + repeat(")", 490) + ";") == "(const a 1)\n");
  tree("const a = " + repeat("-f(x[", 240) + "1" + repeat("])", 240) + ";");
  tree("fn f() " + repeat("{ ", 490) + repeat("}", 490));
  tree("fn f() { if a { } " + repeat("else if a { } ", 490) + "}");
  tree("const a = a" + repeat(" + a", 990) + ";");
  tree("const a = " + repeat("c ? 1 : ", 490) + "2;");
  // Long but flat: chains in one file do not add up.
  tree("fn f() { " + repeat("x = c ? 1 : 2; if a { } else if b { } else { } ", 2000) + "}");
  tree("const a = f(" + repeat("c ? 1 : 2, ", 2000) + ");");
}

TEST_CASE("the number of errors is limited") {
  Parsed words("fn f() { " + repeat("x = ; ", 1000) + "}"), characters(repeat("$ ", 1000));
  for (Parsed *p : {&words, &characters}) {
    CHECK(p->diagnostics.error_count() == 101);
    CHECK(p->diagnostics.all().back().text == "too many errors; the rest of the file is not read");
  }
}

TEST_CASE("large inputs take linear time") {
  CHECK(milliseconds("const a = f(" + repeat("1, ", 100000) + "1);") < 5000);
  CHECK(milliseconds("fn f() { " + repeat("a<", 100000) + " }") < 5000);
  CHECK(milliseconds("fn f() { " + repeat("a < b; ", 50000) + " }") < 5000);
  CHECK(milliseconds(repeat(") ", 1000000)) < 5000);
  CHECK(milliseconds(repeat("$ ", 1000000)) < 5000);
}

TEST_CASE("reading files") {
  std::string dir = TKC_BINARY_DIR "/syntax_test_files";
  REQUIRE(std::system(("rm -rf '" + dir + "' && mkdir -p '" + dir + "'").c_str()) == 0);
  auto write = [&](const std::string &name, const std::string &text) {
    std::ofstream(dir + "/" + name, std::ios::binary) << text;
    return dir + "/" + name;
  };
  auto error = [&](const std::string &path) {
    SourceManager sources;
    Diagnostics diagnostics(sources);
    CHECK(!read_source(path, sources, diagnostics));
    REQUIRE(diagnostics.all().size() == 1);
    CHECK(sources.count() == 0);
    return diagnostics.all()[0].text;
  };
  std::string none = dir + "/none.tk";
  CHECK(error(none) == "cannot read `" + none + "`: No such file or directory");
  CHECK(error(dir) == "cannot read `" + dir + "`: it is a directory");
  std::string empty = write("empty.tk", "");
  CHECK(error(empty) == "`" + empty + "` holds no declaration");
  std::string large = write("large.tk", std::string(size_t(10) << 20, 'x'));
  CHECK(error(large) == "`" + large + "` has 10485760 bytes; a source file may have at most 4194304");

  SourceManager sources;
  Diagnostics diagnostics(sources);
  std::optional<int32_t> id = read_source(write("good.tk", "const a = 1;"), sources, diagnostics);
  REQUIRE(id);
  CHECK(sources.file(*id).name() == dir + "/good.tk");
  std::unique_ptr<File> file = parse_file(*id, diagnostics);
  REQUIRE(file);
  CHECK(file->id == *id);
  CHECK(dump(*file) == "(const a 1)\n");

  write("piped.tk", "const b = 2;");
  REQUIRE(std::freopen((dir + "/piped.tk").c_str(), "rb", stdin));
  id = read_source("-", sources, diagnostics);
  REQUIRE(id);
  CHECK(sources.file(*id).name() == "<stdin>");
  CHECK(sources.file(*id).text() == "const b = 2;");
  CHECK(!diagnostics.has_errors());
}

// The syntax tree: every node on one page. Nodes are plain values with a kind tag; consumers switch on it.
// Every node has the byte range of its text. Names are not resolved here: a call is a call, whatever it calls.
#pragma once
#include "support/source.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tkc::ast {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;

struct Name {
  std::string text;
  SourceLoc loc;
};

struct Arg {
  std::optional<Name> name; // axis = 1
  ExprPtr value;
};

// ---- types: f32, tile<T>[M, N], tensor<bf16>[M, K], tensor?<f32>[N], tensor<f32>[M, N] strides(any), int, bool, type,
// Act
enum class TypeKind { Named, Tile, Tensor, Shared };
struct Type {
  TypeKind kind = TypeKind::Named;
  SourceLoc loc;
  Name name;                     // Named: a dtype, int, type, an enum or a generic parameter
  Name element;                  // Tile, Tensor, Shared: the name between < and >
  std::vector<Arg> element_args; // of a record: tensor<Rec<32, 128>>
  std::vector<ExprPtr> dims;     // Tile, Tensor, Shared; rank 0 is `tile<f32>[]`
  bool optional = false;         // tensor?
  bool any_strides = false;      // strides(any)
};
using TypePtr = std::unique_ptr<Type>;

// ---- expressions
enum class UnaryOp { Neg, Not, BitNot }; // - ! ~
enum class BinaryOp { Or, And, BitOr, BitXor, BitAnd, Eq, Ne, Lt, Gt, Le, Ge, Shl, Shr, Add, Sub, Mul, Div, Rem };
const char *spelling(UnaryOp op);
const char *spelling(BinaryOp op);

enum class ExprKind {
  Int,     // int_value
  Float,   // float_value
  Bool,    // int_value 0 or 1
  String,  // text, escapes resolved
  None,    // None
  Name,    // text; with generics the type of a record
  Unary,   // unary, operands[0]
  Binary,  // binary, operands[0..1]
  Ternary, // operands[0] ? operands[1] : operands[2]
  Call,    // text<generics>(args); with a receiver: operands[0].text<generics>(args)
  Shaped,  // text<generics>[dims]: zeros<f32>[BM, BN]; dims in operands
  Index,   // operands[0][items...]: items in operands[1..]; an item is any expression, None, or a Range
  Member,  // operands[0].text
  Range,   // lo : hi, or start :+ length if has_length; operands[0..1], either may be null for an open end
  Tuple,   // (a, b, ...): operands, at least two
  List,    // [a, b, ...]: operands
  Record,  // {a: x, b: y}, an argument: args, all with names
};
struct Expr {
  ExprKind kind;
  SourceLoc loc;
  std::string text;
  int64_t int_value = 0;
  double float_value = 0;
  UnaryOp unary{};
  BinaryOp binary{};
  bool has_length = false;
  std::vector<ExprPtr> operands;
  std::vector<Arg> generics; // values are expressions; a dtype is a Name
  std::vector<Arg> args;
  SourceLoc name_loc; // of `text` in Call, Shaped, Member
};

// ---- statements
struct Annotation { // @pipeline(stages = 3, via = tma)
  Name name;
  std::vector<Arg> args;
};

enum class StmtKind {
  Let,      // let/var targets (: type)? = value;  is_var
  Assign,   // target = value; or target op= value;  target is a Name, Index or Tuple expression
  Expr,     // value;
  If,       // value, body, else_body (an `else if` is an else_body of one If)
  For,      // for targets[0] in range (step step)? body; unrolled; annotations
  While,    // value, body
  Return,   // value or null
  Launch,   // value, a Call (in a program)
  Parallel, // body (in a program)
  Block,    // body
  Ring,     // ring targets[0]: { fields } stages value;  value may be null
  Role,     // role targets[0] warps value { body }  value may be null
};
struct Field { // kp: bf16[16, 128]
  Name name, element;
  std::vector<ExprPtr> dims;
};
struct Stmt {
  StmtKind kind;
  SourceLoc loc;
  bool is_var = false, unrolled = false;
  std::vector<Name> targets; // Let: one name, or several for (i, j); For: one
  TypePtr type;              // Let
  ExprPtr target;            // Assign
  std::optional<BinaryOp> assign_op;
  ExprPtr value; // For: the Range
  ExprPtr step;
  std::vector<Field> fields; // Ring
  std::vector<StmtPtr> body, else_body;
  bool has_else = false;
  std::vector<Annotation> annotations;
};

// ---- declarations
struct GenericParam { // N: int = 4096, T: type = bf16, A: Act
  Name name;
  TypePtr type; // null: int
  ExprPtr default_value;
};
enum class ParamMode { In, Out, InOut };
struct Param { // `q, k: tensor<..>` gives two params that share one type node
  Name name;
  ParamMode mode = ParamMode::In;
  std::shared_ptr<Type> type; // null: untyped (functions only)
  std::shared_ptr<Expr> default_value;
};
struct ResultDecl { // -> T   or   -> (o: T, s: T)
  std::optional<Name> name;
  TypePtr type;
};

// fn, kernel, program and reference share one node.
enum class FunctionKind { Fn, Kernel, Program, Reference };
const char *spelling(FunctionKind kind);
struct Function {
  FunctionKind kind;
  SourceLoc loc;
  Name name;
  std::vector<GenericParam> generics;
  std::vector<Param> params;
  std::vector<ResultDecl> results;
  std::vector<StmtPtr> body; // `fn f(x) = e;` is one Return
  // clauses of a kernel, in any order in the text; a program has `where` alone
  std::vector<ExprPtr> grid; // grid (cdiv(M, BM), H)
  std::optional<Name> order; // order grouped(8)
  std::vector<ExprPtr> order_args;
  ExprPtr warps;                             // warps 4
  std::vector<ExprPtr> facts;                // where M % 16 == 0
  bool has_grid = false, persistent = false; // grid persistent (..)
  std::vector<Annotation> annotations;       // of a persistent grid: of the loop over its tiles
};

struct Import { // import nn;  import "common.tk";
  Name name;
  bool is_path = false;
};
struct Const { // const LOG2E = 1.44269504;
  Name name;
  ExprPtr value;
};
struct Enum { // enum Act { none, relu, gelu }
  Name name;
  std::vector<Name> values;
};

struct Record { // record Rec<C: int, K: int> { kp: bf16[C, K]; eg: f32[K]; }
  Name name;
  std::vector<GenericParam> generics;
  std::vector<Field> fields;
};

struct CaseSetting { // M = 7;  bias = none
  Name name;
  ExprPtr value;
};
struct Case { // case tail: M = 7, N = 100 on gpu;
  Name name;
  std::vector<CaseSetting> settings;
  bool gpu_only = false;
};
struct Input { // input x = normal(0, 3);
  Name name;
  ExprPtr value;
};
struct ToleranceItem { // rms 4e-3 | max 1e-2 | exact
  Name measure;
  ExprPtr value; // null for exact
};
struct Tolerance { // tolerance y: rms 4e-3, max 1e-2;
  std::vector<Name> outputs;
  std::vector<ToleranceItem> items;
};
struct Locate { // locate o: sequence = B, chunk = T / 16;
  std::vector<Name> outputs;
  std::vector<CaseSetting> items;
};
struct Binding { // y = softmax_ref(x);   (o, s) = ref(q, k);
  std::vector<Name> targets;
  ExprPtr value;
};
// verify NAME { .. } and bench NAME { .. }
struct Check {
  bool is_bench = false;
  SourceLoc loc;
  Name kernel;
  std::vector<StmtPtr> lets;     // let statements, in order
  std::vector<Binding> bindings; // verify: expected outputs;  bench: bytes = .., flops = ..
  std::vector<Input> inputs;
  std::vector<Case> cases;
  std::vector<Tolerance> tolerances;
  std::vector<Locate> locates;
};

// One file, declarations in source order within each kind.
struct File {
  int32_t id = -1;
  std::vector<Import> imports;
  std::vector<Const> consts;
  std::vector<Enum> enums;
  std::vector<Record> records;
  std::vector<Function> functions;
  std::vector<Check> checks;
};

} // namespace tkc::ast

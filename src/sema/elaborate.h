// The elaborator: walks the syntax tree of one kernel or reference with an environment of compile-time values and IR
// values, inlines functions, and emits typed IR. Errors are reported and poison the value; elaboration goes on, so that
// all errors of an instance come out at once.
#pragma once
#include "ir/builder.h"
#include "sema/program.h"
#include "sema/value.h"
#include "support/diag_kinds.h"
#include <functional>
#include <map>
#include <set>

namespace tkc::ir {
struct Target;
}

namespace tkc::sema {

// A call of an input generator in a verify block: normal(0, 3). Its values become the argument `param` of the function.
struct GeneratorCall {
  std::string param;
  std::string kind; // uniform, normal, bernoulli, integers, constant, edge
  std::vector<double> args;
};

class Elaborator {
public:
  Elaborator(Program &program, ir::Function &function, Diagnostics &diags, const ir::Target *target);

  // ---- environment
  struct Var {
    SV value;
    bool is_var = false;
    bool initialised = true;
    SourceLoc loc;
    std::optional<ir::Type> declared;
    SourceLoc assigned = {}; // the last assignment
  };
  void push_scope() { scopes_.emplace_back(); }
  void pop_scope() { scopes_.pop_back(); }
  void define(const ast::Name &name, SV value, bool is_var = false);
  Var *lookup(const std::string &name);
  void enter_file(Scope *file) { file_ = file; }

  // ---- statements (elaborate_stmt.cpp)
  // Elaborates a body. Returns what `return` gave (empty without one).
  std::optional<std::vector<SV>> body(const std::vector<ast::StmtPtr> &stmts);

  // Annotations as attributes of the loop that they stand before; null: they stand before no loop (annotations.cpp).
  void annotate(const std::vector<ast::Annotation> &list, bool unrolled, ir::Attrs *loop);

  // ---- expressions (elaborate_expr.cpp, index.cpp, call.cpp)
  SV expr(const ast::Expr &e);
  std::optional<int64_t> const_int(const ast::Expr &e, const std::string &what);
  std::optional<bool> const_bool(const ast::Expr &e, const std::string &what);
  std::optional<DType> dtype_of(const ast::Name &name); // a dtype or a generic type parameter
  // A tile or scalar of the IR; numbers take dtype `want`, or i32 / the default float.
  ir::Value *value(const SV &v, std::optional<DType> want = std::nullopt);
  ir::Value *convert_shape(ir::Value *v, const std::vector<int64_t> &shape, SourceLoc loc); // broadcast; shapes fit
  // value() converted to a type: numbers and scalars are broadcast, dtypes must agree. Null after an error.
  ir::Value *value_as(const SV &v, const ir::Type &type, const std::string &what);
  std::optional<ir::Type> type(const ast::Type &t);      // tile and scalar types
  std::optional<ir::Type> tile_type(const ast::Type &t); // also a tensor type, as the tile that holds all of it

  // Sizes over a kernel's run-time symbols: grids, facts, extents (sizes.cpp).
  std::optional<ir::SizeExpr> size(const ast::Expr &e);

  // ---- records (records.cpp)
  const ast::Record *record_named(const std::string &name) const; // null: no record of the file
  // The record of a type `name<args>`, of one that is declared; null after an error.
  std::shared_ptr<const ir::Record> record_type(const ast::Name &name, const std::vector<ast::Arg> &args);
  // What a tensor, or a part of one, holds; null: numbers.
  std::shared_ptr<const ir::Record> record_of(const ir::Value *tensor) const;

  // The derivative of an expression, as one op: a value of f64 for each of the named floats, empty after an error. The
  // expression is elaborated with the names bound to what it is differentiated by. `cotangents` gives one f64 value for
  // each of its values, or None (grad.cpp).
  std::vector<SV> differentiate(const std::vector<std::pair<ast::Name, SV>> &wrt, SourceLoc loc,
                                const std::function<SV()> &expression,
                                const std::function<std::vector<SV>(const std::vector<SV> &)> &cotangents);

  ir::Builder &builder() { return b_; }
  Diagnostics &diags() { return diags_; }
  // Tiles of a kernel have at least one element; a reference's tensors may be empty.
  int64_t least_extent() const { return reference() ? 0 : 1; }
  bool reference() const { return fn_.kind == ir::FunctionKind::Reference; }
  void collect_generators(std::vector<GeneratorCall> *calls, std::vector<int64_t> shape, DType dtype) {
    generators_ = calls, generator_shape_ = std::move(shape), generator_dtype_ = dtype;
  }

  // An argument of the function that a generator fills; collect_generators has been called.
  ir::Value *generated(GeneratorCall g, ir::Type type);

  // Of a kernel's body, once it is there: what rings and roles must be to each other (roles.cpp).
  void check_roles(SourceLoc warps_clause);

  // Of a kernel's body: what shared memory, mbarriers and copies by hand must be (by_hand.cpp).
  void check_by_hand();

  std::set<std::string> size_symbols; // names that size() may leave symbolic
  // What a program adds to sizes, asked first: true if the expression is its own kind of thing.
  std::function<bool(const ast::Expr &, std::optional<ir::SizeExpr> &)> host_size;
  // What a program adds to values while it computes a number, asked first as well.
  std::function<bool(const ast::Expr &, SV &)> host_value;
  std::map<const ir::Value *, SourceLoc> written; // tensors that a store or an atomic names, and where the first does

private:
  template <typename... Args> SV error(SourceLoc loc, DiagKind kind, const Args &...args) {
    note_calls(diags_.report(loc, kind, args...));
    return SV::poison();
  }
  // A dim of a tile whose extent is known only at run time; the message says how to make it a compile-time one.
  SV run_time_extent(SourceLoc loc, size_t dim, const std::string &what, const std::string &extent);
  // False after a report: a tile that no kernel can have.
  bool tile_fits(const std::vector<int64_t> &shape, const std::string &name, SourceLoc loc);
  void note_calls(Diagnostic &d);
  void note_calls_since(int64_t errors); // after inference reported at most one error

  // statements
  struct Flow { // what a statement did to control
    bool returned = false;
  };
  Flow statement(const std::vector<ast::StmtPtr> &stmts, size_t &index);
  Flow block(const std::vector<ast::StmtPtr> &stmts);
  void let(const ast::Stmt &s);
  void assign(const ast::Stmt &s);
  void assign_to(const ast::Expr &target, SV value);
  Flow if_stmt(const std::vector<ast::StmtPtr> &stmts, size_t &index);
  void for_stmt(const ast::Stmt &s);
  void annotate(const ast::Stmt &s, ir::Attrs *loop);
  void check_only(const ast::Stmt &s); // the body of a loop whose range has an error, for its own errors
  void while_stmt(const ast::Stmt &s);
  // roles and rings (roles.cpp)
  void ring_stmt(const ast::Stmt &s);
  void role_stmt(const ast::Stmt &s);
  SV ring_method(const SV &ring, const ast::Expr &e); // f.push({..}), f.pop()
  SV push(const SV &ring, const ast::Expr &e);
  SV item_field(const SV &item, const ast::Expr &e);
  SV release_item(const SV &item, const ast::Expr &e);
  // records (records.cpp)
  void record_field(const ast::Record &record, const ast::Field &f, ir::Record &out);
  ir::Value *field_tensor(ir::Value *tensor, const ir::RecordField &f, SourceLoc loc);
  SV record_member(const SV &of, const ir::Record &record, const ast::Expr &e);
  SV index_field(const ast::Expr &e, const SV &base);
  // False after a report: the op called `name` does not take this tensor.
  bool check_record_access(const ir::Value *tensor, ir::OpKind kind, const std::string &name, SourceLoc loc);
  // shared memory and mbarriers by hand (by_hand.cpp)
  SV shared_memory(const ast::Expr &e);      // shared<T, slots>[dims]
  SV slot(const ast::Expr &e, const SV &of); // s[i]
  bool names_place(const ast::Expr &e);      // `s` or `s[i]` of shared memory or mbarriers
  // Appends the two operands of a slot of what a `made` op made; false after a report.
  bool place_operands(const SV &v, ir::OpKind made, SourceLoc loc, std::vector<ir::Value *> &out);
  SV by_hand(ir::OpKind kind, std::vector<ir::Value *> operands, ir::Attrs attrs, const ast::Expr &e,
             std::vector<SourceLoc> locs);
  void check_elect(ir::Op *choice);
  // A value from outside of the role that names it: reported if it is no scalar, tensor or ring.
  SV check_capture(const std::string &name, SV v);
  bool outside_role(const std::string &name); // a variable that exists there
  Flow return_stmt(const ast::Stmt &s);
  // Loop-carried and branch-merged variables: those assigned in `bodies` that exist outside.
  std::vector<std::string> carried(std::initializer_list<const std::vector<ast::StmtPtr> *> bodies);
  ir::Value *carried_value(const std::string &name);
  // Variables without a value that `bodies` assign. After a loop they have none again; after an `if` they have one
  // where both branches give it.
  std::vector<std::string> unset(std::initializer_list<const std::vector<ast::StmtPtr> *> bodies);
  void forget(const std::vector<std::string> &names);
  void yield(const std::vector<std::string> &names, const std::vector<ir::Value *> &entry, const char *what,
             SourceLoc loc);

  // expressions
  SV name(const ast::Expr &e);
  SV unary(const ast::Expr &e);
  SV binary(const ast::Expr &e);
  SV binary(ast::BinaryOp op, SV a, SV b, SourceLoc loc);
  SV fold(ast::BinaryOp op, const SV &a, const SV &b, SourceLoc loc);
  SV ternary(const ast::Expr &e);
  SV member(const ast::Expr &e);
  SV range(const ast::Expr &e);
  SV shaped(const ast::Expr &e);

  // indexing
  SV index(const ast::Expr &e);
  SV index_tensor(const ast::Expr &e, SV base);
  SV index_tile(const ast::Expr &e, SV base);
  std::optional<IndexItem> index_item(const ast::Expr &e);
  // Compile-time [start, size) of a range in an extent; nullopt after an error or if it is not constant (`constant`
  // false).
  struct Span {
    int64_t start = 0, size = 0;
  };
  std::optional<Span> constant_span(const Range &r, int64_t extent, SourceLoc loc, bool &constant);
  struct TileAccess { // how an index list selects from a tile
    std::vector<int64_t> starts, sizes;
    std::vector<ir::Value *> dynamic; // one scalar per dim; empty if all starts are constants
    std::vector<int64_t> result_shape;
    std::vector<int64_t> new_axes; // positions of None in the result
    bool ok = false;
  };
  TileAccess tile_access(const ast::Expr &e, ir::Value *base, bool allow_none);
  SV materialise(const SV &view); // a view used as a tensor: a subview
  struct Access {                 // operands and attributes that load, store and atomics share
    std::vector<ir::Value *> operands;
    ir::Attrs attrs;
    std::vector<int64_t> shape;
    bool ok = false;
  };
  Access access(const SV &view, ir::OpKind kind, const std::string &name, SourceLoc loc);

  // calls
  SV call(const ast::Expr &e);
  SV builtin(const ast::Expr &e, bool &handled);
  SV call_function(const ast::Function &f, Scope *scope, const ast::Expr &e);
  SV call_op(const std::vector<ir::OpKind> &kinds, const ast::Expr &e);
  SV apply_op(ir::OpKind kind, const ast::Expr &e, std::vector<const ast::Expr *> &by_param);
  bool bind_args(ir::OpKind kind, const ast::Expr &e, std::vector<const ast::Expr *> &by_param,
                 std::vector<const ast::Expr *> &rest);
  SV fold_math(const std::string &name, const std::vector<SV> &args, SourceLoc loc, bool &folded);
  SV cast(DType t, const ast::Expr &e);
  SV inline_ptx(const ast::Expr &e);
  SV generator(const ast::Expr &e);
  SV grad(const ast::Expr &e);
  bool unify(const ast::Type &t, const SV &arg, const ast::Param &p, std::map<std::string, SV> &generics);
  std::vector<std::string> visible_names();
  SV emit(ir::OpKind kind, std::vector<ir::Value *> operands, ir::Attrs attrs, SourceLoc loc,
          std::vector<SourceLoc> locs = {});

  Program &program_;
  ir::Function &fn_;
  Diagnostics &diags_;
  const ir::Target *target_;
  ir::Builder b_;
  Scope *file_;
  std::vector<std::map<std::string, Var>> scopes_;
  size_t scope_base_ = 0; // first scope of the function being inlined
  struct Call {
    const ast::Function *function;
    SourceLoc loc;
  };
  std::vector<Call> calls_;
  int64_t region_depth_ = 0;                // inside run-time control flow of the current function
  int64_t exits_ = 0;                       // of these regions, those that hold the rest after an early `return`
  std::optional<std::vector<SV>> returned_; // of the current function
  ir::Block *role_ = nullptr;               // the role whose body this is
  size_t role_scope_ = 0;                   // its first scope
  std::map<const ir::Value *, SourceLoc> released_; // items
  std::vector<GeneratorCall> *generators_ = nullptr;
  std::vector<int64_t> generator_shape_;
  DType generator_dtype_ = DType::F64;
  std::map<std::string, SV> const_cache_;
};

// What two operands of unlike dtypes are best converted to: the float, or the wider of the two.
DType common_dtype(DType a, DType b);
// "2 arguments", "1 to 3 arguments"
std::string argument_count(size_t least, size_t most);
inline std::string quoted(const std::string &name) { return "`" + name + "`"; }

// The names assigned in a body, nested blocks included.
void assigned_names(const std::vector<ast::StmtPtr> &stmts, std::set<std::string> &out);

} // namespace tkc::sema

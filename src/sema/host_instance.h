// How a HostProgram is made: the class whose parts are host_program.cpp (statements, scalars, tensors), host_launch.cpp
// (launches against signatures) and host_effects.cpp (what is read, written, used).
#pragma once
#include "sema/host_program.h"
#include "sema/signature.h"

namespace tkc::sema {

// What launches have done to the memory of a program so far, in the order of the text.
class HostEffects {
public:
  HostEffects(const ir::Function &header, Diagnostics &diags) : header_(header), diags_(diags) {}
  // Of the arguments of one launch: each is read, written or both.
  struct Use {
    const TensorView *view;
    std::string parameter; // of the kernel
    bool reads, writes;
    SourceLoc loc;
  };
  void launch(const std::string &kernel, const std::vector<Use> &uses);
  // In order of their indices. `inner`: of a program that this one launches, which was checked by itself.
  void add_alloc(const ProgramAlloc &a, bool inner = false) {
    if (inner) used_.insert({true, allocs_.size()});
    allocs_.push_back(a);
  }

  void enter_loop() { loops_++; }
  void leave_loop();
  void enter_parallel() { shared_.clear(), parallel_ = true; }
  void leave_parallel() { parallel_ = false; }
  // if: what the other branch wrote is not written in this one.
  using Written = std::set<std::pair<bool, size_t>>;
  const Written &written() const { return written_; }
  void set_written(Written w) { written_ = std::move(w); }
  void join(const Written &w) { written_.insert(w.begin(), w.end()); }

  void finish(bool failed, const std::vector<ast::StmtPtr> &body); // outputs never written, temporaries never used

private:
  struct Read {
    std::pair<bool, size_t> memory;
    std::string name;
    SourceLoc loc;
  };
  void report(const Read &r);

  const ir::Function &header_;
  Diagnostics &diags_;
  Written written_, used_, reported_;
  std::vector<ProgramAlloc> allocs_;
  int64_t loops_ = 0;
  std::vector<Read> open_reads_; // in a loop: a launch behind them may write for the next iteration
  bool parallel_ = false;
  struct Shared {
    TensorView view;
    bool writes;
    SourceLoc loc;
  };
  std::vector<Shared> shared_; // of the parallel block
};

class ProgramInstance {
public:
  ProgramInstance(Program &program, const ast::Function &ast, const InstanceSpec &spec, const ir::Target *target,
                  Diagnostics &diags, const ProgramInstance *caller = nullptr);
  std::unique_ptr<HostProgram> run();

private:
  // statements
  void block(const std::vector<ast::StmtPtr> &stmts, std::vector<HostStmt> &out);
  void statement(const ast::Stmt &s, std::vector<HostStmt> &out);
  void let(const ast::Stmt &s, std::vector<HostStmt> &out);
  void if_statement(const ast::Stmt &s, std::vector<HostStmt> &out);
  void for_statement(const ast::Stmt &s, std::vector<HostStmt> &out);
  void alloc(const ast::Name &name, const ast::Expr &e, std::vector<HostStmt> &out);

  // scalars
  bool host_size(const ast::Expr &e, std::optional<ir::SizeExpr> &out); // Elaborator::host_size
  bool at_launch(const ast::Expr &e);                                   // whether its value is known at launch only
  // A compile-time value, a Size, or a floating-point Value that number_of() takes; poison after a report.
  SV scalar(const ast::Expr &e);
  // host_numbers.cpp: what is computed with floating-point numbers or by functions. It is elaborated like a kernel's,
  // and the ops are read back.
  bool needs_computing(const ast::Expr &e);
  SV computed(const ast::Expr &e);
  bool known_at_launch(const ast::Expr &e, SV &out); // Elaborator::host_value
  SV placeholder(ir::SizeExpr size, SourceLoc loc);
  std::optional<NumberExpr> number_of(const ir::Value *v) const;
  std::optional<ir::SizeExpr> size_of(const ir::Value *v) const;
  std::string fresh_symbol(const std::string &name);
  // The expression, or, if it is a large one, a symbol that a new statement gives its value: expressions of expressions
  // would grow beyond all bounds.
  ir::SizeExpr named(const ir::SizeExpr &e, const std::string &name, SourceLoc loc, std::vector<HostStmt> &out);

  // tensors
  const ir::Value *tensor_named(const ast::Expr &e); // null if the expression is no tensor's name
  // The variable, if the expression is a tensor that this variant does not have, or a part of one.
  Elaborator::Var *absent_tensor(const ast::Expr &e);
  std::optional<TensorView> view(const ast::Expr &e, bool &is_tensor); // nullopt after a report
  SV define_view(TensorView v, SourceLoc loc);
  std::optional<TensorView> part(TensorView base, const ast::Expr &index);

  // launches
  struct Given { // an argument and what it turned out to be
    const ast::Expr *expr = nullptr;
    std::optional<TensorView> view;
    bool absent = false;
  };
  void launch(const ast::Stmt &s, std::vector<HostStmt> &out);
  bool bind_arguments(const ast::Function &kernel, const ast::Expr &call, std::vector<Given> &given,
                      std::map<std::string, ir::SizeExpr> &sizes);
  bool bind_generics(const ast::Function &kernel, const ast::Expr &call, const std::vector<Given> &given,
                     InstanceSpec &spec);
  bool deduce(const ast::Function &kernel, const ast::Param &p, const Given &g, InstanceSpec &spec,
              const std::set<std::string> &said);
  static std::string instance_key(const ast::Function &ast, const InstanceSpec &spec);
  std::optional<size_t> kernel_instance(const ast::Function &kernel, InstanceSpec spec);
  // host_inline.cpp
  std::shared_ptr<HostProgram> program_instance(const ast::Function &ast, const InstanceSpec &spec, SourceLoc loc);
  void inline_program(const HostProgram &callee, const HostStmt &call, std::vector<HostStmt> &out);
  bool check_tensor(const ir::Function &f, const ir::Param &p, const TensorView &v, SourceLoc loc);
  bool bind_sizes(const ir::Function &f, const std::vector<LaunchArgument> &args,
                  std::map<std::string, ir::SizeExpr> &sizes, const ast::Expr &call, std::vector<ir::SizeExpr> &out);
  bool scalar_argument(const ir::Function &f, const ir::Param &p, const ast::Expr &e, LaunchArgument &out);

  Program &program_;
  const ast::Function &ast_;
  const ir::Target *target_;
  Diagnostics &diags_;
  std::unique_ptr<HostProgram> out_;
  Elaborator e_;
  Signature signature_;
  HostEffects effects_;
  std::map<const ir::Value *, TensorView> views_;
  std::map<const ir::Value *, ir::SizeExpr> placeholders_; // values of the elaborator that stand for sizes
  std::map<std::string, std::optional<size_t>> instances_; // by kernel and parameters; nothing: has errors
  std::map<std::string, std::shared_ptr<HostProgram>> programs_;
  std::set<std::string> symbols_; // that no counter may take
  const ProgramInstance *caller_; // null: not launched by another program
  bool in_parallel_ = false;
};

} // namespace tkc::sema

// Integer expressions over a kernel's run-time sizes: grids, tensor extents, `where` facts, byte and flop counts.
// They are evaluated by the launcher and exported as text, so they are data, not IR.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tkc::ir {

class SizeExpr {
public:
  enum class Op : uint8_t {
    Const,
    Sym,
    Add,
    Sub,
    Mul,
    Div,
    CDiv,
    Rem,
    Min,
    Max,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not,
    Select
  };
  SizeExpr() : SizeExpr(constant(0)) {}
  static SizeExpr constant(int64_t v);
  static SizeExpr symbol(std::string name);
  static SizeExpr make(Op op, SizeExpr a, SizeExpr b); // folds constants; `Not` takes a alone (b is ignored)
  static SizeExpr select(SizeExpr cond, SizeExpr yes, SizeExpr no); // c ? a : b; only the side that counts is evaluated

  Op op() const { return node_->op; }
  bool is_const() const { return node_->op == Op::Const; }
  int64_t value() const { return node_->value; }
  const std::string &name() const { return node_->name; }
  const SizeExpr &a() const { return node_->args[0]; }
  const SizeExpr &b() const { return node_->args[1]; }
  const SizeExpr &c() const { return node_->args[2]; } // of Select, whose a() is the condition
  bool operator==(const SizeExpr &o) const { return str() == o.str(); }

  using Lookup = std::function<std::optional<int64_t>(const std::string &)>;
  // Division by zero and unknown symbols give nullopt. Div truncates, CDiv rounds up; comparisons give 0 or 1.
  std::optional<int64_t> eval(const Lookup &lookup) const;
  void symbols(std::vector<std::string> &out) const; // appended without repeats
  SizeExpr substitute(const std::function<std::optional<SizeExpr>(const std::string &)> &by) const;
  std::string str() const; // C syntax; cdiv(a, b), min(a, b), max(a, b) as calls

private:
  struct Node {
    Op op;
    int64_t value;
    std::string name;
    std::vector<SizeExpr> args;
  };
  explicit SizeExpr(std::shared_ptr<const Node> n) : node_(std::move(n)) {}
  std::shared_ptr<const Node> node_;
};

} // namespace tkc::ir

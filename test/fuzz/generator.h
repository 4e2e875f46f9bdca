// The state of one program while it is generated. Expressions are made from the type that is wanted down to loads and
// constants (generate_expr.cpp, generate_leaf.cpp); statements are in generate_stmt.cpp, the frame of the kernel in
// generate.cpp.
#pragma once
#include "bound.h"
#include "choices.h"
#include "program.h"
#include <optional>
#include <string>
#include <vector>

namespace tkc::fuzz {

using Shape = std::vector<int64_t>;
int64_t elements(const Shape &s);

struct Val {
  std::string text; // a name, or an expression in parentheses
  DType dtype = DType::F32;
  Shape shape;
  Bound bound;
  bool variable = false; // may be assigned where its scope is
};

// A loop that the statement at hand stands in: `name` goes from 0 to a size in steps.
struct Counter {
  std::string name, size; // size: the run-time extent that it ends at
  int64_t step = 1, most = 0;
};

class Generator {
public:
  Generator(Choices &c, uint64_t seed, const GenerateOptions &o) : c_(c), options_(o) { program_.seed = seed; }
  Program run();

private:
  struct Param {
    std::string name, type; // as in the signature, without mode
    std::string mode;       // "", "out ", "inout "
  };
  static constexpr int64_t kMostElements = 8192;
  static constexpr size_t kMostParams = 14;

  // ---- types
  DType any_dtype(bool computing = true);
  DType float_dtype();
  Shape any_shape(int least_rank, int most_rank);
  int64_t dim();
  bool has_fp8() const { return program_.target != "sm_80" && program_.target != "sm_86"; }

  // ---- expressions: of this type; `exact` ones may be compared, converted to integers, and steer control flow
  Val expr(DType t, const Shape &s, int depth, bool exact);
  Val leaf(DType t, const Shape &s, bool exact);
  Val load(DType t, const Shape &s);
  Val constant(DType t, const Shape &s);
  Val scalar(DType t, int depth); // exact, the same in all threads
  Val condition(int depth);       // a bool scalar
  std::optional<Val> float_op(DType t, const Shape &s, int depth, bool exact);
  std::optional<Val> integer_op(DType t, const Shape &s, int depth);
  std::optional<Val> bool_op(const Shape &s, int depth);
  std::optional<Val> shape_op(DType t, const Shape &s, int depth, bool exact);
  std::optional<Val> reduction(DType t, const Shape &s, int depth, bool exact);
  std::optional<Val> scan(DType t, const Shape &s, int depth, bool exact);
  std::optional<Val> product(DType t, const Shape &s, int depth, bool exact);
  std::optional<Val> convert(DType t, const Shape &s, int depth, bool exact);
  Val broadcast_of(DType t, const Shape &s, int depth, bool exact); // may have extents of 1, or a lower rank
  // The same value with |value| <= most, by min and max.
  Val clamp(const Val &v, double most);
  // An operand such that `most` values of it can be multiplied and added exactly, if it is to be exact.
  Val fit(const Val &v, double most);
  // A binary op with the operands made smaller where the result would not be exact.
  Val arithmetic(const char *op, DType t, Val a, Val b, const Shape &s, bool exact);

  // ---- statements
  void statements(int depth, int most);
  void statement(int depth);
  void let_statement();
  void store_statement(const Val &v);
  void atomic_statement();
  void loop_statement(int depth);
  void while_statement(int depth);
  void if_statement(int depth);
  void insert_statement();
  void update_in_place();
  void update(Val &var, const std::optional<Val> &term, double trips);

  // ---- the frame
  Param &param(const std::string &prefix, DType t, const std::string &dims, const std::string &mode);
  void fill(const Param &p, DType t, Bound &bound);
  std::string size(int64_t most, bool even = false); // a new run-time size, or one that there is
  std::string name(const char *prefix) { return prefix + std::to_string(names_++); }
  void line(const std::string &text) { body_ += std::string(size_t(2 * indent_), ' ') + text + "\n"; }
  std::string pid_prefix() const; // "p0, p1, ": the block's own part of an output
  std::string grid_dims() const;  // "G0, G1, "

  Choices &c_;
  GenerateOptions options_;
  Program program_;
  std::vector<Param> params_;
  std::vector<int64_t> dims_; // extents that the kernel likes
  std::vector<Val> values_;   // in scope
  std::vector<Counter> counters_;
  std::vector<std::string> grid_; // extents, by name of a size
  std::vector<int64_t> tile_;     // rows and columns of a block's tile of a matrix, where positions follow the grid
  std::string body_;
  int indent_ = 1, names_ = 0;
  int budget_ = 60; // nodes of expressions that are left
};

std::string shape_text(const Shape &s); // "[4, 7]"
std::string number(DType t, double v);  // a literal
const char *dtype_text(DType t);

} // namespace tkc::fuzz

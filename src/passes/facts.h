// What is certain about integer scalars: their exact value as a polynomial over sizes, program ids, loop counters and
// numbers that are only known at run time; which numbers divide it; how it is bounded.
//
// Sources: the grid (0 <= program_id(a) < grid[a], and an empty grid runs nothing), `where` facts (M % 16 == 0, N <=
// 4096, and comparisons of sums of products), extents of parameters, loop bounds and steps, conditions of `if`. A
// result that may wrap in its dtype is a number of which only the range of the dtype and the powers of two that divide
// it are known. Facts are those of the function when the object was made; ops that are added later are unknown to it.
#pragma once
#include "ir/op_def.h"
#include "passes/prover.h"
#include <unordered_map>

namespace tkc::passes {

// The values of an integer dtype, or of bool.
struct IntRange {
  Int lo, hi;
};
IntRange int_range(DType t);

class Facts {
public:
  explicit Facts(const ir::Function &f);

  // The exact value of an integer scalar.
  Poly value(const ir::Value *v) const;
  // The extents of a tensor.
  Poly extent(const ir::Value *tensor, int64_t dim) const;
  // The largest number known to divide every value; kAny for the constant 0, which everything divides.
  static constexpr int64_t kAny = int64_t(1) << 30;
  int64_t divisor(const Poly &p) const;
  // Whenever `at` runs.
  bool nonnegative(const Poly &p, const ir::Op *at) const { return prover_.nonnegative(p, at->block); }
  bool at_most(const Poly &a, const Poly &b, const ir::Op *at) const { return nonnegative(b - a, at); }
  // 0 <= start and start + size <= extent for a dim of the tensor of a load, store or atomic that is not gathered.
  bool in_bounds(const ir::Op &access, int64_t dim) const;

  std::string str(const Poly &p) const { return prover_.str(p); }

private:
  // sizes and descriptions
  void symbols();
  void assume(const ir::SizeExpr &e); // a `where` fact
  Poly size(const ir::SizeExpr &e);
  Poly quotient(const Poly &x, const Poly &d, bool up, const ir::Block *at); // floor(x / d), or rounded up
  Poly choice(bool smaller, const Poly &a, const Poly &b, const ir::Block *at);
  Poly atom_in(const std::string &name, Int lo, Int hi);

  // ops
  void block(const ir::Block &b);
  void op(const ir::Op &op);
  void loop(const ir::Op &op);
  void branch(const ir::Op &op);
  void condition(const ir::Value *c, bool holds, const ir::Block *scope);
  Poly scalar(const ir::Op &op);
  Poly exact(const ir::Op &op);
  void subview(const ir::Op &op);
  void record_field(const ir::Op &op);
  Poly opaque(DType t, const std::string &name, Int divisor = 1); // any multiple of the divisor in the dtype's range
  bool fits(const Poly &p, DType t, const ir::Block *at) const;   // certainly in the dtype's range
  Poly growth(const ir::Op &loop, size_t carried, const Poly &t, int outside) const;
  void set_opaque(const ir::Value *v);

  const ir::Function &f_;
  Prover prover_;
  std::unordered_map<const ir::Value *, Poly> values_;
  std::unordered_map<const ir::Value *, std::vector<Poly>> extents_;
  std::map<std::string, Poly> symbols_;
  std::map<std::string, Poly> known_; // quotients and choices that were made before, by operands
  // The coordinates of a tile; of the first tile number that is asked for they are those of the program.
  const std::vector<Poly> &tile(const ir::Value *number);
  std::vector<Poly> new_program(); // atoms, one an axis

  std::vector<Poly> grid_, program_;
  std::unordered_map<const ir::Value *, std::vector<Poly>> tiles_;
  int depth_ = 0; // of loops
};

} // namespace tkc::passes

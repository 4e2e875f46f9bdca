// Which dims of a kernel's tiles are one and the same: the rows of a product are the rows of its result, of what is
// added to it and of the loop's carried tile that it becomes. A warp that owns a part of such a dim everywhere
// exchanges nothing, so the layout search starts from splits of classes rather than of single products.
#pragma once
#include "ir/ir.h"

namespace tkc::passes {

class DimClasses {
public:
  explicit DimClasses(ir::Function &f);
  // The class of a tile's dim: a number that all dims of the class share.
  int64_t of(const ir::Value *v, int64_t dim);

private:
  void join(const ir::Value *a, int64_t da, const ir::Value *b, int64_t db);
  void join_all(const ir::Value *a, const ir::Value *b); // every dim, of two tiles of one shape
  void visit(const ir::Op *op);
  int64_t find(int64_t id);
  std::vector<int64_t> parent_; // by value id and dim
};

} // namespace tkc::passes

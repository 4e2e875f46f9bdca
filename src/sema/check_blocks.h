// What a verify or bench block says about names, checked before any case runs.
#pragma once
#include "sema/program.h"

#include <functional>

namespace tkc::sema {

// Whether a parameter of an entry is a tensor of records, whose bytes no expression of a block can give or compare.
using HoldsRecords = std::function<bool(const ast::Function &, const ast::Param &)>;

// Every block names a kernel of the file, and each kernel has at most one of a kind. Inputs, outputs, tolerances,
// locations and the settings of cases name what the kernel has, once each.
// `entries`: the kernels and programs that the file can name, its own and those of its imports.
void check_blocks(const ast::File &file, const std::map<std::string, const ast::Function *> &entries,
                  const HoldsRecords &holds_records, Diagnostics &diags);

} // namespace tkc::sema

// What a verify or bench block says about names, checked before any case runs.
#pragma once
#include "sema/program.h"

namespace tkc::sema {

// Every block names a kernel of the file, and each kernel has at most one of a kind. Inputs, outputs, tolerances and
// the settings of cases name what the kernel has, once each.
void check_blocks(const ast::File &file, Diagnostics &diags);

} // namespace tkc::sema

// What else is wrong in a file whose declarations have errors already.
#pragma once
#include "sema/instance.h"

namespace tkc::sema {

// Reports the errors in the bodies of `entries` (kernels and programs), as far as they do not follow from those in
// `diags`: an entry that is not wholly there, or names a function that is not, is left out, and so is one that has a
// compile-time parameter without a value. Where a declaration or an import is missing, a name that nothing declares may
// be its, and is not reported.
void check_bodies(Program &program, const std::vector<const ast::Function *> &entries, const InstanceSpec &spec,
                  Diagnostics &diags);

} // namespace tkc::sema

// What must hold of a function at each stage. Passes may rely on it; the pass manager checks it after every change.
//
// Always:    the entry block has one argument per present parameter and size; every block ends with its one terminator;
//            operands are defined before their use in the same or an enclosing block; control ops have the operands,
//            arguments, yields and results that ir.h lists; attributes of README.md are there; the types of results are
//            those that inference gives; effects name operands of the right kind and `in` tensors are never written.
// typed:     no layouts, no conversions, scratch accesses or barriers.
// laid_out:  warps are a power of two; every tile value has a valid layout of its shape and of these warps; layouts
// agree
//            with the layout rule of each op, a product's operands with its instruction's fragments, and values that
//            cross control flow keep one layout.
// scheduled: no conversion that needs shared memory is left as convert_layout.
// allocated: every scratch buffer has an aligned offset within shared_bytes; between two accesses of overlapping bytes
// of
//            which one writes there is a barrier on every path, loops included.
#pragma once
#include "ir/ir.h"

namespace tkc::ir {

enum class Stage : uint8_t { typed, laid_out, scheduled, allocated };
const char *stage_name(Stage stage);

// One message per fault, empty if there is none. A fault in the structure ends the check: later rules rely on it.
std::vector<std::string> verify(const Function &f, Stage stage);

} // namespace tkc::ir

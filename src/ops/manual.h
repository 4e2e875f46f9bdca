// The manual of the ops, made from their definitions: `tkc ops`, and src/ops/README.md.
#pragma once
#include "ir/op_def.h"
#include <string>

namespace tkc::ops {

// An op's example without the lines that only set it up.
std::string shown_example(const ir::OpDef &d);
// Every op as Markdown, one section a family.
std::string manual();

} // namespace tkc::ops

// The parts of verify(), one file each.
#pragma once
#include "ir/op_def.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace tkc::ir {

class Faults {
public:
  template <typename... Args> void add(const Op &op, fmt::format_string<Args...> text, Args &&...args) {
    list.push_back(fmt::format("`{}`: {}", print_op(op), fmt::format(text, std::forward<Args>(args)...)));
  }
  template <typename... Args> void add(fmt::format_string<Args...> text, Args &&...args) {
    list.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  std::vector<std::string> list;
};

void verify_structure(const Function &f, Faults &faults);            // verify.cpp
void verify_types(const Function &f, Faults &faults);                // verify_types.cpp
void verify_layouts(const Function &f, Stage stage, Faults &faults); // verify_layouts.cpp
void verify_shared(const Function &f, Faults &faults);               // verify_shared.cpp

} // namespace tkc::ir

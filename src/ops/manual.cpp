#include "ops/manual.h"
#include <fmt/format.h>
#include <map>

namespace tkc::ops {

namespace {

const char *family_of(ir::OpKind kind) {
  switch (kind) {
#define TKC_OP(kind, family)                                                                                           \
  case ir::OpKind::kind:                                                                                               \
    return #family;
#include "ir/ops.def"
#undef TKC_OP
  }
  return "";
}

struct Section {
  const char *title, *text;
};
const std::map<std::string, Section> kSections = {
    {"shape", {"Making and reshaping tiles", ""}},
    {"elementwise",
     {"Elementwise", "Each element by itself. Operands of one dtype; shapes broadcast as in numpy. Floats are rounded "
                     "once to the dtype of the operands."}},
    {"reduce", {"Reductions", ""}},
    {"scan", {"Scans", ""}},
    {"mma", {"Matrix products", ""}},
    {"memory", {"Memory", ""}},
    {"atomic", {"Atomic updates", "Relaxed, at the scope of the GPU. Indices, tails and masks are those of `store`."}},
    {"control", {"The grid and control flow", ""}},
    {"debug", {"Looking at a running program", ""}},
    {"inline_ptx", {"PTX by hand", ""}},
    {"grad", {"Derivatives", ""}},
    {"persistent",
     {"The launch of a grid, made by passes", "Not written in source text; they appear in dumps of the IR."}},
    {"convert", {"Made by passes", "Not written in source text; they appear in dumps of the IR."}},
    {"role",
     {"Roles and rings", "Written as statements and methods of rings (`grammar/README.md`); the names are those of the "
                         "IR. The protocol that they make is proven at compile time."}},
    {"shared",
     {"Shared memory by hand",
      "For protocols that the compiler does not derive. Every op of this and the next three sections is executed by "
      "all threads of the role, or by one in `if elect()`; what a kernel makes of them is proven before it is compiled "
      "(`grammar/README.md`)."}},
    {"sync", {"Barriers and fences", ""}},
    {"copy", {"Asynchronous copies by hand", ""}},
    {"mbarrier",
     {"mbarriers", "Arrivals are counted by thread: a role of 4 warps arrives 128 times, in `if elect()` once."}},
    {"ring",
     {"Rings, made by passes", "What the loads of a pipelined loop and the items of rings become; they appear in dumps "
                               "of the IR."}},
};

std::string entry(const ir::OpDef &d) {
  std::string out = fmt::format("### {}\n\n`{}`\n\n{}\n", d.name.s, d.signature.s, d.doc.s);
  if (d.min_sm > 80) out += fmt::format("\nNeeds sm_{}.\n", d.min_sm);
  if (d.derivative.kind == ir::Derivative::Kind::Zero) out += fmt::format("\nDerivative 0: {}.\n", d.derivative.reason);
  return out + fmt::format("\n```\n{}```\n\n", shown_example(d));
}

} // namespace

std::string shown_example(const ir::OpDef &d) {
  std::string out;
  std::string_view rest = d.example.s;
  while (!rest.empty()) {
    size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    if (!line.starts_with("# ")) out += std::string(line) + "\n";
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  return out;
}

std::string manual() {
  std::string out = "# The ops of the tile language\n\n"
                    "Made by `tkc ops --markdown` from the definitions in this folder (a test compares). The language "
                    "around them is in `grammar/README.md`.\n\n"
                    "A signature names the parameters in order. `tile` is a tile or a scalar, `scalar` a value of rank "
                    "0, `view` an indexed tensor such as `x[i, :]`, `shared` a slot of shared memory, `barrier` an "
                    "mbarrier; the other kinds are compile-time. `tile?` and `= "
                    "value` mark what may be left out, `...` any number. Examples are parts of a kernel body with "
                    "tensors x and y.\n\n";
  std::vector<std::string> order;
  std::map<std::string, std::string> text;
  for (ir::OpKind k : ir::all_ops()) {
    std::string family = family_of(k);
    if (!text.count(family)) order.push_back(family);
    text[family] += entry(ir::def(k));
  }
  for (const std::string &family : order) {
    const Section &s = kSections.at(family);
    out += fmt::format("## {}\n\n", s.title);
    if (*s.text) out += std::string(s.text) + "\n\n";
    out += text[family];
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

} // namespace tkc::ops

#include "cli/cli.h"
#include "ops/manual.h"

namespace tkc::cli {

namespace {
int run(const std::string &name, bool markdown) {
  if (markdown && name.empty()) {
    fmt::print("{}", ops::manual());
    return kOk;
  }
  bool found = false;
  for (ir::OpKind k : ir::all_ops()) {
    const ir::OpDef &d = ir::def(k);
    if (!name.empty() && name != d.name.s && name != d.source.s) continue;
    found = true;
    if (!name.empty()) {
      fmt::print("{}\n  {}\n\n{}\n", d.signature.s, d.doc.s, ops::shown_example(d));
    } else {
      fmt::print("{:<16} {}\n", d.name.s, d.signature.s);
    }
  }
  if (found) return kOk;
  std::vector<std::string> names;
  for (ir::OpKind k : ir::all_ops()) names.emplace_back(ir::def(k).name.s);
  std::string near = nearest_name(name, names);
  fmt::print(stderr, "tkc: no op named `{}`{}\n", name, near.empty() ? "" : "; did you mean `" + near + "`?");
  return kDiagnostics;
}
} // namespace

void setup_ops(CLI::App &app, int &exit) {
  struct Options {
    std::string name;
    bool markdown = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App *sub = app.add_subcommand("ops", "list the ops, or explain one");
  sub->add_option("NAME", o->name, "an op");
  sub->add_flag("--markdown", o->markdown, "the whole manual")->excludes("NAME");
  sub->callback([o, &exit] { exit = run(o->name, o->markdown); });
}

} // namespace tkc::cli

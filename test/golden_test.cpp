// Golden tests: every file of test/golden/FAMILY is a case (golden/golden_case.h).
//
//   golden_test [--update] [PART...]     all cases, or those with one of the parts in FAMILY/NAME
//
// A full run also checks that every kind of diagnostic and every op occurs, and that every sample has a golden.
#include "golden/render.h"
#include "ir/op_def.h"
#include "runtime/file_io.h"
#include "support/diag_kinds.h"
#include "support/diagnostics.h"
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace tkc;
using namespace tkc::golden;
namespace fs = std::filesystem;

namespace {

struct Family {
  const char *name;
  Render render;
};
constexpr Family kFamilies[] = {{"diagnostics", render_diagnostics}, {"sema", render_sema},
                                {"passes", render_passes},           {"ptx", render_ptx},
                                {"samples", render_samples},         {"cli", render_cli}};

std::string current; // FAMILY/NAME, for a run that ends in a crash
void on_crash(int signal) {
  std::string text = fmt::format("FAILED {}: the compiler crashed (signal {})\n", current, signal);
  [[maybe_unused]] auto n = ::write(1, text.data(), text.size());
  ::_exit(1);
}

struct Count {
  int64_t passed = 0, failed = 0, updated = 0, assembled = 0, not_assembled = 0;
};

class Run {
public:
  Run(bool update, std::vector<std::string> parts) : update_(update), parts_(std::move(parts)) {}

  int all() {
    fs::path root = fs::path(TKC_SOURCE_DIR) / "test/golden";
    for (const Family &f : kFamilies) {
      std::vector<fs::path> files;
      for (const fs::directory_entry &e : fs::directory_iterator(root / f.name))
        if (e.path().extension() == ".tk") files.push_back(e.path());
      std::sort(files.begin(), files.end());
      fs::current_path(root / f.name); // cases name their imports by paths beside them
      for (const fs::path &p : files) one(f, p);
    }
    if (parts_.empty()) complete();
    fmt::print("golden: {} passed, {} failed", count_.passed, count_.failed);
    if (update_) fmt::print(", {} updated", count_.updated);
    fmt::print("\n");
    if (count_.not_assembled > 0)
      fmt::print("skipped: {} golden PTX not assembled (neither nvJitLink nor ptxas)\n", count_.not_assembled);
    return count_.failed == 0 && count_.passed > 0 ? 0 : 1;
  }

private:
  void fail(const std::string &name, const std::string &why) {
    fmt::print("FAILED {}: {}{}", name, why, why.ends_with('\n') ? "" : "\n");
    count_.failed++;
  }

  void one(const Family &family, const fs::path &path) {
    std::string name = fmt::format("{}/{}", family.name, path.filename().string());
    bool chosen = parts_.empty() || std::any_of(parts_.begin(), parts_.end(),
                                                [&](const std::string &p) { return name.find(p) != name.npos; });
    if (!chosen) return;
    current = name;
    std::string problem;
    std::optional<Case> c = read_case(path.string(), problem);
    if (!c) return fail(name, problem);
    for (const std::string &s : c->all("sample")) samples_.insert(s);
    Outcome out = family.render(*c);
    kinds_.insert(out.kinds.begin(), out.kinds.end());
    ops_.insert(out.ops.begin(), out.ops.end());
    count_.assembled += out.assembled;
    count_.not_assembled += out.not_assembled;
    for (const std::string &p : out.problems) fail(name, p);
    for (const std::string &k : out.known) fmt::print("known: {}: {}\n", name, k);
    if (!out.problems.empty()) return;
    if (out.failed != c->fails())
      return fail(name, (out.failed ? "ends in an error, but its name does not start with `fail_`:\n"
                                    : "its name starts with `fail_`, but there is no error:\n") +
                            out.text);
    if (out.text.empty()) return fail(name, "shows nothing");
    if (c->expected == out.text) {
      count_.passed++;
      return;
    }
    if (!update_) {
      if (!c->expected) return fail(name, "has no expected lines; scripts/test --update writes them");
      return fail(name, "differs:\n" + difference(*c->expected, out.text));
    }
    if (Status s = write_file(c->path, with_expected(*c, out.text)); !s) return fail(name, s.error());
    count_.passed++;
    count_.updated++;
  }

  void complete() {
    // No source that is known produces it: shapes that no layout rule covers.
    const std::set<DiagKind> of_faults = {DiagKind::no_layout};
    for (int64_t k = 0; k < diag_kind_count(); k++) {
      if (of_faults.count(DiagKind(k))) continue;
      std::string kind = diag_info(DiagKind(k)).name;
      std::replace(kind.begin(), kind.end(), '_', '-');
      if (!kinds_.count(kind)) fail("diagnostics", fmt::format("no case produces [{}]", kind));
    }
    using K = ir::OpKind;
    const std::set<K> of_persistence = {K::BlockId, K::NumBlocks, K::TileCoordinate}; // no source has them
    const std::set<K> of_references = {K::DynSlice, K::DynUpdate, K::Grad};
    for (K k : ir::all_ops())
      if (!of_references.count(k) && !of_persistence.count(k) && !ir::made_by_passes(k) &&
          !ops_.count(ir::def(k).name.s))
        fail("ptx", fmt::format("no case has the op {}", ir::def(k).name.s));
    for (const fs::directory_entry &e : fs::directory_iterator(fs::path(TKC_SOURCE_DIR) / "samples"))
      if (std::string s = "samples/" + e.path().filename().string();
          e.path().extension() == ".tk" && !samples_.count(s))
        fail("samples", fmt::format("{} has no golden", s));
  }

  bool update_;
  std::vector<std::string> parts_;
  Count count_;
  std::set<std::string> kinds_, samples_, ops_;
};

} // namespace

int main(int argc, char **argv) {
  bool update = false;
  std::vector<std::string> parts;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--update") == 0)
      update = true;
    else if (argv[i][0] == '-') {
      fmt::print(stderr, "golden_test: unknown option {}\n", argv[i]);
      return 2;
    } else {
      parts.push_back(argv[i]);
    }
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int signal : {SIGABRT, SIGFPE, SIGSEGV, SIGBUS, SIGILL}) std::signal(signal, on_crash);
  return Run(update, std::move(parts)).all();
}

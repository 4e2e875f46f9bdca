// Protocols by hand: every way to break those of test/features that these tests know is rejected with a run that shows
// it; what cannot be followed says so; and the table of grammar/README.md that maps the vocabulary of others to ours,
// and ours to PTX, is true.
#include "compile_kit.h"
#include "driver/verify.h"
#include "support/diag_kinds.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <regex>
#include <set>

using namespace tkc;

namespace {

struct Protocol {
  std::string name, file, text, check; // with its verify block
};

std::vector<Protocol> kernels() {
  std::vector<Protocol> out;
  for (const char *file : {"async.tk", "async_tma.tk"}) {
    std::string all = source_text(std::string("test/features/") + file);
    for (size_t at = all.find("\nkernel "); at != all.npos;) {
      size_t next = all.find("\nkernel ", at + 1), check = all.find("\nverify ", at);
      std::string text = all.substr(at + 1, check - at);
      size_t end = text.find_first_of("<(", 7);
      out.push_back({text.substr(7, end - 7), file, text, all.substr(check, all.find("\n}", check) + 2 - check)});
      at = next;
    }
  }
  return out;
}
const Protocol &kernel(const std::vector<Protocol> &all, const std::string &name) {
  for (const Protocol &k : all)
    if (k.name == name) return k;
  REQUIRE_MESSAGE(false, name);
  return all[0];
}

// "" if it compiles, else the first error with its notes.
std::string verdict(const std::string &text, const std::string &name, const char *target = "sm_90") {
  auto c = compile_text(text, name, target);
  if (c->kernel) return "";
  const Diagnostic &d = c->diags.all().at(0);
  std::string out = d.text + (d.kind == DiagKind::protocol_broken     ? " [broken]"
                              : d.kind == DiagKind::unproven_protocol ? " [unproven]"
                                                                      : " [other]");
  for (const auto &note : d.notes) out += "\n" + note.text;
  return out;
}
bool rejected(const std::string &verdict) {
  return verdict.find("[broken]") != verdict.npos && verdict.find("the shortest run that shows it") != verdict.npos;
}
// What the proof accepts runs, whatever the schedule.
bool runs(const std::string &text, const Protocol &k) {
  SourceManager sources;
  Diagnostics diags(sources);
  auto program = sema::Program::load(sources.add(k.name + ".tk", text + k.check), diags);
  REQUIRE(program);
  driver::VerifyOptions o;
  o.executor = driver::Executor::Emu;
  o.compile.target = ir::find_target("sm_90");
  o.emu_schedules = 6;
  bool good = true;
  driver::verify_kernel(*program, *program->find(k.name, ast::FunctionKind::Kernel), *program->check_for(k.name, false),
                        o, diags, [&](const driver::CaseResult &r) {
                          INFO(r.error);
                          CHECK(r.pass());
                          good &= r.pass();
                        });
  return good;
}

struct Change {
  const char *kernel, *from, *to, *what; // `what`: part of the message
};

// Where nothing waits for it any more, or nothing is left to be done.
const std::set<std::pair<std::string, std::string>> kNotNeeded = {
    {"met", "mbarrier.wait_parity(b, 0);"},                          // the last thing that the kernel does
    {"copied", "mbarrier.arrive_copies(full[slot], noinc = true);"}, // of the other variant
    {"reduced", "if elect() { tma_prefetch(x[i :+ 8, :]); }"},       // a hint
    {"reduced", "tma_reduce(sums[:, :], s);"},                       // another result, but no race
    {"reduced", "tma_reduce(most[:, :], n, how = max);"},
};

} // namespace

TEST_CASE("protocols by hand without one of their statements are rejected") {
  std::set<std::pair<std::string, std::string>> met;
  int64_t mutants = 0;
  for (const Protocol &k : kernels()) {
    CAPTURE(k.name);
    CHECK(verdict(k.text, k.name) == "");
    for (size_t begin = 0; begin < k.text.size();) {
      size_t end = k.text.find('\n', begin) + 1;
      std::string line = k.text.substr(begin, end - begin), code = line.substr(0, line.find("//"));
      std::string mutant = k.text.substr(0, begin) + k.text.substr(end);
      begin = end;
      static const std::regex statement(R"(mbarrier\.|copy_async|_group|block_barrier|fence_proxy|tma_)");
      if (!std::regex_search(code, statement) ||
          std::count(code.begin(), code.end(), '{') != std::count(code.begin(), code.end(), '}'))
        continue;
      size_t first = code.find_first_not_of(' ');
      std::string shown = code.substr(first, code.find_last_not_of(" \n") + 1 - first);
      CAPTURE(shown);
      // Its result, or its being the only one that writes, is a matter of other errors.
      if (shown.starts_with("let state") || shown.starts_with("tma_store")) continue;
      mutants++;
      if (kNotNeeded.count({k.name, shown})) {
        met.insert({k.name, shown});
        CHECK(verdict(mutant, k.name) == "");
        continue;
      }
      std::string v = verdict(mutant, k.name);
      CHECK_MESSAGE(rejected(v), v);
    }
  }
  CHECK(mutants > 60);
  CHECK(met == kNotNeeded);
}

TEST_CASE("protocols by hand with one thing changed are rejected") {
  const Change kChanges[] = {
      // groups
      {"groups", "wait_group(1)", "wait_group(2)", "reads `s[0]` while a copy to it is in flight"},
      {"groups", "load(s[c % 2])", "load(s[(c + 1) % 2])", "reads `s[1]` while a copy to it is in flight"},
      {"groups", "copy_async(s[(c + 1) % 2]", "copy_async(s[c % 2]", "while a copy to it is in flight"},
      // counts of arrivals
      {"handed", "mbarrier.init(full[i], 64)", "mbarrier.init(full[i], 32)", "before make: the other warp has written"},
      {"handed", "mbarrier.init(full[i], 64)", "mbarrier.init(full[i], 65)", "deadlock"},
      {"handed", "mbarrier.init(empty[i], 128)", "mbarrier.init(empty[i], 64)", "96 arrivals"},
      {"handed", "mbarrier.arrive(empty[c % S]);", "mbarrier.arrive(empty[c % S], count = 2);", "192 arrivals"},
      {"met", "mbarrier.init(b, 128)", "mbarrier.init(b, 64)", "96 arrivals"},
      {"bulk", "mbarrier.init(full[i], 1)", "mbarrier.init(full[i], 2)", "deadlock"},
      {"piped", "mbarrier.init(full[i], 1)", "mbarrier.init(full[i], 32)", "deadlock"},
      // parities
      {"handed", "(c / S + 1) % 2", "c / S % 2", "deadlock"},
      {"handed", "(c / S) & 1", "(c / S + 1) & 1", "nothing was written"},
      {"handed", "(c / S) & 1", "(c / (S + 1)) & 1", "arrivals and barriers do not agree"},
      {"handed", "(c / S) & 1", "(c / S) % 3", "a parity is 0 or 1, not 2"},
      {"copied", "parity = parity ^ 1;", "", "while a copy to it is in flight"},
      {"copied", "var parity = 1", "var parity = 0", "deadlock"},
      {"bulk", "c / S % 2", "c % 2", "nothing was written"},
      {"piped", "full[c % S], c / S % 2", "full[c % S], (c / S + 1) % 2", "nothing was written"},
      {"piped", "(c / S + 1) % 2);\n            if elect", "c / S % 2);\n            if elect", "deadlock"},
      // slots
      {"handed", "mbarrier.arrive(full[c % S]);", "mbarrier.arrive(full[(c + 1) % S]);", "deadlock"},
      {"handed", "store(s[c % S], exp", "store(s[(c + 1) % S], exp", "nothing was written"},
      {"handed", "load(s[c % S])", "load(s[c])", "slot 3 of 3"},
      {"stored", "s[c % 2]);\n            bulk", "s[(c + 1) % 2]);\n            bulk", "nothing was written"},
      // bytes of transactions
      {"bulk_tx", "mbarrier.expect_tx(full, 4 * N * 4)", "mbarrier.expect_tx(full, 4 * N * 2)", "deadlock"},
      {"bulk_tx", "mbarrier.expect_tx(full, 4 * N * 4)", "mbarrier.expect_tx(full, 4 * N * 8)", "deadlock"},
      {"piped", "BM * N * 2", "BM * N", "deadlock"},
      {"piped", "BM * N * 2", "BM * N * 4", "deadlock"},
      // order of statements
      {"handed", "let t = load(s[c % S]);\n            mbarrier.arrive(empty[c % S]);",
       "mbarrier.arrive(empty[c % S]);\n            let t = load(s[c % S]);", "may still be reading"},
      {"bulk", "copy_async_bulk(s[c % S], x[i :+ 4, :], full[c % S]);\n            mbarrier.arrive(full[c % S]);",
       "mbarrier.arrive(full[c % S]);\n            copy_async_bulk(s[c % S], x[i :+ 4, :], full[c % S]);",
       "while a copy to it is in flight"},
      {"piped", "let a = load(s[c % S]);\n            fence_proxy_async();",
       "fence_proxy_async();\n            let a = load(s[c % S]);", "without a proxy fence behind the read"},
      {"stored", "bulk_wait_group(1, read = true)", "bulk_wait_group(2, read = true)",
       "a bulk copy may still be reading"},
      // arrivals of copies
      {"copied", "mbarrier.arrive_copies(full[slot]);\n                mbarrier.arrive(full[slot]);",
       "mbarrier.arrive(full[slot]);\n                mbarrier.arrive_copies(full[slot]);", ""},
      {"copied", "NOINC: bool = false", "NOINC: bool = true, UNUSED: int = 0", nullptr},
      {"copied", "mbarrier.arrive_copies(full[slot]);\n                mbarrier.arrive(full[slot]);",
       "mbarrier.arrive_copies(full[slot], noinc = true);\n                mbarrier.arrive(full[slot]);", ""},
      // control
      {"handed", "role take warps 4 {\n        for c in 0 : cdiv(M, 8) {",
       "role take warps 4 {\n        for c in 0 : cdiv(M, 8) + 1 {", "deadlock"},
      {"met", "mbarrier.wait(b, state);", "mbarrier.wait(b, state); mbarrier.wait(b, state);", "was waited for before"},
      // the fence may come behind the barrier as well
      {"stored", "fence_proxy_async();\n        block_barrier();", "block_barrier();\n        fence_proxy_async();",
       nullptr},
      // carried by hand
      {"handed", "(c / S) & 1", "(c % (2 * S) >= S ? 1 : 0)", nullptr},
  };
  std::vector<Protocol> all = kernels();
  for (const Change &c : kChanges) {
    const Protocol &k = kernel(all, c.kernel);
    CAPTURE(c.kernel);
    CAPTURE(c.to);
    std::string text = k.text;
    size_t at = text.find(c.from);
    REQUIRE_MESSAGE(at != text.npos, c.from);
    text.replace(at, std::string(c.from).size(), c.to);
    std::string v = verdict(text, k.name);
    if (!c.what) {
      CHECK_MESSAGE(v == "", v);
      CHECK(runs(text, k));
      continue;
    }
    CHECK_MESSAGE(rejected(v), v);
    CHECK_MESSAGE(v.find(c.what) != v.npos, v);
  }
}

TEST_CASE("what the proof cannot follow says so") {
  std::vector<Protocol> all = kernels();
  const Change kChanges[] = {
      {"handed", "(c / S) & 1", "c * M % 2", "this parity cannot be followed"},
      {"handed", "load(s[c % S])", "load(s[M % S])", "which slot of `s` this is cannot be followed"},
      {"copied", "var slot = 0;", "var slot = M % 2;", "which slot of `empty` this is cannot be followed"},
  };
  for (const Change &c : kChanges) {
    const Protocol &k = kernel(all, c.kernel);
    CAPTURE(c.to);
    std::string text = k.text;
    size_t at = text.find(c.from);
    REQUIRE(at != text.npos);
    text.replace(at, std::string(c.from).size(), c.to);
    std::string v = verdict(text, k.name);
    CHECK_MESSAGE(v.find("[unproven]") != v.npos, v);
    CHECK_MESSAGE(v.find(c.what) != v.npos, v);
  }
}

TEST_CASE("the table of the vocabulary is true") {
  // | there | here | sm_80 | sm_90 | sm_120 | kernel |
  std::vector<Protocol> all = kernels();
  std::istringstream page(source_text("grammar/README.md"));
  std::set<std::string> theirs;
  bool inside = false;
  int64_t rows = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| CubeCL |")) {
      inside = true;
      std::getline(page, line); // the rule
      continue;
    }
    if (!line.starts_with("|")) inside = false;
    if (!inside) continue;
    CAPTURE(line);
    std::vector<std::string> cells;
    for (size_t at = 1; at < line.size();) {
      size_t end = line.find('|', at);
      cells.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    REQUIRE(cells.size() == 6);
    auto quoted = [](const std::string &cell) {
      std::vector<std::string> out;
      for (size_t at = cell.find('`'); at != cell.npos;) {
        size_t end = cell.find('`', at + 1);
        out.push_back(cell.substr(at + 1, end - at - 1));
        at = cell.find('`', end + 1);
      }
      return out;
    };
    for (const std::string &name : quoted(cells[0])) theirs.insert(name);
    rows++;
    const Protocol &k = kernel(all, quoted(cells[5]).at(0));
    for (const std::string &op : quoted(cells[1]))
      CHECK_MESSAGE(k.text.find(op.substr(0, op.find('('))) != k.text.npos, op);
    const char *targets[] = {"sm_80", "sm_90", "sm_120"};
    for (int t = 0; t < 3; t++) {
      const std::string &cell = cells[size_t(2 + t)];
      CAPTURE(targets[t]);
      auto c = compile_text(k.text, k.name, targets[t]);
      if (cell.find("error") != cell.npos) {
        std::string op = quoted(cells[1]).at(0);
        op = op.substr(0, op.find('('));
        std::replace(op.begin(), op.end(), '.', '_');
        CHECK(!c->kernel);
        CHECK_MESSAGE(c->diags.render_all().find(op + "` needs sm_90 or later, the target is sm_80") !=
                          std::string::npos,
                      c->diags.render_all());
        continue;
      }
      std::string ptx_cell = cell.find("same") != cell.npos ? cells[size_t(1 + t)] : cell;
      if (ptx_cell.find("same") != ptx_cell.npos) ptx_cell = cells[size_t(t)];
      std::string messages = c->diags.render_all();
      REQUIRE_MESSAGE(c->kernel, messages);
      if (cell.find("nothing") != cell.npos) {
        for (const std::string &instruction : quoted(cells[3]))
          CHECK_MESSAGE(c->kernel->code.ptx.find(instruction) == std::string::npos, instruction);
        continue;
      }
      CHECK(!quoted(ptx_cell).empty());
      for (const std::string &instruction : quoted(ptx_cell))
        CHECK_MESSAGE(c->kernel->code.ptx.find(instruction) != std::string::npos, instruction);
    }
  }
  CHECK(rows >= 18);
  const std::set<std::string> kTheirs = {"InitOp",
                                         "MemCopyAsyncOp",
                                         "MemCopyAsyncTxOp",
                                         "CopyAsyncOp",
                                         "ArriveOp",
                                         "ArriveAndExpectTxOp",
                                         "ExpectTxOp",
                                         "CommitCopyAsyncOp",
                                         "WaitOp",
                                         "WaitParityOp",
                                         "ArriveAndWaitOp",
                                         "SyncAsyncProxy",
                                         "TmaLoadOp",
                                         "TmaStoreOp",
                                         "tma.commit_group",
                                         "tma.wait_group",
                                         "tma.wait_group_read",
                                         "plane.elect"};
  for (const std::string &name : kTheirs) CHECK_MESSAGE(theirs.count(name), name);
}

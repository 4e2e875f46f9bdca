// build/tkc from outside: usage, exit codes, crash report, interruption. Its subcommands are in test/cli/.
#include "cli/kit.h"
#include <csignal>
#include <doctest/doctest.h>

using namespace tkc::test;

TEST_CASE("usage: exit 2 and a message on stderr; help and version on stdout") {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"compile"},
      {"compile", file, "--frobnicate"},
      {"compile", file, "--emit", "hex"},
      {"compile", file, "--emit", "ptx,llvm"},
      {"compile", file, "--emit", "ptx", "--stop-after", "sema"},
      {"compile", file, "--stop-after", "semma"},
      {"compile", file, "--skip-pass", "infer_layouts"},
      {"compile", file, "--maxnreg", "300"},
      {"compile", file, "-MD"},
      {"compile", file, "-MF", f / "d"},
      {"compile", file, "--arch", "sm_1"},
      {"compile", file, "--diagnostics", "xml"},
      {"run", file, "--size", "N"},
      {"run", file, "--input", "x"},
      {"run", file, "--input", "x=a.txt"},
      {"run", file, "--size", "N=1", "--size", "N=2"},
      {"run", file, "--arg", "i32:1"},
      {"run", "x.ptx", "--arg", "i32"},
      {"run", "x.ptx", "--arg", "i8:200"},
      {"run", "x.ptx", "--arg", "out:f32[4]"},
      {"run", "x.ptx", "--grid", "1,2,3,4"},
      {"run", "x.ptx", "--size", "N=1"},
      {"run", "x.ptx", "--device", "gpu"},
      {"verify", file, "--timeout", "-1"},
      {"verify", file, "--device", "tpu"},
      {"bench"},
      {"bench", file, "--rounds", "0"},
      {"bench", "--compare", "a.json"},
      {"ab"},
      {"ab", file},
      {"ab", file, "--a", "BN=64", "--rounds", "5"},
      {"ab", file, "--a", "BN=64", "--require", "faster"},
  };
  for (const auto &words : wrong) {
    Ran r = run_tkc(words);
    std::string line;
    for (const std::string &w : words) line += w + " ";
    CAPTURE(line);
    CAPTURE(r.err);
    CHECK(r.code == 2);
    CHECK(!r.err.empty());
    CHECK(r.out.empty());
  }
  CHECK(contains(run_tkc({"compile", file, "--stop-after", "semma"}).err, "there is no pass `semma`"));
  CHECK(contains(run_tkc({"compile", file, "--arch", "sm_1"}).err, "sm_120a"));
  Ran version = run_tkc({"--version"});
  CHECK(version.code == 0);
  CHECK(contains(version.out, "LLVM 22"));
}

TEST_CASE("the help of every subcommand names its options") {
  struct Row {
    std::string name;
    std::vector<std::string> options;
  };
  const std::vector<std::string> common = {"FILE", "--kernel", "--arch", "--param", "--diagnostics"};
  const Row rows[] = {
      {"compile",
       {"--emit", "--output", "--stop-after", "--dump-ir", "--skip-pass", "--bisect-passes", "--maxnreg",
        "--time-report", "--verbose", "-MD", "-MF", "--list-targets", "--image"}},
      {"run",
       {"--device", "--size", "--scalar", "--input", "--output", "--expect", "--seed", "--emu-seed", "--timeout",
        "--arg", "--grid", "--block", "--cluster", "--shared", "--plan", "--assume", "--graph"}},
      {"verify",
       {"--device", "--case", "--check-grad", "--seed", "--emu-seed", "--timeout", "--json", "--maxnreg", "--assume",
        "--graph", "--baseline"}},
      {"bench",
       {"--case", "--rounds", "--timeout", "--json", "--compare", "--threshold", "--maxnreg", "--assume", "--graph",
        "--stages", "--no-ceilings", "--baseline"}},
      {"ab",
       {"FILE_B", "--a", "--b", "--case", "--rounds", "--seed", "--require", "--samples", "--timeout", "--json",
        "--baseline"}},
  };
  Ran all = run_tkc({"--help"});
  CHECK(all.code == 0);
  CHECK(contains(all.out, "Exit codes"));
  for (const Row &row : rows) {
    CHECK(contains(all.out, row.name));
    Ran r = run_tkc({row.name, "--help"});
    CHECK(r.code == 0);
    for (const auto *list : {&common, &row.options})
      for (const std::string &o : *list) CHECK_MESSAGE(contains(r.out, o), row.name, " ", o);
  }
  CHECK(contains(all.out, "ops"));
  CHECK(run_tkc({"ops"}).code == 0);
  CHECK(contains(run_tkc({"ops", "mma"}).out, "mma"));
  CHECK(run_tkc({"ops", "mmma"}).code == 1);
}

TEST_CASE("exit 1: what is wrong with a file, in both forms") {
  Folder f;
  std::string bad = f.write("bad.tk", "kernel k(x: tensor<f32>[N]) grid (1) { let y = z; }\n");
  Ran r = run_tkc({"compile", bad});
  CHECK(r.code == 1);
  CHECK(r.out.empty());
  CHECK(contains(r.err, "bad.tk:1:"));
  CHECK(contains(r.err, "[unknown-name]"));
  Ran json = run_tkc({"compile", bad, "--diagnostics", "json"});
  CHECK(json.code == 1);
  CHECK(json.err.starts_with("{"));
  CHECK(contains(json.err, "\"kind\": \"unknown-name\""));
  std::string good = f.write("good.tk", kScale);
  CHECK(run_tkc({"compile", f / "none.tk"}).code == 1);
  CHECK(contains(run_tkc({"compile", f.path.string()}).err, "[unreadable-file]"));
  CHECK(contains(run_tkc({"compile", good, "-k", "scal"}).err, "did you mean `scale`?"));
  CHECK(contains(run_tkc({"compile", good, "-P", "BM=1"}).err, "[unknown-parameter]"));
  CHECK(contains(run_tkc({"verify", good, "--device", "interp", "--case", "three"}).err,
                 "no verify block has a case `three`"));
  CHECK(run_tkc({"verify", good, "--device", "interp", "--case", "three"}).code == 1);
}

TEST_CASE("exit 70: every fault of tkc leaves a report that reproduces it") {
  for (const char *kind : {"check", "abort", "exception", "segv", "stack", "llvm"}) {
    CAPTURE(kind);
    Folder f, reports;
    f.write("lib/common.tk", "const TWO = 2.0;\n");
    f.write("main/k.tk", "import \"../lib/common.tk\";\n" + std::string(kScale));
    HowToRun how;
    how.folder = f.path / "main";
    how.environment = {"TMPDIR=" + reports.path.string()};
    Ran r = run_tkc({"compile", "k.tk", "-P", "BN=64", "--inject-fault", kind, "-o", "out file.ptx"}, how);
    CAPTURE(r.err);
    CHECK(r.code == 70);
    CHECK(r.out.empty());
    CHECK(contains(r.err, "tkc: internal error: "));
    CHECK(!std::filesystem::exists(f / "main/out file.ptx"));
    std::vector<std::string> files = reports.files();
    REQUIRE(files.size() == 5);
    std::string folder = reports / files[0].substr(0, files[0].find('/'));
    CHECK(contains(r.err, folder));
    std::string report = read_text(folder + "/report.txt");
    CHECK(contains(report, "message  "));
    CHECK(contains(report, "version  tkc "));
    CHECK(contains(report, "compile k.tk -P BN=64 --inject-fault " + std::string(kind) + " -o 'out file.ptx'"));
    CHECK(contains(report, "folder   " + (f / "main")));
    CHECK(read_text(folder + "/sources/main/k.tk") == read_text(f / "main/k.tk"));
    CHECK(read_text(folder + "/sources/lib/common.tk") == "const TWO = 2.0;\n");
    CHECK(contains(read_text(folder + "/last.tkir"), "scale"));
    HowToRun again;
    again.environment = {"TMPDIR=" + reports.path.string(), "TKC=" + tkc_program()};
    Ran second = run_program("/bin/sh", {folder + "/rerun.sh"}, again);
    CHECK(second.code == 70);
  }
  // The report of a source from standard input.
  Folder reports;
  HowToRun how;
  how.input = kScale;
  how.environment = {"TMPDIR=" + reports.path.string()};
  CHECK(run_tkc({"compile", "-", "--inject-fault", "check"}, how).code == 70);
  bool kept = false;
  for (const std::string &name : reports.files()) kept |= name.ends_with("/sources/stdin.tk");
  CHECK(kept);
  // Where no report can be written, the code is the same.
  how.environment = {"TMPDIR=/dev/null"};
  CHECK(run_tkc({"compile", "-", "--inject-fault", "segv"}, how).code == 70);
}

TEST_CASE("exit 5: a kernel that does not end is stopped on every executor") {
  Folder f;
  std::string file = f.write("spin.tk", kSpin);
  for (const char *device : {"interp", "emu"}) {
    CAPTURE(device);
    Ran r = run_tkc({"verify", file, "--device", device, "--timeout", "0.3", "--json", f / "r.json"});
    CHECK(r.code == 5);
    CHECK(contains(r.err, "spin.one: stopped after the time limit of 0.3 s"));
    CHECK(contains(r.out, "0 passed, 1 failed, 0 skipped on the "));
    CHECK(contains(read_text(f / "r.json"), "\"status\": \"error\""));
    Ran one = run_tkc({"run", file, "--device", device, "--size", "N=4", "--timeout", "0.3"});
    CHECK(one.code == 5);
    CHECK(contains(one.err, "time limit of 0.3 s"));
    CHECK(one.out.empty());
  }
}

TEST_CASE("exit 130: Ctrl-C ends long work with what there is") {
  Folder f;
  std::string file = f.write("both.tk", kScale + std::string(kSpin));
  for (const char *device : {"interp", "emu"}) {
    CAPTURE(device);
    HowToRun how;
    how.meanwhile = [](int pid, const std::string &out) {
      wait_for_text(out, "scale.two");
      ::kill(pid, SIGINT);
    };
    Ran r = run_tkc({"verify", file, "--device", device, "--json", f / "r.json"}, how);
    CAPTURE(r.err);
    CHECK(r.code == 130);
    CHECK(contains(r.out, "2 passed, 0 failed, 0 skipped, interrupted on the "));
    CHECK(contains(read_text(f / "r.json"), "\"interrupted\": true"));
    how.meanwhile = [](int pid, const std::string &) {
      wait_for_handler(pid);
      ::kill(pid, SIGINT);
    };
    Ran one = run_tkc({"run", file, "-k", "spin", "--size", "N=4", "--device", device}, how);
    CHECK(one.code == 130);
    CHECK(contains(one.err, "tkc: interrupted"));
  }
}

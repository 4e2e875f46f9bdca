// verify, bench and ab from outside.
#include "cli/kit.h"
#include "runtime/cuda.h"
#include "runtime/json_reader.h"
#include <doctest/doctest.h>

using namespace tkc;
using namespace tkc::test;

TEST_CASE("verify: exit 0 and 3, the last line, JSON") {
  Folder f;
  std::string good = f.write("scale.tk", kScale), wrong = f.write("wrong.tk", kWrong);
  struct Row {
    const char *device, *last;
  };
  for (const Row &row : {Row{"interp", "2 passed, 0 failed, 0 skipped on the interpreter\n"},
                         Row{"emu", "2 passed, 0 failed, 0 skipped on the PTX emulator, sm_120\n"}}) {
    Ran r = run_tkc({"verify", good, "--device", row.device, "--json", f / "r.json"});
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    CHECK(r.out.ends_with(row.last));
    CHECK(contains(r.out, "    y: ok  f32[100]"));
    CHECK(!contains(r.out, "\n\n"));
    Result<JsonValue> j = parse_json(read_text(f / "r.json"));
    REQUIRE(j.ok());
    CHECK(j->find("passed")->integer == 2);
    CHECK(j->find("cases")->items.size() == 2);
    CHECK(j->find("cases")->items[0].find("outputs")->items[0].find("pass")->boolean);
  }
  Ran one = run_tkc({"verify", good, "--device", "interp", "--case", "two", "-P", "BN=32", "--seed", "7"});
  CHECK(one.code == 0);
  CHECK(contains(one.out, "1 passed"));
  for (const char *device : {"interp", "emu"}) {
    Ran r = run_tkc({"verify", wrong, "--device", device, "--json", f / "w.json"});
    CHECK(r.code == 3);
    CHECK(contains(r.out, "wrong.one                        FAILED"));
    CHECK(contains(r.out, "\n    y: MISMATCH"));
    CHECK(contains(r.out, "\n      first at [0]"));
    CHECK(contains(r.out, "0 passed, 1 failed, 0 skipped on the "));
    CHECK(contains(read_text(f / "w.json"), "\"status\": \"mismatch\""));
    CHECK(contains(r.out, " = N 0, in half 0: got "));
    Result<JsonValue> j = parse_json(read_text(f / "w.json"));
    REQUIRE(j.ok());
    const JsonValue *first = j->find("cases")->items[0].find("outputs")->items[0].find("first");
    REQUIRE(first);
    CHECK(first->find("index")->items[0].integer == 0);
    CHECK(first->find("dims")->find("N")->integer == 0);
    CHECK(first->find("place")->find("half")->integer == 0);
  }
  CHECK(run_tkc({"verify", good, "--device", "interp", "--json", f.path.string()}).code == 1);
  Ran checked = run_tkc({"verify", good, "--device", "interp", "--check-grad", "--json", f / "g.json"});
  CHECK(checked.code == 0);
  Result<JsonValue> j = parse_json(read_text(f / "g.json"));
  REQUIRE(j.ok());
  const JsonValue *gradients = j->find("cases")->items[0].find("gradients");
  REQUIRE(gradients);
  CHECK(gradients->items.size() == 1);
  CHECK(gradients->items[0].find("name")->text == "x");
  CHECK(gradients->items[0].find("pass")->boolean);
}

TEST_CASE("exit 4: what needs a GPU says so" * doctest::skip(cu::has_gpu())) {
  Folder f;
  std::string file = f.write("scale.tk", kScale);
  const std::vector<std::vector<std::string>> lines = {
      {"verify", file, "--device", "gpu"},
      {"run", file, "--device", "gpu", "--size", "N=4", "--scalar", "a=1"},
      {"bench", file},
      {"bench", file, "-P", "BN=64,128"},
      {"ab", file, "--a", "BN=64", "--b", "BN=128"},
      {"compile", file, "--arch", "native"}};
  for (const auto &words : lines) {
    Ran r = run_tkc(words);
    CAPTURE(words[0]);
    CHECK(r.code == 4);
    CHECK(r.out.empty());
    CHECK(r.err.starts_with("tkc: "));
  }
  CHECK(contains(run_tkc({"verify", file}).out, "on the PTX emulator"));
}

TEST_CASE("bench --compare: exit 6 past the threshold") {
  Folder f;
  auto file = [&](const std::string &name, double a, double b, bool second = true) {
    std::string text =
        "{\"format\": \"tkc-bench\", \"version\": 1, \"results\": [\n{\"kernel\": \"k\", \"case\": \"c\", "
        "\"params\": {\"BM\": \"4\"}, \"seconds\": " +
        std::to_string(a) + "}";
    if (second) text += ",{\"kernel\": \"l\", \"case\": \"c\", \"params\": {}, \"seconds\": " + std::to_string(b) + "}";
    return f.write(name, text + "]}");
  };
  std::string old = file("old.json", 0.010, 0.020), same = file("same.json", 0.0101, 0.0199),
              slow = file("slow.json", 0.010, 0.022), gone = file("gone.json", 0.010, 0, false);
  Ran r = run_tkc({"bench", "--compare", old, same});
  CHECK(r.code == 0);
  CHECK(contains(r.out, "k.c BM=4"));
  CHECK(contains(r.out, "+1.00%"));
  CHECK(contains(r.out, "nothing is slower by more than 5 %"));
  CHECK(run_tkc({"bench", "--compare", old, same, "--threshold", "0.5"}).code == 6);
  r = run_tkc({"bench", "--compare", old, slow});
  CHECK(r.code == 6);
  CHECK(contains(r.out, "+10.00%  slower"));
  CHECK(run_tkc({"bench", "--compare", old, slow, "--threshold", "11"}).code == 0);
  r = run_tkc({"bench", "--compare", old, gone});
  CHECK(r.code == 6);
  CHECK(contains(r.out, "not measured"));
  CHECK(run_tkc({"bench", "--compare", slow, old}).code == 0);
  CHECK(run_tkc({"bench", "--compare", old, f.write("x.json", "[1]")}).code == 1);
  CHECK(run_tkc({"bench", "--compare", old, f / "none.json"}).code == 1);
}

TEST_CASE("ab --samples: the verdict, and exit 6 where the interval does not satisfy --require") {
  Folder f;
  auto samples = [](double base, double step) {
    std::string text = "[";
    for (int i = 0; i < 20; i++) text += (i ? ", " : "") + std::to_string(base + step * (i * 7 % 20));
    return text + "]";
  };
  std::string a = f.write("a.json", samples(1.2, 0.001)),
              b = f.write("b.json", "{\"samples\": " + samples(1.0, 0.001) + "}");
  Ran r = run_tkc({"ab", "--samples", a, b, "--json", f / "r.json"});
  CHECK(r.code == 0);
  CHECK(contains(r.out, "b is faster: 1.198x as fast as a"));
  CHECK(contains(r.out, "effect size"));
  CHECK(contains(read_text(f / "r.json"), "\"speedup\": 1.19"));
  r = run_tkc({"ab", "--samples", a, b, "--require", "speedup>=1.10"});
  CHECK(r.code == 0);
  CHECK(contains(r.out, "speedup>=1.10: holds for the whole interval"));
  r = run_tkc({"ab", "--samples", a, b, "--require", "speedup>=1.25"});
  CHECK(r.code == 6);
  CHECK(contains(r.out, "does not hold"));
  CHECK(run_tkc({"ab", "--samples", a, b, "--require", "speedup<=1.02"}).code == 6);
  r = run_tkc({"ab", "--samples", a, a});
  CHECK(r.code == 0);
  CHECK(contains(r.out, "no difference between a and b"));
  CHECK(run_tkc({"ab", "--samples", a, f.write("short.json", "[1, 2]")}).code == 1);
  CHECK(run_tkc({"ab", "--samples", a, f.write("zero.json", "[1, 0, 1]")}).code == 1);
  CHECK(contains(run_tkc({"ab", "--samples", a, f.write("bad.json", "[1, 2")}).err, "JSON, byte"));
}

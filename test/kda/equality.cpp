// What must be equal to the bit: the same call twice whatever order the hardware takes, a batch and its rows, packed
// sequences and the same sequences one by one, a prompt in two parts, both layouts of the state.
#include "emu/emu.h"
#include "kda/kit.h"

using namespace tkc;
using namespace tkc::test;
using driver::Executor;

namespace {
const char *const kPrograms[] = {"kda_forward", "kda_backward", "gdn_forward"};

void check_equal(const Tensors &got, const Tensors &want, const std::string &what) {
  REQUIRE(got.size() == want.size());
  for (const auto &[name, t] : got) {
    Tolerance exact;
    exact.exact = true;
    CHECK_MESSAGE(t == want.at(name), what, ": ", compare(t, want.at(name), exact).to_string(name));
  }
}
bool is_state(const std::string &name) { return name == "s0" || name == "s" || name == "dht" || name == "ds0"; }
} // namespace

TEST_CASE("every order of asynchronous work gives the same bits") {
  for (const char *program : kPrograms) {
    Problem p = bounded_problem(program, {.T = 37, .H = 1, .HV = 2, .K = 32, .V = 32}, 1);
    Tensors first = run(p, {.executor = Executor::Emu});
    for (int64_t k = 0; k < 4; k++) // eager again, lazy, reverse, random
      check_equal(run(p, {.executor = Executor::Emu, .emu = emu::nth_schedule({}, k, std::nullopt)}), first, program);
  }
}

TEST_CASE("a batch of copies is its rows") {
  for (Executor executor : {Executor::Interp, Executor::Emu})
    for (const char *program : kPrograms) {
      Problem one = bounded_problem(program, {.T = 35, .H = 1, .HV = 2, .K = 32, .V = 32}, 2);
      Problem three = one;
      three.shape.B = three.shape.N = 3;
      for (auto &[name, t] : three.inputs) t = joined({t, t, t}, 0);
      Tensors row = run(one, {.executor = executor}), batch = run(three, {.executor = executor});
      for (auto &[name, t] : row) t = joined({t, t, t}, 0);
      check_equal(batch, row, program);
    }
}

TEST_CASE("packed sequences are separate runs, empty ones included") {
  const std::vector<int64_t> lengths = {0, 19, 32, 0, 0, 47, 1, 0};
  for (Executor executor : {Executor::Interp, Executor::Emu})
    for (const char *program : kPrograms) {
      Problem packed;
      std::vector<int64_t> cu = {0};
      std::map<std::string, std::vector<HostTensor>> inputs, outputs;
      for (int64_t length : lengths) {
        Problem p = bounded_problem(program, {.T = length, .H = 1, .HV = 2, .K = 32, .V = 32}, 3 + cu.size());
        for (const auto &[name, t] : p.inputs) inputs[name].push_back(t);
        for (const auto &[name, t] : run(p, {.executor = executor})) outputs[name].push_back(t);
        cu.push_back(cu.back() + length);
        packed = p;
      }
      packed.shape.T = cu.back();
      packed.shape.N = int64_t(lengths.size());
      Tensors want;
      for (const auto &[name, parts] : inputs) packed.inputs[name] = joined(parts, is_state(name) ? 0 : 1);
      for (const auto &[name, parts] : outputs) want[name] = joined(parts, is_state(name) ? 0 : 1);
      packed.inputs["cu"] = offsets(cu);
      check_equal(run(packed, {.executor = executor}), want, program);
      // What follows the last sequence belongs to none.
      if (executor == Executor::Interp) check_against_reference(packed);
    }
}

TEST_CASE("an empty sequence hands its state on") {
  for (const char *program : {"kda_forward", "gdn_forward"}) {
    Problem p = bounded_problem(program, {.T = 0, .K = 32, .V = 32, .N = 3}, 5);
    p.inputs["cu"] = offsets({0, 0, 0, 0});
    for (Executor executor : {Executor::Interp, Executor::Emu})
      CHECK(run(p, {.executor = executor}).at("s") == p.inputs.at("s0"));
    p.inputs.erase("s0");
    CHECK(run(p).at("s") == constant(DType::F32, {3, 1, 32, 32}, 0));
  }
}

TEST_CASE("a prompt in two parts goes on from the state of the first") {
  for (const char *program : {"kda_forward", "gdn_forward"}) {
    Problem whole = bounded_problem(program, {.T = 53, .H = 1, .HV = 2, .K = 32, .V = 48}, 6);
    whole.chunk_states = true;
    Tensors want = run(whole);
    for (int64_t at : {32, 21}) {
      Problem first = whole, second = whole;
      first.chunk_states = second.chunk_states = false;
      first.shape.T = at, second.shape.T = whole.shape.T - at;
      for (const auto &[name, t] : whole.inputs)
        if (!is_state(name)) {
          first.inputs[name] = part(t, 1, 0, at);
          second.inputs[name] = part(t, 1, at, whole.shape.T);
        }
      Tensors a = run(first);
      second.inputs["s0"] = a.at("s");
      Tensors b = run(second);
      HostTensor o = joined({a.at("o"), b.at("o")}, 1);
      if (at % 16 == 0) { // the same chunks
        CHECK(o == want.at("o"));
        CHECK(b.at("s") == want.at("s"));
        HostTensor checkpoint = part(want.at("hs"), 1, at / 16, at / 16 + 1); // in f32, as it was carried
        CHECK(checkpoint.bytes == a.at("s").bytes);
      } else {
        Tolerance limit;
        limit.rms = 9e-3;
        CHECK(compare(o, want.at("o"), limit).pass);
        limit.rms = 1e-2;
        CHECK(compare(b.at("s"), want.at("s"), limit).pass);
      }
    }
  }
}

TEST_CASE("a state by columns is the state by rows, transposed") {
  for (const char *program : kPrograms) {
    Problem rows = bounded_problem(program, {.T = 20, .H = 1, .HV = 2, .K = 32, .V = 48}, 7), columns = rows;
    columns.options["v_first"] = "true";
    auto transposed = [](const HostTensor &t) {
      int64_t m = t.shape[2], n = t.shape[3];
      HostTensor out = HostTensor::zeros(t.dtype, {t.shape[0], t.shape[1], n, m});
      for (int64_t i = 0; i < t.count(); i++) out.set_bits(i / (m * n) * (m * n) + i % n * m + i / n % m, t.bits(i));
      return out;
    };
    for (auto &[name, t] : columns.inputs)
      if (is_state(name)) t = transposed(t);
    Tensors want = run(rows);
    for (auto &[name, t] : want)
      if (is_state(name)) t = transposed(t);
    check_equal(run(columns), want, program);
  }
}

TEST_CASE("slices of the backward pass give the bits of one pass") {
  struct Case {
    Shape shape;
    std::vector<int64_t> cu;
    const char *slice, *pieces;
  };
  const Case cases[] = {
      {{.B = 1, .T = 150, .H = 2, .HV = 4, .K = 32, .V = 48}, {}, "32", "1"},
      {{.B = 3, .T = 75, .H = 3, .HV = 3, .K = 32, .V = 32, .N = 3}, {}, "64", "2"},
      {{.B = 2, .T = 97, .H = 2, .HV = 2, .K = 32, .V = 32, .N = 2}, {}, "32", "4"},
      // Cuts in blocks of a sequence, between two, at the end of one, in a sequence of one token; empty ones at cuts
      // and at both ends.
      {{.B = 1, .T = 200, .H = 1, .HV = 2, .K = 32, .V = 32, .N = 9},
       {0, 0, 5, 32, 32, 131, 131, 160, 161, 200},
       "32",
       "1"},
      {{.B = 1, .T = 200, .H = 2, .HV = 2, .K = 32, .V = 32, .N = 4}, {0, 127, 129, 200, 200}, "64", "2"},
      {{.B = 1, .T = 90, .H = 1, .HV = 1, .K = 32, .V = 32, .N = 3}, {0, 0, 90, 90}, "32", "1"},
  };
  int64_t seed = 40;
  for (const Case &c : cases)
    for (Executor executor : {Executor::Interp, Executor::Emu}) {
      if (executor == Executor::Emu && c.shape.HV == c.shape.H && c.cu.empty()) continue;
      Problem p = bounded_problem("kda_backward", c.shape, seed++);
      if (!c.cu.empty()) p.inputs["cu"] = offsets(c.cu);
      p.inputs["a_log"] = normal(DType::F32, {c.shape.HV}, seed++, 0.5);
      p.inputs["dt_bias"] = normal(DType::F32, {c.shape.HV, c.shape.K}, seed++, 0.5);
      p.options["SLICE"] = "4096", p.options["PIECES"] = "1";
      Tensors whole = run(p, {.executor = executor});
      p.options["SLICE"] = c.slice, p.options["PIECES"] = c.pieces;
      Tensors sliced = run(p, {.executor = executor});
      for (const char *name : {"da_log", "ddt_bias"}) { // sums of the same numbers in another order
        Tolerance limit;
        limit.rms = 1e-5;
        Comparison difference = compare(sliced.at(name), whole.at(name), limit);
        CHECK_MESSAGE(difference.pass, difference.to_string(name));
        sliced.erase(name), whole.erase(name);
      }
      check_equal(sliced, whole, fmt::format("T {}, slices of {}", c.shape.T, c.slice));
      if (executor == Executor::Interp && c.cu.empty()) check_against_reference(p);
    }
}

TEST_CASE("states of the forward pass are those that the backward pass makes again") {
  for (bool packed : {false, true})
    for (Executor executor : {Executor::Interp, Executor::Emu}) {
      Shape shape{.B = packed ? 1 : 2, .T = 150, .H = 1, .HV = 2, .K = 32, .V = 48, .N = packed ? 5 : 2};
      Problem forward = bounded_problem("kda_forward", shape, 60),
              backward = bounded_problem("kda_backward", shape, 60);
      for (Problem *p : {&forward, &backward}) {
        p->options["EVERY"] = "32";
        if (packed) p->inputs["cu"] = offsets({0, 31, 64, 64, 133, 150});
      }
      backward.options["SLICE"] = "32", backward.options["PIECES"] = "2";
      Tensors want = run(backward, {.executor = executor});
      forward.slice_states = true;
      backward.inputs["states"] = run(forward, {.executor = executor}).at("states");
      CHECK(backward.inputs["states"].shape == std::vector<int64_t>{4, shape.B, 2, 32, 48});
      check_equal(run(backward, {.executor = executor}), want, packed ? "packed" : "rows");
    }
}

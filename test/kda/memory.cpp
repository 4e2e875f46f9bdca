// What the backward pass needs beyond its tensors. Memory around the tensors holds NaN: nothing of it may reach a
// result, and nothing may be written there (kit.h checks that).
#include "kda/kit.h"
#include <cmath>

using namespace tkc;
using namespace tkc::test;
using driver::Executor;

namespace {

struct Odd {
  const char *program;
  Shape shape;
};
// Extents that are no multiple of a chunk, a vector or an instruction.
const Odd kOdd[] = {{"kda_forward", {.B = 2, .T = 21, .H = 1, .HV = 2, .K = 60, .V = 36, .N = 2}},
                    {"kda_backward", {.B = 2, .T = 21, .H = 1, .HV = 2, .K = 60, .V = 36, .N = 2}},
                    {"gdn_forward", {.B = 2, .T = 21, .H = 1, .HV = 2, .K = 60, .V = 36, .N = 2}}};

Problem packed(const Odd &odd) {
  Shape s = odd.shape;
  s.T *= s.B, s.B = 1, s.N = 4;
  Problem p = bounded_problem(odd.program, s, 11);
  p.inputs["cu"] = offsets({0, 5, 5, s.T - 17, s.T});
  return p;
}

void check_same(const Problem &p, const How &how, const std::string &what) {
  Tensors want = run(p, {.executor = how.executor});
  for (const auto &[name, t] : run(p, how)) {
    Tolerance exact;
    exact.exact = true;
    CHECK_MESSAGE(t == want.at(name), p.program, ", ", what, ": ", compare(t, want.at(name), exact).to_string(name));
  }
}

} // namespace

TEST_CASE("NaN before and behind every tensor") {
  for (const Odd &odd : kOdd)
    for (Executor executor : {Executor::Interp, Executor::Emu}) {
      std::vector<Problem> problems = {packed(odd)};
      if (executor == Executor::Interp) problems.push_back(bounded_problem(odd.program, odd.shape, 12));
      for (const Problem &p : problems)
        for (int64_t before : {256, 3}) { // aligned as memory is, and not at all
          How how{.executor = executor};
          for (const auto &[name, shape] : shapes(p)) how.placements[name] = guarded(shape, before, 301);
          check_same(p, how, "guards");
        }
    }
}

TEST_CASE("views of one projection, with NaN in the gaps") {
  for (const Odd &odd : kOdd)
    for (Executor executor : {Executor::Interp, Executor::Emu})
      for (int64_t pad : {0, 5}) { // 5: rows that no vector access fits
        // One variant of each program is compiled for the emulator; a batch is the interpreter's.
        Problem p = executor == Executor::Emu ? packed(odd) : bounded_problem(odd.program, odd.shape, 13);
        const Shape &s = p.shape;
        How how{.executor = executor};
        // Row by row q, k, v of one token; dq, dk, dv likewise; all else with a gap behind every token.
        int64_t row = 2 * s.H * s.K + s.HV * s.V + pad;
        int64_t at = 0;
        for (const char *name : {"q", "k", "v"}) {
          std::vector<int64_t> shape = shapes(p).at(name);
          Placement place{{s.T * row, row, shape[3], 1}, at, s.B * s.T * row};
          how.placements[name] = place;
          if (odd.program == std::string("kda_backward")) how.placements["d" + std::string(name)] = place;
          at += shape[2] * shape[3];
        }
        for (const auto &[name, shape] : shapes(p)) {
          if (how.placements.count(name) || shape.size() < 2) continue;
          Placement place = guarded(shape, 0, 0);
          int64_t gap = 8 + pad;
          for (size_t d = 0; d < 2; d++) { // the outer dims: [B, T] of tokens, [N, HV] of states
            int64_t below = 1;
            for (size_t i = d + 1; i < shape.size(); i++) below *= shape[i];
            place.strides[d] = d == 0 ? shape[1] * (below / shape[1] + gap) : below + gap;
          }
          place.elements = shape[0] * place.strides[0];
          how.placements[name] = place;
        }
        check_same(p, how, pad ? "views, unaligned" : "views");
      }
}

TEST_CASE("the backward pass needs at most 700 bytes for each token and head") {
  struct Case {
    Shape shape;
    bool packed;
  };
  const Case cases[] = {
      {{.B = 1, .T = 8192, .H = 32, .HV = 32, .K = 128, .V = 128, .N = 1}, false},
      {{.B = 1, .T = 8192, .H = 64, .HV = 64, .K = 128, .V = 128, .N = 1}, false},
      {{.B = 1, .T = 8192, .H = 96, .HV = 96, .K = 128, .V = 128, .N = 1}, false},
      {{.B = 1, .T = 8192, .H = 96, .HV = 96, .K = 128, .V = 128, .N = 6}, true},
      {{.B = 4, .T = 4096, .H = 32, .HV = 32, .K = 128, .V = 128, .N = 4}, false},
      {{.B = 64, .T = 512, .H = 32, .HV = 32, .K = 128, .V = 128, .N = 64}, false},
      {{.B = 1, .T = 32768, .H = 16, .HV = 16, .K = 128, .V = 128, .N = 1}, false},
      {{.B = 1, .T = 8192, .H = 32, .HV = 64, .K = 128, .V = 128, .N = 1}, false},
  };
  for (const char *target : {"sm_90", "sm_120"})
    for (const Case &c : cases) {
      Problem p{.program = "kda_backward", .shape = c.shape, .options = {{"gate", "bounded"}, {"l2norm", "true"}}};
      p.options["wide_range"] = "false";
      p.options["ROOM"] = "8";
      for (const char *name : {"a_log", "dht"}) p.inputs[name] = {};
      if (c.packed) p.inputs["cu"] = {};
      const Shape &s = c.shape;
      double tokens = double(s.B * s.T * s.HV);
      double bytes = double(workspace_bytes(p, target)) / tokens;
      Problem saved = p;
      saved.inputs["states"] = {};
      double with_states =
          double(workspace_bytes(saved, target) + 4 * s.K * s.V * s.B * s.HV * ((s.T - 1) / 1024)) / tokens;
      p.options["SLICE"] = "1048576", p.options["PIECES"] = "1";
      double whole = double(workspace_bytes(p, target)) / tokens;
      std::string text = fmt::format(
          "{} B{} T{} HV{} N{}: {:.0f} bytes, with states of the forward pass {:.0f}, without slices {:.0f}", target,
          s.B, s.T, s.HV, s.N, bytes, with_states, whole);
      MESSAGE(text);
      CHECK_MESSAGE(bytes <= 700, text);
      CHECK_MESSAGE(with_states <= 700, text);
      CHECK_MESSAGE(whole > 3000, text);
    }
}

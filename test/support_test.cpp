#include "support/diag_kinds.h"
#include "support/diagnostics.h"
#include "support/dtype.h"
#include "support/json.h"
#include <cmath>
#include <doctest/doctest.h>

using namespace tkc;

TEST_CASE("every code of a small float type decodes, rounds to itself and encodes back") {
  for (DType t : all_dtypes()) {
    if (!is_float(t) || dtype_bits(t) > 16) continue;
    CAPTURE(dtype_name(t));
    for (uint64_t code = 0; code < uint64_t(1) << dtype_bits(t); code++) {
      if (t == DType::UE4M3 && code >> 7) continue;
      double x = decode_float(t, code);
      if (std::isnan(x)) continue;
      if (std::isinf(x) && t == DType::E5M2) continue; // e5m2 saturates: infinity is read but never rounded to
      CHECK(encode_float(t, round_to(t, x)) == code);
    }
  }
}

TEST_CASE("rounding is to nearest, ties to even, and saturates where the PTX manual says so") {
  CHECK(round_to(DType::BF16, 1.0 + 0x1p-8) == 1.0);
  CHECK(round_to(DType::BF16, 1.0 + 3 * 0x1p-8) == 1.0 + 0x1p-6);
  CHECK(round_to(DType::F16, 65520.0) == INFINITY);
  CHECK(round_to(DType::F16, 65519.0) == 65504.0);
  CHECK(round_to(DType::E4M3, 1e6) == 448.0);
  CHECK(round_to(DType::E5M2, -1e9) == -57344.0);
  CHECK(round_to(DType::F16, 0x1p-25) == 0.0);
  CHECK(round_to(DType::F16, 0x1.8p-25) == 0x1p-24);
  CHECK(round_tf32_rna(1.0 + 0x1p-11) == 1.0 + 0x1p-10);
  CHECK(round_to(DType::TF32, 1.0 + 0x1p-11) == 1.0);
}

TEST_CASE("integers wrap, floats saturate into integers") {
  CHECK(wrap_to(DType::I8, 200) == -56);
  CHECK(wrap_to(DType::U16, -1) == 65535);
  CHECK(float_to_int(DType::I32, 3e9) == 2147483647);
  CHECK(float_to_int(DType::U8, -2.5) == 0);
  CHECK(float_to_int(DType::I32, NAN) == 0);
}

TEST_CASE("a diagnostic shows the line and a caret") {
  SourceManager sources;
  int32_t id = sources.add("a.tk", "let x = 1;\nlet yä = z;\n");
  Diagnostics diags(sources);
  diags.report({id, 20, 21}, DiagKind::syntax, "unexpected `z`");
  CHECK(diags.render_all() == "a.tk:2:9: error: unexpected `z` [syntax]\n  let yä = z;\n          ^\n");
}

TEST_CASE("near names") {
  CHECK(nearest_name("sotfmax", {"softmax", "gemm"}) == "softmax");
  CHECK(nearest_name("zzz", {"softmax", "gemm"}) == "");
  CHECK(nearest_name("fodl", {"find", "fold"}) == "fold"); // neighbours swapped: one slip
  CHECK(nearest_name("fxdl", {"fold"}) == "");
  CHECK(nearest_name("x", {"y", "M"}) == "");
  CHECK(nearest_name("M2", {"M"}) == "M");
  CHECK(nearest_name("flod", {"floor", "fold"}) == "fold");
}

TEST_CASE("JSON escapes") { CHECK(Json::object().set("a\n", "b\"").dump(0) == "{\"a\\n\":\"b\\\"\"}"); }

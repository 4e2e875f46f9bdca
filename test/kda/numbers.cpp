// A second opinion: packed_softplus.json and batch_bounded.json hold inputs that are exact in bf16, outputs and
// gradients, from an independent NumPy implementation of the recurrence and its adjoint in float64, rounded to six
// digits.
#include "compile_kit.h"
#include "kda/kit.h"
#include "runtime/json_reader.h"
#include "why.h"

using namespace tkc;
using namespace tkc::test;

namespace {

struct Numbers {
  Problem forward, backward;
  std::map<std::string, std::vector<double>> results;
};

Numbers read(const std::string &name) {
  auto json = parse_json(source_text("test/kda/" + name + ".json"));
  REQUIRE_MESSAGE(json.ok(), why(json));
  Numbers n;
  Problem &p = n.forward;
  p.program = "kda_forward";
  const JsonValue &sizes = *json->find("sizes"), &options = *json->find("options");
  auto size = [&](const char *s) { return sizes.find(s)->integer; };
  p.shape = {size("B"), size("T"), size("H"), size("HV"), size("K"), size("V"), size("N")};
  for (size_t i = 0; i < options.keys.size(); i++) p.options[options.keys[i]] = options.items[i].text;
  p.scale = json->find("scalars")->find("scale")->number;
  p.bound = json->find("scalars")->find("bound")->number;
  n.backward = p;
  n.backward.program = "kda_backward";
  const std::map<std::string, DType> inputs = {{"q", DType::BF16},      {"k", DType::BF16},    {"v", DType::BF16},
                                               {"g", DType::BF16},      {"beta", DType::BF16}, {"a_log", DType::F32},
                                               {"dt_bias", DType::F32}, {"s0", DType::F32},    {"cu", DType::I32},
                                               {"do", DType::BF16},     {"dht", DType::F32}};
  const JsonValue &tensors = *json->find("tensors");
  for (size_t i = 0; i < tensors.keys.size(); i++) {
    const std::string &name = tensors.keys[i];
    std::vector<int64_t> shape;
    std::vector<double> values;
    for (const JsonValue &d : tensors.items[i].find("shape")->items) shape.push_back(d.integer);
    for (const JsonValue &x : tensors.items[i].find("values")->items) values.push_back(x.number);
    auto input = inputs.find(name);
    if (input == inputs.end()) {
      n.results[name] = values;
      continue;
    }
    HostTensor t = HostTensor::from_doubles(input->second, shape, values);
    REQUIRE_MESSAGE(t.to_doubles() == values, name); // nothing is lost in the dtype
    n.backward.inputs[name] = t;
    if (name != "do" && name != "dht") n.forward.inputs[name] = t;
  }
  return n;
}

// As many results as were compared.
size_t check(const Numbers &n, const std::string &name, const HostTensor &got, double limit) {
  auto want = n.results.find(name);
  if (want == n.results.end()) return 0;
  Tolerance t;
  t.rms = limit;
  Comparison c = compare(got, want->second, t);
  CHECK_MESSAGE(c.pass, c.to_string(name));
  return 1;
}

} // namespace

TEST_CASE("the references of the samples agree with independent numbers") {
  for (const char *name : {"packed_softplus", "batch_bounded"}) {
    Numbers n = read(name);
    size_t compared = 0;
    for (const Problem *p : {&n.forward, &n.backward})
      for (const auto &[output, values] : expected(*p))
        if (n.results.count(output))
          compared += check(n, output, HostTensor::from_doubles(DType::F64, {int64_t(values.size())}, values), 5e-6);
    CHECK(compared == n.results.size());
  }
}

TEST_CASE("the operators agree with independent numbers") {
  for (const char *name : {"packed_softplus", "batch_bounded"}) {
    Numbers n = read(name);
    size_t compared = 0;
    for (const Problem *p : {&n.forward, &n.backward})
      for (const auto &[output, t] : run(*p))
        compared += check(n, output, t, output == "o" ? 4.5e-3 : output == "dg" ? 7e-3 : 5e-3);
    CHECK(compared == n.results.size());
  }
}

#include "kda/kit.h"
#include "interp/interp.h"
#include "ir/target.h"
#include "runtime/generators.h"
#include "syntax/parse.h"
#include "why.h"
#include <cmath>
#include <numeric>

namespace tkc::test {

namespace {

struct Sample {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
};
Sample &sample_of(const std::string &name) {
  static std::map<std::string, Sample> loaded;
  Sample &s = loaded[name];
  if (s.program) return s;
  auto id = read_source(std::string(TKC_SOURCE_DIR) + "/samples/" + name + ".tk", s.sources, s.diags);
  REQUIRE(id);
  s.program = sema::Program::load(*id, s.diags);
  REQUIRE_MESSAGE(s.program, s.diags.render_all());
  return s;
}

// One variant of a program; compiled when the emulator first wants it.
struct Variant {
  std::unique_ptr<sema::HostProgram> host;
  std::map<std::set<size_t>, std::unique_ptr<driver::CompiledProgram>> compiled; // by the kernels that a plan launches
};
Variant &variant_of(const Problem &p) {
  static std::map<std::string, Variant> variants;
  Sample &s = sample_of(p.program);
  const ast::Function *f = s.program->find_entry(p.program);
  REQUIRE(f);
  sema::InstanceSpec spec;
  spec.params = p.options;
  spec.params["K"] = std::to_string(p.shape.K);
  spec.params["V"] = std::to_string(p.shape.V);
  const std::map<std::string, std::string> gradients = {{"da_log", "a_log"}, {"ddt_bias", "dt_bias"}, {"ds0", "s0"}};
  for (const ast::Param &param : f->params) {
    const std::string &name = param.name.text;
    if (!param.type || !param.type->optional) continue;
    auto of = gradients.find(name);
    bool present = name == "hs"                         ? p.chunk_states
                   : name == "states" && p.slice_states ? true
                                                        : p.inputs.count(of == gradients.end() ? name : of->second);
    if (!present) spec.absent.insert(name);
  }
  std::string key = p.program;
  for (const auto &[name, value] : spec.params) key += " " + name + "=" + value;
  for (const std::string &name : spec.absent) key += " -" + name;
  Variant &v = variants[key];
  if (!v.host) v.host = sema::instantiate_program(*s.program, *f, spec, ir::find_target("sm_120"), s.diags);
  REQUIRE_MESSAGE(v.host, s.diags.render_all());
  return v;
}

driver::LaunchData sizes_of(const Problem &p) {
  const Shape &s = p.shape;
  bool v_first = p.options.count("v_first") && p.options.at("v_first") == "true";
  driver::LaunchData out;
  out.sizes = {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"HV", s.HV}, {"N", s.N}};
  out.sizes["S1"] = v_first ? s.V : s.K;
  out.sizes["S2"] = v_first ? s.K : s.V;
  out.scalars = {{"scale", p.scale}, {"bound", p.bound}};
  return out;
}

// f(element of the tensor, its element of the buffer).
template <typename F> void each_element(const std::vector<int64_t> &shape, const Placement &at, F &&f) {
  int64_t count = *element_count(shape);
  for (int64_t i = 0; i < count; i++) {
    std::vector<int64_t> c = coordinates(shape, i);
    int64_t e = at.offset;
    for (size_t d = 0; d < c.size(); d++) e += c[d] * at.strides[d];
    f(i, e);
  }
}

} // namespace

Placement guarded(const std::vector<int64_t> &shape, int64_t before, int64_t after) {
  return {driver::dense_strides(shape), before, before + *element_count(shape) + after};
}

std::map<std::string, std::vector<int64_t>> shapes(const Problem &p) {
  Variant &v = variant_of(p);
  driver::LaunchData sizes = sizes_of(p);
  std::map<std::string, std::vector<int64_t>> out;
  for (const ir::Param &param : v.host->header->params)
    if (param.type.is_tensor() && param.present) out[param.name] = *driver::extents(*v.host->header, param, sizes);
  return out;
}

int64_t workspace_bytes(const Problem &p, const char *target) {
  Variant &v = variant_of(p);
  auto shape = shapes(p);
  driver::LaunchData views = sizes_of(p);
  for (const ir::Param &param : v.host->header->params) {
    HostTensor view;
    view.dtype = param.type.dtype;
    if (auto it = shape.find(param.name); it != shape.end()) view.shape = it->second;
    views.strides.push_back(driver::dense_strides(view.shape));
    views.offsets.push_back(0);
    views.tensors.push_back(std::move(view));
  }
  auto facts = driver::DeviceFacts::of(*ir::find_target(target));
  auto plan = driver::make_plan(*v.host, views, facts, sample_of(p.program).sources);
  REQUIRE_MESSAGE(plan.ok(), why(plan));
  return plan->workspace_bytes;
}

Tensors run(const Problem &p, const How &how) {
  Variant &v = variant_of(p);
  Sample &s = sample_of(p.program);
  const ir::Function &header = *v.host->header;
  auto shape = shapes(p);
  // The plan sees views, the executor the buffers that they lie in.
  driver::LaunchData views = sizes_of(p), buffers = views;
  std::vector<Placement> at;
  for (const ir::Param &param : header.params) {
    HostTensor view, buffer;
    Placement place;
    if (auto it = shape.find(param.name); it != shape.end()) {
      auto given = how.placements.find(param.name);
      place = given != how.placements.end() ? given->second : guarded(it->second, 0, 0);
      view.dtype = param.type.dtype;
      view.shape = it->second;
      buffer = HostTensor::zeros(param.type.dtype, {place.elements});
      poison(buffer);
      if (param.mode == ir::ParamMode::In) {
        REQUIRE_MESSAGE(p.inputs.count(param.name), param.name);
        const HostTensor &from = p.inputs.at(param.name);
        REQUIRE_MESSAGE(from.shape == view.shape, param.name, ": ", from.to_string(), shape_to_string(view.shape));
        REQUIRE_MESSAGE(from.dtype == view.dtype, param.name, ": ", from.to_string());
        each_element(view.shape, place, [&](int64_t i, int64_t e) { buffer.set_bits(e, from.bits(i)); });
      }
    }
    views.strides.push_back(place.strides);
    views.offsets.push_back(place.offset);
    views.tensors.push_back(view);
    buffers.tensors.push_back(buffer);
    at.push_back(place);
  }
  driver::LaunchData before = buffers;
  const ir::Target *target = ir::find_target("sm_120");
  auto plan = driver::make_plan(*v.host, views, driver::DeviceFacts::of(*target), s.sources);
  REQUIRE_MESSAGE(plan.ok(), why(plan));
  std::string printed;
  Status ran;
  if (how.executor == driver::Executor::Interp) {
    ran = run_interp(*plan, buffers, s.sources, printed);
  } else {
    std::set<size_t> wanted = driver::kernels_of(*plan);
    auto &compiled = v.compiled[wanted];
    if (!compiled) {
      driver::CompileOptions options;
      options.target = target;
      compiled = driver::compile_program(*s.program, *v.host, options, s.diags, &wanted);
    }
    REQUIRE_MESSAGE(compiled, s.diags.render_all());
    ran = run_emu(*plan, *compiled, buffers, how.emu, printed);
  }
  REQUIRE_MESSAGE(ran.ok(), why(ran));
  Tensors out;
  for (size_t k = 0; k < header.params.size(); k++) {
    const ir::Param &param = header.params[k];
    if (!shape.count(param.name) || param.mode == ir::ParamMode::In) continue;
    HostTensor t = HostTensor::zeros(param.type.dtype, views.tensors[k].shape);
    const HostTensor &now = buffers.tensors[k], &then = before.tensors[k];
    std::vector<bool> mine(size_t(now.count()));
    each_element(t.shape, at[k], [&](int64_t i, int64_t e) {
      mine[size_t(e)] = true;
      t.set_bits(i, now.bits(e));
    });
    int64_t touched = 0;
    for (int64_t e = 0; e < now.count(); e++) { // the interpreter keeps that a value is NaN, not which
      bool same = now.bits(e) == then.bits(e) || (how.executor == driver::Executor::Interp && std::isnan(now.get(e)));
      touched += !mine[size_t(e)] && !same;
    }
    CHECK_MESSAGE(touched == 0, param.name, ": elements beside the tensor were written");
    CHECK_MESSAGE((param.name == "states" || find_poison(t).count == 0), param.name, ": elements were not written");
    out[param.name] = std::move(t);
  }
  return out;
}

std::map<std::string, std::vector<double>> expected(const Problem &p) {
  Variant &v = variant_of(p);
  Sample &s = sample_of(p.program);
  const ir::Function &header = *v.host->header;
  driver::LaunchData sizes = sizes_of(p);
  sema::CaseSpec c;
  for (const auto &[name, n] : sizes.sizes) c.numbers[name] = double(n);
  sema::Numbers numbers = driver::numbers_of(header, c);
  for (const auto &[name, x] : sizes.scalars) numbers[name] = x;
  std::vector<sema::HostArg> args;
  std::vector<interp::Value> values;
  for (const auto &[name, text] : header.bindings)
    if (!numbers.count(name)) args.push_back({.name = name, .word = text});
  for (const ir::Param &param : header.params) {
    if (!param.type.is_tensor() || param.mode == ir::ParamMode::Out) continue;
    if (!param.present) {
      args.push_back({param.name, DType::F64, {}, true});
      continue;
    }
    const HostTensor &t = p.inputs.at(param.name);
    interp::Tile tile(is_float(t.dtype) ? DType::F64 : DType::I64, t.shape);
    for (int64_t i = 0; i < t.count(); i++)
      if (tile.is_float())
        tile.f[size_t(i)] = t.get(i);
      else
        tile.i[size_t(i)] = t.get_int(i);
    args.push_back({param.name, tile.dtype, t.shape});
    values.emplace_back(std::move(tile));
  }
  const ast::Check *check = s.program->check_for(p.program, false);
  REQUIRE(check);
  std::map<std::string, std::vector<double>> out;
  for (const ast::Binding &b : check->bindings) {
    auto h = sema::build_expected(*s.program, *check, b, numbers, args, s.diags);
    REQUIRE_MESSAGE(h, s.diags.render_all());
    interp::Launch launch;
    launch.function = h->fn.get();
    launch.args = values;
    interp::Result r = interp::run(launch);
    REQUIRE_MESSAGE(!r.trap, (r.trap ? r.trap->message : ""));
    for (size_t k = 0; k < h->outputs.size(); k++) out[h->outputs[k]] = std::get<interp::Tile>(r.results[k]).f;
  }
  return out;
}

void check_against_reference(const Problem &p, const Limits &limits) {
  auto want = expected(p);
  for (const auto &[name, got] : run(p)) {
    Tolerance limit;
    // Those of the samples, but for dbeta: it is one sum for each token and head, of products of rounded numbers of
    // both signs, and in a small problem a few tokens, whose terms may cancel, are most of it.
    limit.rms = name == "o" ? 4.5e-3 : name == "dg" ? 7e-3 : name == "dbeta" ? 1e-2 : 5e-3;
    if (auto it = limits.find(name); it != limits.end()) limit = it->second;
    Comparison c = compare(got, want.at(name), limit);
    CHECK_MESSAGE(c.pass, p.program, ": ", c.to_string(name));
  }
}

HostTensor normal(DType t, std::vector<int64_t> shape, uint64_t seed, double deviation) {
  std::vector<double> arguments = {0, deviation};
  return fill_tensor(*make_fill(FillKind::Normal, arguments), t, std::move(shape), stream_seed(seed, 0));
}
HostTensor constant(DType t, std::vector<int64_t> shape, double value) {
  std::vector<double> values(size_t(*element_count(shape)), value);
  return HostTensor::from_doubles(t, std::move(shape), values);
}
HostTensor offsets(const std::vector<int64_t> &cu) {
  return HostTensor::from_doubles(DType::I32, {int64_t(cu.size())}, std::vector<double>(cu.begin(), cu.end()));
}

Problem bounded_problem(const std::string &program, const Shape &s, uint64_t seed) {
  Problem p{program, s, {{"gate", "bounded"}, {"l2norm", "true"}, {"beta_sigmoid", "true"}}, {}};
  p.scale = 1 / std::sqrt(double(s.K));
  auto add = [&](const char *name, DType t, std::vector<int64_t> shape) {
    p.inputs[name] = normal(t, std::move(shape), seed * 64 + p.inputs.size());
  };
  add("q", DType::BF16, {s.B, s.T, s.H, s.K});
  add("k", DType::BF16, {s.B, s.T, s.H, s.K});
  add("v", DType::BF16, {s.B, s.T, s.HV, s.V});
  add("beta", DType::BF16, {s.B, s.T, s.HV});
  if (program == "gdn_forward")
    add("g", DType::F32, {s.B, s.T, s.HV});
  else
    add("g", DType::BF16, {s.B, s.T, s.HV, s.K});
  add("s0", DType::F32, {s.N, s.HV, s.K, s.V});
  if (program == "kda_backward") {
    add("do", DType::BF16, {s.B, s.T, s.HV, s.V});
    add("dht", DType::F32, {s.N, s.HV, s.K, s.V});
  }
  return p;
}

HostTensor part(const HostTensor &t, size_t dim, int64_t begin, int64_t end) {
  std::vector<int64_t> shape = t.shape;
  shape[dim] = end - begin;
  HostTensor out = HostTensor::zeros(t.dtype, shape);
  Placement at{driver::dense_strides(t.shape), 0, t.count()};
  at.offset = begin * at.strides[dim];
  each_element(shape, at, [&](int64_t i, int64_t e) { out.set_bits(i, t.bits(e)); });
  return out;
}

HostTensor joined(const std::vector<HostTensor> &parts, size_t dim) {
  std::vector<int64_t> shape = parts.at(0).shape;
  shape[dim] = 0;
  for (const HostTensor &t : parts) shape[dim] += t.shape[dim];
  HostTensor out = HostTensor::zeros(parts[0].dtype, shape);
  Placement at{driver::dense_strides(shape), 0, 0};
  for (const HostTensor &t : parts) {
    each_element(t.shape, at, [&](int64_t i, int64_t e) { out.set_bits(e, t.bits(i)); });
    at.offset += t.shape[dim] * at.strides[dim];
  }
  return out;
}

} // namespace tkc::test

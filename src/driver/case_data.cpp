#include "driver/case_data.h"
#include "runtime/bench.h"
#include "runtime/compare.h"
#include "runtime/generators.h"
#include "sema/signature.h"
#include "support/diag_kinds.h"
#include "support/stop.h"
#include "syntax/walk_ast.h"
#include <algorithm>
#include <cstdlib>

namespace tkc::driver {

// The tile that stands for a tensor in a reference: f64, i64 or bool.
static DType host_dtype(DType t) { return is_float(t) ? DType::F64 : is_bool(t) ? DType::Bool : DType::I64; }

static interp::Tile to_tile(const HostTensor &t) {
  interp::Tile out(host_dtype(t.dtype), t.shape);
  if (out.is_float())
    t.get_range(0, out.f);
  else
    for (int64_t k = 0; k < t.count(); k++) out.i[size_t(k)] = t.get_int(k);
  return out;
}

Result<std::vector<interp::Value>> call_host(const sema::HostFunction &h, std::vector<interp::Value> args,
                                             uint64_t seed, const SourceManager &sources, interp::Launch launch) {
  const ir::Function &f = *h.fn;
  size_t given = args.size();
  for (size_t g = 0; g < h.generators.size(); g++) {
    const sema::GeneratorCall &call = h.generators[g];
    const ir::Type &t = f.params[given + g].type;
    auto kind = parse_fill_kind(call.kind == "edge" ? "edges" : call.kind);
    if (!kind) return failure("no generator `{}`", call.kind);
    auto fill = make_fill(*kind, call.args);
    if (!fill) return fill.failed();
    interp::Tile tile(t.dtype, t.shape);
    std::vector<double> values = fill_values(*fill, t.dtype, tile.size(), stream_seed(seed, int64_t(g)));
    if (tile.is_float())
      tile.f = std::move(values);
    else
      for (size_t k = 0; k < values.size(); k++) tile.i[k] = int64_t(values[k]);
    args.emplace_back(std::move(tile));
  }
  launch.function = &f;
  launch.args = std::move(args);
  interp::Result r = interp::run(launch);
  if (auto why = stop_reason()) return *why;
  if (r.trap) {
    std::string at = sources.describe(r.trap->loc);
    return failure("{}{}", at.empty() ? "" : at + ": ", r.trap->message);
  }
  return std::move(r.results);
}

// A compile-time parameter as a number; nothing for a type or an enum value.
static std::optional<double> binding_number(const std::string &text) {
  if (text == "true" || text == "false") return text == "true";
  char *end = nullptr;
  double v = std::strtod(text.c_str(), &end);
  return !text.empty() && !*end ? std::optional(v) : std::nullopt;
}

std::vector<sema::HostArg> words_of(const ir::Function &f) {
  std::vector<sema::HostArg> out;
  for (const auto &[name, text] : f.bindings)
    if (!binding_number(text)) out.push_back({.name = name, .word = text});
  return out;
}

void add_host_argument(const ir::Param &p, const HostTensor &t, std::vector<sema::HostArg> &args,
                       std::vector<interp::Value> &values) {
  if (!p.type.is_tensor() || (p.present && p.mode == ir::ParamMode::Out)) return;
  args.push_back({p.name, p.present ? host_dtype(p.type.dtype) : DType::F64, t.shape, !p.present});
  if (p.present) values.emplace_back(to_tile(t));
}

sema::Numbers numbers_of(const ir::Function &f, const sema::CaseSpec &c) {
  sema::Numbers out = c.numbers;
  for (const auto &[name, text] : f.bindings)
    if (auto v = binding_number(text)) out.emplace(name, *v);
  return out;
}

// A nameless case is the command line of `tkc run`.
static Error no_value(const sema::CaseSpec &c, std::string_view what, const std::string &name) {
  if (!c.name.empty()) return failure("case `{}` gives no value for the {} `{}`", c.name, what, name);
  return failure("the {} `{}` has no value: give --{} {}=VALUE{}", what, name, what, name,
                 what == "size" ? ", or an input file that has it" : "");
}

Status bind_sizes(const ir::Function &f, const sema::CaseSpec &c, LaunchData &data) {
  for (const std::string &s : f.sizes) {
    auto it = c.numbers.find(s);
    if (it == c.numbers.end()) return no_value(c, "size", s);
    data.sizes[s] = int64_t(it->second);
  }
  return {};
}

namespace {

// Makes the data of one case, parameter by parameter: an input may use those before it.
class CaseData {
public:
  CaseData(sema::Program &program, const ast::Check *check, const ir::Function &f, const sema::CaseSpec &c,
           const DataRules &rules, Diagnostics &diags)
      : program_(program), check_(check), f_(f), case_(c), rules_(rules), diags_(diags), numbers_(numbers_of(f, c)),
        args_(words_of(f)) {
    if (!check) return;
    for (const ast::Input &i : check->inputs) sema::used_names(*i.value, used_);
    for (const ast::StmtPtr &let : check->lets) sema::used_names(*let->value, used_);
  }

  // `contents`: else shapes alone.
  Result<LaunchData> run(const GivenTensors &given, bool contents) {
    TKC_TRY(bind_sizes(f_, case_, data_));
    for (const ir::Param &p : f_.params)
      if (!p.type.is_tensor())
        if (auto it = case_.numbers.find(p.name); it != case_.numbers.end()) data_.scalars[p.name] = it->second;
    data_.tensors.resize(f_.params.size());
    for (size_t i = 0; i < f_.params.size(); i++) {
      const ir::Param &p = f_.params[i];
      if (!p.type.is_tensor()) {
        TKC_TRY(scalar(i));
        continue;
      }
      if (p.present) {
        auto shape = extents(f_, p, data_);
        if (!shape) return shape.failed();
        data_.tensors[i].dtype = p.type.dtype;
        data_.tensors[i].shape = *shape;
        if (contents) TKC_TRY(tensor(i, given));
      }
      // In wide form a tensor takes up to eight times its bytes: only what the block names.
      if (contents && std::find(used_.begin(), used_.end(), p.name) != used_.end())
        add_host_argument(p, data_.tensors[i], args_, values_);
    }
    TKC_TRY(strides());
    return std::move(data_);
  }

private:
  uint64_t seed(size_t param) const {
    return rules_.group ? bench_seed(*rules_.group, int64_t(param)) : stream_seed(rules_.seed, int64_t(param));
  }

  const ast::Input *input_of(const ir::Param &p) const {
    if (!check_) return nullptr;
    for (const ast::Input &in : check_->inputs)
      if (in.name.text == p.name) return &in;
    return nullptr;
  }

  Result<interp::Tile> evaluate(const ast::Input &input, size_t param, const std::vector<int64_t> &shape) {
    const ir::Param &p = f_.params[param];
    auto h =
        sema::build_input(program_, *check_, input, numbers_, args_, {p.name, host_dtype(p.type.dtype), shape}, diags_);
    if (!h) return failure("input `{}` has errors", p.name);
    auto r = call_host(*h, values_, seed(param), diags_.sources());
    if (!r) return r.failed();
    return std::get<interp::Tile>(std::move((*r)[0]));
  }

  Status scalar(size_t i) {
    const ir::Param &p = f_.params[i];
    if (!data_.scalars.count(p.name)) {
      const ast::Input *input = input_of(p);
      if (!input) return no_value(case_, "scalar", p.name);
      auto tile = evaluate(*input, i, {});
      if (!tile) return tile.failed();
      data_.scalars[p.name] = tile->as_f(0);
    }
    numbers_.emplace(p.name, data_.scalars[p.name]);
    return {};
  }

  Status tensor(size_t i, const GivenTensors &given) {
    const ir::Param &p = f_.params[i];
    const std::vector<int64_t> shape = data_.tensors[i].shape;
    HostTensor &t = data_.tensors[i];
    if (p.mode == ir::ParamMode::Out) {
      if (rules_.group) return {};
      t = HostTensor::zeros(p.type.dtype, shape);
      poison(t);
    } else if (auto it = given.find(p.name); it != given.end()) {
      t = it->second;
    } else if (const ast::Input *input = input_of(p)) {
      auto tile = evaluate(*input, i, shape);
      if (!tile) return tile.failed();
      t = HostTensor::zeros(p.type.dtype, shape);
      if (tile->is_float())
        t.set_range(0, tile->f);
      else
        for (int64_t k = 0; k < t.count(); k++) t.set_int(k, tile->i[size_t(k)]);
    } else {
      t = fill_tensor(silent(p.type.dtype), p.type.dtype, shape, seed(i));
    }
    return {};
  }

  // What an input holds that nothing is said about.
  Fill silent(DType t) const {
    if (rules_.group) return convention_fill(t);
    std::vector<double> two = {0, 1}, small = {-8, 8}, coin = {0.5};
    auto fill = is_float(t)  ? make_fill(FillKind::Normal, two)
                : is_bool(t) ? make_fill(FillKind::Bernoulli, coin)
                             : make_fill(FillKind::Integers, small);
    TKC_CHECK(fill, "a generator does not take its own defaults");
    return *fill;
  }

  Status strides() {
    if (case_.strides.empty()) return {};
    for (size_t i = 0; i < f_.params.size(); i++) {
      const ir::Param &p = f_.params[i];
      const std::vector<int64_t> &shape = data_.tensors[i].shape;
      data_.strides.push_back(dense_strides(shape));
      auto said = case_.strides.find(p.name);
      if (said == case_.strides.end() || !p.present) continue;
      const ast::Expr &e = *said->second;
      auto strides = sema::evaluate_strides(program_, *check_, e, shape.size(), !p.any_strides, numbers_, diags_);
      if (!strides) return failure("the strides of `{}` have errors", p.name);
      if (std::string fault = stride_fault(shape, *strides); !fault.empty()) {
        diags_.report(e.loc, DiagKind::bad_check, fmt::format("strides of `{}`: {}", p.name, fault));
        return failure("the strides of `{}` have errors", p.name);
      }
      data_.strides.back() = std::move(*strides);
    }
    return {};
  }

  sema::Program &program_;
  const ast::Check *check_;
  const ir::Function &f_;
  const sema::CaseSpec &case_;
  const DataRules rules_;
  Diagnostics &diags_;
  LaunchData data_;
  std::vector<std::string> used_; // names in the block's inputs
  sema::Numbers numbers_;
  std::vector<sema::HostArg> args_;
  std::vector<interp::Value> values_; // of the tensors among them
};

} // namespace

Result<LaunchData> make_data(sema::Program &program, const ast::Check *check, const ir::Function &f,
                             const sema::CaseSpec &c, const DataRules &rules, Diagnostics &diags,
                             const GivenTensors &given) {
  return CaseData(program, check, f, c, rules, diags).run(given, true);
}

bool makes_contents(const ast::Check &check, const ir::Function &f) {
  return std::any_of(f.params.begin(), f.params.end(), [&](const ir::Param &p) {
    return p.type.is_tensor() && std::any_of(check.inputs.begin(), check.inputs.end(),
                                             [&](const ast::Input &in) { return in.name.text == p.name; });
  });
}

Result<LaunchData> make_shapes(sema::Program &program, const ast::Check *check, const ir::Function &f,
                               const sema::CaseSpec &c, const DataRules &rules, Diagnostics &diags) {
  // A scalar that an expression makes may come from the contents of tensors.
  bool contents = check && std::any_of(f.params.begin(), f.params.end(), [&](const ir::Param &p) {
                    return !p.type.is_tensor() && !c.numbers.count(p.name);
                  });
  auto data = CaseData(program, check, f, c, rules, diags).run({}, contents);
  if (!data) return data.failed();
  for (HostTensor &t : data->tensors) t.bytes.clear();
  return data;
}

} // namespace tkc::driver

#include "driver/run.h"
#include "sema/signature.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace tkc::driver {

namespace {

template <typename T> bool parse_number(const std::string &text, T &value) {
  auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() && !text.empty();
}

std::string suggestion(const std::string &name, const std::vector<std::string> &names) {
  std::string near = nearest_name(name, names);
  return near.empty() ? "" : "; did you mean `" + near + "`?";
}

const ast::Param *find_param(const ast::Function &kernel, const std::string &name) {
  for (const ast::Param &p : kernel.params)
    if (p.name.text == name) return &p;
  return nullptr;
}
bool is_tensor(const ast::Param &p) { return p.type && p.type->kind == ast::TypeKind::Tensor; }

// What the command line says of a kernel, before there is an instance of it: values by name, and who said so.
class Deduction {
public:
  Deduction(sema::Program &program, const ast::Function &kernel, const RunRequest &request,
            const sema::InstanceSpec &given)
      : program_(program), kernel_(kernel), request_(request) {
    for (const auto &[name, text] : given.params) {
      spec.params[name] = text;
      said_by_[name] = "-P";
    }
  }

  sema::InstanceSpec spec;
  std::map<std::string, double> numbers; // sizes and scalars
  std::map<std::string, TensorFile> inputs, expected;

  Status run() {
    TKC_TRY(check_names());
    for (const auto &[name, text] : request_.sizes) {
      int64_t value = 0;
      if (!parse_number(text, value)) return failure("--size {}={}: this is no integer", name, text);
      TKC_TRY(say(name, value, "--size"));
    }
    for (const auto &[name, text] : request_.scalars) {
      double value = text == "true";
      if (text != "true" && text != "false" && !parse_number(text, value))
        return failure("--scalar {}={}: this is no number", name, text);
      numbers[name] = value;
    }
    TKC_TRY(open(request_.inputs, inputs));
    TKC_TRY(open(request_.expected, expected));
    for (const auto *files : {&inputs, &expected})
      for (const auto &[name, file] : *files) TKC_TRY(deduce(*find_param(kernel_, name), file));
    for (const ast::Param &p : kernel_.params)
      if (is_tensor(p) && p.type->optional && !request_.inputs.count(p.name.text) &&
          !request_.outputs.count(p.name.text) && !request_.expected.count(p.name.text))
        spec.absent.insert(p.name.text);
    return {};
  }

private:
  Status check_names() const {
    std::vector<std::string> tensors, scalars, sizes;
    for (const ast::Param &p : kernel_.params) (is_tensor(p) ? tensors : scalars).push_back(p.name.text);
    for (const ast::GenericParam &g : kernel_.generics) sizes.push_back(g.name.text);
    for (const ast::Param &p : kernel_.params)
      if (is_tensor(p))
        for (const ast::ExprPtr &d : p.type->dims) sema::used_names(*d, sizes);
    auto known = [&](const auto &map, const std::vector<std::string> &names, std::string_view option,
                     std::string_view what) -> Status {
      for (const auto &[name, value] : map)
        if (std::find(names.begin(), names.end(), name) == names.end())
          return failure("{} {}: {} `{}` has no {} `{}`{}", option, name, ast::spelling(kernel_.kind),
                         kernel_.name.text, what, name, suggestion(name, names));
      return {};
    };
    TKC_TRY(known(request_.inputs, tensors, "--input", "tensor"));
    TKC_TRY(known(request_.outputs, tensors, "--output", "tensor"));
    TKC_TRY(known(request_.expected, tensors, "--expect", "tensor"));
    TKC_TRY(known(request_.scalars, scalars, "--scalar", "scalar"));
    TKC_TRY(known(request_.sizes, sizes, "--size", "size"));
    for (const auto &[name, path] : request_.inputs)
      if (find_param(kernel_, name)->mode == ast::ParamMode::Out)
        return failure("--input {}: `{}` is an output of {} `{}`", name, name, ast::spelling(kernel_.kind),
                       kernel_.name.text);
    for (const auto *files : {&request_.outputs, &request_.expected})
      for (const auto &[name, path] : *files)
        if (find_param(kernel_, name)->mode == ast::ParamMode::In)
          return failure("{} {}: `{}` is an input of {} `{}`", files == &request_.outputs ? "--output" : "--expect",
                         name, name, ast::spelling(kernel_.kind), kernel_.name.text);
    return {};
  }

  static Status open(const std::map<std::string, TensorPath> &paths, std::map<std::string, TensorFile> &files) {
    for (const auto &[name, path] : paths) {
      Result<TensorFile> file = TensorFile::open(path);
      if (!file) return failure("{}: {}", name, file.error());
      files.emplace(name, std::move(*file));
    }
    return {};
  }

  const ast::GenericParam *generic(const std::string &name) const {
    for (const ast::GenericParam &g : kernel_.generics)
      if (g.name.text == name) return &g;
    return nullptr;
  }

  // A value of a size or of a compile-time integer; two that differ are an error that names both sources.
  Status say(const std::string &name, int64_t value, const std::string &who) {
    bool constant = generic(name) != nullptr;
    std::string text = std::to_string(value);
    auto [it, fresh] = said_by_.emplace(name, who);
    std::string before = constant ? spec.params[name] : fresh ? text : std::to_string(int64_t(numbers[name]));
    if (!fresh && std::strtoll(before.c_str(), nullptr, 0) != value)
      return failure("`{}` is {} by {} and {} by {}", name, before, it->second, text, who);
    if (constant)
      spec.params[name] = text;
    else
      numbers[name] = double(value);
    return {};
  }

  Status deduce(const ast::Param &p, const TensorFile &file) {
    std::string who = fmt::format("dim {{}} of `{}` ({})", p.name.text, file.path().str());
    const std::vector<int64_t> &shape = file.shape();
    if (shape.size() != p.type->dims.size())
      return failure("{}: `{}` holds a tensor of shape {}, `{}` has {} dims", p.name.text, file.path().str(),
                     shape_to_string(shape), p.name.text, p.type->dims.size());
    for (size_t d = 0; d < shape.size(); d++) {
      const ast::Expr &e = *p.type->dims[d];
      if (e.kind != ast::ExprKind::Name) continue; // compared once there is an instance
      const ast::GenericParam *g = generic(e.text);
      bool integer = g && (!g->type || g->type->name.text == "int");
      if (g && !integer) continue;
      if (!g && program_.root().consts.count(e.text)) continue;
      TKC_TRY(say(e.text, shape[d], fmt::format(fmt::runtime(who), d)));
    }
    // kernel k<T: type = bf16>(x: tensor<T>[N])
    const std::string &element = p.type->element.text;
    if (const ast::GenericParam *g = generic(element); g && file.dtype() && !spec.params.count(element))
      spec.params[element] = dtype_name(*file.dtype());
    return {};
  }

  sema::Program &program_;
  const ast::Function &kernel_;
  const RunRequest &request_;
  std::map<std::string, std::string> said_by_;
};

// The tensor of a file as the instance wants it.
Result<HostTensor> read_for(const ir::Function &f, const std::string &name, const TensorFile &file,
                            const LaunchData &sizes) {
  for (const ir::Param &p : f.params) {
    if (p.name != name) continue;
    Result<std::vector<int64_t>> shape = extents(f, p, sizes);
    if (!shape) return shape.failed();
    Result<HostTensor> t = file.read(p.type.dtype);
    if (!t) return failure("{}: {}", name, t.error());
    if (t->shape != *shape)
      return failure("{}: `{}` holds {}, but `{}` is {}{}", name, file.path().str(), t->to_string(), name,
                     dtype_name(p.type.dtype), shape_to_string(*shape));
    return t;
  }
  TKC_UNREACHABLE("no parameter `{}`", name);
}

} // namespace

Result<RunResult> run_kernel(sema::Program &program, const ast::Function &kernel, const RunRequest &request,
                             const VerifyOptions &o, Diagnostics &diags) {
  Deduction deduced(program, kernel, request, o.overrides);
  TKC_TRY(deduced.run());
  RunResult out;
  auto instance = make_instance(program, kernel, deduced.spec, o.compile.target, diags);
  if (!instance) return failure("the {} has errors", ast::spelling(kernel.kind));
  out.instance = std::move(*instance);
  const ir::Function &f = *out.instance.function;
  const ast::Check *check = program.check_for(kernel.name.text, false);
  sema::CaseSpec values;
  values.numbers = deduced.numbers;
  LaunchData sizes;
  TKC_TRY(bind_sizes(f, values, sizes));
  for (const auto &[name, v] : deduced.numbers) sizes.scalars.emplace(name, v);
  GivenTensors given;
  for (const auto &[name, file] : deduced.inputs) {
    Result<HostTensor> t = read_for(f, name, file, sizes);
    if (!t) return t.failed();
    given.emplace(name, std::move(*t));
  }
  std::map<std::string, HostTensor> expected; // before the run: a wrong file costs no time
  for (const auto &[name, file] : deduced.expected) {
    Result<HostTensor> t = read_for(f, name, file, sizes);
    if (!t) return t.failed();
    expected.emplace(name, std::move(*t));
  }
  Result<LaunchData> data = make_data(program, check, f, values, {.seed = o.seed}, diags, given);
  if (!data) return data.failed();
  out.data = std::move(*data);
  if (o.progress) o.progress(kernel.name.text);
  std::vector<LaunchData> results;
  InstanceCode code;
  TKC_TRY(run_on(program, out.instance, deduced.spec, o, diags, out.data, out.printed, results, code));
  std::vector<TensorOutput> outputs;
  for (size_t i = 0; i < f.params.size(); i++) {
    const std::string &name = f.params[i].name;
    if (auto it = expected.find(name); it != expected.end()) {
      Tolerance tolerance = tolerance_of(check, name, f.params[i].type.dtype, diags);
      out.compared.emplace_back(name, compare(out.data.tensors[i], it->second, tolerance));
      out.compared.back().second.dims = dim_names(kernel, name);
    }
    if (auto it = request.outputs.find(name); it != request.outputs.end())
      outputs.push_back({it->second, name, &out.data.tensors[i]});
  }
  Result<std::vector<OutputFile>> files = encode_tensors(outputs);
  if (!files) return files.failed();
  out.files = std::move(*files);
  return out;
}

} // namespace tkc::driver

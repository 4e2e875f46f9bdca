#include "driver/run_ptx.h"
#include "driver/execute.h"
#include "runtime/compare.h"
#include "support/stop.h"
#include <algorithm>
#include <charconv>
#include <cstring>

namespace tkc::driver {

namespace {

template <typename T> bool parse_number(std::string_view text, T &value) {
  auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() && !text.empty();
}

Status scalar_bits(DType t, std::string_view text, uint64_t &bits) {
  auto bad = [&] { return failure("`{}` is no {}", text, dtype_name(t)); };
  if (is_float(t)) {
    double v = 0;
    if (!parse_number(text, v)) return bad();
    bits = encode_float(t, round_to(t, v));
    return {};
  }
  if (is_bool(t)) {
    if (text != "true" && text != "false" && text != "0" && text != "1") return bad();
    bits = text == "true" || text == "1";
    return {};
  }
  int64_t v = 0;
  if (!is_signed(t) && dtype_bits(t) == 64) {
    uint64_t u = 0;
    if (!parse_number(text, u)) return bad();
    bits = u;
    return {};
  }
  if (!parse_number(text, v) || wrap_to(t, v) != v) return bad();
  bits = uint64_t(v);
  return {};
}

// "f32[64,32]"
Status tensor_type(std::string_view text, PtxArgument &out) {
  size_t open = text.find('[');
  std::optional<DType> t = open == text.npos ? std::nullopt : parse_dtype(text.substr(0, open));
  if (!t || !text.ends_with("]")) return failure("`{}` is no tensor type such as f32[64,32]", text);
  out.dtype = *t;
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    int64_t n = 0;
    if (!parse_number(rest.substr(0, comma), n) || n < 0) return failure("`{}`: a dim is no size", text);
    out.shape.push_back(n);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (!element_count(out.shape)) return failure("`{}` is too large", text);
  return {};
}

Status input_file(std::string_view text, PtxArgument &out) {
  size_t colon = text.find(':');
  if (colon != text.npos)
    if (auto t = parse_dtype(text.substr(0, colon))) {
      out.wanted = *t;
      text.remove_prefix(colon + 1);
    }
  Result<TensorPath> path = parse_tensor_path(text);
  if (!path) return path.failed();
  out.from = *path;
  return {};
}

Status output_file(std::string_view text, PtxArgument &out) {
  Result<TensorPath> path = parse_tensor_path(text);
  if (!path) return path.failed();
  out.to = *path;
  return {};
}

Result<const emu::KernelInfo *> choose(const emu::Module &module, const std::string &name) {
  std::vector<const emu::KernelInfo *> all = emu::kernels(module);
  std::string names;
  for (const emu::KernelInfo *k : all) {
    if (k->name == name) return k;
    names += (names.empty() ? "" : ", ") + k->name;
  }
  if (all.empty()) return failure("the file has no kernel");
  if (name.empty() && all.size() == 1) return all[0];
  if (name.empty()) return failure("the file has several kernels, choose one with -k: {}", names);
  return failure("the file has no kernel `{}`; it has {}", name, names);
}

} // namespace

Result<PtxArgument> parse_ptx_argument(std::string_view text) {
  PtxArgument out;
  using Kind = PtxArgument::Kind;
  if (text == "null") {
    out.kind = Kind::Null;
    return out;
  }
  size_t colon = text.find(':');
  std::string_view what = text.substr(0, colon), rest = colon == text.npos ? "" : text.substr(colon + 1);
  Status status;
  size_t comma = rest.rfind(',');
  if (what == "in") {
    out.kind = Kind::In;
    status = input_file(rest, out);
  } else if (what == "inout" || what == "out") {
    out.kind = what == "out" ? Kind::Out : Kind::InOut;
    if (comma == rest.npos)
      status = failure("it names no output file: {}", what == "out" ? "out:f32[64,32],c.npy" : "inout:a.npy,b.npy");
    else
      status = what == "out" ? tensor_type(rest.substr(0, comma), out) : input_file(rest.substr(0, comma), out);
    if (status) status = output_file(rest.substr(comma + 1), out);
  } else if (auto t = parse_dtype(what); t && colon != text.npos) {
    if (dtype_bits(*t) < 8 || (is_float(*t) && dtype_bits(*t) == 8) || *t == DType::TF32)
      status = failure("{} is no type of a PTX parameter", what);
    out.dtype = *t;
    if (status) status = scalar_bits(*t, rest, out.bits);
  } else {
    status = failure("it is not of the form i32:42, in:FILE, inout:FILE,FILE, out:f32[64,32],FILE or null");
  }
  if (!status) return failure("--arg {}: {}", text, status.error());
  return out;
}

Result<PtxResult> run_ptx(std::string ptx, const PtxRequest &request) {
  emu::ParseResult parsed = emu::parse_ptx(std::move(ptx));
  if (!parsed.module) {
    std::string message = "the emulator does not take this PTX";
    for (const emu::PtxDiagnostic &e : parsed.errors) message += fmt::format("\n  line {}: {}", e.line, e.message);
    return Error{message};
  }
  Result<const emu::KernelInfo *> found = choose(*parsed.module, request.kernel);
  if (!found) return found.failed();
  const emu::KernelInfo &kernel = **found;
  if (request.arguments.size() != kernel.params.size()) {
    std::string list;
    for (const emu::PtxParam &p : kernel.params)
      list += fmt::format("\n  {} ({} bytes{})", p.name, p.bytes, p.pointer ? ", pointer" : "");
    return failure("kernel `{}` takes {} arguments, {} are given by --arg{}", kernel.name, kernel.params.size(),
                   request.arguments.size(), list);
  }
  emu::Memory memory;
  emu::ParamWriter writer(kernel);
  std::vector<uint64_t> addresses(request.arguments.size(), 0);
  std::vector<HostTensor> tensors(request.arguments.size());
  for (size_t i = 0; i < request.arguments.size(); i++) {
    const PtxArgument &a = request.arguments[i];
    const emu::PtxParam &p = kernel.params[i];
    using Kind = PtxArgument::Kind;
    int64_t bytes = a.kind == Kind::Scalar ? dtype_bytes(a.dtype) : 8;
    if (bytes != p.bytes)
      return failure("argument {} of kernel `{}` ({}) has {} bytes, the given one {}", i, kernel.name, p.name, p.bytes,
                     bytes);
    uint64_t bits = a.bits;
    if (a.kind != Kind::Scalar && a.kind != Kind::Null) {
      if (a.from) {
        Result<TensorFile> file = TensorFile::open(*a.from);
        if (!file) return file.failed();
        Result<HostTensor> t = file->read(a.wanted);
        if (!t) return t.failed();
        tensors[i] = std::move(*t);
      } else {
        tensors[i] = HostTensor::zeros(a.dtype, a.shape);
        poison(tensors[i]);
      }
      emu::Memory::Attributes attributes;
      attributes.readonly = a.kind == Kind::In;
      bits = addresses[i] = memory.allocate(int64_t(tensors[i].bytes.size()), p.name, attributes);
      if (!tensors[i].bytes.empty()) std::memcpy(memory.host(bits), tensors[i].bytes.data(), tensors[i].bytes.size());
    }
    writer.set_bytes(int64_t(i), &bits, bytes); // little-endian
  }
  emu::Launch launch = request.launch;
  launch.params = writer.bytes();
  PtxResult out;
  out.kernel = kernel.name;
  {
    TimeLimit limit(request.limit_seconds);
    emu::Report report = emu::run(*parsed.module, kernel.name, memory, launch, request.options);
    if (auto why = stop_reason()) return *why;
    if (!report.ok()) {
      Error e = emulator_failure(report);
      for (size_t k = 1; k < report.errors.size(); k++) e.message += "\n" + emu::to_string(report.errors[k]);
      return e;
    }
    out.printed = std::move(report.printed);
    out.instructions = report.instructions;
  }
  std::vector<TensorOutput> outputs;
  for (size_t i = 0; i < request.arguments.size(); i++) {
    if (!request.arguments[i].to) continue;
    if (!tensors[i].bytes.empty())
      std::memcpy(tensors[i].bytes.data(), memory.host(addresses[i]), tensors[i].bytes.size());
    outputs.push_back({*request.arguments[i].to, kernel.params[i].name, &tensors[i]});
  }
  Result<std::vector<OutputFile>> files = encode_tensors(outputs);
  if (!files) return files.failed();
  out.files = std::move(*files);
  return out;
}

} // namespace tkc::driver

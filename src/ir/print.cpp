#include "ir/print.h"
#include "ir/op_def.h"
#include "support/json.h"
#include <cmath>
#include <unordered_map>

namespace tkc::ir {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

// A hint as the parser can read it back: a word without a numeric suffix.
std::string base_name(const std::string &hint) {
  std::string base = hint;
  size_t dot = base.rfind('.');
  if (dot != base.npos && dot + 1 < base.size() && base.find_first_not_of("0123456789", dot + 1) == base.npos)
    base.resize(dot);
  for (char &c : base)
    if (!is_word(c)) c = '_';
  if (!base.empty() && is_digit(base[0])) base.insert(0, "_");
  return base;
}

// A name of the function's description; anything but a word is quoted.
std::string print_name(const std::string &name) {
  bool word = !name.empty() && !is_digit(name[0]);
  for (char c : name) word &= is_word(c);
  return word ? name : json_quote(name);
}

std::string print_double(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", v);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

template <typename T, typename F> std::string join(const std::vector<T> &list, F &&text) {
  std::string out;
  for (size_t i = 0; i < list.size(); i++) out += (i ? ", " : "") + text(list[i]);
  return out;
}

const char *mode_name(ParamMode mode) {
  switch (mode) {
  case ParamMode::In: return "in";
  case ParamMode::Out: return "out";
  case ParamMode::InOut: return "inout";
  }
  TKC_UNREACHABLE("parameter mode");
}

class Printer {
public:
  explicit Printer(const PrintOptions &options) : options_(options) {}

  std::string function(const Function &f) {
    out_ = fmt::format("{} {} {{\n", f.kind == FunctionKind::Kernel ? "kernel" : "reference", print_name(f.name));
    for (const Param &p : f.params) param(p);
    for (const std::string &s : f.sizes) line("size " + print_name(s));
    for (const auto &[name, text] : f.bindings) line(fmt::format("bind {} = {}", print_name(name), json_quote(text)));
    if (!f.grid.empty()) line("grid (" + join(f.grid, [](const SizeExpr &e) { return e.str(); }) + ")");
    if (!f.order.empty())
      line(fmt::format("order {}({})", print_name(f.order),
                       join(f.order_args, [](int64_t v) { return std::to_string(v); })));
    if (f.persistent)
      line(f.tile_annotations.list().empty() ? "persistent" : "persistent " + attrs(f.tile_annotations));
    if (f.overlaps) line("overlaps");
    if (f.warps) line(fmt::format("warps {}", f.warps));
    for (const SizeExpr &e : f.facts) line("where " + e.str());
    for (const std::string &s : f.result_names) line("result " + print_name(s));
    if (f.shared_bytes) line(fmt::format("shared {}", f.shared_bytes));
    indent_ = 1;
    out_ += "  body ";
    region(*f.body);
    out_ += "\n}\n";
    return std::move(out_);
  }

  static std::string attrs(const Attrs &a) {
    return "{" + join(a.list(), [](const auto &kv) { return print_name(kv.first) + " = " + print_attr(kv.second); }) +
           "}";
  }

  std::string op_head(const Op &op) {
    std::string out;
    if (!op.results.empty()) out += join(op.results, [&](const Value *v) { return define(v); }) + " = ";
    out += def(op).name.s;
    if (!op.operands.empty()) out += " " + join(op.operands, [&](const Value *v) { return use(v); });
    if (!op.results.empty()) out += " : " + join(op.results, [](const Value *v) { return v->type.str(); });
    if (!op.attrs.list().empty()) out += " " + attrs(op.attrs);
    bool any_layout = false;
    for (const Value *v : op.results) any_layout |= v->layout.has_value();
    if (any_layout) {
      std::string layouts;
      for (const Value *v : op.results)
        layouts += (layouts.empty() ? "" : "; ") + (v->layout ? v->layout->to_string() : std::string("none"));
      out += " layout(" + layouts + ")";
    }
    if (options_.locations && op.loc.valid())
      out += fmt::format(" loc({}, {}, {})", op.loc.file, op.loc.begin, op.loc.end);
    return out;
  }

private:
  void line(const std::string &text) { out_ += "  " + text + "\n"; }
  void pad() { out_.append(size_t(indent_) * 2, ' '); }

  void param(const Param &p) {
    std::string text = fmt::format("param {}: {} {}", print_name(p.name), mode_name(p.mode), p.type.str());
    if (!p.dims.empty()) text += " dims [" + join(p.dims, [](const SizeExpr &e) { return e.str(); }) + "]";
    if (p.any_strides) text += " strides(any)";
    if (p.optional) text += " optional";
    if (!p.present) text += " absent";
    if (p.record) text += " record " + record(*p.record);
    line(text);
  }

  static std::string record(const Record &r) {
    std::string args =
        r.args.empty() ? "" : "<" + join(r.args, [](const std::string &a) { return json_quote(a); }) + ">";
    return json_quote(r.name) + args + " {" +
           join(r.fields,
                [](const RecordField &f) {
                  return fmt::format("{}: {}{}", print_name(f.name), dtype_name(f.dtype), shape_str(f.shape));
                }) +
           "}";
  }

  // `(args) {` ops `}`, or `{` ops `}` without arguments.
  void region(const Block &block) {
    if (!block.args.empty())
      out_ += "(" +
              join(block.args,
                   [&](const Value *v) {
                     std::string text = define(v) + " : " + v->type.str();
                     return v->layout ? text + " layout(" + v->layout->to_string() + ")" : text;
                   }) +
              ") ";
    out_ += "{\n";
    indent_++;
    for (const Op *op : block.ops) {
      pad();
      out_ += op_head(*op);
      for (const Block *r : op->regions) {
        out_ += " do ";
        region(*r);
      }
      out_ += "\n";
    }
    indent_--;
    pad();
    out_ += "}";
  }

  std::string define(const Value *v) {
    std::string base = base_name(v->name);
    int64_t n = used_[base]++;
    std::string name = base.empty() ? fmt::format("%{}", n) : n == 0 ? "%" + base : fmt::format("%{}.{}", base, n);
    names_[v] = name;
    return name;
  }

  // A value used before its definition is an error that the verifier reports; it still prints.
  std::string use(const Value *v) {
    if (!v) return "%<null>";
    auto it = names_.find(v);
    if (it != names_.end()) return it->second;
    std::string base = base_name(v->name);
    return base.empty() ? fmt::format("%<{}>", v->id) : "%" + base;
  }

  PrintOptions options_;
  std::string out_;
  int64_t indent_ = 0;
  std::unordered_map<std::string, int64_t> used_;
  std::unordered_map<const Value *, std::string> names_;
};

} // namespace

std::string print_attr(const Attr &attr) {
  struct Visitor {
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return print_double(v); }
    std::string operator()(const std::string &v) const { return json_quote(v); }
    std::string operator()(const std::vector<int64_t> &v) const {
      return "[" + join(v, [](int64_t x) { return std::to_string(x); }) + "]";
    }
    std::string operator()(const std::vector<std::string> &v) const {
      // The empty list says that it is one of strings.
      return v.empty() ? "strings[]" : "[" + join(v, [](const std::string &x) { return json_quote(x); }) + "]";
    }
    std::string operator()(DType v) const { return std::string(dtype_name(v)); }
    std::string operator()(const RegLayout &v) const {
      return fmt::format("reg_layout{}({})", shape_str(v.shape), v.to_string());
    }
    std::string operator()(const SmemLayout &v) const {
      return fmt::format("smem_layout{}({}, {}, {}, {})", shape_str(v.shape), v.elem_bytes, v.bytes, v.alignment,
                         v.to_string());
    }
  };
  return std::visit(Visitor{}, attr);
}

std::string print(const Function &f, const PrintOptions &options) { return Printer(options).function(f); }

std::string print_op(const Op &op) { return Printer({}).op_head(op); }

} // namespace tkc::ir

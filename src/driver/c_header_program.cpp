// Programs in `--emit header`: their steps as C.
#include "driver/c_header_text.h"
#include "driver/lifetimes.h"
#include "support/check.h"

namespace tkc::driver {

using ir::SizeExpr;
using sema::HostStmt;
using sema::LaunchArgument;

namespace {

class Steps {
public:
  Steps(const std::string &stem, const sema::HostProgram &program)
      : stem_(stem), program_(program), alive_(lifetimes(program)) {}

  std::string run() {
    block(program_.body);
    return std::move(out_);
  }

private:
  template <typename... A> void line(fmt::format_string<A...> pattern, A &&...args) {
    out_ += std::string(size_t(2 * depth_), ' ') + fmt::format(pattern, std::forward<A>(args)...) + "\n";
  }

  void block(const std::vector<HostStmt> &stmts) {
    for (const HostStmt &s : stmts) statement(s);
  }

  void nested(const std::vector<HostStmt> &stmts) {
    depth_++;
    block(stmts);
    depth_--;
  }

  void statement(const HostStmt &s) {
    switch (s.kind) {
    case HostStmt::Kind::Launch: return launch(s);
    case HostStmt::Kind::Alloc: return alloc(s.alloc);
    case HostStmt::Kind::Let:
      line("const int64_t {} = {};", c_symbol(s.counter), c_expression(s.lo));
      line("(void){};", c_symbol(s.counter));
      return line("if (bad) return TKC_NO_VALUE;");
    case HostStmt::Kind::Require:
      return line("if (!({}) || bad) return bad ? TKC_NO_VALUE : TKC_WHERE;", c_expression(s.cond));
    case HostStmt::Kind::If:
      line("{{");
      depth_++;
      line("const int64_t cond = {};", c_expression(s.cond));
      line("if (bad) return TKC_NO_VALUE;");
      line("if (cond) {{");
      nested(s.body);
      if (!s.else_body.empty()) {
        line("}} else {{");
        nested(s.else_body);
      }
      line("}}");
      depth_--;
      return line("}}");
    case HostStmt::Kind::For: {
      std::string i = c_symbol(s.counter);
      line("{{");
      depth_++;
      line("const int64_t lo = {}, hi = {}, by = {};", c_expression(s.lo), c_expression(s.hi), c_expression(s.step));
      line("int64_t {};", i);
      line("if (bad || by < 1) return TKC_NO_VALUE;");
      line("for ({} = lo; {} < hi; {} = {} < hi - by ? {} + by : hi) {{", i, i, i, i, i);
      nested(s.body);
      line("}}");
      depth_--;
      return line("}}");
    }
    case HostStmt::Kind::Parallel: line("/* independent of each other */"); return block(s.body);
    }
    TKC_UNREACHABLE("HostStmt::Kind");
  }

  void alloc(size_t index) {
    const sema::ProgramAlloc &a = program_.allocs[index];
    placed_.push_back(index);
    if (alive_[index].first < 0) return;
    line("{{ /* {} */", a.name);
    depth_++;
    std::vector<std::string> dims;
    for (const SizeExpr &d : a.dims) dims.push_back(c_expression(d));
    line("const {}", c_array("int64_t", "dims", dims));
    line("int64_t at = 0;");
    for (size_t other : placed_)
      if (other != index && alive_[other].overlaps(alive_[index])) line("at = tkc_max(at, end{});", other);
    line("if (bad) return TKC_NO_VALUE;");
    line("status = tkc_place(&temp{}, workspace, at, {}, dims, {}, &end{}, needed);", index, a.dims.size(),
         dtype_bytes(a.dtype), index);
    line("if (status != TKC_OK) return status;");
    depth_--;
    line("}}");
  }

  std::string base(const sema::TensorView &v) const {
    return v.alloc ? fmt::format("&temp{}", v.index) : c_parameter(program_.header->params[v.index].name);
  }

  void launch(const HostStmt &s) {
    const sema::ProgramKernel &k = program_.kernels[s.kernel];
    const ir::Function &f = *k.typed;
    line("{{");
    depth_++;
    std::string arguments, code;
    auto later = [&](const std::string &text) { code += std::string(size_t(2 * depth_), ' ') + text + "\n"; };
    for (size_t i = 0; i < s.args.size(); i++) {
      const LaunchArgument &a = s.args[i];
      const ir::Param &p = f.params[i];
      switch (a.kind) {
      case LaunchArgument::Kind::Absent: continue;
      case LaunchArgument::Kind::Tensor: {
        if (a.view.whole()) {
          arguments += base(a.view) + ", ";
          break;
        }
        std::vector<std::string> at, extent, kept;
        for (const sema::TensorView::Dim &d : a.view.dims) {
          at.push_back(c_expression(d.lo));
          extent.push_back(c_expression(d.extent));
          kept.push_back(d.kept ? "1" : "0");
        }
        line("tkc_tensor v{};", i);
        line("const {}", c_array("int64_t", fmt::format("at{}", i), at));
        line("const {}", c_array("int64_t", fmt::format("extent{}", i), extent));
        line("static const {}", c_array("int", fmt::format("kept{}", i), kept));
        later("if (bad) return TKC_NO_VALUE;");
        later(fmt::format("status = tkc_part(&v{0}, {1}, {2}, at{0}, extent{0}, kept{0}, {3});", i, base(a.view),
                          at.size(), dtype_bytes(a.view.dtype)));
        later("if (status != TKC_OK) return status;");
        arguments += fmt::format("&v{}, ", i);
        break;
      }
      case LaunchArgument::Kind::Integer: {
        DType t = p.type.dtype;
        line("const int64_t n{} = {};", i, c_expression(a.integer));
        if (is_bool(t)) {
          arguments += fmt::format("(uint8_t)(n{} != 0), ", i);
        } else {
          if (dtype_bits(t) < 64 || !is_signed(t)) {
            int64_t bits = dtype_bits(t);
            std::string least = is_signed(t) ? fmt::format("INT{}_MIN", bits) : "0";
            std::string most =
                bits == 64 ? "INT64_MAX" : fmt::format("(int64_t){}INT{}_MAX", is_signed(t) ? "" : "U", bits);
            later(fmt::format("if (n{0} < {1} || n{0} > {2}) return TKC_RANGE;", i, least, most));
          }
          arguments += fmt::format("({})n{}, ", c_scalar_type(t), i);
        }
        break;
      }
      case LaunchArgument::Kind::Computed:
        arguments += fmt::format("({})({}), ", c_scalar_type(p.type.dtype), c_computed(a.computed));
        break;
      case LaunchArgument::Kind::Number: arguments += c_number(p.type.dtype, a.number) + ", "; break;
      case LaunchArgument::Kind::Scalar: arguments += c_parameter(a.name) + ", "; break;
      }
    }
    for (const SizeExpr &n : s.sizes) arguments += c_expression(n) + ", ";
    out_ += code;
    line("status = tkc_{}_run_{}(module, mode, {}stream);", stem_, c_identifier(k.name), arguments);
    line("if (bad || status != TKC_OK) return bad ? TKC_NO_VALUE : status;");
    depth_--;
    line("}}");
  }

  const std::string &stem_;
  const sema::HostProgram &program_;
  std::vector<Lifetime> alive_;
  std::vector<size_t> placed_; // temporaries in the order of their declarations
  std::string out_;
  int depth_ = 1;
};

} // namespace

std::string program_function(const std::string &stem, const sema::HostProgram &program) {
  const ir::Function &f = *program.header;
  CArguments arguments(f);
  std::string name = c_identifier(f.name), out;
  out += fmt::format(
      "\n/* mode as for a kernel; *needed grows to the bytes of workspace. */\n"
      "static inline tkc_status tkc_{0}_steps_{1}(const tkc_{0}_module *module, int mode, {2}CUdeviceptr workspace, "
      "int64_t *needed, CUstream stream) {{\n  int bad = 0;\n  tkc_status status;\n",
      stem, name, arguments.with_sizes());
  std::vector<Lifetime> alive = lifetimes(program);
  for (size_t i = 0; i < alive.size(); i++)
    if (alive[i].first >= 0) out += fmt::format("  tkc_tensor temp{0};\n  int64_t end{0} = 0;\n", i);
  out += c_checks(f, "mode > 0");
  out += "  (void)workspace, (void)needed, (void)stream, (void)bad, (void)status;\n";
  out += Steps(stem, program).run();
  out += "  return TKC_OK;\n}\n" + arguments.comment();
  out += fmt::format(
      "static inline tkc_status tkc_workspace_{0}_{1}(const tkc_{0}_module *module, {2}size_t *bytes) {{\n"
      "  int64_t needed = 0;\n  tkc_status status;\n{3}"
      "  status = tkc_{0}_steps_{1}(module, 0, {4}0, &needed, 0);\n  *bytes = status == TKC_OK ? (size_t)needed : 0;\n"
      "  return status;\n}}\n",
      stem, name, arguments.declaration(), arguments.bind(), arguments.pass());
  out += fmt::format("static inline tkc_status tkc_{0}_{1}(const tkc_{0}_module *module, {2}CUdeviceptr workspace, "
                     "size_t workspace_bytes, "
                     "CUstream stream) {{\n  int64_t needed = 0;\n  tkc_status status;\n{3}",
                     stem, name, arguments.declaration(), arguments.bind());
  out +=
      fmt::format("  status = tkc_{0}_steps_{1}(module, 0, {2}0, &needed, 0);\n  if (status != TKC_OK) return status;\n"
                  "  if (needed > 0 && (workspace == 0 || workspace % TKC_WORKSPACE_ALIGN != 0 || (uint64_t)needed > "
                  "workspace_bytes))\n"
                  "    return TKC_WORKSPACE;\n"
                  "  status = tkc_{0}_steps_{1}(module, 1, {2}workspace, &needed, stream);\n  if (status != TKC_OK) "
                  "return status;\n"
                  "  return tkc_{0}_steps_{1}(module, 2, {2}workspace, &needed, stream);\n}}\n",
                  stem, name, arguments.pass());
  return out;
}

} // namespace tkc::driver

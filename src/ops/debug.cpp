// Looking at a running program.
#include "ops/adjoint.h"
#include "ops/common.h"

namespace tkc::ops {

namespace {

void infer_assert(InferCtx &ctx, Op &op) {
  default_attr(op, "message", std::string());
  if (has_operands(ctx, op, 1, 1)) is_tile(ctx, op, 0, kBools);
}

// "[0, 2]" for element 5 of a [2, 3] tile.
std::string position(int64_t k, const std::vector<int64_t> &shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0; k /= shape[d]) at[d] = k % shape[d];
  return ir::shape_str(at);
}

void interp_assert(interp::Ctx &ctx, const Op &op) {
  const interp::Tile &t = ctx.tile(op.operand(0));
  for (size_t k = 0; k < t.i.size(); k++) {
    if (t.i[k]) continue;
    std::string where =
        t.shape.empty() ? "" : fmt::format(" at {} of shape {}", position(int64_t(k), t.shape), ir::shape_str(t.shape));
    const std::string &message = op.attrs.s("message");
    return ctx.trap(op, fmt::format("assertion failed{}{}{}", where, message.empty() ? "" : ": ", message));
  }
}

// "{}" stands for a value, "{{" and "}}" for braces.
std::vector<std::string> split_format(const std::string &format) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < format.size(); i++) {
    std::string_view two = std::string_view(format).substr(i, 2);
    if (two == "{}")
      parts.emplace_back();
    else
      parts.back() += format[i];
    if (two == "{}" || two == "{{" || two == "}}") i++;
  }
  return parts;
}

void infer_print(InferCtx &ctx, Op &op) {
  for (size_t i = 0; i < op.operands.size(); i++)
    if (!is_tile(ctx, op, i, kAny)) return;
  size_t holes = split_format(op.attrs.s("format")).size() - 1;
  if (holes != op.operands.size())
    ctx.error(DiagKind::print_placeholders, counted(int64_t(holes), "placeholder"),
              counted(int64_t(op.operands.size()), "value"));
}

// Shortest text that reads back as the same number of the dtype.
std::string element_text(const interp::Tile &t, int64_t k) {
  if (is_bool(t.dtype)) return t.i[size_t(k)] ? "true" : "false";
  if (t.dtype == DType::U64) return fmt::format("{}", uint64_t(t.i[size_t(k)]));
  if (!t.is_float()) return fmt::format("{}", t.i[size_t(k)]);
  if (t.dtype == DType::F64) return fmt::format("{}", t.f[size_t(k)]);
  return fmt::format("{}", float(t.f[size_t(k)]));
}

std::string tile_text(const interp::Tile &t, size_t dim, int64_t first, int64_t count) {
  if (dim == t.shape.size()) return element_text(t, first);
  std::string out = "[";
  int64_t part = t.shape[dim] ? count / t.shape[dim] : 0;
  for (int64_t i = 0; i < t.shape[dim]; i++) out += (i ? ", " : "") + tile_text(t, dim + 1, first + i * part, part);
  return out + "]";
}

void interp_print(interp::Ctx &ctx, const Op &op) {
  std::vector<std::string> parts = split_format(op.attrs.s("format"));
  std::string out = parts[0];
  for (size_t i = 0; i < op.operands.size(); i++) {
    const interp::Tile &t = ctx.tile(op.operand(i));
    out += tile_text(t, 0, 0, t.size()) + parts[i + 1];
  }
  ctx.print(out);
}

constexpr ir::Effect kControl = {-1, ir::Space::Control, ir::Access::ReadWrite};

} // namespace
} // namespace tkc::ops

namespace tkc::ir {
using namespace ops;

constexpr OpDef kAssert = {
    .name = "assert",
    .source = "assert",
    .signature = "assert(cond: tile, message: string = \"\")",
    .doc = "Stops the program with the message if the condition is false anywhere: the interpreter names the element, "
           "a GPU "
           "traps.",
    .example = "let t = load(x[:, :]);\nassert(isfinite(t), \"x must be finite\");\n# store(y[:, :], t);",
    .effects = kControl,
    .derivative = zero_derivative("it has no results of its own"),
    .infer = infer_assert,
    .interp = interp_assert,
    .lower = lower_Assert};

constexpr OpDef kPrint = {
    .name = "print",
    .source = "print",
    .signature = "print(format: string, values: tile...)",
    .doc = "Prints a line: the text with each {} replaced by a value; {{ and }} are braces. The interpreter writes "
           "tiles as "
           "nested lists and bools as true and false; on a device a tile stands in the line by its name, its elements "
           "follow a line each, and bools are 1 and 0. Lines of different programs come in any order.",
    .example = "let t = load(x[:, :]);\nprint(\"the largest is {}\", max(t));\n# store(y[:, :], t);",
    .effects = kControl,
    .derivative = zero_derivative("it has no results of its own"),
    .infer = infer_print,
    .interp = interp_print,
    .lower = lower_Print};

} // namespace tkc::ir

#include "ir/op_def.h"
#include <map>

namespace tkc::ir {

const OpDef &def(OpKind kind) {
  static const OpDef *const table[] = {
#define TKC_OP(kind, family) &k##kind,
#include "ir/ops.def"
#undef TKC_OP
  };
  return *table[size_t(kind)];
}

const std::vector<OpKind> &all_ops() {
  static const std::vector<OpKind> all = {
#define TKC_OP(kind, family) OpKind::kind,
#include "ir/ops.def"
#undef TKC_OP
  };
  return all;
}

std::optional<OpKind> find_op(std::string_view ir_name) {
  for (OpKind k : all_ops())
    if (ir_name == def(k).name.s) return k;
  return std::nullopt;
}

std::vector<OpKind> find_source_ops(std::string_view source_name) {
  std::vector<OpKind> out;
  for (OpKind k : all_ops())
    if (source_name == def(k).source.s) out.push_back(k);
  return out;
}

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

SigParam parse_param(std::string_view op, std::string_view text) {
  SigParam p;
  size_t colon = text.find(':');
  TKC_CHECK(colon != text.npos, "signature of `{}`: parameter `{}` has no kind", op, text);
  p.name = trim(text.substr(0, colon));
  std::string_view kind = trim(text.substr(colon + 1));
  if (size_t eq = kind.find('='); eq != kind.npos) {
    p.default_text = trim(kind.substr(eq + 1));
    p.optional = true;
    kind = trim(kind.substr(0, eq));
  }
  if (kind.ends_with("...")) {
    p.variadic = p.optional = true;
    kind.remove_suffix(3);
  } else if (kind.ends_with("?")) {
    p.optional = true;
    kind.remove_suffix(1);
  }
  static const std::map<std::string_view, SigParam::Kind> kinds = {
      {"tile", SigParam::Kind::Tile},     {"scalar", SigParam::Kind::Scalar}, {"view", SigParam::Kind::View},
      {"tensor", SigParam::Kind::Tensor}, {"int", SigParam::Kind::Int},       {"ints", SigParam::Kind::Ints},
      {"bool", SigParam::Kind::Bool},     {"shared", SigParam::Kind::Shared}, {"barrier", SigParam::Kind::Barrier},
      {"state", SigParam::Kind::State},   {"type", SigParam::Kind::Type},     {"string", SigParam::Kind::String}};
  if (auto it = kinds.find(kind); it != kinds.end()) {
    p.kind = it->second;
    return p;
  }
  p.kind = SigParam::Kind::Enum;
  while (true) {
    size_t bar = kind.find('|');
    p.choices.emplace_back(trim(kind.substr(0, bar)));
    if (bar == kind.npos) break;
    kind.remove_prefix(bar + 1);
  }
  return p;
}

std::vector<SigParam> parse_signature(std::string_view op, std::string_view text) {
  std::vector<SigParam> out;
  size_t open = text.find('('), close = text.rfind(')');
  TKC_CHECK(open != text.npos && close != text.npos && open < close, "signature of `{}` has no parameter list", op);
  std::string_view inside = text.substr(open + 1, close - open - 1);
  while (!trim(inside).empty()) {
    size_t comma = inside.find(',');
    out.push_back(parse_param(op, trim(inside.substr(0, comma))));
    if (comma == inside.npos) break;
    inside.remove_prefix(comma + 1);
  }
  return out;
}

} // namespace

const std::vector<SigParam> &signature(OpKind kind) {
  static const std::vector<std::vector<SigParam>> all = [] {
    std::vector<std::vector<SigParam>> out;
    for (OpKind k : all_ops()) out.push_back(parse_signature(def(k).name.s, def(k).signature.s));
    return out;
  }();
  return all[size_t(kind)];
}

} // namespace tkc::ir

// Annotations of loops, and of persistent grids, whose tiles are a loop. They become attributes of the for op, which
// passes/schedule_loops.cpp reads:
//
//   @no_pipeline                      "@no_pipeline" = 1: its loads stay synchronous
//   @pipeline(stages = 3, via = tma, producer = warp)
//                                     "@pipeline" = 1, "@pipeline.stages" = 3, "@pipeline.via" = "tma",
//                                     "@pipeline.producer" = "warp": what is named is forced, the rest is chosen;
//                                     `stages = 0` says nothing, `stages = 1` is @no_pipeline, whatever `via` and
//                                     `producer` say; `via = V` for a compile-time parameter V of an enum with such
//                                     members
#include "sema/elaborate.h"
#include "support/diag_kinds.h"
#include <algorithm>

namespace tkc::sema {

namespace {
constexpr int64_t kMostStages = 8;

struct Choice {
  const char *name;
  std::vector<std::string> values;
};
const std::vector<Choice> &choices() {
  static const std::vector<Choice> list = {{"via", {"tma", "bulk", "cp_async", "mbarrier"}},
                                           {"producer", {"warp", "none"}}};
  return list;
}
std::string joined(const std::vector<std::string> &words) {
  std::string s;
  for (const std::string &w : words) s += (s.empty() ? "" : ", ") + w;
  return s;
}
} // namespace

void Elaborator::annotate(const ast::Stmt &s, ir::Attrs *loop) { annotate(s.annotations, s.unrolled, loop); }

void Elaborator::annotate(const std::vector<ast::Annotation> &list, bool unrolled, ir::Attrs *loop) {
  for (const ast::Annotation &a : list) {
    const std::string &name = a.name.text;
    auto bad = [&](SourceLoc loc, const std::string &text) { error(loc, DiagKind::bad_annotation, name, text); };
    if (name != "pipeline" && name != "no_pipeline") {
      bad(a.name.loc, "is no annotation; there are @pipeline and @no_pipeline");
      continue;
    }
    if (!loop) {
      bad(a.name.loc, unrolled ? "has no meaning before `unroll for`, which leaves no loop"
                               : "stands before a `for` loop or `grid persistent`");
      continue;
    }
    bool other = loop->has("@pipeline") || loop->has("@no_pipeline");
    if (other) {
      bad(a.name.loc, "is the second annotation of its loop");
      continue;
    }
    loop->set("@" + name, int64_t(1));
    if (name == "no_pipeline" && !a.args.empty()) bad(a.name.loc, "takes no arguments");
    for (size_t i = 0; i < a.args.size() && name == "pipeline"; i++) {
      const ast::Arg &arg = a.args[i];
      std::vector<std::string> names = {"stages"};
      for (const Choice &c : choices()) names.push_back(c.name);
      if (!arg.name) {
        bad(arg.value->loc, "takes arguments by name: " + joined(names));
        continue;
      }
      std::string key = "@pipeline." + arg.name->text;
      if (std::find(names.begin(), names.end(), arg.name->text) == names.end()) {
        std::string near = nearest_name(arg.name->text, names);
        error(arg.name->loc, DiagKind::unknown_argument, "@pipeline", arg.name->text,
              near.empty() ? "; there are " + joined(names) : "; did you mean `" + near + "`?");
      } else if (loop->has(key)) {
        error(arg.name->loc, DiagKind::repeated_argument, arg.name->text, "@pipeline");
      } else if (arg.name->text == "stages") {
        std::optional<int64_t> n = const_int(*arg.value, "`stages` of `@pipeline`");
        if (n && (*n < 0 || *n > kMostStages))
          bad(arg.value->loc,
              fmt::format("has 1 to {} stages, or 0 for the compiler's choice, not {}", kMostStages, *n));
        else if (n && *n > 0)
          loop->set(key, *n);
      } else {
        const Choice &c = *std::find_if(choices().begin(), choices().end(),
                                        [&](const Choice &x) { return x.name == arg.name->text; });
        // A word, or a compile-time parameter of an enum that has it.
        std::string word = arg.value->kind == ast::ExprKind::Name ? arg.value->text : "an expression";
        bool known = std::find(c.values.begin(), c.values.end(), word) != c.values.end();
        if (!known && (arg.value->kind == ast::ExprKind::Member || lookup(word))) {
          SV v = expr(*arg.value);
          if (v.is_poison()) continue;
          if (v.is(SV::Kind::Enum)) word = v.s.substr(v.s.find('.') + 1);
          known = std::find(c.values.begin(), c.values.end(), word) != c.values.end();
        }
        if (!known)
          error(arg.value->loc, DiagKind::bad_choice, c.name, "@pipeline", joined(c.values), word);
        else
          loop->set(key, word);
      }
    }
    if (loop->i_or("@pipeline.stages", 0) != 1) continue;
    for (const char *key : {"@pipeline", "@pipeline.stages", "@pipeline.via", "@pipeline.producer"}) loop->erase(key);
    loop->set("@no_pipeline", int64_t(1));
  }
}

} // namespace tkc::sema

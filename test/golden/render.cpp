#include "golden/render.h"
#include "driver/verify.h"
#include "golden/ptx_text.h"
#include "ir/print.h"
#include "ir/target.h"
#include "passes/passes.h"
#include "runtime/assemble.h"
#include "runtime/file_io.h"
#include "runtime/json_reader.h"
#include "sema/check_bodies.h"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <sstream>
#include <sys/wait.h>

namespace tkc::golden {

namespace {

const char *const kTargets[] = {"sm_80", "sm_90", "sm_120"};

std::vector<std::string> words(const std::string &text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

std::string kebab(const char *name) {
  std::string out = name;
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// A case with its program loaded, or the diagnostics that say why there is none.
struct Loaded {
  SourceManager sources;
  Diagnostics diags{sources};
  std::unique_ptr<sema::Program> program;
  sema::InstanceSpec spec;
  bool programs = false; // beside kernels

  explicit Loaded(const Case &c, const std::string &name, const std::string &text) {
    program = sema::Program::load(sources.add(name, text), diags);
    for (const std::string &p : c.all("param")) {
      size_t eq = p.find('=');
      spec.params[p.substr(0, eq)] = eq == p.npos ? "" : p.substr(eq + 1);
    }
    for (const std::string &a : c.all("absent")) spec.absent.insert(a);
  }
  bool ok() const { return program && !diags.has_errors(); }
  std::vector<const ast::Function *> kernels() const {
    return !program ? std::vector<const ast::Function *>{} : programs ? program->entries() : program->kernels();
  }
};

const ir::Target &target_of(const std::string &name, Outcome &out) {
  const ir::Target *t = ir::find_target(name);
  if (!t) out.problems.push_back(fmt::format("no target `{}`", name));
  return t ? *t : ir::default_target();
}

// The JSON form of the diagnostics, line by line as the text form begins.
std::string text_of_json(const std::string &json, Outcome &out) {
  Result<JsonValue> parsed = parse_json(json);
  const JsonValue *list = parsed ? parsed->find("diagnostics") : nullptr;
  if (!list) {
    out.problems.push_back("the JSON form does not parse: " + (parsed ? json : parsed.error()));
    return "";
  }
  auto place = [&](const JsonValue &d) -> std::string {
    const JsonValue *file = d.find("file"), *line = d.find("line"), *column = d.find("column");
    if (!file) return "";
    const JsonValue *end_line = d.find("endLine"), *end_column = d.find("endColumn");
    bool ordered = line && column && end_line && end_column &&
                   std::pair(line->integer, column->integer) <= std::pair(end_line->integer, end_column->integer);
    if (!ordered) {
      out.problems.push_back("the JSON form has a span that ends before it begins");
      return "";
    }
    return fmt::format("{}:{}:{}: ", file->text, line->integer, column->integer);
  };
  std::string text;
  for (const JsonValue &d : list->items) {
    const JsonValue *severity = d.find("severity"), *message = d.find("message"), *kind = d.find("kind");
    if (!severity || !message || !kind) {
      out.problems.push_back("the JSON form lacks severity, message or kind");
      return "";
    }
    text += fmt::format("{}{}: {} [{}]\n", place(d), severity->text, message->text, kind->text);
    if (const JsonValue *notes = d.find("notes"))
      for (const JsonValue &n : notes->items) text += fmt::format("{}note: {}\n", place(n), n.find("message")->text);
  }
  return text;
}

// Without source lines, carets and tables, which are the lines that begin with two blanks.
std::string heads_of(const std::string &text) {
  std::string out;
  for (const std::string &line : lines_of(text))
    if (!line.starts_with("  ")) out += line + "\n";
  return out;
}

void finish_diagnostics(const Diagnostics &diags, Outcome &out) {
  for (const Diagnostic &d : diags.all()) out.kinds.insert(kebab(diag_info(d.kind).name));
  out.failed |= diags.has_errors();
  std::string text = diags.render_all();
  std::string json = text_of_json(diags.render_json(), out);
  if (out.problems.empty() && heads_of(json) != heads_of(text))
    out.problems.push_back("the JSON form differs from the text:\n" + difference(heads_of(text), heads_of(json)));
  for (const Diagnostic &d : diags.all())
    if (d.loc.valid() && d.loc.begin > d.loc.end) out.problems.push_back("a span ends before it begins: " + d.text);
  out.text = text + out.text;
}

} // namespace

Outcome render_diagnostics(const Case &c) {
  Outcome out;
  Loaded l(c, c.name, expanded(c));
  l.programs = true;
  driver::CompileOptions options;
  options.target = &target_of(c.get("target", "sm_120"), out);
  if (l.ok())
    for (const ast::Function *k : l.kernels()) driver::compile_entry(*l.program, *k, l.spec, options, l.diags);
  else if (l.program)
    sema::check_bodies(*l.program, l.kernels(), l.spec, l.diags);
  if (l.ok()) {
    driver::VerifyOptions verify;
    verify.compile = options;
    for (const ast::Function *k : l.kernels()) {
      const ast::Check *check = l.program->check_for(k->name.text, false);
      if (!check) continue;
      driver::verify_kernel(*l.program, *k, *check, verify, l.diags, [&](const driver::CaseResult &r) {
        if (r.pass() || l.diags.has_errors()) return;
        out.failed = true;
        out.text += fmt::format("{}.{}: {}\n", r.kernel, r.name, r.error.empty() ? "differs" : r.error);
      });
    }
  }
  if (l.ok()) // counts of bench blocks
    for (const ast::Function *k : l.kernels()) {
      const ast::Check *bench = l.program->check_for(k->name.text, true);
      if (!bench) continue;
      for (const ast::Case &bc : bench->cases)
        if (auto spec = sema::evaluate_case(*l.program, *k, *bench, bc, l.diags))
          sema::evaluate_counts(*l.program, *bench, spec->numbers, l.diags);
    }
  finish_diagnostics(l.diags, out);
  return out;
}

Outcome render_sema(const Case &c) {
  Outcome out;
  Loaded l(c, c.name, expanded(c));
  const ir::Target &target = target_of(c.get("target", "sm_120"), out);
  if (l.ok())
    for (const ast::Function *k : l.kernels()) {
      auto fn = sema::instantiate(*l.program, *k, l.spec, &target, l.diags);
      if (!fn) continue;
      if (auto faults = ir::verify(*fn, ir::Stage::typed); !faults.empty())
        out.problems.push_back("the verifier rejects the IR: " + faults[0]);
      for (const std::string &line : lines_of(ir::print(*fn))) {
        std::vector<std::string> only = c.all("only");
        bool shown = only.empty() || std::any_of(only.begin(), only.end(),
                                                 [&](const std::string &w) { return line.find(w) != line.npos; });
        if (shown) out.text += line + "\n";
      }
    }
  finish_diagnostics(l.diags, out);
  return out;
}

// Names that stay the same when values before them disappear.
static void pin_names(ir::Function &f) {
  std::set<std::string> taken;
  auto pin = [&](ir::Value *v) {
    std::string base = v->name.empty() ? "v" : v->name;
    std::string name = base;
    for (int64_t n = 2; !taken.insert(name).second; n++) name = fmt::format("{}_{}", base, n);
    v->name = name;
  };
  for (ir::Value *v : f.body->args) pin(v);
  ir::walk(f.body, [&](ir::Op *op) {
    for (ir::Value *v : op->results) pin(v);
    for (ir::Block *r : op->regions)
      for (ir::Value *v : r->args) pin(v);
  });
}

Outcome render_passes(const Case &c) {
  Outcome out;
  Loaded l(c, c.name, expanded(c));
  const ir::Target &target = target_of(c.get("target", "sm_120"), out);
  bool found = false;
  if (l.ok())
    for (const ast::Function *k : l.kernels()) {
      auto fn = sema::instantiate(*l.program, *k, l.spec, &target, l.diags);
      if (!fn) continue;
      passes::PassContext context{target, ir::default_part(target), l.diags, {}};
      for (const passes::Pass &p : passes::pipeline()) {
        bool wanted = p.name == c.get("pass");
        found |= wanted;
        if (wanted) pin_names(*fn);
        std::string before = wanted ? ir::print(*fn) : "";
        p.run(*fn, context);
        if (!wanted) continue;
        out.text += fmt::format("kernel {}\n{}", fn->name, difference(before, ir::print(*fn), 1));
        break;
      }
    }
  if (l.ok() && !found) out.problems.push_back(fmt::format("no pass `{}`", c.get("pass")));
  finish_diagnostics(l.diags, out);
  return out;
}

namespace {

// What no kernel of ours may have, and what the assembler says of it.
void check_ptx(const std::string &ptx, const std::string &arch, const Case &c, Outcome &out) {
  if (ptx.find("__cuda_syscall") != ptx.npos) out.problems.push_back(arch + ": calls __cuda_syscall");
  if (ptx.find(".local ") != ptx.npos && !c.has("local")) out.problems.push_back(arch + ": uses local memory");
  static const bool available = assembler_available(Assembler::Any).ok();
  if (!available) {
    out.not_assembled++;
    return;
  }
  out.assembled++;
  std::set<std::string> known;
  for (const std::string &s : c.all("spills"))
    if (s.starts_with(arch + " "))
      if (std::string entry = s.substr(arch.size() + 1); ptx.find(".entry " + entry + "(") != ptx.npos)
        known.insert(entry);
  // The same text assembles to the same: what the last run found is kept beside the build.
  std::string memo = fmt::format("{}/golden_assembled/{:016x}", TKC_BINARY_DIR, std::hash<std::string>()(arch + ptx));
  std::string found;
  if (auto kept = read_file(memo)) {
    found.assign(kept->begin(), kept->end());
  } else {
    AssembleOptions options;
    options.arch = arch;
    Result<Assembled> a = assemble(ptx, options);
    if (!a) {
      out.problems.push_back(fmt::format("{}: does not assemble: {}", arch, a.error()));
      return;
    }
    for (const KernelUsage &u : a->kernels)
      if (u.uses_local_memory()) found += fmt::format("{} {} {} {}\n", u.name, u.spill_stores, u.spill_loads, u.stack);
    std::filesystem::create_directories(std::filesystem::path(memo).parent_path());
    (void)write_file(memo, found);
  }
  for (const std::string &line : lines_of(found)) {
    std::vector<std::string> w = words(line);
    std::string text =
        fmt::format("{}: `{}` spills {} + {} bytes, {} bytes of local memory", arch, w[0], w[1], w[2], w[3]);
    if (known.erase(w[0]))
      out.known.push_back(text);
    else if (!c.has("local"))
      out.problems.push_back(text);
  }
  for (const std::string &entry : known)
    out.problems.push_back(fmt::format("{}: `{}` spills nothing: take its directive away", arch, entry));
}

// The kernel for every target; empty after an error.
std::vector<codegen::EmitResult> compile(Loaded &l, const ast::Function &k, const sema::InstanceSpec &spec,
                                         const std::vector<std::string> &targets, const Case &c, Outcome &out) {
  std::vector<codegen::EmitResult> results;
  for (const std::string &t : targets) {
    driver::CompileOptions options;
    options.target = &target_of(t, out);
    options.debug_lines = false;
    auto compiled = driver::compile_kernel(*l.program, k, spec, options, l.diags);
    if (!compiled) return {};
    check_ptx(compiled->code.ptx, t, c, out);
    results.push_back(std::move(compiled->code));
  }
  return results;
}

// "== sm_80, sm_90" and the text that these targets share, for every different text.
std::string grouped(const std::vector<std::string> &targets, const std::vector<std::string> &texts) {
  std::string out;
  for (size_t i = 0; i < texts.size(); i++) {
    if (std::find(texts.begin(), texts.begin() + long(i), texts[i]) != texts.begin() + long(i)) continue;
    std::string names;
    for (size_t j = i; j < texts.size(); j++)
      if (texts[j] == texts[i]) names += (names.empty() ? "" : ", ") + targets[j];
    out += fmt::format("== {}\n{}", names, texts[i]);
  }
  return out;
}

std::string indented(const std::vector<std::string> &lines) {
  std::string out;
  for (const std::string &l : lines) out += l.ends_with(":") || l[0] == '.' ? l + "\n" : "  " + l + "\n";
  return out;
}

std::string header_of(const std::string &ptx) {
  std::string out;
  for (const std::string &line : lines_of(ptx)) {
    if (!line.starts_with("//")) break;
    out += line + "\n";
  }
  return out;
}

std::vector<std::string> targets_of(const Case &c) {
  if (c.has("targets")) return words(c.get("targets"));
  return {std::begin(kTargets), std::end(kTargets)};
}

} // namespace

Outcome render_ptx(const Case &c) {
  Outcome out;
  Loaded l(c, c.name, expanded(c));
  std::vector<std::string> targets = targets_of(c);
  if (l.ok())
    for (const ast::Function *k : l.kernels()) {
      if (auto typed = sema::instantiate(*l.program, *k, l.spec, nullptr, l.diags))
        ir::walk(typed->body, [&](ir::Op *op) { out.ops.insert(ir::def(*op).name.s); });
      std::vector<std::string> texts;
      for (const codegen::EmitResult &r : compile(l, *k, l.spec, targets, c, out)) {
        std::vector<PtxEntry> entries = ptx_entries(r.ptx);
        std::string text = c.has("header") ? header_of(r.ptx) : "";
        text += indented(renumbered(entries.at(0).lines));
        // The entry for unaligned tensors, by what its instructions differ in.
        Histogram aligned = histogram(entries.at(0).lines), any = histogram(entries.at(1).lines);
        if (aligned != any) {
          std::string differs;
          for (auto [ops, other, sign] : {std::tuple(&aligned, &any, '-'), std::tuple(&any, &aligned, '+')})
            for (const auto &[op, n] : *ops) {
              auto it = other->find(op);
              int64_t more = n - (it == other->end() ? 0 : it->second);
              if (more > 0) differs += fmt::format("  {}{} {}\n", sign, more, op);
            }
          text += fmt::format("{}:\n{}", entries.at(1).name, differs);
        }
        texts.push_back(text);
      }
      out.text += fmt::format("kernel {}\n{}", k->name.text, grouped(targets, texts));
    }
  finish_diagnostics(l.diags, out);
  return out;
}

// A loop of more than `most` instructions is shown by its first and last lines and a table of what it consists of.
static std::string shown_loop(const std::vector<std::string> &loop, size_t most) {
  if (loop.empty()) return "no loop\n";
  std::vector<std::string> lines = renumbered(loop);
  if (lines.size() <= most) return indented(lines);
  constexpr size_t kTail = 6;
  std::vector<std::string> first(lines.begin(), lines.begin() + long(most - kTail)),
      last(lines.end() - kTail, lines.end());
  return fmt::format("{}  ... {} more\n{}", indented(first), lines.size() - most, indented(last));
}

// The kernels of a file: those that its programs launch as they launch them, the others by their defaults.
static std::vector<sema::ProgramKernel> sample_kernels(Loaded &l) {
  std::vector<sema::ProgramKernel> launched, out;
  for (const ast::Function *p : l.program->programs())
    if (auto host = sema::instantiate_program(*l.program, *p, l.spec, nullptr, l.diags))
      for (const sema::ProgramKernel &k : host->kernels) launched.push_back(k);
  for (const ast::Function *k : l.kernels()) {
    bool has = std::any_of(launched.begin(), launched.end(), [&](const auto &x) { return x.ast == k; });
    if (!has) out.push_back({k, l.spec, k->name.text, nullptr});
  }
  out.insert(out.end(), launched.begin(), launched.end());
  return out;
}

Outcome render_samples(const Case &c) {
  Outcome out;
  std::string path = std::string(TKC_SOURCE_DIR) + "/" + c.get("sample"); // whole: imports are beside it
  Result<std::vector<uint8_t>> text = read_file(path);
  if (!text) {
    out.problems.push_back(text.error());
    return out;
  }
  Loaded l(c, path, std::string(text->begin(), text->end()));
  std::vector<std::string> targets = targets_of(c);
  if (l.ok())
    for (const sema::ProgramKernel &k : sample_kernels(l)) {
      std::vector<std::string> loops, titles = targets;
      std::vector<Histogram> loop_counts, all;
      for (const codegen::EmitResult &r : compile(l, *k.ast, k.spec, targets, c, out)) {
        PtxEntry main = ptx_entries(r.ptx).at(0);
        std::vector<std::string> loop = steady_loop(main);
        loops.push_back(shown_loop(loop, 40));
        loop_counts.push_back(histogram(loop));
        all.push_back(histogram(main.lines));
      }
      if (all.empty()) continue;
      out.text += fmt::format("kernel {}\n{}", k.name, grouped(targets, loops));
      bool long_loop =
          std::any_of(loops.begin(), loops.end(), [](const std::string &s) { return s.find("\n  ... ") != s.npos; });
      if (long_loop) out.text += "== in the loop\n" + table(titles, loop_counts);
      out.text += "== in all\n" + table(titles, all);
    }
  finish_diagnostics(l.diags, out);
  return out;
}

Outcome render_cli(const Case &c) {
  Outcome out;
  for (const std::string &run : c.all("run")) {
    std::string arguments = std::regex_replace(run, std::regex("FILE"), c.name);
    std::string command = fmt::format("{}/tkc {} 2>&1 </dev/null", TKC_BINARY_DIR, arguments);
    std::FILE *pipe = ::popen(command.c_str(), "r");
    if (!pipe) {
      out.problems.push_back("cannot run " + command);
      return out;
    }
    std::string text;
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
    int status = ::pclose(pipe);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    // Times differ from run to run.
    text = std::regex_replace(text, std::regex("[0-9]+\\.[0-9]+ s\\b"), "T s");
    out.text += fmt::format("$ tkc {}\n{}", run, text);
    if (!text.empty() && text.back() != '\n') out.text += "\n";
    out.text += fmt::format("exit {}\n", code);
    out.failed |= code != 0;
    if (code != 0 && code > 5) out.problems.push_back(fmt::format("exit code {}", code));
    std::regex kind("\\[([a-z0-9-]+)\\]$");
    for (const std::string &line : lines_of(text))
      if (std::smatch m; std::regex_search(line, m, kind)) out.kinds.insert(m[1]);
  }
  return out;
}

} // namespace tkc::golden

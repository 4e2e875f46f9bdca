#include "sema/program.h"
#include "sema/check_blocks.h"
#include "sema/stdlib.h"
#include "support/diag_kinds.h"
#include "syntax/parse.h"
#include <algorithm>
#include <filesystem>
#include <functional>

namespace tkc::sema {

static bool is_entry(const ast::Function &f) {
  return f.kind == ast::FunctionKind::Kernel || f.kind == ast::FunctionKind::Program;
}

std::unique_ptr<Program> Program::load(int32_t file_id, Diagnostics &diags) {
  auto p = std::make_unique<Program>();
  p->diags_ = &diags;
  std::vector<std::string> stack;
  p->root_ = p->load_file(file_id, stack);
  return p->root_ ? std::move(p) : nullptr;
}

template <typename T>
void Program::declare(std::map<std::string, std::pair<const T *, Scope *>> &table, const T &node, const ast::Name &name,
                      Scope *scope) {
  const ast::Name *first = nullptr;
  if (auto f = scope->functions.find(name.text); f != scope->functions.end()) first = &f->second.first->name;
  if (auto c = scope->consts.find(name.text); c != scope->consts.end()) first = &c->second.first->name;
  if (auto e = scope->enums.find(name.text); e != scope->enums.end()) first = &e->second.first->name;
  if (auto r = scope->records.find(name.text); r != scope->records.end()) first = &r->second.first->name;
  if (first)
    diags_->report(name.loc, DiagKind::duplicate_name, name.text).notes.push_back({first->loc, "first declared here"});
  else
    table.emplace(name.text, std::pair(&node, scope));
}

Scope *Program::load_file(int32_t file_id, std::vector<std::string> &stack) {
  std::string name = diags_->sources().file(file_id).name();
  std::unique_ptr<ast::File> tree = parse_file(file_id, *diags_);
  if (!tree) return nullptr;
  files_.push_back(file_id);
  Scope *scope = scopes_.emplace_back(std::make_unique<Scope>()).get();
  scope->file = tree.get();
  by_name_[name] = scope;
  ast::File &file = *trees_.emplace_back(std::move(tree));
  // In the order of the text, so that the second of two equal names is the one that is reported.
  std::map<int32_t, std::function<void()>> declarations;
  for (const ast::Const &c : file.consts)
    declarations[c.name.loc.begin] = [&] { declare(scope->consts, c, c.name, scope); };
  for (const ast::Enum &e : file.enums)
    declarations[e.name.loc.begin] = [&] { declare(scope->enums, e, e.name, scope); };
  for (const ast::Record &r : file.records)
    declarations[r.name.loc.begin] = [&] { declare(scope->records, r, r.name, scope); };
  for (const ast::Function &f : file.functions)
    declarations[f.name.loc.begin] = [&] { declare(scope->functions, f, f.name, scope); };
  for (const auto &[at, declare_it] : declarations) declare_it();
  for (const ast::Enum &e : file.enums)
    for (size_t i = 0; i < e.values.size(); i++)
      for (size_t j = 0; j < i; j++)
        if (e.values[i].text == e.values[j].text) {
          diags_->report(e.values[i].loc, DiagKind::duplicate_name, e.values[i].text)
              .notes.push_back({e.values[j].loc, "first declared here"});
          break;
        }
  stack.push_back(name);
  for (const ast::Import &i : file.imports) {
    Scope *other = import(i, file_id, stack);
    if (!other || other == scope) continue;
    // A file's own names win over imported ones; two imports that bring one name keep the first.
    for (const auto &f : other->file->functions)
      if (auto it = other->functions.find(f.name.text); it != other->functions.end()) scope->functions.insert(*it);
    for (const auto &c : other->file->consts)
      if (auto it = other->consts.find(c.name.text); it != other->consts.end()) scope->consts.insert(*it);
    for (const auto &e : other->file->enums)
      if (auto it = other->enums.find(e.name.text); it != other->enums.end()) scope->enums.insert(*it);
    for (const auto &r : other->file->records)
      if (auto it = other->records.find(r.name.text); it != other->records.end()) scope->records.insert(*it);
  }
  stack.pop_back();
  std::map<std::string, const ast::Function *> entries;
  for (const auto &[name, f] : scope->functions)
    if (is_entry(*f.first)) entries.emplace(name, f.first);
  auto holds_records = [&](const ast::Function &f, const ast::Param &p) {
    return p.type && p.type->kind == ast::TypeKind::Tensor &&
           scope->functions.at(f.name.text).second->records.count(p.type->element.text);
  };
  check_blocks(file, entries, holds_records, *diags_);
  return scope;
}

Scope *Program::import(const ast::Import &import, int32_t from, std::vector<std::string> &stack) {
  SourceManager &sources = diags_->sources();
  std::string name;
  if (import.is_path) {
    std::filesystem::path base = std::filesystem::path(sources.file(from).name()).parent_path();
    name = (base / import.name.text).lexically_normal().string();
  } else {
    name = "<" + import.name.text + ">";
  }
  if (auto at = std::find(stack.begin(), stack.end(), name); at != stack.end()) {
    std::string cycle;
    for (auto it = at; it != stack.end(); ++it) cycle += *it + " -> ";
    diags_->report(import.name.loc, DiagKind::import_cycle, cycle + name);
    return nullptr;
  }
  if (auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  if (import.is_path) {
    std::optional<int32_t> id = read_source(name, sources, *diags_, import.name.loc);
    return id ? load_file(*id, stack) : nullptr;
  }
  std::vector<std::string> known;
  for (const StdlibFile *f = kStdlibFiles; f->name; f++) {
    if (import.name.text == f->name) return load_file(sources.add(name, f->text), stack);
    known.push_back(f->name);
  }
  std::string near = nearest_name(import.name.text, known);
  diags_->report(import.name.loc, DiagKind::unknown_import, import.name.text,
                 near.empty() ? "" : "; did you mean `" + near + "`?");
  return nullptr;
}

const ast::Function *Program::find(const std::string &name, ast::FunctionKind kind) const {
  auto it = root_->functions.find(name);
  return it != root_->functions.end() && it->second.first->kind == kind ? it->second.first : nullptr;
}

const ast::Function *Program::find_entry(const std::string &name) const {
  const ast::Function *kernel = find(name, ast::FunctionKind::Kernel);
  return kernel ? kernel : find(name, ast::FunctionKind::Program);
}

std::vector<const ast::Function *> Program::of_kind(ast::FunctionKind kind) const {
  std::vector<const ast::Function *> out;
  for (const ast::Function &f : main().functions)
    if (f.kind == kind) out.push_back(&f);
  for (const ast::Check &c : main().checks)
    if (const ast::Function *f = find(c.kernel.text, kind); f && std::find(out.begin(), out.end(), f) == out.end())
      out.push_back(f);
  return out;
}
std::vector<const ast::Function *> Program::kernels() const { return of_kind(ast::FunctionKind::Kernel); }
std::vector<const ast::Function *> Program::programs() const { return of_kind(ast::FunctionKind::Program); }

std::vector<const ast::Function *> Program::entries() const {
  std::vector<const ast::Function *> out = kernels();
  for (const ast::Function *p : programs()) out.push_back(p);
  return out;
}

Scope &Program::scope_of(const ast::Function &f) const {
  for (const auto &scope : scopes_) {
    const std::vector<ast::Function> &list = scope->file->functions;
    if (!list.empty() && &f >= &list.front() && &f <= &list.back()) return *scope;
  }
  return *root_;
}

const ast::Check *Program::check_for(const std::string &kernel, bool bench) const {
  for (const ast::Check &c : root_->file->checks)
    if (c.kernel.text == kernel && c.is_bench == bench) return &c;
  return nullptr;
}

} // namespace tkc::sema

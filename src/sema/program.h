// A file and everything it imports, with its declarations found by name. Kernels are not checked here: each instance is
// (sema/instance.h), because every tile shape is known only then.
#pragma once
#include "sema/value.h"
#include "support/diagnostics.h"
#include "syntax/ast.h"
#include <map>
#include <memory>
#include <string>

namespace tkc::sema {

// One file's own declarations and what its imports bring (not transitive).
struct Scope {
  const ast::File *file = nullptr;
  std::map<std::string, std::pair<const ast::Function *, Scope *>> functions; // fn, kernel, program, reference
  std::map<std::string, std::pair<const ast::Const *, Scope *>> consts;
  std::map<std::string, std::pair<const ast::Enum *, Scope *>> enums;
  std::map<std::string, std::pair<const ast::Record *, Scope *>> records;
};

class Program {
public:
  // Parses a source file that is in the source manager, and its imports (`import math;` the embedded library,
  // `import "x.tk";` a file beside the importing one). Errors are reported; null if the file has no usable tree.
  static std::unique_ptr<Program> load(int32_t file_id, Diagnostics &diags);

  const ast::File &main() const { return *root_->file; }
  Scope &root() { return *root_; }
  const ast::Function *find(const std::string &name, ast::FunctionKind kind) const;
  const ast::Function *find_entry(const std::string &name) const; // a kernel or program
  // Of the main file, in order, then imported ones that it has a verify or bench block for.
  std::vector<const ast::Function *> kernels() const;
  std::vector<const ast::Function *> programs() const;
  std::vector<const ast::Function *> entries() const; // both: what is compiled, run, verified and timed
  Scope &scope_of(const ast::Function &f) const;      // of the file that declares it
  const ast::Check *check_for(const std::string &kernel, bool bench) const;
  const std::vector<int32_t> &files() const { return files_; } // every source read, the main one first

private:
  std::vector<const ast::Function *> of_kind(ast::FunctionKind kind) const;
  Scope *load_file(int32_t file_id, std::vector<std::string> &stack);
  Scope *import(const ast::Import &import, int32_t from, std::vector<std::string> &stack);
  template <typename T>
  void declare(std::map<std::string, std::pair<const T *, Scope *>> &table, const T &node, const ast::Name &name,
               Scope *scope);

  Diagnostics *diags_ = nullptr;
  std::vector<std::unique_ptr<ast::File>> trees_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::map<std::string, Scope *> by_name_;
  std::vector<int32_t> files_;
  Scope *root_ = nullptr;
};

} // namespace tkc::sema

#include "driver/lifetimes.h"
#include <algorithm>

namespace tkc::driver {

using sema::HostStmt;
using sema::LaunchArgument;

namespace {

class Walk {
public:
  explicit Walk(const sema::HostProgram &program) : out_(program.allocs.size()), home_(program.allocs.size(), 0) {}

  std::vector<Lifetime> run(const std::vector<HostStmt> &body) {
    block(body);
    return std::move(out_);
  }

private:
  struct Region { // a loop or a parallel block
    int64_t first;
    std::vector<size_t> used; // temporaries from outside
  };

  void block(const std::vector<HostStmt> &stmts) {
    for (const HostStmt &s : stmts) statement(s);
  }

  void statement(const HostStmt &s) {
    switch (s.kind) {
    case HostStmt::Kind::Alloc: home_[s.alloc] = regions_.size(); return;
    case HostStmt::Kind::Let:
    case HostStmt::Kind::Require: return;
    case HostStmt::Kind::Launch:
      for (const LaunchArgument &a : s.args)
        if (a.kind == LaunchArgument::Kind::Tensor && a.view.alloc) use(a.view.index);
      launches_++;
      return;
    case HostStmt::Kind::If:
      block(s.body);
      block(s.else_body);
      return;
    case HostStmt::Kind::For:
    case HostStmt::Kind::Parallel: {
      regions_.push_back({launches_, {}});
      block(s.body);
      Region region = std::move(regions_.back());
      regions_.pop_back();
      for (size_t a : region.used) {
        out_[a].first = std::min(out_[a].first, region.first);
        out_[a].last = std::max(out_[a].last, launches_ - 1);
      }
      return;
    }
    }
  }

  void use(size_t alloc) {
    Lifetime &l = out_[alloc];
    l.first = l.first < 0 ? launches_ : std::min(l.first, launches_);
    l.last = std::max(l.last, launches_);
    for (size_t r = home_[alloc]; r < regions_.size(); r++) regions_[r].used.push_back(alloc);
  }

  std::vector<Lifetime> out_;
  std::vector<size_t> home_; // regions around the declaration
  std::vector<Region> regions_;
  int64_t launches_ = 0;
};

} // namespace

std::vector<Lifetime> lifetimes(const sema::HostProgram &program) { return Walk(program).run(program.body); }

} // namespace tkc::driver

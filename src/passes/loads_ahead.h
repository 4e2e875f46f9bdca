// Loops inside roles: what they load and the items they take runs ahead in registers. Their authors have said what
// goes through rings and who copies; a role is never split. schedule_roles.cpp decides, loads_ahead.cpp rewrites.
//
// What is decided for each loop of a role: which loads of tiles are made how many iterations ahead, by the modulo
// schedule of the body (the stage of the first user less that of the load), at most kMostAhead and as the registers
// last; and whether it asks an iteration ahead for the items that it pops. A load can run ahead if its place depends on
// nothing but the loop's counter and its tensor is not written by the kernel.
#pragma once
#include "passes/pass_manager.h"
#include "passes/schedule.h"

namespace tkc::passes {

struct LoadAhead {
  ir::Op *load = nullptr;
  int64_t distance = 1; // iterations
};
struct RoleLoop {
  ir::Op *loop = nullptr;
  std::vector<LoadAhead> ahead;
  std::vector<SynchronousLoad> left;
  std::vector<ir::Op *> asks; // waits for items whose arrival is asked for an iteration ahead
  std::string modulo;
  // `place` names the loop.
  LoopPlan plan(LoopPlan place) const;
};

// Compute warps up to which items are asked for an iteration ahead: alone on their part of the SM they have nothing
// else to do while they wait for the answer. On an H200 the states of KDA, in blocks of two warps with five slots, take
// 185 us with it and 196 without.
constexpr int64_t kTestWarps = 2;
// What a loop's annotation `@asks` (force_schedule.cpp) or else the number of warps says.
bool asks_ahead(const ir::Op &loop, int64_t warps);

// Of every loop of `f` that has loads of tiles or takes items; `f` has roles and is laid out, its rings are lowered.
std::vector<RoleLoop> schedule_roles(ir::Function &f, const PassContext &context);
void rewrite_role_loops(ir::Function &f, const std::vector<RoleLoop> &loops, Diagnostics &diags);

} // namespace tkc::passes

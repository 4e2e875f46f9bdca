// Kernels that other compilers of tiles have got wrong: run under several schedules against their reference, and looked
// at as IR and PTX.
#pragma once
#include "compile_kit.h"
#include "driver/verify.h"
#include "emu/emu.h"
#include "ir/op_def.h"
#include "ir/ring.h"
#include <algorithm>
#include <functional>

namespace public_bugs {

using Targets = std::vector<const char *>;
// Copies by threads, by TMA, and with the shared memory of GeForce.
inline const Targets kTargets = {"sm_80", "sm_90", "sm_120"};

// Every case of the kernel's verify block, on the interpreter and as PTX on the emulator under `schedules` schedules.
void holds(const std::string &text, const std::string &kernel, const Targets &targets = kTargets,
           int64_t schedules = 3);
// What the compiler says about the kernel, which it must refuse; on success the test fails.
std::string refusal(const std::string &text, const std::string &kernel, const std::string &target = "sm_90");
// The kernel, which must compile.
std::unique_ptr<Compiled> compiled(const std::string &text, const std::string &kernel,
                                   const std::string &target = "sm_90");
// One case of the verify block as PTX that `edit` has changed, under eight schedules: what the emulator reports first,
// "another result", or "" if nothing is wrong. `edit` must change something.
std::string run_edited(const std::string &text, const std::string &kernel, const std::string &test_case,
                       const std::string &target, const std::function<std::string(std::string)> &edit);

int64_t count(const std::string &text, const std::string &what);
bool has(const std::string &text, const std::string &what);
std::string without_first(std::string text, const std::string &instruction); // the line of its first occurrence
std::string without_all(std::string text, const std::string &instruction);
// The entry of this name in a module.
std::string entry_of(const std::string &ptx, const std::string &name);
std::vector<const tkc::ir::Op *> ops_of(const tkc::ir::Function &f, tkc::ir::OpKind kind);
// The rings that the compiler has made, as "stages transport: tensors".
std::vector<std::string> rings_of(const tkc::ir::Function &f);

} // namespace public_bugs

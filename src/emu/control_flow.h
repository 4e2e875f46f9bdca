// Where the lanes of a divergent branch meet again.
#pragma once
#include "emu/module.h"

namespace tkc::emu {

// Sets Inst::reconverge of the branches of the function in code[first, end) to the first instruction of their immediate
// post-dominator. Ways that only leave the thread (exit, trap, a jump straight to a return of a kernel) do not count:
// the lanes that take them are gone, so the others need not wait for them.
void find_meeting_points(Program &program, int32_t first, int32_t end, bool kernel);

} // namespace tkc::emu

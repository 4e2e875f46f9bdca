// Parsing, launches, control flow, memory. The instruction families are tested in test/emu/*.cpp.
#include "emu/helper.h"

using namespace emu_test;

TEST_CASE("an empty kernel runs") {
  auto m = parse(".visible .entry k() { ret; }");
  Memory memory;
  check_clean(launch(*m, memory, {3, 64}, Options()));
}

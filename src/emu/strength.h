// How a memory instruction takes part in ordering.
#pragma once
#include "emu/decode.h"

namespace tkc::emu {

enum class Strength : uint8_t { Weak, Relaxed, Acquire, Release, AcquireRelease };

// .weak, .volatile, .relaxed.scope, .acquire.scope, .release.scope of ld and st.
Strength take_strength(Decoder &d, bool store);

} // namespace tkc::emu

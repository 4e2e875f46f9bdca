// The kinds of diagnostics, for sources that report them.
#pragma once
#include "support/diagnostics.h"

namespace tkc {

enum class DiagKind : uint16_t {
#define TKC_DIAG(kind, severity, text) kind,
#include "support/diagnostics.def"
#undef TKC_DIAG
};

} // namespace tkc

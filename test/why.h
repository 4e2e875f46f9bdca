// The message of a check of a Result. doctest with -s evaluates the messages of checks that hold too, and a good result
// has no error.
#pragma once
#include "support/result.h"

namespace tkc {

template <typename T> std::string why(const Result<T> &r) { return r.ok() ? std::string() : r.error(); }

} // namespace tkc

// The outcome of an operation that can fail for reasons outside tkc (files, drivers, devices): a value, or a message
// for the user. Faults in a .tk file are diagnostics (diagnostics.h); broken invariants are TKC_CHECK.
#pragma once
#include "support/check.h"
#include <fmt/format.h>
#include <string>
#include <utility>
#include <variant>

namespace tkc {

// What the command line turns into an exit code: 1, 4 (no device), 5 (timeout), 130 (Ctrl-C).
enum class ErrorKind : uint8_t { Failure, NoDevice, Timeout, Interrupted };

struct Error {
  std::string message; // one or more lines, lower case, without a full stop
  ErrorKind kind = ErrorKind::Failure;
};

template <typename... Args> Error failure(fmt::format_string<Args...> text, Args &&...args) {
  return {fmt::format(text, std::forward<Args>(args)...), ErrorKind::Failure};
}

template <typename T> class [[nodiscard]] Result {
public:
  Result(const T &value) : state_(std::in_place_index<0>, value) {}
  Result(T &&value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error e) : state_(std::in_place_index<1>, std::move(e)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T &value() & {
    TKC_CHECK(ok(), "value() of a failed result: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T &value() const & { return const_cast<Result *>(this)->value(); }
  T &&value() && { return std::move(value()); }
  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T &&operator*() && { return std::move(value()); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }

  const Error &failed() const { // for passing on
    TKC_CHECK(!ok(), "failed() of a good result");
    return std::get<1>(state_);
  }
  const std::string &error() const { return failed().message; }
  ErrorKind kind() const { return failed().kind; }

private:
  std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error e) : error_(std::move(e)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error &failed() const {
    TKC_CHECK(!ok_, "failed() of a good result");
    return error_;
  }
  const std::string &error() const { return failed().message; }
  ErrorKind kind() const { return failed().kind; }

private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

} // namespace tkc

// Returns from the enclosing function with the error of `expression` (a Status or a Result) if it failed.
#define TKC_TRY(expression)                                                                                            \
  do {                                                                                                                 \
    if (auto tkc_try_ = (expression); !tkc_try_.ok()) return tkc_try_.failed();                                        \
  } while (0)

// Errors: who, which, expected, found, in one line.
//
// Three kinds, one for each place: `Error` is thrown while opening, planning and compiling; `Result<T>` carries
// the same text where a request at run time must not unwind its neighbours; `CHECK` is for our own bugs only. No
// file, request or state may reach a CHECK.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

// What a program does about an error; the value is its exit code.
enum class ErrorKind : int {
  kFailed = 1,         // the run failed: out of memory, disk full, NaN in a request
  kRefused = 2,        // wrong usage, or a file that is not acceptable
  kInterrupted = 130,  // Ctrl-C
};

// `what()` is one line without a trailing full stop: "model.gguf: blk.3.ffn_down: expected 14336, found 11008".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Makes an error for a file, option or request that is not acceptable.
template <typename... Args>
Error Refused(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kRefused, fmt::format(format, std::forward<Args>(args)...));
}

// Makes an error for something that went wrong while running.
template <typename... Args>
Error Failed(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kFailed, fmt::format(format, std::forward<Args>(args)...));
}

// The text of `errno_value` ("No space left on device").
std::string SystemErrorText(int errno_value);

// Makes text from outside printable on one line: control characters and bytes that are not UTF-8 become `\xNN`,
// and what is past `max_bytes` becomes "...".
std::string Printable(std::string_view text, size_t max_bytes = 120);

// A value or an error, for requests at run time.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return std::get<1>(state_); }

  // The value; throws the error where there is none.
  const T& value() const& {
    if (!ok()) throw error();
    return std::get<0>(state_);
  }
  T&& value() && {
    if (!ok()) throw error();
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  std::variant<T, Error> state_;
};

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& values);
}  // namespace internal

}  // namespace lockstep

// Ends the process when one of our own invariants is broken; the arguments after the condition are a fmt format
// string and its values.
#define LOCKSTEP_CHECK(condition, ...)                                                                      \
  do {                                                                                                      \
    if (!(condition)) [[unlikely]]                                                                          \
      ::lockstep::internal::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__));     \
  } while (false)

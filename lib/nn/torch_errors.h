#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "curvq/core/error.h"

namespace curvq {

// The line of LibTorch's text that says what happened: the first with text, or behind a TorchScript
// traceback the last.
inline std::string torch_error_line(const std::string& text) {
  constexpr char kCause[] = "\nRuntimeError: ";
  const size_t cause = text.rfind(kCause);
  const size_t start = cause == std::string::npos ? 0 : cause + sizeof(kCause) - 1;
  const size_t begin = std::min(text.find_first_not_of('\n', start), text.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

// fn(), with LibTorch's errors, which have many lines, as an UnsupportedError of one.
template <typename Fn>
auto with_torch_errors(const std::string& model, Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw UnsupportedError(model + ": " + torch_error_line(error.what_without_backtrace()));
  } catch (const std::runtime_error& error) {  // of the TorchScript interpreter
    throw UnsupportedError(model + ": " + torch_error_line(error.what()));
  }
}

}  // namespace curvq

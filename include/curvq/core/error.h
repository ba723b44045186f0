// Errors. Every failure that a user can cause or cure is an exception under curvq::Error; its
// text is one line, lower case, that says what failed, where, the numbers, and what to try.
#pragma once

#include <stdexcept>
#include <string>

namespace curvq {

// Base of all errors. `exit_code` is what the program returns for it.
class Error : public std::runtime_error {
 public:
  Error(const std::string& what, int exit_code) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

// A wrong option, pattern or call (exit code 2).
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what) : Error(what, 2) {}
};

// A file that is damaged or contradicts itself or its neighbours (exit code 3).
class FormatError : public Error {
 public:
  explicit FormatError(const std::string& what) : Error(what, 3) {}
};

// Valid input that curvq does not handle (exit code 3).
class UnsupportedError : public Error {
 public:
  explicit UnsupportedError(const std::string& what) : Error(what, 3) {}
};

// Not-finite values, matrices that cannot be factorised (exit code 4).
class NumericalError : public Error {
 public:
  explicit NumericalError(const std::string& what) : Error(what, 4) {}
};

// Memory or disk that does not suffice, files that cannot be opened or written (exit code 5).
class ResourceError : public Error {
 public:
  explicit ResourceError(const std::string& what) : Error(what, 5) {}
};

// The user asked to stop; what was finished is kept (exit code 130).
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& what) : Error(what, 130) {}
};

}  // namespace curvq

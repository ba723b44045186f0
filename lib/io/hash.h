// xxh3, 64 bit, over parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace curvq::io {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(const void* data, size_t bytes);
  // Prefixed with its length, so that neighbours cannot run into each other.
  void add(const std::string& text);
  void add(int64_t value) { add(&value, sizeof(value)); }
  // 16 hex digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace curvq::io

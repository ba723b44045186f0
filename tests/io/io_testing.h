// What several tests of this module need.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "curvq/core/error.h"

namespace curvq::testing {

// An empty directory that goes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "curvq-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = std::filesystem::canonical(name);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// A safetensors file of this header (its length in front) and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xFF);
  return out + header + data;
}

// Runs `statement`, expects an exception of exactly this type whose text matches.
#define EXPECT_ERROR(statement, Type, matcher)                            \
  try {                                                                   \
    statement;                                                            \
    ADD_FAILURE() << "nothing was thrown";                                \
  } catch (const curvq::Error& e) {                                       \
    EXPECT_NE(dynamic_cast<const curvq::Type*>(&e), nullptr) << e.what(); \
    EXPECT_THAT(std::string(e.what()), matcher);                          \
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);       \
  }

}  // namespace curvq::testing

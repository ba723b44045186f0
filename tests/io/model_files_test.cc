#include "curvq/io/model_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "curvq/core/error.h"

namespace curvq {
namespace {

TEST(ModelFiles, FileHash) {
  const std::string path = ::testing::TempDir() + "/file_hash";
  std::ofstream(path) << "abc";
  EXPECT_EQ(file_hash(path), "78af5f94892f3950");  // XXH3_64bits("abc")
  std::filesystem::remove(path);
  EXPECT_THROW(file_hash(path), ResourceError);
}

TEST(ModelFiles, NamesOfTorchScript) {
  for (const char* name : {"a.pt", "dir/a.jit", "a.pth", "a.ts"}) EXPECT_TRUE(is_torchscript(name));
  for (const char* name : {"a", "pt", ".pt", "a.pt.gguf", "a.safetensors"})
    EXPECT_FALSE(is_torchscript(name));
}

}  // namespace
}  // namespace curvq

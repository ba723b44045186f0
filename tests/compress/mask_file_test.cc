#include "curvq/compress/mask_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "curvq/core/error.h"

namespace curvq {
namespace {

TEST(MaskFile, HoldsOneBitAWeightLowestFirst) {
  const std::string folder = testing::TempDir() + "mask_file_" + std::to_string(getpid());
  const std::string path = folder + "/pruning/masks.safetensors";
  const MaskShape one{"a", 2, 10}, two{"b.c", 1, 8};
  const std::vector<uint8_t> mask = {1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  const std::vector<uint8_t> eight = {0, 0, 0, 1, 0, 0, 0, 0};
  EXPECT_EQ(mask_bytes({one, two}), 5);
  MaskWriter writer(path, {one, two});
  writer.write(two, eight);
  writer.write(one, mask);
  writer.finish();
  {
    const SafetensorsFile file(path);
    const TensorView& tensor = file.at("a.mask");
    EXPECT_EQ(tensor.dtype, DType::kU8);
    const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.data);
    EXPECT_THAT(std::vector<uint8_t>(bytes, bytes + 4), testing::ElementsAre(0x81, 2, 0xfe, 1));
    EXPECT_EQ(read_mask(file, one), mask);
    EXPECT_EQ(read_mask(file, two), eight);
    EXPECT_EQ(file.metadata().at("columns"), R"({"a":10,"b.c":8})");
    EXPECT_THROW(read_mask(file, {"a", 2, 17}), FormatError);
    EXPECT_THROW(read_mask(file, {"nothing", 2, 10}), FormatError);
  }
  SafetensorsWriter(path, {}, {}).finish();
  EXPECT_THROW(read_mask(SafetensorsFile(path), one), FormatError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace curvq

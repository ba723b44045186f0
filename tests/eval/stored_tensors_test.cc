#include "curvq/eval/stored_tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "curvq/io/safetensors.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;

TEST(NaturalLess, ComparesNumbersAsNumbers) {
  EXPECT_TRUE(natural_less("layers.2.q", "layers.10.q"));
  EXPECT_FALSE(natural_less("layers.10.q", "layers.2.q"));
  EXPECT_TRUE(natural_less("a", "a.b"));
  EXPECT_TRUE(natural_less("a9", "b1"));
  EXPECT_FALSE(natural_less("same.1", "same.1"));
  EXPECT_TRUE(natural_less("x99999999999999999999998", "x99999999999999999999999"));
}

TEST(NaturalLess, IsAStrictOrderWithLeadingZeros) {
  const std::vector<std::string> names = {"x.1",    "x.01", "x.001", "x.1.a",
                                          "x.01.a", "x.2",  "x",     "y.0"};
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      EXPECT_EQ(natural_less(a, b) + natural_less(b, a), a == b ? 0 : 1) << a << " " << b;
      for (const std::string& c : names) {
        if (natural_less(a, b) && natural_less(b, c)) {
          EXPECT_TRUE(natural_less(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

// A bare file with one layer of each scheme and a plain tensor.
class StoredTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        fs::temp_directory_path() / ("curvq_stored_" + std::to_string(::getpid()) + ".safetensors");
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<TensorData> tensors;
    for (const Scheme& scheme :
         {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int4(0),
          Scheme::int4(64, false), Scheme::int8(), Scheme::fp8()}) {
      std::vector<float> weight(kRows * kCols);
      std::generate(weight.begin(), weight.end(), [&] { return normal(random); });
      QuantizedMatrix matrix =
          quantize_rtn(weight.data(), kRows, kCols, scheme, max_abs(weight.data(), kRows * kCols));
      const std::string name = "layer." + std::to_string(matrices_.size());
      for (TensorData& part : compressed_tensors_pack(name, matrix)) {
        tensors.push_back(std::move(part));
      }
      matrices_.emplace(name + ".weight", std::move(matrix));
    }
    TensorData plain;
    plain.name = "norm.weight";
    plain.dtype = DType::kF32;
    plain.shape = {3};
    plain_ = {1.5f, -2.0f, 0.25f};
    plain.data.resize(12);
    std::memcpy(plain.data.data(), plain_.data(), 12);
    tensors.push_back(plain);
    TensorData truth;
    truth.name = "truth";
    truth.dtype = DType::kBool;
    truth.shape = {2};
    truth.data = {std::byte{0}, std::byte{1}};
    tensors.push_back(truth);
    SafetensorsWriter writer(path_, std::vector<TensorInfo>(tensors.begin(), tensors.end()));
    for (const TensorData& tensor : tensors) {
      writer.write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
    }
    writer.finish();
  }
  void TearDown() override { fs::remove(path_); }

  static constexpr int64_t kRows = 24, kCols = 128;
  std::string path_;
  std::map<std::string, QuantizedMatrix> matrices_;
  std::vector<float> plain_;
};

TEST_F(StoredTensorsTest, ListsLayersWithTheirSchemesAndSizes) {
  const StoredTensors stored(path_);
  ASSERT_EQ(stored.tensors().size(), matrices_.size() + 2);
  int64_t bytes = 0;
  for (const auto& [name, matrix] : matrices_) {
    const StoredTensor* tensor = stored.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->scheme, matrix.scheme()) << name << " " << tensor->format();
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{kRows, kCols}));
    EXPECT_EQ(tensor->num_elements(), kRows * kCols);
    bytes += tensor->stored_bytes();
  }
  int64_t file_bytes = 0;
  const Checkpoint checkpoint(stored.path());
  for (const TensorView* view : checkpoint.tensors()) file_bytes += view->num_bytes();
  EXPECT_EQ(bytes + 12 + 2, file_bytes);
  EXPECT_FALSE(stored.find("norm.weight")->scheme);
  EXPECT_EQ(stored.find("norm"), nullptr);
}

TEST_F(StoredTensorsTest, ReadsAnyRangeOfElements) {
  const StoredTensors stored(path_);
  for (const auto& [name, matrix] : matrices_) {
    std::vector<float> expected(kRows * kCols);
    dequantize(matrix, expected.data());
    const StoredTensors::Reader reader(stored, *stored.find(name));
    // Within a row, from row to row, over rows, everything.
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {5, 9}, {kCols - 1, kCols + 1}, {3, 5 * kCols + 7}, {0, kRows * kCols}, {7, 7}}) {
      std::vector<float> values(end - begin, -99);
      reader.read(begin, end, values.data());
      EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin() + begin))
          << name << " " << begin << " " << end;
    }
  }
  std::vector<float> values(2);
  StoredTensors::Reader(stored, *stored.find("norm.weight")).read(1, 3, values.data());
  EXPECT_EQ(values, (std::vector<float>{plain_[1], plain_[2]}));
  StoredTensors::Reader(stored, *stored.find("truth")).read(0, 2, values.data());
  EXPECT_EQ(values, (std::vector<float>{0, 1}));
}

}  // namespace
}  // namespace curvq

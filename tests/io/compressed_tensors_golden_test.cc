// Against tensors that compressed-tensors 0.20.1 wrote.
#include <cmath>
#include <cstring>
#include <set>

#include "curvq/io/compressed_tensors.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using testing::TemporaryDirectory;

struct Golden {
  const char* file;
  Scheme scheme;
  bool is_written;  // a layout that curvq writes, too
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.file; }

std::string bytes_of(const TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.num_bytes())};
}

class CompressedTensorsGolden : public ::testing::TestWithParam<Golden> {
 protected:
  // The file's tensors CASE.DTYPE/FIELD under the names CASE.DTYPE.FIELD of a checkpoint.
  void SetUp() override {
    const SafetensorsFile golden(std::string(CURVQ_TEST_DATA) + "/formats/" + GetParam().file);
    std::vector<TensorInfo> infos;
    for (const TensorView& tensor : golden.tensors()) {
      infos.push_back(tensor);
      const size_t slash = infos.back().name.find('/');
      layers_.insert(infos.back().name.substr(0, slash));
      infos.back().name[slash] = '.';
    }
    SafetensorsWriter writer(directory_ / "model.safetensors", infos);
    for (size_t i = 0; i < infos.size(); ++i) {
      writer.write(infos[i].name, golden.tensors()[i].data, infos[i].num_bytes());
    }
    writer.finish();
    checkpoint_ = std::make_unique<Checkpoint>(directory_.path());
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::set<std::string> layers_;
};

TEST_P(CompressedTensorsGolden, UnpackedWeightsAreTheirs) {
  ASSERT_FALSE(layers_.empty());
  for (const std::string& layer : layers_) {
    const QuantizedMatrix matrix =
        compressed_tensors_unpack(*checkpoint_, layer, GetParam().scheme);
    const TensorView* wanted = checkpoint_->find(layer + ".dequant");
    if (wanted == nullptr) continue;  // allzero with a layout whose writer failed
    EXPECT_EQ((std::vector<int64_t>{matrix.rows(), matrix.cols()}), wanted->shape);
    std::vector<float> out(static_cast<size_t>(matrix.rows() * matrix.cols()));
    dequantize(matrix, out.data());
    const std::vector<float> expected = wanted->to_f32();
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(round_to_dtype(out[i], wanted->dtype), expected[i]) << layer << " element " << i;
    }
  }
}

TEST_P(CompressedTensorsGolden, PackedAgainTheTensorsAreTheSame) {
  if (!GetParam().is_written) return;
  for (const std::string& layer : layers_) {
    const QuantizedMatrix matrix =
        compressed_tensors_unpack(*checkpoint_, layer, GetParam().scheme);
    const auto tensors = compressed_tensors_pack(layer, matrix);
    const auto infos =
        compressed_tensors_infos(layer, matrix.scheme(), matrix.rows(), matrix.cols());
    ASSERT_EQ(tensors.size(), infos.size());
    size_t num_theirs = 0;
    for (const TensorView* tensor : checkpoint_->tensors()) {
      num_theirs += tensor->name.rfind(layer + ".weight", 0) == 0;
    }
    EXPECT_EQ(tensors.size(), num_theirs) << layer;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorView& theirs = checkpoint_->at(tensors[i].name);
      EXPECT_EQ(tensors[i].name, infos[i].name);
      EXPECT_EQ(tensors[i].dtype, theirs.dtype) << tensors[i].name;
      EXPECT_EQ(tensors[i].shape, theirs.shape) << tensors[i].name;
      EXPECT_EQ(tensors[i].data.size(), static_cast<size_t>(theirs.num_bytes()));
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[i].data.data()),
                            tensors[i].data.size()),
                bytes_of(theirs))
          << tensors[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, CompressedTensorsGolden,
    ::testing::Values(Golden{"ct_nvfp4_pack_quantized.safetensors", Scheme::nvfp4(), true},
                      Golden{"ct_mxfp4_pack_quantized.safetensors", Scheme::mxfp4(), true},
                      Golden{"ct_int4_sym_g128.safetensors", Scheme::int4(128), true},
                      Golden{"ct_int4_sym_g64.safetensors", Scheme::int4(64), true},
                      Golden{"ct_int4_sym_g32.safetensors", Scheme::int4(32), true},
                      Golden{"ct_int4_asym_g128.safetensors", Scheme::int4(128, false), true},
                      Golden{"ct_int4_sym_channel.safetensors", Scheme::int4(0), true},
                      Golden{"ct_int4_asym_channel.safetensors", Scheme::int4(0, false), true},
                      Golden{"ct_int8_pack_g128.safetensors", Scheme::int8(128), true},
                      Golden{"ct_int8_naive_channel.safetensors", Scheme::int8(), false},
                      Golden{"ct_fp8_naive_channel.safetensors", Scheme::fp8(), true}));

}  // namespace
}  // namespace curvq

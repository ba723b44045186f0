// Input: numbers that choose a scheme and, for each tensor that a quantized layer may have, whether
// it is there, its dtype, shape and data.
#include "curvq/io/compressed_tensors.h"
#include "fuzzing.h"
#include "random_tensors.h"

using namespace curvq;
using fuzzing::choose_tensor;
using fuzzing::write_file_of;

namespace {

Scheme choose_scheme(FuzzedDataProvider* input) {
  const int64_t group_size = input->PickValueInArray<int64_t>({0, 1, 4, 8, 16, 32});
  const bool symmetric = input->ConsumeBool();
  switch (input->ConsumeIntegralInRange(0, 4)) {
    case 0:
      return Scheme::nvfp4();
    case 1:
      return Scheme::mxfp4();
    case 2:
      return Scheme::int4(group_size, symmetric);
    case 3:
      return Scheme::int8(group_size, symmetric);
    default:
      return Scheme::fp8(group_size);
  }
}

std::vector<TensorData> choose_tensors(const Scheme& scheme, FuzzedDataProvider* input) {
  std::vector<TensorInfo> fitting;
  const int64_t rows = input->ConsumeIntegralInRange(1, 20);
  const int64_t cols = input->ConsumeIntegralInRange(1, 4) * 16 + (scheme.group_size == 0 ? 3 : 0);
  fuzzing::accepts([&] { fitting = compressed_tensors_infos("m", scheme, rows, cols); });
  std::vector<TensorData> tensors;
  for (const char* suffix : {"", "_packed", "_scale", "_global_scale", "_zero_point", "_shape"}) {
    const std::string name = std::string("m.weight") + suffix;
    const TensorInfo* fit = nullptr;
    for (const TensorInfo& info : fitting) {
      if (info.name == name) fit = &info;
    }
    if (fit == nullptr && input->ConsumeIntegralInRange(0, 7) > 0) continue;
    tensors.push_back(choose_tensor(name, fit, input));
    if (tensors.back().name == "m.weight_shape" && input->ConsumeBool() && fit != nullptr) {
      const int64_t shape[2] = {rows, cols};
      tensors.back() = {};
      static_cast<TensorInfo&>(tensors.back()) = *fit;
      tensors.back().data.assign(reinterpret_cast<const std::byte*>(shape),
                                 reinterpret_cast<const std::byte*>(shape + 2));
    }
  }
  return tensors;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzzing::MemoryFile memory;
  FuzzedDataProvider input(data, size);
  const Scheme scheme = choose_scheme(&input);
  write_file_of(choose_tensors(scheme, &input), memory.path());
  fuzzing::accepts([&scheme] {
    const Checkpoint checkpoint(memory.path());
    const QuantizedMatrix matrix = compressed_tensors_unpack(checkpoint, "m", scheme);
    std::vector<float> values(static_cast<size_t>(matrix.rows() * matrix.cols()));
    dequantize(matrix, values.data());
    // What was read packs into tensors that read the same.
    static fuzzing::MemoryFile repacked;
    write_file_of(compressed_tensors_pack("m", matrix), repacked.path());
    const QuantizedMatrix again =
        compressed_tensors_unpack(Checkpoint(repacked.path()), "m", matrix.scheme());
    fuzzing::require(again.codes == matrix.codes);
    fuzzing::require(again.grid.zero_points == matrix.grid.zero_points);
    fuzzing::require(again.grid.scales == matrix.grid.scales);
  });
  return 0;
}

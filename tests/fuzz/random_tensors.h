// Tensors that fuzzed numbers choose, and files of them.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <string>
#include <vector>

#include "curvq/io/checkpoint.h"

namespace curvq::fuzzing {

// Mostly with the dtype and shape of `fitting`, unless that is null.
inline TensorData choose_tensor(const std::string& name, const TensorInfo* fitting,
                                FuzzedDataProvider* input) {
  TensorData tensor;
  tensor.name = name;
  if (fitting != nullptr && input->ConsumeIntegralInRange(0, 7) > 0) {
    static_cast<TensorInfo&>(tensor) = *fitting;
  } else {
    tensor.dtype =
        input->PickValueInArray({DType::kU8, DType::kI8, DType::kI32, DType::kI64, DType::kF32,
                                 DType::kBF16, DType::kF8E4M3, DType::kBool});
    for (int i = input->ConsumeIntegralInRange(0, 3); i > 0; --i) {
      tensor.shape.push_back(input->ConsumeIntegralInRange(0, 20));
    }
  }
  const auto bytes = static_cast<size_t>(tensor.num_bytes());
  const std::vector<uint8_t> data = input->ConsumeBytes<uint8_t>(std::min<size_t>(bytes, 64));
  tensor.data.resize(bytes);
  for (size_t i = 0; i < bytes && !data.empty(); ++i) {
    tensor.data[i] = static_cast<std::byte>(data[i % data.size()]);
  }
  return tensor;
}

inline void write_file_of(const std::vector<TensorData>& tensors, const std::string& path) {
  SafetensorsWriter writer(path, {tensors.begin(), tensors.end()});
  for (const TensorData& t : tensors) {
    writer.write(t.name, t.data.data(), static_cast<int64_t>(t.data.size()));
  }
  writer.finish();
}

}  // namespace curvq::fuzzing

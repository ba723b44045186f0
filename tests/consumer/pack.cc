// Packs a matrix, writes and reads it, and multiplies with it; needs no LibTorch.
#include <cmath>
#include <cstdio>
#include <vector>

#include "curvq/io/compressed_tensors.h"
#include "curvq/kernels/gemm.h"

int main() {
  const int64_t rows = 8, cols = 64;
  std::vector<float> weight(rows * cols), x(cols, 1.0f), out(rows);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::sin(static_cast<float>(i));
  const curvq::Scheme scheme = curvq::Scheme::nvfp4();
  const auto packed = curvq::quantize_rtn(weight.data(), rows, cols, scheme,
                                          curvq::max_abs(weight.data(), rows * cols));
  {
    curvq::SafetensorsWriter writer("packed.safetensors",
                                    curvq::compressed_tensors_infos("layer", scheme, rows, cols));
    for (const auto& tensor : curvq::compressed_tensors_pack("layer", packed)) {
      writer.write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
    }
    writer.finish();
  }
  const curvq::Checkpoint file("packed.safetensors");
  const auto again = curvq::compressed_tensors_unpack(file, "layer", scheme);
  curvq::packed_gemm(again, x.data(), 1, cols, out.data(), rows);
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, magnitude = 0;
    for (int64_t c = 0; c < cols; ++c)
      sum += weight[r * cols + c], magnitude += std::abs(weight[r * cols + c]);
    worst = std::max(worst, std::abs(out[r] - sum) / magnitude);
  }
  std::printf("largest error %.4f\n", worst);
  return worst > 0 && worst < 0.1 ? 0 : 1;
}

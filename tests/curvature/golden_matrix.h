// Matrices and vectors of the golden nets, without building the nets.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <string>

#include "curvq/io/safetensors.h"

namespace curvq {

inline std::string golden_path(const std::string& net, const std::string& file) {
  return std::string(CURVQ_TEST_DATA) + "/curvature/" + net + "/" + file;
}

inline SafetensorsFile golden_file(const std::string& net) {
  return SafetensorsFile(golden_path(net, "golden.safetensors"));
}

// A tensor of an open file, as float64 or int64 of its own memory.
inline torch::Tensor golden_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.at(name);
  const auto dtype = view.dtype == DType::kI64 ? torch::kInt64 : torch::kFloat64;
  torch::Tensor t = torch::empty(view.shape, dtype);
  std::memcpy(t.data_ptr(), view.data, view.num_bytes());
  return t;
}

// The symmetric matrix whose packed upper triangle `name` holds row after row.
inline torch::Tensor golden_matrix(const SafetensorsFile& file, const std::string& name) {
  const torch::Tensor packed = golden_tensor(file, name);
  const auto n = static_cast<int64_t>(std::sqrt(2.0 * packed.numel()));
  const torch::Tensor at = torch::triu_indices(n, n);
  torch::Tensor matrix = torch::zeros({n, n}, torch::kFloat64);
  matrix.index_put_({at[0], at[1]}, packed);
  return matrix + matrix.triu(1).t();
}

}  // namespace curvq

// Two checkpoints of one model, tensor by tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvq {

// How far tensor b is from tensor a; sums are in float64, in a fixed order.
struct TensorError {
  int64_t elements = 0;
  double relative_error = 0;  // ||b - a|| / ||a||, Frobenius; 0/0 is 0
  double max_abs_error = 0;   // max |b - a|
  double cosine = 1;          // <a, b> / (||a|| ||b||); 1 if both are zero, 0 if one is
  double sqnr_db = 0;         // 10 log10(||a||^2 / ||b - a||^2); infinite for equal tensors
};

struct TensorComparison {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> shape;
  std::string format_a, format_b;  // "BF16", "nvfp4 g16"
  bool quantized_a = false, quantized_b = false;
  bool identical = false;  // the same bytes in the same format
  TensorError error;
};

struct ShapeMismatch {
  std::string name;
  std::vector<int64_t> shape_a, shape_b;
};

struct Comparison {
  std::vector<TensorComparison> tensors;  // in both with equal shape, in natural order of names
  std::vector<std::string> only_in_a, only_in_b;
  std::vector<ShapeMismatch> shape_mismatches;
  int64_t num_identical = 0;
  TensorError total;      // as if all compared tensors were one
  TensorError quantized;  // the same over tensors that are quantized in a or in b
};

// Compares model directories, bare .safetensors or TorchScript files; quantized layers are
// dequantized and matched by the name of their weight, convolutions as matrices. Reads one pair of
// tensors at a time, piece by piece. Values that are not finite make the errors that they enter
// NaN. Throws what StoredTensors throws, UnsupportedError for a quantization_config that curvq does
// not read, FormatError if the two have no tensor in common.
Comparison compare_checkpoints(const std::string& a, const std::string& b);

}  // namespace curvq

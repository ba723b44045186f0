// Hessians of layers out of a statistics file.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/compress/layer_plan.h"
#include "curvq/io/safetensors.h"

namespace curvq::internal {

// A file with NAME.hessian [in, in], NAME.A [in(+1), in(+1)] or NAME.inputs [n, in] of layers, the
// first of these that is there: one of `curvq hessian --stats`, or anybody's.
class LayerHessians {
 public:
  explicit LayerHessians(const std::string& path) : file_(path) {}

  // Whether the metadata say which model the file belongs to.
  bool names_model() const { return file_.metadata().count("model_hash") > 0; }
  // Throws FormatError naming both hashes if they say another one.
  void require_model(const std::string& model, const std::string& hash) const;
  // Throws FormatError for a layer that is to be quantized and that the file says nothing about, or
  // in another shape; with `output_factors` also for one without its G.
  void require(const std::vector<PlannedLayer>& plan, bool output_factors) const;
  // 2/N sum x x^T of a layer with `cols` inputs, 2 A without the bias; empty if the file says
  // nothing about the layer. Throws FormatError for wrong shapes or a matrix that is not symmetric,
  // NumericalError for inputs that are not finite.
  std::vector<float> read(const std::string& layer, int64_t cols) const;
  // NAME.inputs [n, cols]. Throws FormatError if they are not there or of another width,
  // NumericalError if they are not finite.
  std::vector<float> read_inputs(const std::string& layer, int64_t cols) const;
  // NAME.G [rows, rows], shrunk by the number of gradients it is the mean of; see shrunk_factor().
  // Throws FormatError for metadata that do not tell this number or a matrix that is not symmetric.
  // `shrinkage` takes how far.
  torch::Tensor read_output_factor(const std::string& layer, int64_t rows, double* shrinkage) const;

 private:
  const TensorView* source(const std::string& layer, int64_t cols) const;
  const TensorView& output_factor(const std::string& layer, int64_t rows) const;

  SafetensorsFile file_;
};

}  // namespace curvq::internal

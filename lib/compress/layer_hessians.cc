#include "compress/layer_hessians.h"

#include <algorithm>
#include <cmath>

#include "compress/output_gradients.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/layer_curvature.h"
#include "curvq/linalg/symmetric.h"

namespace curvq::internal {
namespace {

[[noreturn]] void throw_wrong(const TensorView& tensor, const std::string& must) {
  throw FormatError(tensor.file + ": " + tensor.name + " is " +
                    std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                    ", " + must);
}

void require_symmetric(const std::vector<float>& h, int64_t n, const TensorView& tensor) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(h[i * n + i]));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (std::abs(h[i * n + j] - h[j * n + i]) <= 1e-4f * largest ||
          !std::isfinite(h[i * n + j]) || !std::isfinite(h[j * n + i])) {
        continue;
      }
      throw FormatError(
          format("%s: %s is not symmetric: entry %lld, %lld is %g, its mirror image %g",
                 tensor.file.c_str(), tensor.name.c_str(), static_cast<long long>(i),
                 static_cast<long long>(j), static_cast<double>(h[i * n + j]),
                 static_cast<double>(h[j * n + i])));
    }
  }
}

// Of a mean of products x x^T.
void require_moments(const std::vector<float>& a, int64_t n, const TensorView& tensor) {
  for (int64_t i = 0; i < n * n; ++i) {
    if (std::isfinite(a[i])) continue;
    throw NumericalError(format("%s: %s is not finite at %lld, %lld; make the file again",
                                tensor.file.c_str(), tensor.name.c_str(),
                                static_cast<long long>(i / n), static_cast<long long>(i % n)));
  }
  for (int64_t i = 0; i < n; ++i) {
    if (a[i * n + i] >= 0) continue;
    throw FormatError(
        format("%s: %s has %g on its diagonal, at %lld; a mean of squares is not "
               "negative",
               tensor.file.c_str(), tensor.name.c_str(), static_cast<double>(a[i * n + i]),
               static_cast<long long>(i)));
  }
  require_symmetric(a, n, tensor);
}

// Of the Gram matrix h [cols, cols] of finite inputs [n, cols].
void require_no_overflow(const std::vector<float>& h, const std::vector<float>& inputs,
                         int64_t cols, const TensorView& tensor) {
  for (int64_t i = 0; i < cols; ++i) {
    if (std::isfinite(h[i * cols + i])) continue;
    int64_t largest = i;
    for (auto at = i; at < static_cast<int64_t>(inputs.size()); at += cols) {
      if (std::abs(inputs[at]) > std::abs(inputs[largest])) largest = at;
    }
    throw NumericalError(
        format("%s: products of %s overflow float32; feature %lld is %g in sample %lld",
               tensor.file.c_str(), tensor.name.c_str(), static_cast<long long>(i),
               static_cast<double>(inputs[largest]), static_cast<long long>(largest / cols)));
  }
}

}  // namespace

void LayerHessians::require_model(const std::string& model, const std::string& hash) const {
  curvq::require_model(file_, model, hash);
}

// The tensor that a layer's Hessian comes from, of the right shape; nullptr if there is none.
const TensorView* LayerHessians::source(const std::string& layer, int64_t cols) const {
  const std::string inputs = "the layer has " + std::to_string(cols) + " inputs";
  if (const TensorView* tensor = file_.find(layer + ".hessian")) {
    if (tensor->shape != std::vector<int64_t>{cols, cols} || !is_floating_point(tensor->dtype))
      throw_wrong(*tensor, inputs + ", so it must be floating-point [in, in]");
    return tensor;
  }
  if (const TensorView* tensor = file_.find(layer + ".A")) {
    const bool fits = tensor->shape == std::vector<int64_t>{cols, cols} ||
                      tensor->shape == std::vector<int64_t>{cols + 1, cols + 1};
    if (!fits || !is_floating_point(tensor->dtype))
      throw_wrong(*tensor, inputs +
                               ", so it must be floating-point [in, in] or, with a bias, "
                               "[in + 1, in + 1]");
    return tensor;
  }
  const TensorView* tensor = file_.find(layer + ".inputs");
  if (tensor == nullptr) return nullptr;
  if (tensor->shape.size() != 2 || tensor->shape[1] != cols || tensor->shape[0] == 0 ||
      !is_floating_point(tensor->dtype)) {
    throw_wrong(*tensor,
                "it must be floating-point [n, " + std::to_string(cols) + "] with n of 1 or more");
  }
  return tensor;
}

const TensorView& LayerHessians::output_factor(const std::string& layer, int64_t rows) const {
  const TensorView* tensor = file_.find(layer + ".G");
  if (tensor == nullptr) {
    throw FormatError(file_.path() + ": " + layer +
                      ".G is not there; make the file with curvq hessian --what kfac, or use "
                      "--output-factor none");
  }
  if (tensor->shape != std::vector<int64_t>{rows, rows} || !is_floating_point(tensor->dtype)) {
    throw_wrong(*tensor, "the layer has " + std::to_string(rows) +
                             " outputs, so it must be floating-point [out, out]");
  }
  return *tensor;
}

void LayerHessians::require(const std::vector<PlannedLayer>& plan, bool output_factors) const {
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme) continue;
    if (output_factors) output_factor(layer.name, layer.rows);
    if (source(layer.name, layer.cols) != nullptr) continue;
    throw FormatError(
        file_.path() + ": neither " + layer.name +
        ".hessian nor .A nor .inputs is there; keep the layer with --ignore or use --method rtn");
  }
}

std::vector<float> LayerHessians::read(const std::string& layer, int64_t cols) const {
  const TensorView* tensor = source(layer, cols);
  if (tensor == nullptr) return {};
  if (tensor->name.ends_with(".inputs")) {
    const std::vector<float> values = read_inputs(layer, cols);
    const auto n = static_cast<int64_t>(values.size()) / cols;
    std::vector<float> h(cols * cols, 0.0f);
    accumulate_gram(values.data(), n, cols, cols, 2.0f / static_cast<float>(n), h.data());
    mirror_lower(h.data(), cols);
    require_no_overflow(h, values, cols, *tensor);
    return h;
  }
  std::vector<float> values = tensor->to_f32();
  if (tensor->name.ends_with(".A")) {
    const torch::Tensor a = torch::from_blob(values.data(), tensor->shape);
    const torch::Tensor h = input_hessian(a, cols).contiguous();
    values.assign(h.data_ptr<float>(), h.data_ptr<float>() + h.numel());
    require_moments(values, cols, *tensor);
    return values;
  }
  require_symmetric(values, cols, *tensor);
  return values;
}

std::vector<float> LayerHessians::read_inputs(const std::string& layer, int64_t cols) const {
  const TensorView* tensor = file_.find(layer + ".inputs");
  if (tensor == nullptr)
    throw FormatError(file_.path() + ": " + layer + ".inputs is not there; use --inverse cholesky");
  if (tensor->shape.size() != 2 || tensor->shape[1] != cols || tensor->shape[0] == 0 ||
      !is_floating_point(tensor->dtype)) {
    throw_wrong(*tensor,
                "it must be floating-point [n, " + std::to_string(cols) + "] with n of 1 or more");
  }
  std::vector<float> values = tensor->to_f32();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw NumericalError(
        format("%s: %s is not finite at sample %lld, feature %lld; damping will not help, check "
               "this sample",
               tensor->file.c_str(), tensor->name.c_str(), static_cast<long long>(i / cols),
               static_cast<long long>(i % cols)));
  }
  return values;
}

torch::Tensor LayerHessians::read_output_factor(const std::string& layer, int64_t rows,
                                                double* shrinkage) const {
  const TensorView& tensor = output_factor(layer, rows);
  const auto provenance = CurvatureProvenance::parse(file_.metadata(), file_.path());
  std::vector<float> values = tensor.to_f32();
  require_moments(values, rows, tensor);
  const int64_t samples = provenance.loss_terms * provenance.label_draws;
  *shrinkage = factor_shrinkage(rows, samples);
  return shrunk_factor(torch::from_blob(values.data(), {rows, rows}), samples);
}

}  // namespace curvq::internal

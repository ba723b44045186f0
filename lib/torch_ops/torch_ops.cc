// Packed linear layers for Python: torch.ops.load_library("libcurvq_torch_ops.so"), then
//   weight = torch.ops.curvq.load("MODEL-NVFP4", "model.layers.0.mlp.up_proj")
//   y = torch.ops.curvq.linear(x, weight, bias, "a8")
// LibTorch must be that of the Python it is loaded into.
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/io/model_files.h"
#include "curvq/kernels/linear.h"

namespace curvq {
namespace {

struct TorchWeight : torch::CustomClassHolder {
  PrepackedWeight prepacked;

  explicit TorchWeight(const QuantizedMatrix& weight) : prepacked(weight) {}
  int64_t rows() const { return prepacked.rows(); }
  int64_t cols() const { return prepacked.cols(); }
  int64_t memory_bytes() const { return prepacked.memory_bytes(); }
  std::string scheme() const { return prepacked.scheme().describe(); }
  at::Tensor dequantize() const {
    at::Tensor out = at::empty({rows(), cols()}, at::kFloat);
    curvq::dequantize(prepacked.unpack(), out.data_ptr<float>());
    return out;
  }
};
using WeightPtr = c10::intrusive_ptr<TorchWeight>;

// Layer `name` of a model directory in compressed-tensors' layout.
WeightPtr load(const std::string& model, const std::string& name) {
  const Json config = read_model_config(model);
  if (!config.contains("quantization_config"))
    throw FormatError(model + ": config.json has no quantization_config; the model is not packed");
  const std::optional<Scheme> scheme =
      parse_quantization_config(config["quantization_config"],
                                model_file_origin(model, "config.json"))
          .scheme_of(name);
  if (!scheme) throw UsageError(model + ": " + name + " is not a packed layer");
  return c10::make_intrusive<TorchWeight>(
      compressed_tensors_unpack(Checkpoint(model), name, *scheme));
}

// A float32 matrix rounded to nearest; group_size: that of the scheme if not given.
WeightPtr quantize(const at::Tensor& weight, const std::string& scheme_name,
                   std::optional<int64_t> group_size) {
  if (weight.dim() != 2 || !weight.device().is_cpu() || !weight.is_floating_point())
    throw UsageError("curvq::quantize: weight must be a matrix of floats on the CPU");
  Scheme scheme = Scheme::parse(scheme_name);
  if (group_size) scheme.group_size = *group_size;
  const at::Tensor values = weight.detach().to(at::kFloat).contiguous();
  const float* w = values.const_data_ptr<float>();
  return c10::make_intrusive<TorchWeight>(
      quantize_rtn(w, values.size(0), values.size(1), scheme, max_abs(w, values.numel())));
}

InputRounding rounding_of(const std::string& inputs) {
  if (inputs == "float32") return InputRounding::kNone;
  if (inputs == "bf16") return InputRounding::kBF16;
  if (inputs == "a15") return InputRounding::kA15;
  if (inputs == "a8") return InputRounding::kA8;
  throw UsageError("curvq::linear: inputs '" + inputs + "'; they are float32, bf16, a15 or a8");
}

// x [..., in] float32 or bfloat16, bias [out] float32; throws for others. The output's shape.
std::vector<int64_t> output_shape(const at::Tensor& x, const TorchWeight& weight,
                                  const std::optional<at::Tensor>& bias,
                                  const std::string& inputs) {
  rounding_of(inputs);
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16) {
    throw UsageError(std::string("curvq::linear: x is ") + c10::toString(x.scalar_type()) +
                     "; it must be float32 or bfloat16");
  }
  if (x.dim() < 1 || x.size(-1) != weight.cols()) {
    throw UsageError("curvq::linear: x ends in " +
                     (x.dim() < 1 ? "no dimension" : std::to_string(x.size(-1)) + " values") +
                     "; the weight takes " + std::to_string(weight.cols()));
  }
  if (bias &&
      (bias->dim() != 1 || bias->size(0) != weight.rows() || bias->scalar_type() != at::kFloat)) {
    throw UsageError("curvq::linear: bias must be float32 [" + std::to_string(weight.rows()) + "]");
  }
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = weight.rows();
  return shape;
}

at::Tensor linear_cpu(const at::Tensor& x, const WeightPtr& weight,
                      const std::optional<at::Tensor>& bias, const std::string& inputs) {
  const std::vector<int64_t> shape = output_shape(x, *weight, bias, inputs);
  if (bias && !bias->device().is_cpu())
    throw UsageError("curvq::linear: bias must be on the CPU, as x is");
  const at::Tensor rows = x.contiguous();
  const int64_t k = weight->cols(), m = rows.numel() / k;
  const PrepackedWeight& prepacked = weight->prepacked;
  const InputRounding rounding = rounding_of(inputs);
  const LinearInput input =
      rows.scalar_type() == at::kFloat
          ? LinearInput(prepacked, rows.const_data_ptr<float>(), m, k, rounding)
          : LinearInput(prepacked,
                        reinterpret_cast<const uint16_t*>(rows.const_data_ptr<at::BFloat16>()), m,
                        k, rounding);
  at::Tensor out = at::empty(shape, at::kFloat), added;
  LinearEnds ends;
  if (bias) added = bias->contiguous(), ends.bias = added.const_data_ptr<float>();
  linear(prepacked, input, out.data_ptr<float>(), weight->rows(), ends);
  return out.to(x.scalar_type());
}

at::Tensor linear_meta(const at::Tensor& x, const WeightPtr& weight,
                       const std::optional<at::Tensor>& bias, const std::string& inputs) {
  return at::empty(output_shape(x, *weight, bias, inputs), x.options());
}

}  // namespace
}  // namespace curvq

TORCH_LIBRARY(curvq, library) {
  using curvq::TorchWeight;
  library.class_<TorchWeight>("PackedWeight")
      .def("rows", &TorchWeight::rows)
      .def("cols", &TorchWeight::cols)
      .def("memory_bytes", &TorchWeight::memory_bytes)
      .def("scheme", &TorchWeight::scheme)
      .def("dequantize", &TorchWeight::dequantize);
  const std::string weight = "__torch__.torch.classes.curvq.PackedWeight";
  library.def(("load(str model, str name) -> " + weight).c_str(), &curvq::load);
  library.def(("quantize(Tensor weight, str scheme, int? group_size=None) -> " + weight).c_str(),
              &curvq::quantize);
  library.def(("linear(Tensor x, " + weight +
               " weight, Tensor? bias=None, str inputs=\"float32\") -> Tensor")
                  .c_str());
}

TORCH_LIBRARY_IMPL(curvq, CPU, library) { library.impl("linear", &curvq::linear_cpu); }
TORCH_LIBRARY_IMPL(curvq, Meta, library) { library.impl("linear", &curvq::linear_meta); }

#include "curvq/curvature/layer_curvature.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq {
namespace {

bool ends_with(const std::string& name, const std::string& suffix, std::string& layer) {
  if (name.size() <= suffix.size() ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
    return false;
  layer = name.substr(0, name.size() - suffix.size());
  return true;
}

DType file_dtype(const std::string& dtype, const std::string& origin) {
  if (dtype == "float32") return DType::kF32;
  if (dtype == "float64") return DType::kF64;
  throw FormatError(origin + ": dtype of the metadata is '" + dtype +
                    "', must be float32 or float64");
}

std::vector<TensorInfo> tensors_of(const LayerCurvatureShape& layer, DType dtype) {
  std::vector<TensorInfo> tensors;
  const auto add = [&](bool there, const char* suffix, std::vector<int64_t> shape) {
    if (there) tensors.push_back({layer.name + suffix, dtype, std::move(shape)});
  };
  add(layer.a > 0, ".A", {layer.a, layer.a});
  add(layer.g > 0, ".G", {layer.g, layer.g});
  add(!layer.diagonal.empty(), ".diagonal", layer.diagonal);
  add(layer.trace, ".trace", {});
  add(layer.trace_stderr, ".trace_stderr", {});
  add(layer.eigenvalues > 0, ".eigenvalues", {layer.eigenvalues});
  return tensors;
}

[[noreturn]] void throw_wrong(const TensorView& tensor, const std::string& must) {
  throw FormatError(tensor.file + ": " + tensor.name + " is " +
                    std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                    ", must be " + must);
}

int64_t square_size(const TensorView& tensor) {
  if (tensor.shape.size() != 2 || tensor.shape[0] != tensor.shape[1] || tensor.shape[0] == 0)
    throw_wrong(tensor, "a square matrix");
  return tensor.shape[0];
}

// What the tensor says of its layer, put there; false if it says nothing.
bool describe(const TensorView& tensor, LayerCurvatureShape& shape) {
  std::string& name = shape.name;
  if (ends_with(tensor.name, ".A", name)) {
    shape.a = square_size(tensor);
  } else if (ends_with(tensor.name, ".G", name)) {
    shape.g = square_size(tensor);
  } else if (ends_with(tensor.name, ".diagonal", name)) {
    if (tensor.shape.empty() || tensor.num_elements() == 0) throw_wrong(tensor, "not empty");
    shape.diagonal = tensor.shape;
  } else if (ends_with(tensor.name, ".eigenvalues", name)) {
    if (tensor.shape.size() != 1 || tensor.shape[0] == 0) throw_wrong(tensor, "a vector");
    shape.eigenvalues = tensor.shape[0];
  } else if (ends_with(tensor.name, ".trace", name)) {
    if (!tensor.shape.empty()) throw_wrong(tensor, "a scalar");
    shape.trace = true;
  } else if (ends_with(tensor.name, ".trace_stderr", name)) {
    if (!tensor.shape.empty()) throw_wrong(tensor, "a scalar");
    shape.trace_stderr = true;
  } else {
    return false;
  }
  return true;
}

void join(LayerCurvatureShape& to, const LayerCurvatureShape& from) {
  to.a = std::max(to.a, from.a);
  to.g = std::max(to.g, from.g);
  if (!from.diagonal.empty()) to.diagonal = from.diagonal;
  to.trace = to.trace || from.trace;
  to.trace_stderr = to.trace_stderr || from.trace_stderr;
  to.eigenvalues = std::max(to.eigenvalues, from.eigenvalues);
}

void check_finite(const torch::Tensor& values, const std::string& name) {
  if (torch::isfinite(values).all().item<bool>()) return;
  const torch::Tensor bad = torch::nonzero(~torch::isfinite(values.flatten()));
  throw NumericalError(format("%s has %lld values that are not finite, the first at element %lld",
                              name.c_str(), static_cast<long long>(bad.size(0)),
                              static_cast<long long>(bad[0][0].item<int64_t>())));
}

}  // namespace

CurvatureWriter::CurvatureWriter(const std::string& path, bool overwrite,
                                 const CurvatureProvenance& provenance,
                                 const std::vector<LayerCurvatureShape>& layers)
    : dtype_(provenance.dtype), output_(path, AtomicOutput::Kind::kFile, overwrite) {
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  for (const LayerCurvatureShape& layer : layers) {
    layers_[layer.name] = layer;
    for (TensorInfo& tensor : tensors_of(layer, file_dtype(dtype_, path))) {
      bytes += tensor.num_bytes();
      tensors.push_back(std::move(tensor));
    }
  }
  require_disk_space(output_.path(), bytes);
  writer_ = std::make_unique<SafetensorsWriter>(output_.path(), tensors, provenance.metadata());
}

CurvatureWriter::~CurvatureWriter() = default;

void CurvatureWriter::write(const LayerCurvature& layer) {
  const LayerCurvatureShape& shape = layers_.at(layer.name);
  const torch::ScalarType type = dtype_ == "float64" ? torch::kFloat64 : torch::kFloat32;
  for (const TensorInfo& info : tensors_of(shape, file_dtype(dtype_, ""))) {
    const std::string field = info.name.substr(layer.name.size() + 1);
    torch::Tensor values = field == "A"             ? layer.a
                           : field == "G"           ? layer.g
                           : field == "diagonal"    ? layer.diagonal
                           : field == "eigenvalues" ? layer.eigenvalues
                           : field == "trace"       ? torch::tensor(layer.trace, torch::kFloat64)
                                              : torch::tensor(layer.trace_stderr, torch::kFloat64);
    if (!values.defined() || values.sizes() != torch::IntArrayRef(info.shape))
      throw std::logic_error(info.name + " was announced as " + shape_string(info.shape));
    values = values.to(torch::kCPU, type).contiguous();
    check_finite(values, info.name);
    writer_->write(info.name, values.data_ptr(), info.num_bytes());
  }
}

void CurvatureWriter::commit() {
  writer_->finish();
  output_.commit();
}

CurvatureFile::CurvatureFile(const std::string& path)
    : file_(path), provenance_(CurvatureProvenance::parse(file_.metadata(), path)) {
  const DType dtype = file_dtype(provenance_.dtype, path);
  for (const TensorView& tensor : file_.tensors()) {
    LayerCurvatureShape shape;
    if (!describe(tensor, shape)) continue;
    if (tensor.dtype != dtype)
      throw_wrong(tensor, std::string(dtype_name(dtype)) + " as the metadata say");
    const auto known = std::find_if(layers_.begin(), layers_.end(),
                                    [&](const auto& layer) { return layer.name == shape.name; });
    if (known == layers_.end()) {
      layers_.push_back(shape);
    } else {
      join(*known, shape);
    }
  }
  for (const LayerCurvatureShape& layer : layers_) {
    if (layer.a == 0 || layer.g == 0 || layer.diagonal.empty()) continue;
    if (layer.diagonal != std::vector<int64_t>{layer.g, layer.a}) {
      throw_wrong(file_.at(layer.name + ".diagonal"),
                  shape_string({layer.g, layer.a}) + " as its factors are");
    }
  }
}

const LayerCurvatureShape* CurvatureFile::find(const std::string& layer) const {
  const auto known = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const auto& shape) { return shape.name == layer; });
  return known == layers_.end() ? nullptr : &*known;
}

LayerCurvature CurvatureFile::read(const std::string& layer) const {
  const LayerCurvatureShape* shape = find(layer);
  if (shape == nullptr)
    throw FormatError(path() + ": there are no statistics of the layer " + layer);
  const auto tensor = [&](bool there, const char* suffix) {
    if (!there) return torch::Tensor();
    const torch::Tensor values = to_torch(file_.at(layer + suffix));
    check_finite(values, path() + ": " + layer + suffix);
    return values;
  };
  LayerCurvature result;
  result.name = layer;
  result.a = tensor(shape->a > 0, ".A");
  result.g = tensor(shape->g > 0, ".G");
  result.diagonal = tensor(!shape->diagonal.empty(), ".diagonal");
  result.eigenvalues = tensor(shape->eigenvalues > 0, ".eigenvalues");
  if (shape->trace) result.trace = tensor(true, ".trace").item<double>();
  if (shape->trace_stderr) result.trace_stderr = tensor(true, ".trace_stderr").item<double>();
  return result;
}

void CurvatureFile::require_model(const std::string& model, const std::string& hash) const {
  curvq::require_model(file_, model, hash);
}

void CurvatureFile::require_factors(const std::string& layer, int64_t in_features,
                                    int64_t out_features) const {
  const LayerCurvatureShape* shape = find(layer);
  if (shape == nullptr || shape->a == 0 || shape->g == 0)
    throw FormatError(path() + ": there are no factors A and G of the layer " + layer);
  if (shape->a != in_features && shape->a != in_features + 1)
    throw_wrong(file_.at(layer + ".A"), "that of " + std::to_string(in_features) + " inputs");
  if (shape->g != out_features)
    throw_wrong(file_.at(layer + ".G"), "that of " + std::to_string(out_features) + " outputs");
}

void require_model(const SafetensorsFile& stats, const std::string& model,
                   const std::string& hash) {
  const auto entry = stats.metadata().find("model_hash");
  if (entry == stats.metadata().end() || entry->second == hash) return;
  throw FormatError(stats.path() + ": these are statistics of the model with hash " +
                    entry->second + ", " + model + " has hash " + hash +
                    "; make them again with curvq hessian --stats");
}

torch::Tensor input_hessian(const torch::Tensor& a, int64_t in_features) {
  if (a.dim() != 2 || a.size(0) != a.size(1) ||
      (a.size(0) != in_features && a.size(0) != in_features + 1))
    throw UsageError("a factor A of " + std::to_string(in_features) +
                     " inputs has their number of rows and columns, or one more for a bias");
  return 2 * a.narrow(0, 0, in_features).narrow(1, 0, in_features);
}

}  // namespace curvq

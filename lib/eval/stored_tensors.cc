#include "curvq/eval/stored_tensors.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "curvq/core/error.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/script_model.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq {
namespace {

constexpr const char* kParts[] = {".weight_packed", ".weight_scale",      ".weight_global_scale",
                                  ".weight_shape",  ".weight_zero_point", ".input_global_scale",
                                  ".input_scale"};

// The layer whose codes `tensor` holds, or "".
std::string packed_layer(const Checkpoint& checkpoint, const TensorView& tensor) {
  const auto layer = [&](const std::string& ending) {
    const std::string& name = tensor.name;
    return name.size() > ending.size() && name.ends_with(ending)
               ? name.substr(0, name.size() - ending.size())
               : std::string();
  };
  const std::string packed = layer(".weight_packed");
  if (!packed.empty()) return packed;
  const std::string plain = layer(".weight");
  const bool eight_bits = tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kI8;
  const bool is_layer = eight_bits && checkpoint.find(plain + ".weight_scale") &&
                        !checkpoint.find(plain + ".weight_packed");
  return is_layer ? plain : "";
}

std::optional<Scheme> infer_integers(const TensorView& packed, const TensorView& scale,
                                     const TensorView& shape, bool symmetric) {
  if (shape.dtype != DType::kI64 || shape.num_elements() != 2) return std::nullopt;
  int64_t sizes[2];
  std::memcpy(sizes, shape.data, sizeof(sizes));
  const int64_t cols = sizes[1], groups = scale.shape[1], words = packed.shape[1];
  if (cols <= 0 || groups <= 0 || cols % groups != 0 || cols > (int64_t{1} << 40)) {
    return std::nullopt;
  }
  const int64_t group_size = groups == 1 ? 0 : cols / groups;
  if (words == (cols * 4 + 31) / 32) return Scheme::int4(group_size, symmetric);
  if (words == (cols * 8 + 31) / 32) return Scheme::int8(group_size, symmetric);
  return std::nullopt;
}

}  // namespace

int64_t StoredTensor::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t StoredTensor::stored_bytes() const {
  int64_t bytes = 0;
  for (const TensorView* part : parts) bytes += part->stored_bytes();
  return bytes;
}

std::string StoredTensor::format() const {
  return scheme ? scheme->describe() : parts[0]->format();
}

std::optional<Scheme> infer_scheme(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView* packed = checkpoint.find(name + ".weight_packed");
  const TensorView* scale = checkpoint.find(name + ".weight_scale");
  const TensorView* shape = checkpoint.find(name + ".weight_shape");
  const bool symmetric = !checkpoint.find(name + ".weight_zero_point");
  if (!scale) return std::nullopt;
  if (!packed) {
    const TensorView* codes = checkpoint.find(name + ".weight");
    const bool is_matrix = codes && codes->shape.size() == 2;
    const int64_t num_scales = scale->num_elements();
    if (!is_matrix || (num_scales != 1 && num_scales != codes->shape[0])) return std::nullopt;
    if (codes->dtype == DType::kF8E4M3) return Scheme::fp8();
    return codes->dtype == DType::kI8 ? std::optional(Scheme::int8(0, symmetric)) : std::nullopt;
  }
  if (packed->shape.size() != 2 || scale->shape.size() != 2) return std::nullopt;
  if (packed->dtype == DType::kU8) {
    if (scale->dtype == DType::kF8E4M3) return Scheme::nvfp4();
    return scale->dtype == DType::kU8 ? std::optional(Scheme::mxfp4()) : std::nullopt;
  }
  if (packed->dtype != DType::kI32 || !shape) return std::nullopt;
  return infer_integers(*packed, *scale, *shape, symmetric);
}

bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](const std::string& text, size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a, i) || !digit(b, j)) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    // Of two numbers without leading zeros, the longer one is larger.
    while (a[i] == '0' && digit(a, i + 1)) ++i;
    while (b[j] == '0' && digit(b, j + 1)) ++j;
    size_t end_a = i, end_b = j;
    while (digit(a, end_a)) ++end_a;
    while (digit(b, end_b)) ++end_b;
    if (end_a - i != end_b - j) return end_a - i < end_b - j;
    const int order = a.compare(i, end_a - i, b, j, end_b - j);
    if (order != 0) return order < 0;
    i = end_a, j = end_b;
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;
}

StoredTensors::StoredTensors(const std::string& path) : path_(path) {
  if (is_torchscript(path)) {
    add_script();
  } else {
    add_checkpoint();
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return natural_less(a.name, b.name);
  });
}

struct StoredTensors::Script {
  explicit Script(const std::string& path) : model(path) {
    for (const ScriptTensor& tensor : model.tensors()) {
      values.push_back(tensor.value.contiguous());
      views.push_back(view_of(tensor.name, values.back(), path));
    }
  }

  ScriptModel model;
  std::vector<torch::Tensor> values;
  std::vector<TensorView> views;
};

const ScriptModel* StoredTensors::script() const { return script_ ? &script_->model : nullptr; }

void StoredTensors::add_script() {
  script_ = std::make_shared<Script>(path_);
  for (const TensorView& view : script_->views)
    tensors_.push_back({view.name, view.shape, std::nullopt, {&view}});
}

void StoredTensors::add_checkpoint() {
  checkpoint_ = std::make_unique<Checkpoint>(path_);
  const bool is_model = checkpoint_->is_directory() || checkpoint_->is_gguf();
  if (const auto text = is_model ? read_model_file(path_, "config.json") : std::nullopt) {
    const std::string config = model_file_origin(path_, "config.json");
    config_ = parse_json(*text, config);
    const auto quantization = config_.find("quantization_config");
    if (quantization != config_.end() && !quantization->is_null()) {
      try {
        quantization_ = parse_quantization_config(*quantization, config);
      } catch (const UnsupportedError& error) {
        unread_quantization_ = error.what();
      }
    }
  }

  std::set<std::string> in_layers;  // tensors that are part of a quantized layer
  for (const TensorView* tensor : checkpoint_->tensors()) {
    if (!unread_quantization_.empty()) break;
    const std::string layer = packed_layer(*checkpoint_, *tensor);
    if (layer.empty()) continue;
    std::optional<Scheme> scheme;
    if (quantization_) scheme = quantization_->scheme_of(layer);
    if (!scheme) scheme = infer_scheme(*checkpoint_, layer);
    if (!scheme || tensor->shape.size() != 2) continue;
    add_quantized(layer, *scheme);
    for (const TensorView* part : tensors_.back().parts) in_layers.insert(part->name);
  }
  for (const TensorView* tensor : checkpoint_->tensors()) {
    if (in_layers.count(tensor->name)) continue;
    tensors_.push_back({tensor->name, tensor->shape, std::nullopt, {tensor}});
  }
}

void StoredTensors::add_quantized(const std::string& layer, const Scheme& scheme) {
  StoredTensor tensor;
  tensor.name = layer + ".weight";
  tensor.scheme = scheme;
  for (const char* part : kParts) {
    if (const TensorView* view = checkpoint_->find(layer + part)) tensor.parts.push_back(view);
  }
  const TensorView* codes = checkpoint_->find(layer + ".weight_packed");
  if (!codes) {
    codes = checkpoint_->find(tensor.name);
    tensor.parts.insert(tensor.parts.begin(), codes);
  }
  const int64_t per_element = static_cast<int64_t>(dtype_bytes(codes->dtype)) * 8 / scheme.bits;
  tensor.shape = {codes->shape[0], codes->shape[1] * per_element};
  const TensorView* shape = checkpoint_->find(layer + ".weight_shape");
  if (shape && shape->dtype == DType::kI64 && shape->num_elements() == 2) {
    int64_t sizes[2];
    std::memcpy(sizes, shape->data, sizeof(sizes));
    // The last word of a row may be partly filled; anything else would be a lie.
    const int64_t spare = sizes[1] > 0 ? tensor.shape[1] - sizes[1] : -1;
    if (spare >= 0 && spare < per_element) tensor.shape[1] = sizes[1];
  }
  tensors_.push_back(std::move(tensor));
}

const StoredTensor* StoredTensors::find(const std::string& name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const StoredTensor& tensor, const std::string& name) {
                                     return natural_less(tensor.name, name);
                                   });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void StoredTensors::release(const StoredTensor& tensor) const {
  if (!checkpoint_) return;
  for (const TensorView* part : tensor.parts) checkpoint_->release(*part);
}

StoredTensors::Reader::Reader(const StoredTensors& tensors, const StoredTensor& tensor)
    : tensor_(tensor) {
  if (!tensor.scheme) return;
  const std::string layer = tensor.name.substr(0, tensor.name.size() - std::strlen(".weight"));
  matrix_ = compressed_tensors_unpack(*tensors.checkpoint_, layer, *tensor.scheme);
}

void StoredTensors::Reader::read(int64_t begin, int64_t end, float* out) const {
  if (!matrix_) {
    const TensorView& view = *tensor_.parts[0];
    if (view.dtype == DType::kBool) {
      for (int64_t i = begin; i < end; ++i)
        *out++ = static_cast<float>(view.data[i] != std::byte{0});
      return;
    }
    view.read_f32(begin, end - begin, out);
    return;
  }
  const int64_t cols = matrix_->cols();
  while (begin < end) {
    const int64_t row = begin / cols, col = begin % cols;
    const int64_t stop = std::min(cols, col + end - begin);
    dequantize_row(*matrix_, row, col, stop, out);
    out += stop - col;
    begin += stop - col;
  }
}

}  // namespace curvq

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <regex>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/gguf.h"
#include "io/gguf_names.h"
#include "io/text.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;

// Blocks or plain elements, rows perhaps interleaved, times the scale of the tensor.
class GgufEncoding : public TensorEncoding {
 public:
  GgufEncoding(const GgufTensor& tensor, int64_t half_head, std::optional<float> scale)
      : tensor_(tensor),
        type_(ggml_type_info(tensor.type)),
        element_bytes_(type_.is_plain() ? type_.block_bytes : sizeof(float)),
        row_(half_head == 0             ? tensor.bytes / type_.block_bytes * type_.block_elements
             : tensor.shape.size() == 1 ? 1
                                        : tensor.shape.back()),
        half_head_(half_head),
        scale_(scale) {}

  std::string name() const override { return type_.name; }
  const std::byte* stored() const override { return tensor_.data; }
  int64_t stored_bytes() const override { return tensor_.bytes; }

  void read(int64_t begin, int64_t count, void* out) const override {
    auto* to = static_cast<std::byte*>(out);
    while (count > 0) {
      const int64_t row = begin / row_, col = begin % row_, run = std::min(count, row_ - col);
      read_run(io::stored_row(row, half_head_) * row_ + col, run, to);
      begin += run;
      count -= run;
      to += run * element_bytes_;
    }
  }

 private:
  // Elements that follow each other in the file.
  void read_run(int64_t begin, int64_t count, std::byte* out) const {
    if (type_.is_plain() && !scale_) {
      std::memcpy(out, tensor_.data + begin * element_bytes_,
                  static_cast<size_t>(count * element_bytes_));
      return;
    }
    auto* values = reinterpret_cast<float*>(out);
    if (type_.is_plain()) {  // with a scale; float32 then
      std::memcpy(values, tensor_.data + begin * element_bytes_, count * sizeof(float));
    } else {
      decode(begin, count, values);
    }
    if (scale_) {
      for (int64_t i = 0; i < count; ++i) values[i] *= *scale_;
    }
  }

  void decode(int64_t begin, int64_t count, float* out) const {
    const int64_t size = type_.block_elements;
    float block[kMaxGgmlBlock];
    while (count > 0) {
      const std::byte* source = tensor_.data + begin / size * type_.block_bytes;
      const int64_t first = begin % size;
      int64_t run = std::min(count, size - first);
      if (run == size) {
        run = count / size * size;
        decode_ggml_blocks(type_.type, source, run / size, out);
      } else {
        decode_ggml_blocks(type_.type, source, 1, block);
        std::copy(block + first, block + first + run, out);
      }
      begin += run;
      count -= run;
      out += run;
    }
  }

  GgufTensor tensor_;
  GgmlTypeInfo type_;
  int64_t element_bytes_;
  int64_t row_;        // elements that follow each other in the file
  int64_t half_head_;  // rows of half a head; 0: rows are in order
  std::optional<float> scale_;
};

DType dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return DType::kF16;
    case GgmlType::kBF16:
      return DType::kBF16;
    case GgmlType::kF64:
      return DType::kF64;
    case GgmlType::kI8:
      return DType::kI8;
    case GgmlType::kI16:
      return DType::kI16;
    case GgmlType::kI32:
      return DType::kI32;
    case GgmlType::kI64:
      return DType::kI64;
    default:
      return DType::kF32;
  }
}

// The parts of a split model, by the name of any of them; `path` alone if it is not split.
std::vector<std::string> find_parts(const std::string& path, const Json& metadata) {
  const int64_t count = json_int(metadata, "split.count", 0, path);
  if (count <= 1) return {path};
  static const std::regex pattern(R"((.*)-([0-9]{5})-of-([0-9]{5})\.gguf)");
  std::smatch match;
  const std::string name = fs::path(path).filename();
  if (!std::regex_match(name, match, pattern) || std::stoll(match[3]) != count) {
    throw FormatError(
        format("%s: is part of %lld (split.count), so its name must end in "
               "-00001-of-%05lld.gguf; give the parts their names back",
               path.c_str(), static_cast<long long>(count), static_cast<long long>(count)));
  }
  std::vector<std::string> parts;
  for (int64_t i = 1; i <= count; ++i) {
    const fs::path part = fs::path(path).parent_path() /
                          format("%s-%05lld-of-%05lld.gguf", match[1].str().c_str(),
                                 static_cast<long long>(i), static_cast<long long>(count));
    if (!fs::exists(part)) throw FormatError(part.string() + ": is missing; fetch it");
    parts.push_back(part);
  }
  return parts;
}

void check_parts(const std::vector<GgufFile>& files) {
  if (files.size() == 1) return;
  int64_t tensors = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const Json& metadata = files[i].metadata();
    const std::string& path = files[i].path();
    const int64_t number = json_int(metadata, "split.no", path);
    const int64_t count = json_int(metadata, "split.count", path);
    if (number != static_cast<int64_t>(i) || count != static_cast<int64_t>(files.size())) {
      throw FormatError(format("%s: split.no is %lld of %lld, its name says %zu of %zu",
                               path.c_str(), static_cast<long long>(number),
                               static_cast<long long>(count), i, files.size()));
    }
    tensors += static_cast<int64_t>(files[i].tensors().size());
  }
  const std::string& first = files.front().path();
  const int64_t wanted = json_int(files.front().metadata(), "split.tensors.count", tensors, first);
  if (wanted != tensors) {
    throw FormatError(format("%s: split.tensors.count is %lld, the parts have %lld tensors",
                             first.c_str(), static_cast<long long>(wanted),
                             static_cast<long long>(tensors)));
  }
}

std::string without_suffix(const std::string& name, const std::string& suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
}

}  // namespace

GgufModel::GgufModel(const std::string& path) {
  if (!fs::exists(path)) throw UsageError(path + ": does not exist");
  GgufFile first(path);
  const std::vector<std::string> parts = find_parts(path, first.metadata());
  for (const std::string& part : parts) {
    if (part == path) {
      files_.push_back(std::move(first));
    } else {
      files_.emplace_back(part);
    }
  }
  check_parts(files_);
  architecture_ = json_string(metadata(), "general.architecture", "", this->path());
  add_tensors();
}

void GgufModel::add_tensors() {
  std::unordered_map<std::string, const GgufTensor*> by_name;
  for (const GgufFile& file : files_) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (!by_name.emplace(tensor.name, &tensor).second) {
        throw FormatError(file.path() + ": tensor " + io::printable(tensor.name) +
                          " is in another part, too");
      }
    }
  }
  const io::GgufNames names(*this);
  for (const GgufFile& file : files_) {
    for (const GgufTensor& tensor : file.tensors()) {
      std::string base = without_suffix(tensor.name, ".scale");
      if (base.empty()) base = without_suffix(tensor.name, ".input_scale");
      if (!base.empty() && by_name.count(base + ".weight") > 0) continue;
      if (names.is_configuration(tensor.name)) continue;
      TensorView view;
      view.name = names.model_name(tensor.name);
      view.dtype = dtype_of(tensor.type);
      view.shape = tensor.shape;
      view.file = file.path();
      const int64_t half_head = names.half_head(tensor);
      std::optional<float> scale;
      const std::string layer = without_suffix(tensor.name, ".weight");
      if (const auto found = by_name.find(layer + ".scale");
          !layer.empty() && found != by_name.end()) {
        const GgufTensor& factor = *found->second;
        if (factor.type != GgmlType::kF32 || factor.bytes != sizeof(float) ||
            view.dtype != DType::kF32) {
          throw UnsupportedError(file.path() + ": tensor " + io::printable(factor.name) +
                                 " must be one F32 value beside a tensor of blocks or F32");
        }
        std::memcpy(&scale.emplace(), factor.data, sizeof(float));
      }
      if (ggml_type_info(tensor.type).is_plain() && half_head == 0 && !scale) {
        view.data = tensor.data;
      } else {
        view.encoding = std::make_shared<GgufEncoding>(tensor, half_head, scale);
      }
      tensors_.push_back(std::move(view));
    }
  }
}

}  // namespace curvq

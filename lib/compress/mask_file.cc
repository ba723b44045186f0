#include "curvq/compress/mask_file.h"

#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/json.h"

namespace curvq {
namespace {

constexpr char kFormat[] = "curvq-mask";

TensorInfo info_of(const MaskShape& layer) {
  return {layer.layer + ".mask", DType::kU8, {layer.rows, (layer.cols + 7) / 8}};
}

}  // namespace

int64_t mask_bytes(const std::vector<MaskShape>& layers) {
  int64_t bytes = 0;
  for (const MaskShape& layer : layers) bytes += info_of(layer).num_bytes();
  return bytes;
}

MaskWriter::MaskWriter(const std::string& path, const std::vector<MaskShape>& layers) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw ResourceError(folder.string() + " cannot be made: " + error.message());
  std::vector<TensorInfo> tensors;
  OrderedJson columns = OrderedJson::object();
  for (const MaskShape& layer : layers) {
    tensors.push_back(info_of(layer));
    columns[layer.layer] = layer.cols;
  }
  writer_ = std::make_unique<SafetensorsWriter>(
      path, std::move(tensors),
      std::map<std::string, std::string>{{"format", kFormat}, {"columns", columns.dump()}});
}

void MaskWriter::write(const MaskShape& layer, const std::vector<uint8_t>& mask) {
  const TensorInfo info = info_of(layer);
  std::vector<uint8_t> bits(info.num_bytes(), 0);
  for (int64_t r = 0; r < layer.rows; ++r) {
    for (int64_t c = 0; c < layer.cols; ++c)
      bits[r * info.shape[1] + c / 8] |= mask[r * layer.cols + c] << c % 8;
  }
  writer_->write(info.name, bits.data(), info.num_bytes());
}

void MaskWriter::finish() { writer_->finish(); }

std::vector<uint8_t> read_mask(const SafetensorsFile& file, const MaskShape& layer) {
  const auto kind = file.metadata().find("format");
  if (kind == file.metadata().end() || kind->second != kFormat)
    throw FormatError(file.path() + ": not a file of pruning masks");
  const TensorInfo wanted = info_of(layer);
  const TensorView& tensor = file.at(wanted.name);
  if (tensor.dtype != wanted.dtype || tensor.shape != wanted.shape) {
    throw FormatError(file.path() + ": " + tensor.name + " is " +
                      std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                      ", the layer wants U8 " + shape_string(wanted.shape));
  }
  std::vector<uint8_t> mask(layer.rows * layer.cols);
  for (int64_t r = 0; r < layer.rows; ++r) {
    for (int64_t c = 0; c < layer.cols; ++c) {
      const auto bits = std::to_integer<unsigned>(tensor.data[r * wanted.shape[1] + c / 8]);
      mask[r * layer.cols + c] = bits >> c % 8 & 1;
    }
  }
  return mask;
}

}  // namespace curvq

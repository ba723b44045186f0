#include "curvq/io/convert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/model_files.h"
#include "io/convert_target.h"
#include "io/text.h"

namespace curvq {
namespace {

constexpr std::pair<std::string_view, Layout> kLayouts[] = {
    {"plain", Layout::kPlain},       {"compressed-tensors", Layout::kCompressedTensors},
    {"modelopt", Layout::kModelOpt}, {"gptq", Layout::kGptq},
    {"gptq_v2", Layout::kGptqV2},    {"gguf", Layout::kGguf}};

// Values in `dtype`, in pieces that threads share; `read(begin, count, out)` gives them as float32.
// Throws NumericalError where a finite value becomes infinite.
template <class Read>
std::vector<std::byte> rounded(const std::string& name, int64_t count, DType dtype, Read read) {
  constexpr int64_t kPiece = 1 << 18;
  const auto size = static_cast<int64_t>(dtype_bytes(dtype));
  std::vector<std::byte> out(static_cast<size_t>(count * size));
  parallel_for(0, (count + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece, length = std::min(kPiece, count - begin);
    std::vector<float> values(length), stored(length);
    read(begin, length, values.data());
    convert_from_f32(dtype, values.data(), length, out.data() + begin * size);
    convert_to_f32(dtype, out.data() + begin * size, length, stored.data());
    for (int64_t i = 0; i < length; ++i) {
      if (!std::isfinite(values[i]) || std::isfinite(stored[i])) continue;
      throw NumericalError(
          format("%s: element %lld is %g, beyond what %s holds; use another --dtype",
                 io::printable(name).c_str(), static_cast<long long>(begin + i),
                 static_cast<double>(values[i]), std::string(dtype_name(dtype)).c_str()));
    }
  });
  return out;
}

// What a plain tensor is stored as.
TensorInfo stored_info(const TensorView& tensor, const ConvertOptions& options) {
  TensorInfo info = tensor;
  if (options.dtype && is_floating_point(tensor.dtype)) info.dtype = *options.dtype;
  return info;
}

TensorInfo decoded_info(const io::ModelLayer& layer, const ConvertOptions& options) {
  return {layer.name + ".weight", options.dtype.value_or(DType::kF32), {layer.rows, layer.cols}};
}

std::vector<std::byte> stored_bytes(const TensorView& tensor, DType dtype) {
  if (dtype == tensor.dtype) {
    std::vector<std::byte> scratch;
    const std::byte* bytes = tensor.bytes(&scratch);
    return scratch.empty() ? std::vector<std::byte>(bytes, bytes + tensor.num_bytes())
                           : std::move(scratch);
  }
  return rounded(
      tensor.name, tensor.num_elements(), dtype,
      [&](int64_t begin, int64_t count, float* out) { tensor.read_f32(begin, count, out); });
}

std::vector<std::byte> decoded_bytes(const io::ModelLayer& layer, const QuantizedMatrix& matrix,
                                     DType dtype) {
  std::vector<float> values(static_cast<size_t>(layer.rows * layer.cols));
  dequantize(matrix, values.data());
  return rounded(layer.name, layer.rows * layer.cols, dtype,
                 [&](int64_t begin, int64_t count, float* out) {
                   std::copy(values.begin() + begin, values.begin() + begin + count, out);
                 });
}

// Of two layouts, one multiplies with NVFP4's tensor scale, the other divides by its reciprocal.
bool is_reciprocal(Layout layout) { return layout == Layout::kModelOpt || layout == Layout::kGguf; }

void note_reciprocal(const QuantizedMatrix& matrix, ConvertReport* report) {
  if (matrix.scheme().scale_type != ScaleType::kE4M3) return;
  ++report->num_reciprocals;
  const double divisor = matrix.grid.global_divisor;
  const double back = static_cast<double>(1.0f / matrix.grid.global_divisor) * divisor;
  report->reciprocal_error = std::max(report->reciprocal_error, std::abs(back - 1));
}

// A GGUF whose blocks have no counterpart: what is kept as codes must be all of the layers.
void check_blocks(const io::ModelLayers& source, const ConvertOptions& options) {
  if (source.layout() != Layout::kGguf) return;
  for (const TensorView* tensor : source.plain()) {
    const bool is_layer = tensor->name.starts_with("model.layers.") && tensor->shape.size() == 2;
    if (!is_layer || tensor->format() == dtype_name(tensor->dtype)) continue;
    throw UnsupportedError(format(
        "%s: %s is in blocks of %s, which %s cannot hold without rounding again (of a GGUF, Q4_0, "
        "Q8_0, MXFP4 and NVFP4 can be kept); convert to --layout plain, then quantize",
        tensor->file.c_str(), tensor->name.c_str(), tensor->format().c_str(),
        std::string(layout_name(options.layout)).c_str()));
  }
}

// gpt2 stores plain weights [in, out], quantized ones as everybody does.
void check_orientation(const io::ModelLayers& source, const std::string& model) {
  const std::string origin = model_file_origin(model, "config.json");
  if (source.layers().empty() || json_string(source.config(), "model_type", "", origin) != "gpt2")
    return;
  throw UnsupportedError(origin +
                         ": decoded layers of gpt2 would have to be transposed, which is "
                         "not handled");
}

// GPTQ and GGUF say nothing of inputs, plain weights have no need to.
std::vector<io::ModelLayer> layers_for(Layout layout, std::vector<io::ModelLayer> layers) {
  if (layout == Layout::kCompressedTensors || layout == Layout::kModelOpt) return layers;
  std::string dropped;
  for (io::ModelLayer& layer : layers) {
    if (layer.scheme.inputs != InputFormat::kNone) dropped = layer.scheme.describe();
    layer.scheme.inputs = InputFormat::kNone;
  }
  if (!dropped.empty()) {
    log_warning("layers are " + dropped + "; " + std::string(layout_name(layout)) +
                " keeps their weights, and leaves inputs unrounded");
  }
  return layers;
}

void check_options(const std::string& model, const ConvertOptions& options) {
  if (options.out.empty()) throw UsageError("a conversion needs an output");
  if (options.dtype && *options.dtype != DType::kF32 && *options.dtype != DType::kF16 &&
      *options.dtype != DType::kBF16)
    throw UsageError("plain weights can be rounded to F32, F16 and BF16 only");
  if (!is_model(model)) throw UsageError(model + ": no model directory or .gguf is there");
  if (options.layout == Layout::kGguf && !options.out.ends_with(".gguf"))
    throw UsageError(options.out + ": a GGUF is a file; give it a name that ends in .gguf");
  if (options.layout != Layout::kGguf) {
    check_model_target(model, options.out, options.overwrite);
  } else if (std::error_code error; std::filesystem::equivalent(model, options.out, error)) {
    throw UsageError(options.out + ": is the original model; write to another file");
  }
}

}  // namespace

Layout parse_layout(std::string_view name) {
  std::string names;
  for (const auto& [known, layout] : kLayouts) {
    if (name == known) return layout;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw UsageError("unknown layout " + std::string(name) + "; known are " + names);
}

std::string_view layout_name(Layout layout) {
  for (const auto& [name, known] : kLayouts) {
    if (layout == known) return name;
  }
  throw std::logic_error("no such layout");
}

ConvertReport convert_model(const std::string& model, const ConvertOptions& options,
                            const std::function<std::string(const ConvertReport&)>& report_text) {
  check_options(model, options);
  const io::ModelLayers source(model);
  const bool decode = options.layout == Layout::kPlain;
  if (!decode) check_blocks(source, options);
  if (decode) check_orientation(source, model);
  const std::unique_ptr<io::ConvertTarget> target = options.layout == Layout::kGguf
                                                        ? io::gguf_target(source, model)
                                                        : io::directory_target(model, options);
  ConvertReport report;
  std::vector<TensorInfo> plain;
  // Of a GGUF, the checkpoint itself decodes, with the roundings of llama.cpp.
  const bool by_checkpoint = decode && source.layout() == Layout::kGguf;
  const std::vector<const TensorView*> tensors =
      by_checkpoint ? source.checkpoint().tensors() : source.plain();
  const std::vector<io::ModelLayer> layers =
      by_checkpoint ? std::vector<io::ModelLayer>() : layers_for(options.layout, source.layers());
  for (const TensorView* tensor : tensors) {
    plain.push_back(stored_info(*tensor, options));
    report.num_decoded += tensor->format() != dtype_name(tensor->dtype);
  }
  if (decode) {
    for (const io::ModelLayer& layer : layers) plain.push_back(decoded_info(layer, options));
    report.num_decoded += static_cast<int64_t>(layers.size());
  } else {
    report.num_layers = static_cast<int64_t>(layers.size());
  }
  for (const TensorView* tensor : source.checkpoint().tensors())
    report.source_bytes += tensor->stored_bytes();
  target->plan(decode ? std::vector<io::ModelLayer>() : layers, plain);
  report.num_tensors = target->num_tensors();
  report.stored_bytes = target->stored_bytes();

  const bool is_file = options.layout == Layout::kGguf;
  AtomicOutput output(options.out,
                      is_file ? AtomicOutput::Kind::kFile : AtomicOutput::Kind::kDirectory,
                      options.overwrite);
  require_disk_space(output.path(), report.stored_bytes + (int64_t{16} << 20));
  target->open(output.path());
  Progress progress("converting", static_cast<int64_t>(tensors.size() + layers.size()));
  for (const TensorView* tensor : tensors) {
    const TensorInfo info = stored_info(*tensor, options);
    target->write(info, stored_bytes(*tensor, info.dtype));
    source.checkpoint().release(*tensor);
    progress.advance(1, tensor->name);
  }
  for (const io::ModelLayer& layer : layers) {
    const QuantizedMatrix matrix = source.read(layer);
    if (decode) {
      const TensorInfo info = decoded_info(layer, options);
      target->write(info, decoded_bytes(layer, matrix, info.dtype));
    } else {
      target->write(layer, matrix);
      if (is_reciprocal(options.layout) != is_reciprocal(source.layout()))
        note_reciprocal(matrix, &report);
    }
    source.release(layer);
    progress.advance(1, layer.name);
  }
  target->finish();
  const std::string text = report_text(report);
  if (!is_file) write_file(output.path() + "/conversion_report.json", text);
  output.commit();
  return report;
}

}  // namespace curvq

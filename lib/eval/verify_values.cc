// Values that no loader should meet.
#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "eval/verify_context.h"

namespace curvq::verify {
namespace {

constexpr int64_t kChunk = 1 << 18;  // elements; a float buffer of 1 MiB a thread

// How many elements are of one bad kind, and where the first is.
struct Finding {
  const char* what;
  int64_t count = 0, first = -1;

  void note(int64_t index) {
    if (count++ == 0) first = index;
  }
  void add(const Finding& later) {
    if (count == 0) first = later.first;
    count += later.count;
  }
};

using Findings = std::vector<Finding>;

std::string index_text(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return shape_string(index);
}

// Looks at all elements chunk by chunk; `look(begin, end, findings)` fills what it finds.
template <typename Look>
void scan(Context* context, const TensorView& tensor, const char* elements, const Findings& kinds,
          const Look& look) {
  const int64_t count = tensor.num_elements(), num_chunks = (count + kChunk - 1) / kChunk;
  std::vector<Findings> chunks(num_chunks, kinds);
  parallel_for(0, num_chunks, [&](int64_t chunk) {
    look(chunk * kChunk, std::min(count, (chunk + 1) * kChunk), &chunks[chunk]);
  });
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    Finding total = kinds[kind];
    for (const Findings& findings : chunks) total.add(findings[kind]);
    if (total.count == 0) continue;
    context->tensor_error(
        tensor,
        format("%lld of %lld %s %s %s, the first at %s", static_cast<long long>(total.count),
               static_cast<long long>(count), elements, total.count == 1 ? "is" : "are", total.what,
               index_text(total.first, tensor.shape).c_str()));
  }
  context->file_of.at(tensor.name)->release(tensor);
}

// NaN and infinite values; with `scales`, zero and negative ones too.
void scan_floats(Context* context, const TensorView& tensor, bool scales) {
  Findings kinds = {{"NaN"}, {"infinite"}};
  if (scales) kinds.insert(kinds.end(), {{"zero"}, {"negative"}});
  scan(context, tensor, scales ? "scales" : "values", kinds,
       [&](int64_t begin, int64_t end, Findings* findings) {
         std::vector<float> values(end - begin);
         tensor.read_f32(begin, end - begin, values.data());
         for (int64_t i = begin; i < end; ++i) {
           const float value = values[i - begin];
           if (std::isnan(value))
             (*findings)[0].note(i);
           else if (std::isinf(value))
             (*findings)[1].note(i);
           else if (scales && value == 0)
             (*findings)[2].note(i);
           else if (scales && value < 0)
             (*findings)[3].note(i);
         }
       });
}

void scan_e8m0(Context* context, const TensorView& tensor) {
  scan(context, tensor, "scales", {{"NaN (E8M0 code 255)"}},
       [&](int64_t begin, int64_t end, Findings* findings) {
         std::vector<uint8_t> codes(end - begin);
         tensor.read(begin, end - begin, codes.data());
         for (int64_t i = begin; i < end; ++i) {
           if (codes[i - begin] == 0xff) (*findings)[0].note(i);
         }
       });
}

// The last word is the reader's: it knows which codes a scheme has.
void check_readable(Context* context, const Checkpoint& checkpoint, const QuantizedLayer& layer) {
  try {
    compressed_tensors_unpack(checkpoint, layer.name, layer.scheme);
  } catch (const Error& error) {
    const TensorView* scale = context->find(layer.name + ".weight_scale");
    context->add_exception(VerifyProblem::Severity::kError,
                           std::filesystem::path(scale->file).filename(), error.what());
  }
}

std::optional<Checkpoint> open_checkpoint(const Context& context) {
  if (!context.complete) return std::nullopt;
  try {
    return std::optional<Checkpoint>(context.path);
  } catch (const Error&) {
    return std::nullopt;  // check_files has said why
  }
}

}  // namespace

void check_values(Context* context) {
  std::set<std::string> done;
  Progress progress("checking", static_cast<int64_t>(context->tensors.size()));
  const auto begin = [&](const TensorView& tensor) {
    done.insert(tensor.name);
    progress.advance(1, tensor.name);
  };
  const std::optional<Checkpoint> checkpoint =
      context->layers.empty() ? std::nullopt : open_checkpoint(*context);
  for (const QuantizedLayer& layer : context->layers) {
    const size_t problems = context->report.problems.size();
    const TensorView& scale = *context->find(layer.name + ".weight_scale");
    begin(scale);
    if (layer.scheme.scale_type == ScaleType::kE8M0) {
      scan_e8m0(context, scale);
    } else {
      scan_floats(context, scale, true);
    }
    if (layer.scheme.scale_type == ScaleType::kE4M3) {
      const TensorView& global = *context->find(layer.name + ".weight_global_scale");
      begin(global);
      scan_floats(context, global, true);
    }
    for (const char* part : {".input_global_scale", ".input_scale"}) {
      const TensorView* of_inputs = context->find(layer.name + part);
      if (of_inputs == nullptr) continue;
      begin(*of_inputs);
      scan_floats(context, *of_inputs, true);
    }
    const TensorView* codes = context->find(layer.name + ".weight");
    if (codes && codes->dtype == DType::kF8E4M3) {
      begin(*codes);
      scan_floats(context, *codes, false);
    }
    const bool clean = context->report.problems.size() == problems;
    if (checkpoint && clean) check_readable(context, *checkpoint, layer);
  }
  for (const auto& [name, tensor] : context->tensors) {
    if (done.count(name)) continue;
    begin(*tensor);
    const bool fp8 = tensor->dtype == DType::kF8E4M3 || tensor->dtype == DType::kF8E5M2;
    if (fp8 || is_floating_point(tensor->dtype)) scan_floats(context, *tensor, false);
  }
}

}  // namespace curvq::verify

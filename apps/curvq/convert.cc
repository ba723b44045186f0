// curvq convert: a model from one layout into another, without rounding again.
#include "curvq/io/convert.h"

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/checkpoint.h"
#include "curvq/report/numbers.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options
      .add_positional("MODEL",
                      "model directory in any of the layouts, or a .gguf (any part of a split one)")
      .add_output("out", "DIR", "where the model goes; a name that ends in .gguf for that layout")
      .add_overwrite()
      .add_choice("layout", {"plain", "compressed-tensors", "modelopt", "gptq", "gptq_v2", "gguf"},
                  "plain decodes quantized layers; the others keep their codes and scales, or say "
                  "why they cannot",
                  "plain")
      .add_choice("dtype", {"keep", "float32", "float16", "bfloat16"},
                  "round plain weights to this; keep: as they are, decoded ones as float32", "keep")
      .add_bytes("max-shard-size", "largest file of weights", "5GB")
      .add_threads()
      .add_example("convert Llama-3.2-1B-NVFP4 --out Llama-3.2-1B-NVFP4.gguf --layout gguf")
      .add_example("convert Llama-3.2-1B-Q4_K_M.gguf --out Llama-3.2-1B --dtype bfloat16");
}

std::optional<DType> chosen_dtype(const std::string& name) {
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

int run(const Options& options, Output& output) {
  const std::string model = options.positional("MODEL");
  ConvertOptions convert;
  convert.out = options.text("out");
  convert.overwrite = options.flag("overwrite");
  convert.layout = parse_layout(options.text("layout"));
  convert.dtype = chosen_dtype(options.text("dtype"));
  convert.max_shard_bytes = options.bytes("max-shard-size");
  output.inputs()["model"] = {{"path", model}, {"hash", Checkpoint(model).content_hash()}};
  const ConvertReport report = convert_model(model, convert, [&](const ConvertReport& done) {
    output.results() = {{"tensors", done.num_tensors},
                        {"layers", done.num_layers},
                        {"decoded_tensors", done.num_decoded},
                        {"reciprocal_scales", done.num_reciprocals},
                        {"reciprocal_error", done.reciprocal_error},
                        {"source_bytes", done.source_bytes},
                        {"stored_bytes", done.stored_bytes}};
    return dump_json(output.document());
  });
  output.text(format(
      "%s: %lld tensors, %s (%s before); %lld layers kept as codes, %lld tensors "
      "decoded\n",
      convert.out.c_str(), static_cast<long long>(report.num_tensors),
      bytes_text(report.stored_bytes).c_str(), bytes_text(report.source_bytes).c_str(),
      static_cast<long long>(report.num_layers), static_cast<long long>(report.num_decoded)));
  if (report.num_reciprocals > 0) {
    output.text(format("%lld tensor scales became their reciprocals, off by %.1e at most\n",
                       static_cast<long long>(report.num_reciprocals), report.reciprocal_error));
  }
  return 0;
}

}  // namespace

const Command kConvertCommand = {"convert", "between layouts, without rounding again", declare,
                                 run};

}  // namespace curvq::cli

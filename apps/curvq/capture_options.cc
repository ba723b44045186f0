#include "capture_options.h"

#include <map>

#include "data.h"

namespace curvq::cli {
namespace {

const std::map<Activations, std::string> kActivations = {{Activations::kFloat32, "float32"},
                                                         {Activations::kInt16, "int16"},
                                                         {Activations::kInt8, "int8"}};

}  // namespace

std::string activations_name(Activations activations) { return kActivations.at(activations); }

void add_calibration_options(Options& options) {
  options.add_text("calibration", "FILE",
                   "text (.txt, .jsonl) or token ids (.safetensors[:NAME]) for Hessians; x in a "
                   ".safetensors for a TorchScript file");
  add_window_options(options);
  options
      .add_choice("capture", {"sequential", "float"},
                  "activations from behind the compressed layers, or from the original model",
                  "sequential")
      .add_choice(
          "activations", {"auto", "int8", "int16", "float32"},
          "what inputs of quantized layers are rounded to while calibrating (int8: 4-bit layers; "
          "Hessians take 16 bits then); auto: int8, int16 with corrections, float32 with float "
          "capture",
          "auto")
      .add_number("damping", "SHARE", "of the mean diagonal, added to the Hessian's", 0, 1e6, 0.01);
}

void add_correction_options(Options& options) {
  options
      .add_choice("token-weights", {"none", "gradient"},
                  "Hessians of plain tokens, or half of tokens weighted by the gradient of the "
                  "model's own likelihood in the layer's output (none)")
      .add_number("gradient-share", "SHARE",
                  "of the calibration windows that go backwards where gradients are wanted (1)", 0,
                  1)
      .add_number("input-correction", "SHARE",
                  "of the change in a layer's inputs that compressing the layers before it made, "
                  "to be made up for (0)",
                  0, 1)
      .add_number("residual-correction", "SHARE",
                  "the same for the residual stream, in layers that write to it (0)", 0, 1);
}

CaptureOptions read_capture(const Options& options, bool follows_layers, bool uses_hessians) {
  CaptureOptions out;
  out.capture = options.text("capture") == "float" ? Capture::kFloat : Capture::kSequential;
  const std::string activations = options.text("activations");
  for (const auto& [value, name] : kActivations) {
    if (name == activations) out.activations = value;
  }
  const bool best = options.text("preset") == "best" && follows_layers;
  const bool corrects = best && out.capture == Capture::kSequential && uses_hessians;
  out.token_weights =
      options.has("token-weights") ? options.text("token-weights") == "gradient" : best;
  if (options.has("gradient-share")) out.gradient_share = options.number("gradient-share");
  const auto share = [&](const char* name, double best_share) {
    return options.has(name) ? options.number(name) : corrects ? best_share : 0.0;
  };
  out.input_correction = share("input-correction", 1);
  out.residual_correction = share("residual-correction", 0.5);
  out.seed = static_cast<uint64_t>(options.integer("seed"));
  return out;
}

}  // namespace curvq::cli

#include "rounding_options.h"

#include "capture_options.h"
#include "curvq/core/error.h"

namespace curvq::cli {

void add_rounding_options(Options& options) {
  options
      .add_choice("method", {"rtn", "gptq", "obd", "obs"},
                  "round to nearest; GPTQ; Optimal Brain Damage: scales by the Hessian's diagonal, "
                  "codes to nearest; or Optimal Brain Surgeon: GPTQ in which the cheapest weight "
                  "of a row's block comes next",
                  "gptq")
      .add_choice(
          "preset", {"fast", "default", "best"},
          "fast: --method rtn; best: --scale-search hessian --sweeps 2 --token-weights gradient "
          "--output-factor fisher --held-out 0.2 --guard held-out "
          "--input-correction 1 --residual-correction 0.5 "
          "(corrections with sequential capture only); options given beside it win",
          "default");
  add_calibration_options(options);
  options
      .add_choice("act-order", {"static", "none"},
                  "largest Hessian diagonal first, or left to right", "static")
      .add_choice("scale-search", {"none", "hessian"},
                  "scales by the format's rule, or of those near it the one whose rounded group "
                  "adds least to the layer's error (none)")
      .add_integer("sweeps", "N",
                   "passes of block coordinate descent over codes (and scales, with "
                   "--scale-search hessian) after gptq (0)",
                   0, 1000)
      .add_integer("block-size", "N",
                   "columns between two lazy updates; for obs, those among which the next weight "
                   "is chosen",
                   1, int64_t{1} << 24, 128)
      .add_integer("candidates", "K",
                   "ways of rounding a row that are kept while its columns go by (K-best nearest "
                   "plane), in gptq and in sweeps; costs up to K times as much",
                   1, 4096, 1)
      .add_choice("inverse", {"cholesky", "sherman-morrison"},
                  "of the Hessian: from its factorisation, or by an update for each of "
                  "NAME.inputs in --stats",
                  "cholesky");
  add_correction_options(options);
  options
      .add_choice("output-factor", {"none", "fisher"},
                  "sweeps weigh a layer's outputs alike, or by how the model's likelihood depends "
                  "on them, correlations included (none)")
      .add_number("held-out", "SHARE",
                  "of the calibration windows, the last ones, that rounding does not see: by them "
                  "each layer's sweeps are judged, and what they would worsen is undone (0; the "
                  "best preset 0.2)",
                  0, 0.9)
      .add_text(
          "stats", "FILE",
          "instead of calibration: NAME.hessian, NAME.A or NAME.inputs of each layer, and NAME.G "
          "for --output-factor, as curvq hessian --what kfac --stats writes; of the original "
          "model's activations");
}

QuantizeOptions read_rounding(const Options& options, bool bare, bool stats) {
  QuantizeOptions out;
  const std::string preset = options.text("preset");
  const std::string method =
      preset == "fast" && !options.given("method") ? "rtn" : options.text("method");
  out.method = method == "rtn" ? Method::kRtn : Method::kGptq;
  if (preset == "best" && out.method == Method::kRtn)
    throw UsageError("--preset best rounds by gptq; leave out --method rtn, or the preset");
  static_cast<CaptureOptions&>(out) =
      read_capture(options, !bare && !stats, out.method == Method::kGptq);
  if (stats) out.capture = Capture::kFloat;
  out.gptq.damping = options.number("damping");
  out.gptq.block_size = options.integer("block-size");
  out.gptq.act_order = options.text("act-order") == "none" ? ActOrder::kNone : ActOrder::kStatic;
  const bool best = preset == "best";
  const std::string search = options.has("scale-search") ? options.text("scale-search")
                             : best || method == "obd"   ? "hessian"
                                                         : "none";
  out.gptq.candidates = out.refine.candidates = options.integer("candidates");
  out.gptq.diagonal = method == "obd";
  if (method == "obs") out.gptq.rounding_order = RoundingOrder::kSaliency;
  out.inverse_of_inputs = options.text("inverse") == "sherman-morrison";
  if (out.inverse_of_inputs && !bare)
    throw UsageError(
        "--inverse sherman-morrison needs a bare .safetensors and NAME.inputs in --stats");
  out.gptq.search_scales = out.refine.search_scales = search == "hessian";
  out.refine.sweeps = options.has("sweeps") ? static_cast<int>(options.integer("sweeps"))
                      : best                ? 2
                                            : 0;
  out.output_factor = options.has("output-factor")
                          ? options.text("output-factor") == "fisher"
                          : best && !bare && out.method == Method::kGptq && out.refine.sweeps > 0;
  out.held_out = options.has("held-out")               ? options.number("held-out")
                 : best && out.output_factor && !stats ? 0.2
                                                       : 0.0;
  return out;
}

}  // namespace curvq::cli

// The main job from C++: argv[1] the model, argv[2] token ids, argv[3] the output directory.
#include "curvq/compress/quantize.h"

#include <cstdio>

#include "curvq/core/error.h"
#include "curvq/eval/evaluate.h"
#include "curvq/nn/decoder.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const curvq::TokenWindows windows = curvq::load_token_windows(argv[2], nullptr, {4, 0, 0});
    curvq::QuantizeOptions options;
    options.out = argv[3];
    options.overwrite = true;
    options.plan.scheme = curvq::Scheme::mxfp4();
    options.plan.on_indivisible = curvq::OnIndivisible::kKeep;
    curvq::quantize_model(argv[1], &windows, options,
                          [](const curvq::QuantizeReport&) { return "{}\n"; });
    const curvq::DecoderModel original(argv[1]), quantized(argv[3]);
    std::printf("KL %.4f\n", curvq::evaluate(quantized, windows, &original).kl_mean);
  } catch (const curvq::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

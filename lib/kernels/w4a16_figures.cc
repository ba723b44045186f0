#include "kernels/cuda/w4a16_figures.h"

#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/cuda/w4a16_configs.h"

namespace curvq::cuda {
namespace {

constexpr W4A16Figure kFigures[] = {
#define CURVQ_W4A16_FIGURE(...) {__VA_ARGS__},
#include "kernels/cuda/w4a16_figures.inc"
#undef CURVQ_W4A16_FIGURE
};

constexpr const char* name_of(W4Format format) {
  constexpr const char* kNames[] = {"nvfp4", "mxfp4", "int4_group32", "int4_group64"};
  return kNames[static_cast<int>(format)];
}

}  // namespace

const W4A16Figure& w4a16_figure(W4Format format, bool f16, int tokens, const char* architecture) {
  for (const W4A16Figure& figure : kFigures) {
    if (std::string_view(figure.format) == name_of(format) &&
        std::string_view(figure.type) == (f16 ? "f16" : "bf16") && figure.tokens == tokens &&
        std::string_view(figure.architecture) == architecture)
      return figure;
  }
  throw std::logic_error(std::string("no figure of ") + name_of(format) + " on sm_" + architecture);
}

int w4a16_shared_bytes(W4Format format, bool f16, int tokens) {
  int bytes = 0;
  with_config(format, f16, tokens / 8,
              [&](auto config) { bytes = static_cast<int>(decltype(config)::kSharedBytes); });
  return bytes;
}

}  // namespace curvq::cuda

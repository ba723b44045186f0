// The W4A8 kernels on the emulator.
#pragma once

#include "kernels/cuda/simt/emulator.h"
#include "w4a8_cases.h"

namespace curvq {

// x rounded by the quantizer's kernel.
W4A8Inputs emulate_quantize_rows(const W4A8Case& c, const simt::Settings& settings,
                                 simt::Report* report);
// The product with activations that are rounded already, into c->out.
simt::Report emulate_w4a8(W4A8Case* c, const W4A8Inputs& x, const simt::Settings& settings);

}  // namespace curvq

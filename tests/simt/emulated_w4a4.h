// The W4A4 kernels on the emulator.
#pragma once

#include "kernels/cuda/simt/emulator.h"
#include "w4a4_cases.h"

namespace curvq {

// x rounded by the quantizer's kernel.
W4A4Matrix emulate_quantize(const W4A4Case& c, const simt::Settings& settings,
                            simt::Report* report);
// The product with activations that are rounded already, into c->out.
simt::Report emulate_w4a4(W4A4Case* c, const W4A4Matrix& x, const simt::Settings& settings);

}  // namespace curvq

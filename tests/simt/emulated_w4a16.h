// The W4A16 kernels on the emulator.
#pragma once

#include "kernels/cuda/simt/emulator.h"
#include "products.h"

namespace curvq {

// Runs the kernel that a device with one multiprocessor would, into operands->out.
simt::Report emulate(Operands* operands, const Product& product, const simt::Settings& settings);

}  // namespace curvq

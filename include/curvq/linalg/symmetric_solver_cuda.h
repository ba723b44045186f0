// cuSOLVER as a SymmetricSolver: library curvq::linalg_cuda, built with CURVQ_CUDA=ON.
#pragma once

#include <memory>
#include <string>

#include "curvq/linalg/symmetric_solver.h"

namespace curvq {

// Whether a device can be used; if not, `why` says what the driver answered.
bool cusolver_available(std::string* why = nullptr);

// potrf, potri and syevd on the current device; each call copies its matrix there and back. Throws
// ResourceError without a device, and from calls for which its memory does not suffice.
std::unique_ptr<SymmetricSolver> make_cuda_symmetric_solver();

}  // namespace curvq

// A small trained net with its data, part of the program: what `curvq bench hvp` measures by
// default.
#pragma once

#include "curvq/curvature/problem.h"

namespace curvq::cli {

// The digits MLP, 64 -> 64 tanh -> 32 tanh -> 10 (6,570 parameters, float32), cross entropy on its
// 1,437 training images.
Problem digits_problem();

}  // namespace curvq::cli

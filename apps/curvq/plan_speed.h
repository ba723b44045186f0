// curvq plan --speed: memory and tokens a second, here and on named machines.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

void declare_plan_speed(Options& options);
int run_plan_speed(const Options& options, Output& output);

}  // namespace curvq::cli

// The commands, in the order of --help. A new one is one line here and a file that defines it.
#pragma once

#include "command.h"

#define CURVQ_COMMANDS(COMMAND) \
  COMMAND(kInspectCommand)      \
  COMMAND(kHessianCommand)      \
  COMMAND(kPlanCommand)         \
  COMMAND(kQuantizeCommand)     \
  COMMAND(kPruneCommand)        \
  COMMAND(kEvalCommand)         \
  COMMAND(kGenerateCommand)     \
  COMMAND(kCompareCommand)      \
  COMMAND(kConvertCommand)      \
  COMMAND(kVerifyCommand)       \
  COMMAND(kFormatsCommand)      \
  COMMAND(kBenchCommand)

namespace curvq::cli {

#define CURVQ_DECLARE_COMMAND(name) extern const Command name;
CURVQ_COMMANDS(CURVQ_DECLARE_COMMAND)
#undef CURVQ_DECLARE_COMMAND

}  // namespace curvq::cli

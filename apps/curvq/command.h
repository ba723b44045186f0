// A subcommand: what it takes and what it does. Each lives in the file of its name, which defines
// `const Command k<Name>Command`.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

struct Command {
  const char* name;
  const char* summary;
  // Declares positionals and options; options that every command has are there already.
  void (*declare)(Options& options);
  // Does the work; returns the exit code. Human text goes to output.text(), everything else into
  // output.inputs() and output.results().
  int (*run)(const Options& options, Output& output);
};

}  // namespace curvq::cli

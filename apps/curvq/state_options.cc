#include "state_options.h"

#include <set>

#include "curvq/core/error.h"

namespace curvq::cli {
namespace {

const std::set<std::string> kWithoutPart = {"out", "overwrite", "state", "resume", "config",
                                            "threads", "max-memory", "dry-run", "json", "json-file",
                                            "log-file", "report", "quiet", "verbose", "progress",
                                            // files, of which the hashes count
                                            "model", "calibration", "plan", "stats"};

}  // namespace

StateOptions read_state(const Options& options, const OrderedJson& inputs) {
  StateOptions state;
  state.resume = options.flag("resume");
  if (!options.has("state")) {
    if (state.resume) throw UsageError("--resume needs --state, the directory to go on from");
    return state;
  }
  state.directory = options.text("state");
  state.settings["version"] = CURVQ_VERSION;
  const OrderedJson resolved = options.to_json();
  for (const auto& [name, value] : resolved.items()) {
    if (kWithoutPart.count(name) == 0) state.settings["--" + name] = value.dump();
  }
  for (const auto& [name, input] : inputs.items())
    state.settings[name + " file"] = input.at("hash");
  return state;
}

}  // namespace curvq::cli

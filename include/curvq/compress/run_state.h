// What a long run leaves on disk for a later one to go on from.
#pragma once

#include <map>
#include <string>

namespace curvq {

struct StateOptions {
  // Where each finished block's results are kept, and the activations behind the last of them;
  // empty: nowhere. Removed when the output is in place.
  std::string directory;
  // Go on from what is in `directory`, if anything is; otherwise it must hold no run.
  bool resume = false;
  // Whatever decides the result (options, the program's version) beside the model and the
  // calibration tokens, by name, for a resumed run to be refused where it differs. (The number of
  // threads need not be here: sums of another order give bytes that differ.)
  std::map<std::string, std::string> settings;
  bool keep = false;  // leave the directory when the output is in place

  // Throws UsageError where the directory and the output `out` are one inside the other.
  void validate(const std::string& out) const;
};

}  // namespace curvq

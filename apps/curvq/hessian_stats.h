// The statistics file of `curvq hessian`: --stats, and --merge of such files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curvq/curvature/kfac.h"
#include "curvq/curvature/layer_curvature.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// Declares --stats, --merge, --overwrite.
void add_stats_options(Options& options);

// Gathers what is known of each layer and writes it to --stats; without that option, nothing.
class StatsOutput {
 public:
  // Throws UsageError or ResourceError now if the file could not be written later.
  StatsOutput(const Options& options, const std::vector<std::string>& what);
  void disable() { path_.clear(); }

  // From estimators: `parameters` are those of the layers, whose diagonals get their shape.
  void know(std::vector<LayerCurvature> layers, const std::vector<NamedTensor>& parameters);
  // Starts the file. `factors`: the layers that write() will be called for, their A and G alone.
  // The hashes come from output.inputs().
  void begin(Output& output, CurvatureProvenance provenance,
             const std::vector<LayerCurvatureShape>& factors);
  void write(const LayerFactors& layer);
  // Writes layers without factors, moves the file into place, says so in output.results().
  void commit(Output& output);

 private:
  LayerCurvature* known(const std::string& layer);

  std::string path_, matrix_;
  bool overwrite_, has_trace_, has_diagonal_, exact_;
  std::vector<std::string> seed_;
  std::vector<LayerCurvature> known_;
  std::vector<LayerCurvatureShape> shapes_;
  std::unique_ptr<CurvatureWriter> writer_;
};

// curvq hessian MODEL --merge A --merge B --stats OUT.
void merge_stats(const Options& options, Output& output);

}  // namespace curvq::cli

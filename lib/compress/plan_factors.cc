#include "compress/plan_factors.h"

#include "compress/block_pass.h"
#include "curvq/curvature/kfac.h"
#include "curvq/curvature/layer_curvature.h"

namespace curvq::internal {

PlanFactorSource::PlanFactorSource(const DecoderModel& model, const TokenWindows& windows,
                                   int64_t draws, uint64_t seed,
                                   const std::vector<LayerShape>& layers,
                                   const std::string& scratch)
    : tokens_(windows.num_windows * windows.length * draws) {
  int64_t bytes = 0;
  for (const LayerShape& layer : layers)
    bytes += 4 * (layer.rows * layer.rows + layer.cols * layer.cols);
  ScratchFile file(scratch, bytes);
  for (const LayerShape& layer : layers) {
    factors_[layer.name] = {file.zeros(layer.cols, layer.cols), file.zeros(layer.rows, layer.rows)};
  }
  const torch::Tensor ids = window_ids(windows);
  KfacOptions options;
  options.draws = draws;
  options.seed = seed;
  // Drawn labels look at targets only for where there is one.
  kfac_factors(
      model, {ids, ids}, options, [&](const std::string& name) { return factors_.count(name) > 0; },
      [&](const LayerFactors& found) {
        PlanFactors& kept = factors_.at(found.name);
        const int64_t cols = kept.a.size(0);
        kept.a.copy_(found.factors.a.narrow(0, 0, cols).narrow(1, 0, cols));
        kept.g.copy_(found.factors.g);
        ScratchFile::put_away(kept.a);
        ScratchFile::put_away(kept.g);
      });
}

PlanFactorSource::PlanFactorSource(const DecoderModel& model, const std::string& stats,
                                   const std::vector<LayerShape>& layers)
    : stats_(stats) {
  const CurvatureFile file(stats);
  file.require_model(model.checkpoint().path(), model.checkpoint().content_hash());
  for (const LayerShape& layer : layers) file.require_factors(layer.name, layer.cols, layer.rows);
  tokens_ = file.provenance().loss_terms * file.provenance().label_draws;
}

PlanFactors PlanFactorSource::read(const LayerShape& layer) const {
  if (stats_.empty()) return factors_.at(layer.name);
  const LayerCurvature found = CurvatureFile(stats_).read(layer.name);
  const auto contiguous = [](const torch::Tensor& t) { return t.to(torch::kFloat32).contiguous(); };
  return {contiguous(found.a.narrow(0, 0, layer.cols).narrow(1, 0, layer.cols)),
          contiguous(found.g)};
}

}  // namespace curvq::internal

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/kronecker.h"
#include "curvq/curvature/layer_curvature.h"

namespace curvq {
namespace {

bool same_shape(const LayerCurvatureShape& x, const LayerCurvatureShape& y) {
  return x.a == y.a && x.g == y.g && x.diagonal == y.diagonal && x.trace == y.trace &&
         x.trace_stderr == y.trace_stderr;
}

void require_mergeable(const CurvatureFile& first, const CurvatureFile& other) {
  const CurvatureProvenance &p = first.provenance(), &q = other.provenance();
  const auto same = [&](const char* what, const std::string& x, const std::string& y) {
    if (x == y) return;
    throw FormatError(other.path() + ": " + what + " is '" + y + "', that of " + first.path() +
                      " '" + x + "'; such parts cannot be merged");
  };
  same("model_hash", p.model_hash, q.model_hash);
  same("dtype", p.dtype, q.dtype);
  same("sample_shape", p.sample_shape, q.sample_shape);
  same("loss", p.loss, q.loss);
  same("reduction", p.reduction, q.reduction);
  same("labels", p.labels, q.labels);
  same("label_draws", std::to_string(p.label_draws), std::to_string(q.label_draws));
  same("weight_sharing", p.weight_sharing, q.weight_sharing);
  same("matrix", p.matrix, q.matrix);
  same("trace", p.trace, q.trace);
  same("diagonal", p.diagonal, q.diagonal);
  if (first.layers().size() != other.layers().size()) {
    throw FormatError(format("%s: has %zu layers, %s has %zu; such parts cannot be merged",
                             other.path().c_str(), other.layers().size(), first.path().c_str(),
                             first.layers().size()));
  }
  for (const LayerCurvatureShape& layer : first.layers()) {
    const LayerCurvatureShape* match = other.find(layer.name);
    if (match != nullptr && same_shape(layer, *match)) continue;
    throw FormatError(
        other.path() + ": " + layer.name +
        (match ? " has other statistics or shapes than in " : " is missing, it is in ") +
        first.path() + "; such parts cannot be merged");
  }
}

// sum w_i x_i in float64, in the dtype of the parts.
torch::Tensor weighted(const std::vector<LayerCurvature>& parts, const std::vector<double>& weights,
                       torch::Tensor LayerCurvature::*field) {
  if (!(parts.front().*field).defined()) return {};
  torch::Tensor sum = torch::zeros_like(parts.front().*field, torch::kFloat64);
  for (size_t i = 0; i < parts.size(); ++i)
    sum.add_((parts[i].*field).to(torch::kFloat64), weights[i]);
  return sum;
}

std::vector<CurvatureFile> open_parts(const std::vector<std::string>& files) {
  if (files.size() < 2) throw UsageError("merging needs two statistics files or more");
  std::vector<CurvatureFile> parts;
  for (const std::string& file : files) parts.emplace_back(file);
  return parts;
}

CurvatureProvenance merged_provenance(const std::vector<CurvatureFile>& parts) {
  CurvatureProvenance merged = parts.front().provenance();
  merged.data_hash.clear();
  merged.seed.clear();
  merged.samples = merged.loss_terms = 0;
  std::map<std::string, std::string> seen;  // data hash: file
  for (const CurvatureFile& part : parts) {
    require_mergeable(parts.front(), part);
    const CurvatureProvenance& p = part.provenance();
    for (const std::string& hash : p.data_hash) {
      const auto [known, fresh] = seen.emplace(hash, part.path());
      if (!fresh)
        throw FormatError(part.path() + ": its data with hash " + hash + " are in " +
                          known->second + " already; parts must be made from different data");
      merged.data_hash.push_back(hash);
    }
    merged.seed.insert(merged.seed.end(), p.seed.begin(), p.seed.end());
    merged.samples += p.samples;
    merged.loss_terms += p.loss_terms;
  }
  return merged;
}

}  // namespace

CurvatureProvenance check_merge(const std::vector<std::string>& files) {
  return merged_provenance(open_parts(files));
}

CurvatureProvenance merge_curvature(const std::vector<std::string>& files, const std::string& out,
                                    bool overwrite) {
  const std::vector<CurvatureFile> parts = open_parts(files);
  const CurvatureProvenance merged = merged_provenance(parts);
  std::vector<double> by_sample, by_term;
  for (const CurvatureFile& part : parts) {
    by_sample.push_back(static_cast<double>(part.provenance().samples) / merged.samples);
    by_term.push_back(static_cast<double>(part.provenance().loss_terms) / merged.loss_terms);
  }
  std::vector<LayerCurvatureShape> layers = parts.front().layers();
  const bool eigenvalues = std::any_of(layers.begin(), layers.end(),
                                       [](const auto& layer) { return layer.eigenvalues > 0; });
  if (eigenvalues)
    log_warning(out + ": eigenvalues are left out, those of a sum are not a mean of its parts'");
  for (LayerCurvatureShape& layer : layers) layer.eigenvalues = 0;
  CurvatureWriter writer(out, overwrite, merged, layers);
  for (const LayerCurvatureShape& shape : layers) {
    std::vector<LayerCurvature> of_layer;
    for (const CurvatureFile& part : parts) of_layer.push_back(part.read(shape.name));
    LayerCurvature layer;
    layer.name = shape.name;
    layer.a = weighted(of_layer, by_sample, &LayerCurvature::a);
    layer.g = weighted(of_layer, by_term, &LayerCurvature::g);
    layer.diagonal = weighted(of_layer, by_term, &LayerCurvature::diagonal);
    double variance = 0;
    layer.trace = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      layer.trace += by_term[i] * of_layer[i].trace;
      variance += std::pow(by_term[i] * of_layer[i].trace_stderr, 2);
    }
    layer.trace_stderr = std::sqrt(variance);
    if (shape.a > 0 && shape.g > 0) {
      const KroneckerFactors factors{layer.a, layer.g};
      if (merged.trace == "kfac") layer.trace = factors.trace();
      if (merged.diagonal == "kfac") layer.diagonal = factors.diagonal();
    }
    writer.write(layer);
  }
  writer.commit();
  return merged;
}

}  // namespace curvq

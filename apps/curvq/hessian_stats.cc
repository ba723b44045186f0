#include "hessian_stats.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/model_files.h"
#include "curvq/report/numbers.h"
#include "hessian_kfac.h"

namespace curvq::cli {
namespace {

bool contains(const std::vector<std::string>& what, const char* name) {
  return std::find(what.begin(), what.end(), name) != what.end();
}

// A layer's diagonal as rows by output, the bias as one more column; as it is where the layer is
// not a weight and perhaps a bias.
torch::Tensor shaped(const torch::Tensor& diagonal, const std::string& layer,
                     const std::vector<NamedTensor>& parameters) {
  torch::Tensor weight, bias;
  size_t count = 0;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.name.substr(0, parameter.name.rfind('.')) != layer) continue;
    ++count;
    if (parameter.name.ends_with(".weight")) weight = parameter.value;
    if (parameter.name.ends_with(".bias")) bias = parameter.value;
  }
  if (!weight.defined() || weight.dim() == 0 || count > 2 || (count == 2 && !bias.defined()) ||
      (bias.defined() && bias.numel() != weight.size(0)))
    return diagonal;
  const torch::Tensor rows = diagonal.narrow(0, 0, weight.numel()).view({weight.size(0), -1});
  if (!bias.defined()) return rows;
  return torch::cat({rows, diagonal.narrow(0, weight.numel(), bias.numel()).unsqueeze(1)}, 1);
}

}  // namespace

void add_stats_options(Options& options) {
  options
      .add_output("stats", "FILE",
                  "save what is known of each layer (A, G, diagonal, trace, eigenvalues) as "
                  ".safetensors, for curvq quantize --stats")
      .add_list(
          "merge", "FILE",
          "join statistics files of this model made from different data into --stats, instead "
          "of computing; repeatable")
      .add_overwrite();
}

StatsOutput::StatsOutput(const Options& options, const std::vector<std::string>& what)
    : path_(options.has("stats") ? options.text("stats") : ""),
      matrix_(options.text("operator")),
      overwrite_(options.flag("overwrite")),
      has_trace_(contains(what, "trace")),
      has_diagonal_(contains(what, "diagonal")),
      exact_(options.flag("exact")),
      seed_({std::to_string(options.integer("seed"))}) {
  if (path_.empty() || options.flag("dry-run")) return;
  if (options.text("per") != "layer") throw UsageError("--stats holds layers; use --per layer");
  if (!contains(what, "kfac") && !contains(what, "trace") && !contains(what, "diagonal") &&
      !(contains(what, "eigen") && (exact_ || options.flag("eigen-per-block"))))
    throw UsageError(
        "--stats holds statistics of layers; have --what compute kfac, trace or diagonal, or eigen "
        "with --eigen-per-block");
  const AtomicOutput check(path_, AtomicOutput::Kind::kFile, overwrite_);
}

LayerCurvature* StatsOutput::known(const std::string& layer) {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const LayerCurvature& one) { return one.name == layer; });
  return found == known_.end() ? nullptr : &*found;
}

void StatsOutput::know(std::vector<LayerCurvature> layers,
                       const std::vector<NamedTensor>& parameters) {
  if (path_.empty()) return;
  known_ = std::move(layers);
  for (LayerCurvature& layer : known_) {
    if (layer.diagonal.defined()) layer.diagonal = shaped(layer.diagonal, layer.name, parameters);
  }
}

void StatsOutput::begin(Output& output, CurvatureProvenance provenance,
                        const std::vector<LayerCurvatureShape>& factors) {
  if (path_.empty()) return;
  provenance.curvq_version = CURVQ_VERSION;
  provenance.model_hash = output.inputs().at("model").at("hash").get<std::string>();
  provenance.data_hash = {output.inputs().at("data").at("hash").get<std::string>()};
  provenance.seed = seed_;
  provenance.matrix = matrix_;
  const std::string estimated = exact_ ? "exact" : "probes",
                    derived = factors.empty() ? "" : "kfac";
  provenance.trace = has_trace_ ? estimated : derived;
  provenance.diagonal = has_diagonal_ ? estimated : derived;
  shapes_ = factors;
  for (LayerCurvatureShape& shape : shapes_) {
    shape.trace = true;
    shape.diagonal = {shape.g, shape.a};
  }
  for (const LayerCurvature& layer : known_) {
    auto shape = std::find_if(shapes_.begin(), shapes_.end(), [&](const LayerCurvatureShape& one) {
      return one.name == layer.name;
    });
    if (shape == shapes_.end()) {
      shapes_.emplace_back();
      shape = std::prev(shapes_.end());
      shape->name = layer.name;
      if (layer.diagonal.defined()) shape->diagonal = layer.diagonal.sizes().vec();
      shape->trace = has_trace_;
    }
    shape->trace_stderr = has_trace_ && !exact_;
    if (layer.eigenvalues.defined()) shape->eigenvalues = layer.eigenvalues.numel();
  }
  writer_ = std::make_unique<CurvatureWriter>(path_, overwrite_, provenance, shapes_);
}

void StatsOutput::write(const LayerFactors& layer) {
  if (!writer_) return;
  LayerCurvature one;
  if (const LayerCurvature* before = known(layer.name)) one = *before;
  one.name = layer.name;
  one.a = layer.factors.a;
  one.g = layer.factors.g;
  if (!has_trace_) one.trace = layer.factors.trace();
  if (!one.diagonal.defined()) one.diagonal = layer.factors.diagonal();
  writer_->write(one);
}

void StatsOutput::commit(Output& output) {
  if (!writer_) return;
  for (const LayerCurvatureShape& shape : shapes_) {
    if (shape.a == 0) writer_->write(*known(shape.name));
  }
  writer_->commit();
  output.results()["stats"] = path_;
  output.text(format("\n%s: statistics of %zu layers\n", path_.c_str(), shapes_.size()));
}

void merge_stats(const Options& options, Output& output) {
  for (const char* name : {"data", "what", "exact", "report"}) {
    if (options.given(name))
      throw UsageError(options.where(name) + " has no part in --merge, which computes nothing new");
  }
  const std::string model = options.positional("MODEL"), out = options.text("stats");
  const std::vector<std::string> files = options.list("merge");
  const std::string hash = std::filesystem::path(model).extension() == ".pt"
                               ? file_hash(model)
                               : Checkpoint(model).content_hash();
  output.inputs()["model"] = {{"path", model}, {"hash", hash}};
  output.inputs()["parts"] = OrderedJson::array();
  for (const std::string& file : files) {
    if (!std::filesystem::exists(file)) throw UsageError(file + ": no such file");
    const CurvatureFile part(file);
    part.require_model(model, hash);
    output.inputs()["parts"].push_back({{"path", file}, {"samples", part.provenance().samples}});
  }
  const bool overwrite = options.flag("overwrite"), dry = options.flag("dry-run");
  if (dry) const AtomicOutput check(out, AtomicOutput::Kind::kFile, overwrite);
  const CurvatureProvenance merged =
      dry ? check_merge(files) : merge_curvature(files, out, overwrite);
  OrderedJson& results = output.results();
  if (!dry) results["stats"] = out;
  results["samples"] = merged.samples;
  results["loss_terms"] = merged.loss_terms;
  results["data_hashes"] = merged.data_hash;
  output.text(format("%s%s: %s samples (%s loss terms) out of %zu files\n",
                     dry ? "would write " : "", out.c_str(),
                     with_separators(merged.samples).c_str(),
                     with_separators(merged.loss_terms).c_str(), files.size()));
}

}  // namespace curvq::cli

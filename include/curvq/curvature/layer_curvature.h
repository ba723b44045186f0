// What is known of the curvature of a model's layers, and the statistics file that holds it.
//
// The file is safetensors. For a layer NAME (a module's name), each where it is known:
//   NAME.A            [in(+1), in(+1)]  mean a a^T over inputs a, the bias's 1 last
//   NAME.G            [out, out]        mean g g^T over loss terms, g a term's output gradient
//   NAME.diagonal     [out, in(+1)]     of the layer's block, the bias last; [n, 1(+1)] where the
//                                       weight is a vector, [n] for parameters of another kind
//   NAME.trace        []                of the block; NAME.trace_stderr [] its error, if estimated
//   NAME.eigenvalues  [k]               of the block, largest magnitudes first
// all in one dtype, F32 or F64. Its metadata are CurvatureProvenance.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "curvq/io/atomic_output.h"
#include "curvq/io/safetensors.h"

namespace curvq {

// One layer; what is undefined (NaN) is not known.
struct LayerCurvature {
  std::string name;
  torch::Tensor a, g, diagonal, eigenvalues;
  double trace = std::numeric_limits<double>::quiet_NaN();
  double trace_stderr = std::numeric_limits<double>::quiet_NaN();
};

// How a file came about: its metadata, by these names (numbers in decimals, lists with commas).
struct CurvatureProvenance {
  std::string curvq_version;
  std::string model_hash;               // Checkpoint::content_hash(), or file_hash() of a .pt
  std::vector<std::string> data_hash;   // of each set of data that was merged
  std::vector<std::string> seed;        // as many
  int64_t samples = 0, loss_terms = 0;  // of all of them
  std::string sample_shape;             // of one sample's inputs, "[127]"
  std::string dtype;  // of the tensors and of what computed them: float32, float64
  std::string loss;
  std::string reduction = "mean over loss terms";
  std::string labels;  // of G: "sampled", "exact" or "data"
  int64_t label_draws = 1;
  std::string weight_sharing = "expand";
  std::string matrix;           // of trace, diagonal, eigenvalues: curvature_name()
  std::string trace, diagonal;  // how they were got: "kfac", "probes" or "exact"; or ""

  std::map<std::string, std::string> metadata() const;
  // Throws FormatError naming `origin` for metadata that are missing or not of their kind.
  static CurvatureProvenance parse(const std::map<std::string, std::string>& metadata,
                                   const std::string& origin);
};

// What a layer will hold, known before it is computed. Empty shapes and 0: nothing.
struct LayerCurvatureShape {
  std::string name;
  int64_t a = 0, g = 0;
  std::vector<int64_t> diagonal = {};
  bool trace = false, trace_stderr = false;
  int64_t eigenvalues = 0;
};

// Writes a statistics file, whole or not at all, layer by layer in any order.
class CurvatureWriter {
 public:
  // Throws as AtomicOutput and SafetensorsWriter do.
  CurvatureWriter(const std::string& path, bool overwrite, const CurvatureProvenance& provenance,
                  const std::vector<LayerCurvatureShape>& layers);
  ~CurvatureWriter();

  // Tensors are converted to the file's dtype; those that the layer's shape does not name are not
  // written. Throws std::logic_error for a layer or shape that was not announced, NumericalError
  // naming layer and tensor for values that are not finite.
  void write(const LayerCurvature& layer);
  void commit();

 private:
  std::string dtype_;
  AtomicOutput output_;
  std::map<std::string, LayerCurvatureShape> layers_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

// A statistics file, mapped; layers are read when asked for. Safe to read from several threads.
class CurvatureFile {
 public:
  // Throws FormatError naming file and tensor for what SafetensorsFile rejects, metadata that are
  // missing, and shapes or dtypes that contradict each other.
  explicit CurvatureFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const CurvatureProvenance& provenance() const { return provenance_; }
  // In the order of their first tensor in the file.
  const std::vector<LayerCurvatureShape>& layers() const { return layers_; }
  // nullptr if the file does not know the layer.
  const LayerCurvatureShape* find(const std::string& layer) const;

  // Copies. Throws FormatError if the layer is not there, NumericalError for values that are not
  // finite.
  LayerCurvature read(const std::string& layer) const;

  // Throws FormatError naming both hashes unless the file belongs to `model`, whose hash is given.
  void require_model(const std::string& model, const std::string& hash) const;
  // Throws FormatError unless the layer has A and G for these sizes, with or without a bias.
  void require_factors(const std::string& layer, int64_t in_features, int64_t out_features) const;

 private:
  SafetensorsFile file_;
  CurvatureProvenance provenance_;
  std::vector<LayerCurvatureShape> layers_;
};

// The same check for any statistics file: does nothing where the metadata name no model.
void require_model(const SafetensorsFile& stats, const std::string& model, const std::string& hash);

// 2 A without the bias: the Hessian 2/N sum x x^T of a layer's squared output error.
torch::Tensor input_hessian(const torch::Tensor& a, int64_t in_features);

// Joins files made from parts of the data: A weighted by samples, everything else by loss terms, so
// that the result is that of all data at once (to rounding; K-FAC diagonals and traces are computed
// again from the merged factors; drawn labels are those of the parts). Eigenvalues, which no mean
// gives, are left out.
// Throws UsageError for fewer than two files, FormatError for files of different models, dtypes,
// layers, shapes or ways of computing, and for data that are in more than one part.
CurvatureProvenance merge_curvature(const std::vector<std::string>& files, const std::string& out,
                                    bool overwrite);
// What it would return or throw, without writing.
CurvatureProvenance check_merge(const std::vector<std::string>& files);

}  // namespace curvq

#include "labelled_data.h"

#include <algorithm>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/checkpoint.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq::cli {
namespace {

namespace fs = std::filesystem;

torch::Tensor samples_of(const SafetensorsFile& file, const std::string& name) {
  const torch::Tensor tensor = to_torch(file.at(name));
  if (tensor.dim() == 0 || tensor.numel() == 0)
    throw FormatError(file.path() + ": " + name + " must hold at least one sample");
  return tensor.is_floating_point() ? tensor : tensor.to(torch::kInt64);
}

}  // namespace

torch::Tensor load_x(const SafetensorsFile& file, const Options& options) {
  const torch::Tensor x = samples_of(file, "x");
  const int64_t available = x.size(0), wanted = options.integer("num-samples");
  if (wanted > available) {
    throw UsageError(format("%s %lld: %s has %lld samples", options.where("num-samples").c_str(),
                            static_cast<long long>(wanted), file.path().c_str(),
                            static_cast<long long>(available)));
  }
  return wanted > 0 ? x.narrow(0, 0, wanted) : x;
}

Batch load_xy(const SafetensorsFile& file, const Options& options) {
  Batch data{load_x(file, options), samples_of(file, "y")};
  const int64_t wanted = options.integer("num-samples");
  if (wanted > 0) data.targets = data.targets.narrow(0, 0, std::min(wanted, data.targets.size(0)));
  return data;
}

SafetensorsFile open_samples(const Options& options, const std::string& option) {
  const std::string source = options.text(option);
  if (fs::is_regular_file(source) && fs::path(source).extension() != ".safetensors") {
    throw UnsupportedError(source +
                           ": the data of a TorchScript module are x and y in a "
                           ".safetensors; text needs a model directory");
  }
  return SafetensorsFile(source);
}

OrderedJson describe(const SafetensorsFile& file, int64_t samples) {
  return {{"path", file.path()},
          {"hash", Checkpoint(file.path()).content_hash()},
          {"samples", samples}};
}

}  // namespace curvq::cli

#include "problem.h"

#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/model_files.h"
#include "curvq/io/safetensors.h"
#include "data.h"
#include "labelled_data.h"

namespace curvq::cli {
namespace {

namespace fs = std::filesystem;

// Each product takes and frees the same tensors. glibc would give the large ones back to the
// system, which clears their pages anew each time: a tenth of a product's time and more.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

torch::optional<torch::ScalarType> chosen_dtype(const Options& options) {
  const std::string dtype = options.text("dtype");
  if (dtype == "float32") return torch::kFloat32;
  if (dtype == "float64") return torch::kFloat64;
  return {};
}

// Each token predicts the next of its window.
Batch next_tokens(const TokenWindows& windows) {
  if (windows.length < 2)
    throw UsageError(windows.origin + ": windows of one token predict nothing; use longer ones");
  const torch::Tensor ids =
      torch::tensor(windows.ids).view({windows.num_windows, windows.length}).to(torch::kInt64);
  return {ids.narrow(1, 0, windows.length - 1), ids.narrow(1, 1, windows.length - 1)};
}

bool holds_xy(const std::string& source) {
  if (!fs::is_regular_file(source) || fs::path(source).extension() != ".safetensors") return false;
  const SafetensorsFile file(source);
  return file.find("x") != nullptr && file.find("y") != nullptr;
}

Problem load_directory(const std::string& path, const Options& options, ProblemOptions problem,
                       Output& output) {
  const DecoderModel model(path, Engine::kDequantized);
  const Batch data = load_tokens(model, options, output);
  const DecoderOptions decoder{chosen_dtype(options).value_or(torch::kFloat32),
                               options.flag("checkpoint")};
  return Problem(load_decoder(model, decoder), cross_entropy(), data, std::move(problem));
}

Problem load_script(const std::string& path, const Options& options, ProblemOptions problem,
                    Output& output) {
  if (options.flag("checkpoint"))
    throw UsageError("--checkpoint needs a model directory; TorchScript has no blocks");
  const SafetensorsFile file = open_samples(options, "data");
  Model model = load_torchscript(path, chosen_dtype(options));
  Batch data = load_xy(file, options);
  output.inputs()["model"] = {{"path", path}, {"hash", file_hash(path)}};
  output.inputs()["data"] = describe(file, data.inputs.size(0));
  return Problem(std::move(model), loss_by_name(options.text("loss")), data, std::move(problem));
}

}  // namespace

void add_problem_options(Options& options) {
  options
      .add_text(
          "data", "FILE",
          "x and y in a .safetensors; for a model directory also text (.txt, .jsonl) or token "
          "ids (.safetensors[:NAME]), whose next tokens are the targets")
      .add_choice(
          "loss", {"cross_entropy", "mse"},
          "mean over loss terms; a negative target is none; mse is half the sum over outputs",
          "cross_entropy")
      .add_choice("dtype", {"auto", "float32", "float64"},
                  "precision; auto: that of a TorchScript file, float32 for a model directory",
                  "auto")
      .add_integer(
          "chunk-size", "N",
          "samples that go through the model together; 0: all, or what --max-memory allows", 0,
          int64_t{1} << 40, 0)
      .add_flag("checkpoint",
                "compute each block of a model directory again instead of keeping it: less memory, "
                "more time");
  add_window_options(options);
}

Batch load_tokens(const DecoderModel& model, const Options& options, Output& output) {
  if (options.text("loss") != "cross_entropy")
    throw UsageError(options.where("loss") + ": the loss of a model directory is cross_entropy");
  const std::string source = options.text("data"), path = model.checkpoint().path();
  model.config().require_head("the curvature of a next-token loss");
  output.inputs()["model"] = {{"path", path}, {"hash", model.checkpoint().content_hash()}};
  Batch data;
  if (holds_xy(source)) {
    const SafetensorsFile file(source);
    data = load_xy(file, options);
    output.inputs()["data"] = describe(file, data.inputs.size(0));
  } else {
    const TokenWindows windows = load_windows(options, "data", path, model.config());
    data = next_tokens(windows);
    output.inputs()["data"] = describe(windows);
  }
  return data;
}

Problem load_problem(const std::string& model, const Options& options, ProblemOptions problem,
                     Output& output) {
  keep_freed_memory();
  problem.chunk_size = options.integer("chunk-size");
  if (is_model(model)) return load_directory(model, options, std::move(problem), output);
  if (is_torchscript(model) || !fs::exists(model))
    return load_script(model, options, std::move(problem), output);
  throw UnsupportedError(
      model +
      ": not a model directory, a .gguf or a TorchScript .pt file; those are what "
      "this command reads");
}

}  // namespace curvq::cli

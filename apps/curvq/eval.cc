#include <cmath>
#include <memory>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/eval/evaluate.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/decoder.h"
#include "curvq/report/table.h"
#include "data.h"
#include "eval_bounds.h"
#include "eval_encoder.h"
#include "eval_script.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options
      .add_positional("MODEL",
                      "model directory, original or quantized, a .gguf, or a TorchScript .pt")
      .add_text("data", "FILE",
                "text (.txt, .jsonl) or token ids (.safetensors[:NAME]); for an encoder sentences, "
                "one a line or record; for TorchScript x and y in a .safetensors: integers y are "
                "classes (cross entropy, accuracy), others targets (squared error)")
      .add_text("reference", "MODEL",
                "the original model: adds the KL divergence from it and top-1 agreement; for an "
                "encoder compares sentence embeddings")
      .add_output("embeddings", "FILE",
                  "write an encoder's sentence embeddings (.safetensors, [n, hidden], length 1)")
      .add_choice(
          "engine", engine_names(),
          "run packed weights as they are (with inputs in float32, in bfloat16, which is fast "
          "where "
          "the processor has AMX, or those of 4-bit layers as integers of 15 or 8 bits), or as "
          "float32 matrices",
          "dequantized");
  add_window_options(options);
  options
      .add_list("fail-if", "'KEY>NUMBER'",
                "exit with 6 if a result is above (or, with <, below) a bound; repeatable")
      .add_threads()
      .add_device()
      .add_example(
          "eval Llama-3.2-1B-NVFP4 --reference Llama-3.2-1B --data test.txt --fail-if "
          "'kl_mean>0.1'");
}

OrderedJson results_json(const EvalResult& r) {
  OrderedJson json = {{"perplexity", r.perplexity},
                      {"perplexity_stderr", r.perplexity_stderr},
                      {"nll", r.nll},
                      {"nll_stderr", r.nll_stderr},
                      {"tokens", r.tokens},
                      {"windows", r.windows}};
  if (r.has_reference) {
    json["kl_mean"] = r.kl_mean;
    json["kl_stderr"] = r.kl_stderr;
    json["top1_agreement"] = r.top1_agreement;
    json["top1_stderr"] = r.top1_stderr;
    json["reference_perplexity"] = r.reference_perplexity;
  }
  return json;
}

std::string results_text(const EvalResult& r, bool color) {
  using Align = Table::Align;
  Table table({{"measure", Align::kLeft}, {"value", Align::kRight}, {"std. error", Align::kRight}});
  const auto row = [&](const char* name, double value, double error) {
    table.add_row({name, format("%.6g", value), std::isnan(error) ? "" : format("%.2g", error)});
  };
  row("perplexity", r.perplexity, r.perplexity_stderr);
  row("nll, nats a token", r.nll, r.nll_stderr);
  if (r.has_reference) {
    row("reference perplexity", r.reference_perplexity, std::nan(""));
    row("KL(reference || model), nats", r.kl_mean, r.kl_stderr);
    row("top-1 agreement", r.top1_agreement, r.top1_stderr);
  }
  return table.str(color) + format("%lld tokens predicted in %lld windows\n",
                                   static_cast<long long>(r.tokens),
                                   static_cast<long long>(r.windows));
}

int run(const Options& options, Output& output) {
  const std::string path = options.positional("MODEL");
  if (is_torchscript(path)) return eval_script(options, output);
  if (DecoderConfig::from_directory(path).bidirectional) return eval_encoder(options, output);
  if (options.has("embeddings"))
    throw UsageError(options.where("embeddings") + " needs an encoder; this model predicts tokens");
  EvalResult with_reference;
  with_reference.has_reference = true;
  const std::vector<Bound> bounds =
      parse_bounds(options, results_json(EvalResult{}), results_json(with_reference));
  const Engine engine = parse_engine(options.text("engine"));
  options.text("data");
  const DecoderModel model(path, engine);
  std::unique_ptr<DecoderModel> reference;
  if (options.has("reference"))
    reference = std::make_unique<DecoderModel>(options.text("reference"), engine);
  const TokenWindows windows = load_windows(options, "data", path, model.config());
  output.inputs()["model"] = {{"path", path}, {"hash", model.checkpoint().content_hash()}};
  if (reference) {
    output.inputs()["reference"] = {{"path", options.text("reference")},
                                    {"hash", reference->checkpoint().content_hash()}};
  }
  output.inputs()["data"] = describe(windows);
  const EvalResult result = evaluate(model, windows, reference.get());
  output.results() = results_json(result);
  output.text(results_text(result, output.color()));
  return check_bounds(bounds, output.results());
}

}  // namespace

const Command kEvalCommand = {
    "eval", "perplexity, KL to a reference, top-1 agreement; sentence embeddings", declare, run};

}  // namespace curvq::cli

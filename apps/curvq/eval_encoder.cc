#include "eval_encoder.h"

#include <cmath>
#include <memory>
#include <optional>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/eval/embeddings.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/safetensors.h"
#include "curvq/io/sentences.h"
#include "curvq/io/tokenizer.h"
#include "curvq/nn/decoder.h"
#include "curvq/report/table.h"
#include "data.h"
#include "eval_bounds.h"

namespace curvq::cli {
namespace {

OrderedJson results_json(const EmbeddingComparison& c) {
  return {{"cosine_mean", c.cosine_mean},
          {"cosine_stderr", c.cosine_stderr},
          {"cosine_min", c.cosine_min},
          {"similarity_spearman", c.spearman},
          {"similarity_pairs", c.pairs}};
}

std::string results_text(const EmbeddingComparison& c, bool color) {
  using Align = Table::Align;
  Table table({{"sentence embeddings and the reference's", Align::kLeft},
               {"value", Align::kRight},
               {"std. error", Align::kRight}});
  const auto error = [](double e) { return std::isnan(e) ? std::string() : format("%.2g", e); };
  table.add_row({"cosine, mean", format("%.6f", c.cosine_mean), error(c.cosine_stderr)});
  table.add_row({"cosine, least", format("%.6f", c.cosine_min), ""});
  table.add_row({"rank correlation of similarities (Spearman)", format("%.6f", c.spearman), ""});
  return table.str(color);
}

void write_embeddings(const Embeddings& embeddings, AtomicOutput& file) {
  SafetensorsWriter writer(file.path(),
                           {{"embeddings", DType::kF32, {embeddings.count, embeddings.width}}});
  writer.write("embeddings", embeddings.values.data(),
               static_cast<int64_t>(embeddings.values.size() * sizeof(float)));
  writer.finish();
  file.commit();
}

Sentences read_sentences(const Options& options, const std::string& model,
                         const DecoderConfig& config, const Pooling& pooling) {
  SentenceOptions sentence_options;
  sentence_options.num_sentences = options.integer("num-samples");
  sentence_options.vocab_size = config.vocab_size;
  sentence_options.max_length =
      options.has("max-length") ? options.integer("max-length") : pooling.max_length;
  if (sentence_options.max_length > config.max_positions) {
    throw UsageError(options.where("max-length") +
                     format(" %lld: the model has %lld positions",
                            static_cast<long long>(sentence_options.max_length),
                            static_cast<long long>(config.max_positions)));
  }
  const Sentences sentences =
      load_sentences(options.text("data"), load_tokenizer(model), sentence_options);
  if (sentences.cut > 0) {
    log_warning(format("%s: %lld of %zu sentences are cut to %lld tokens", sentences.origin.c_str(),
                       static_cast<long long>(sentences.cut), sentences.ids.size(),
                       static_cast<long long>(sentence_options.max_length)));
  }
  return sentences;
}

}  // namespace

int eval_encoder(const Options& options, Output& output) {
  const std::vector<Bound> bounds =
      parse_bounds(options, OrderedJson::object(), results_json(EmbeddingComparison{}));
  const std::string path = options.positional("MODEL");
  const Engine engine = parse_engine(options.text("engine"));
  const DecoderModel model(path, engine);
  if (!options.has("reference") && !options.has("embeddings")) {
    throw UsageError(path + ": " + model.config().family +
                     " models are encoders, which have no perplexity; give --reference MODEL to "
                     "compare sentence embeddings, or --embeddings FILE to write them");
  }
  const Pooling pooling = read_pooling(model);
  const Sentences sentences = read_sentences(options, path, model.config(), pooling);
  output.inputs()["model"] = {{"path", path}, {"hash", model.checkpoint().content_hash()}};
  output.inputs()["data"] = {
      {"path", sentences.origin}, {"hash", sentences.hash}, {"sentences", sentences.ids.size()}};
  output.results() = {{"sentences", sentences.ids.size()}, {"tokens", sentences.tokens}};
  std::unique_ptr<DecoderModel> reference;
  if (options.has("reference")) {
    reference = std::make_unique<DecoderModel>(options.text("reference"), engine);
    output.inputs()["reference"] = {{"path", options.text("reference")},
                                    {"hash", reference->checkpoint().content_hash()}};
    if (reference->config().vocab_size != model.config().vocab_size) {
      throw UsageError(
          format("the reference has %lld tokens in its vocabulary, the model %lld; "
                 "their sentences cannot be the same",
                 static_cast<long long>(reference->config().vocab_size),
                 static_cast<long long>(model.config().vocab_size)));
    }
  }
  std::optional<AtomicOutput> file;
  if (options.has("embeddings"))
    file.emplace(options.text("embeddings"), AtomicOutput::Kind::kFile, /*overwrite=*/false);
  const Embeddings embeddings = embed_sentences(model, sentences, pooling);
  if (file) write_embeddings(embeddings, *file);
  if (reference) {
    const EmbeddingComparison comparison =
        compare_embeddings(embeddings, embed_sentences(*reference, sentences, pooling));
    output.results().update(results_json(comparison));
    output.text(results_text(comparison, output.color()));
  }
  output.text(format("%zu sentences of %lld tokens\n", sentences.ids.size(),
                     static_cast<long long>(sentences.tokens)));
  return check_bounds(bounds, output.results());
}

}  // namespace curvq::cli

#include "curvq/eval/embeddings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

constexpr int64_t kBatchTokens = 2048;  // go through a block together
constexpr int64_t kMostCompared = 10'000;

// Sentences of one length.
struct Batch {
  std::vector<size_t> sentences;
  torch::Tensor x;  // [n, t, hidden]
};

std::vector<Batch> batches_of(const DecoderModel& encoder, const Sentences& sentences) {
  std::map<size_t, std::vector<size_t>> by_length;
  for (size_t i = 0; i < sentences.ids.size(); ++i) {
    const size_t length = sentences.ids[i].size();
    if (length == 0 || static_cast<int64_t>(length) > encoder.config().max_positions) {
      throw UsageError(
          format("%s: sentence %zu has %zu tokens, the model takes 1 to %lld; set "
                 "--max-length",
                 sentences.origin.c_str(), i + 1, length,
                 static_cast<long long>(encoder.config().max_positions)));
    }
    by_length[length].push_back(i);
  }
  std::vector<Batch> batches;
  for (const auto& [length, members] : by_length) {
    const size_t most = std::max<size_t>(1, kBatchTokens / length);
    for (size_t begin = 0; begin < members.size(); begin += most) {
      Batch batch;
      const auto first = members.begin() + static_cast<std::ptrdiff_t>(begin);
      const size_t count = std::min(most, members.size() - begin);
      batch.sentences.assign(first, first + static_cast<std::ptrdiff_t>(count));
      torch::Tensor ids =
          torch::empty({static_cast<int64_t>(count), static_cast<int64_t>(length)}, torch::kInt64);
      int64_t* out = ids.data_ptr<int64_t>();
      for (const size_t i : batch.sentences)
        out = std::copy(sentences.ids[i].begin(), sentences.ids[i].end(), out);
      batch.x = encoder.embed(ids);
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

// Ranks from 0, equal values at the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0, end = 0; i < order.size(); i = end) {
    for (end = i + 1; end < order.size() && values[order[end]] == values[order[i]];) ++end;
    for (size_t j = i; j < end; ++j) ranks[order[j]] = static_cast<double>(i + end - 1) / 2;
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
    ab += (a[i] - mean_a) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

torch::Tensor matrix_of(const Embeddings& embeddings) {
  return torch::tensor(embeddings.values)
      .view({embeddings.count, embeddings.width})
      .to(torch::kFloat64);
}

// Cosines of all pairs i < j.
std::vector<double> similarities(const torch::Tensor& rows) {
  const torch::Tensor all = torch::matmul(rows, rows.t()).contiguous();
  const int64_t n = rows.size(0);
  std::vector<double> out;
  out.reserve(static_cast<size_t>(n * (n - 1) / 2));
  for (int64_t i = 0; i < n; ++i) {
    const double* row = all.data_ptr<double>() + i * n;
    out.insert(out.end(), row + i + 1, row + n);
  }
  return out;
}

}  // namespace

Pooling read_pooling(const DecoderModel& encoder) {
  const std::string& model = encoder.checkpoint().path();
  Pooling pooling;
  pooling.max_length = encoder.config().max_positions;
  if (const auto text = read_model_file(model, "sentence_bert_config.json")) {
    const std::string origin = model_file_origin(model, "sentence_bert_config.json");
    const int64_t most =
        json_int(parse_json(*text, origin), "max_seq_length", pooling.max_length, origin);
    if (most < 1) throw FormatError(origin + ": max_seq_length must be at least 1");
    pooling.max_length = std::min(pooling.max_length, most);
  }
  const auto text = read_model_file(model, "1_Pooling/config.json");
  if (!text) return pooling;
  const std::string origin = model_file_origin(model, "1_Pooling/config.json");
  const Json json = parse_json(*text, origin);
  std::string mode = json_string(json, "pooling_mode", "", origin);
  for (const char* key : {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
                          "weightedmean_tokens", "lasttoken"}) {
    const std::string name = std::string("pooling_mode_") + key;
    if (json_bool(json, name.c_str(), false, origin)) mode += (mode.empty() ? "" : " and ") + name;
  }
  if (mode == "cls" || mode == "pooling_mode_cls_token") {
    pooling.mode = Pooling::Mode::kFirst;
  } else if (mode != "mean" && mode != "pooling_mode_mean_tokens") {
    throw UnsupportedError(origin + ": pooling by " + (mode.empty() ? "nothing" : mode) +
                           " is not handled; handled are mean_tokens and cls_token");
  }
  return pooling;
}

Embeddings embed_sentences(const DecoderModel& encoder, const Sentences& sentences,
                           const Pooling& pooling) {
  const DecoderConfig& config = encoder.config();
  if (!config.bidirectional)
    throw UsageError(config.family + " models are no encoders: they have no sentence embeddings");
  torch::NoGradGuard no_grad;
  at::set_num_threads(num_threads());
  std::vector<Batch> batches = batches_of(encoder, sentences);
  Progress progress("embedding", config.num_layers);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const DecoderBlock block = encoder.load_block(layer);
    for (Batch& batch : batches) batch.x = block.forward(batch.x);
    encoder.release_block(layer);
    progress.advance();
  }
  Embeddings out;
  out.count = static_cast<int64_t>(sentences.ids.size());
  out.width = config.hidden_size;
  out.values.resize(static_cast<size_t>(out.count * out.width));
  for (const Batch& batch : batches) {
    const torch::Tensor hidden = batch.x.to(torch::kFloat64);
    torch::Tensor rows =
        pooling.mode == Pooling::Mode::kMean ? hidden.mean(1) : hidden.select(1, 0);
    rows = (rows / rows.norm(2, -1, true)).to(torch::kFloat32).contiguous();
    for (size_t i = 0; i < batch.sentences.size(); ++i) {
      const float* row = rows.data_ptr<float>() + static_cast<int64_t>(i) * out.width;
      if (!std::all_of(row, row + out.width, [](float v) { return std::isfinite(v); })) {
        throw NumericalError(format("%s: the embedding of sentence %zu is not finite or zero",
                                    encoder.checkpoint().path().c_str(), batch.sentences[i] + 1));
      }
      std::copy(row, row + out.width,
                out.values.begin() + static_cast<int64_t>(batch.sentences[i]) * out.width);
    }
  }
  return out;
}

EmbeddingComparison compare_embeddings(const Embeddings& a, const Embeddings& b) {
  if (a.count != b.count || a.width != b.width || a.count == 0) {
    throw UsageError(format("%lld embeddings of %lld values cannot be compared with %lld of %lld",
                            static_cast<long long>(a.count), static_cast<long long>(a.width),
                            static_cast<long long>(b.count), static_cast<long long>(b.width)));
  }
  if (a.count > kMostCompared) {
    throw UsageError(
        format("%lld sentences have too many pairs to compare, at most %lld may be "
               "given; set --num-samples",
               static_cast<long long>(a.count), static_cast<long long>(kMostCompared)));
  }
  const torch::Tensor rows_a = matrix_of(a), rows_b = matrix_of(b);
  const torch::Tensor cosines =
      (rows_a * rows_b).sum(-1) / (rows_a.norm(2, -1) * rows_b.norm(2, -1));
  EmbeddingComparison out;
  out.sentences = a.count;
  out.cosine_mean = cosines.mean().item<double>();
  out.cosine_min = cosines.min().item<double>();
  const auto n = static_cast<double>(a.count);
  out.cosine_stderr = a.count > 1 ? cosines.std().item<double>() / std::sqrt(n) : std::nan("");
  out.pairs = a.count * (a.count - 1) / 2;
  out.spearman = out.pairs < 3
                     ? std::nan("")
                     : correlation(ranks_of(similarities(rows_a)), ranks_of(similarities(rows_b)));
  return out;
}

}  // namespace curvq

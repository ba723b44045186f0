// Sentence embeddings of encoders, and how far those of one model are from another's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/io/sentences.h"

namespace curvq {

class DecoderModel;

// How a sentence's hidden states become one vector.
struct Pooling {
  enum class Mode { kMean, kFirst };  // over its tokens, special ones included; the first token's
  Mode mode = Mode::kMean;
  int64_t max_length = 0;  // tokens of a sentence that the model is meant for
};

// What a directory of sentence-transformers says (1_Pooling/config.json and
// sentence_bert_config.json); the mean and the model's positions where it says nothing. Throws
// UnsupportedError for other modes, naming them.
Pooling read_pooling(const DecoderModel& encoder);

struct Embeddings {
  std::vector<float> values;  // [count, width], each of Euclidean length 1
  int64_t count = 0, width = 0;
};

// Each sentence by itself: those of one length go together, so there is no padding to mask. Throws
// UsageError for a model that is no encoder or a sentence longer than its positions, NumericalError
// if an embedding is not finite or zero, naming the sentence.
Embeddings embed_sentences(const DecoderModel& encoder, const Sentences& sentences,
                           const Pooling& pooling);

struct EmbeddingComparison {
  int64_t sentences = 0;
  double cosine_mean = 0, cosine_min = 0;  // of a sentence's two embeddings
  double cosine_stderr = 0;                // of the mean; NaN for one sentence
  // Spearman's rank correlation (ties at their mean rank) of the cosines of all pairs of sentences
  // in one model with those in the other; NaN for fewer than three sentences.
  int64_t pairs = 0;
  double spearman = 0;
};

// The same sentences in two models of one width (else UsageError). O(n^2) in their number n, which
// may be 10,000 at most (else UsageError).
EmbeddingComparison compare_embeddings(const Embeddings& a, const Embeddings& b);

}  // namespace curvq

#include "curvq/eval/embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/safetensors.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kEncoders = std::string(CURVQ_TEST_DATA) + "/encoders/";

Sentences sentences_of(const SafetensorsFile& reference) {
  const TensorView &ids = reference.at("input_ids"), &mask = reference.at("attention_mask");
  Sentences out;
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    out.ids.emplace_back();
    for (int64_t j = i * ids.shape[1]; j < (i + 1) * ids.shape[1]; ++j) {
      int64_t id = 0, real = 0;
      ids.read(j, 1, &id);
      mask.read(j, 1, &real);
      if (real != 0) out.ids.back().push_back(static_cast<int32_t>(id));
    }
  }
  return out;
}

TEST(Embeddings, EqualTransformers) {
  for (const std::string name : {"bert", "bert_masked_lm"}) {
    const SafetensorsFile reference(kEncoders + name + "/reference.safetensors");
    const DecoderModel model(kEncoders + name);
    const Pooling pooling = read_pooling(model);
    EXPECT_EQ(pooling.max_length, 48);
    const Embeddings found = embed_sentences(model, sentences_of(reference), pooling);
    const std::vector<float> expected = reference.at("embeddings").to_f32();
    ASSERT_EQ(found.values.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found.values[i], expected[i], 1e-5) << name << " " << i;
  }
}

class PoolingFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(directory_ + "/1_Pooling");
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(kEncoders + "bert/" + name, directory_ + "/" + name);
  }
  void TearDown() override { fs::remove_all(directory_); }
  Pooling read(const char* file, const std::string& json) {
    write_file(directory_ + "/" + file, json);
    return read_pooling(DecoderModel(directory_));
  }
  std::string directory_ = testing::TempDir() + "curvq_pooling_" + std::to_string(getpid());
};

TEST_F(PoolingFiles, SayHowSentencesArePooled) {
  EXPECT_EQ(read("sentence_bert_config.json", R"({"max_seq_length": 20})").max_length, 20);
  EXPECT_EQ(read("sentence_bert_config.json", R"({"max_seq_length": 2000})").max_length, 48);
  EXPECT_THROW(read("sentence_bert_config.json", R"({"max_seq_length": 0})"), FormatError);
  fs::remove(directory_ + "/sentence_bert_config.json");
  const char* kFile = "1_Pooling/config.json";
  EXPECT_EQ(read(kFile, R"({"pooling_mode_mean_tokens": true})").mode, Pooling::Mode::kMean);
  const Pooling first = read(kFile, R"({"pooling_mode_cls_token": true})");
  EXPECT_EQ(first.mode, Pooling::Mode::kFirst);
  EXPECT_EQ(read(kFile, R"({"pooling_mode": "cls"})").mode, Pooling::Mode::kFirst);
  EXPECT_THROW(read(kFile, R"({"pooling_mode_max_tokens": true})"), UnsupportedError);
  EXPECT_THROW(read(kFile, R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})"),
               UnsupportedError);

  // The first token's hidden state, of length 1.
  const SafetensorsFile reference(kEncoders + "bert/reference.safetensors");
  const TensorView& hidden = reference.at("hidden");
  const Embeddings found =
      embed_sentences(DecoderModel(directory_), sentences_of(reference), first);
  for (int64_t i = 0; i < found.count; ++i) {
    std::vector<float> row(static_cast<size_t>(found.width));
    hidden.read_f32(i * hidden.shape[1] * hidden.shape[2], found.width, row.data());
    double length = 0;
    for (const float v : row) length += double{v} * v;
    for (int64_t j = 0; j < found.width; ++j)
      EXPECT_NEAR(found.values[i * found.width + j], row[j] / std::sqrt(length), 1e-5);
  }
}

TEST(Embeddings, RefuseSentencesThatDoNotFit) {
  const DecoderModel model(kEncoders + "bert");
  Sentences sentences;
  for (const size_t length : {size_t{0}, size_t{49}}) {
    sentences.ids = {{2, 3}, std::vector<int32_t>(length, 7)};
    EXPECT_THROW(embed_sentences(model, sentences, {}), UsageError);
  }
  const DecoderModel decoder(std::string(CURVQ_TEST_DATA) + "/families/gpt2");
  sentences.ids = {{2, 3}};
  EXPECT_THROW(embed_sentences(decoder, sentences, {}), UsageError);
}

// Unit vectors in the plane by their angles in degrees.
Embeddings at_angles(const std::vector<double>& degrees) {
  Embeddings out;
  out.count = static_cast<int64_t>(degrees.size());
  out.width = 2;
  for (const double d : degrees) {
    out.values.push_back(static_cast<float>(std::cos(d * M_PI / 180)));
    out.values.push_back(static_cast<float>(std::sin(d * M_PI / 180)));
  }
  return out;
}

TEST(Embeddings, ComparisonByHand) {
  // Distances of pairs: 10, 30, 80, 20, 70, 50 degrees; ranks of the cosines 5, 3, 0, 4, 1, 2.
  const Embeddings a = at_angles({0, 10, 30, 80});
  // 40, 40 (again), 70, 80, 30, 110 degrees; ranks 3.5, 3.5, 2, 1, 5, 0.
  const Embeddings b = at_angles({0, 40, -40, 70});
  const EmbeddingComparison c = compare_embeddings(a, b);
  EXPECT_EQ(c.sentences, 4);
  EXPECT_EQ(c.pairs, 6);
  const double cosines[] = {1, std::cos(M_PI / 6), std::cos(M_PI * 7 / 18), std::cos(M_PI / 18)};
  const double mean = (1 + cosines[1] + cosines[2] + cosines[3]) / 4;
  EXPECT_NEAR(c.cosine_mean, mean, 1e-6);
  EXPECT_NEAR(c.cosine_min, cosines[2], 1e-6);
  double squares = 0;
  for (const double v : cosines) squares += (v - mean) * (v - mean);
  EXPECT_NEAR(c.cosine_stderr, std::sqrt(squares / 3 / 4), 1e-6);
  // Pearson of (5, 3, 0, 4, 1, 2) and (3.5, 3.5, 2, 1, 5, 0), both of mean 2.5:
  // 2.5 + 0.5 + 1.25 - 2.25 - 3.75 + 1.25 over the root of 17.5 * 17.
  EXPECT_NEAR(c.spearman, -0.5 / std::sqrt(17.5 * 17), 1e-6);
  const EmbeddingComparison same = compare_embeddings(a, a);
  EXPECT_NEAR(same.cosine_min, 1, 1e-6);
  EXPECT_NEAR(same.spearman, 1, 1e-12);
  EXPECT_TRUE(std::isnan(compare_embeddings(at_angles({5}), at_angles({6})).cosine_stderr));
  EXPECT_TRUE(std::isnan(compare_embeddings(at_angles({5, 6}), at_angles({6, 9})).spearman));
  EXPECT_THROW(compare_embeddings(a, at_angles({1, 2})), UsageError);
}

}  // namespace
}  // namespace curvq

#include <cstring>
#include <random>

#include "curvq/io/atomic_output.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/gguf.h"
#include "curvq/io/model_files.h"
#include "curvq/io/tokenizer.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

const std::string kData = std::string(CURVQ_TEST_DATA) + "/gguf/";

// Equal to the bit, but for the payloads of NaN.
int64_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    count += !both_nan && std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  }
  return count;
}

void expect_equal_tensors(const Checkpoint& gguf, const SafetensorsFile& expected) {
  EXPECT_EQ(gguf.tensors().size(), expected.tensors().size());
  for (const TensorView& wanted : expected.tensors()) {
    const TensorView& found = gguf.at(wanted.name);
    EXPECT_EQ(found.shape, wanted.shape) << wanted.name;
    EXPECT_EQ(differences(found.to_f32(), wanted.to_f32()), 0) << wanted.name;
  }
}

TEST(GgufModel, DecodesEveryTypeAsTheGgufPackage) {
  const Checkpoint types(kData + "types.gguf");
  expect_equal_tensors(types, SafetensorsFile(kData + "types.safetensors"));
  EXPECT_EQ(types.at("Q4_K").format(), "Q4_K");
  EXPECT_EQ(types.at("Q4_K").stored_bytes(), 3 * 512 / 256 * 144);
  EXPECT_EQ(types.at("BF16").dtype, DType::kBF16);
}

TEST(GgufModel, ReadsAnyPieceOfATensor) {
  const Checkpoint types(kData + "types.gguf"), llama(kData + "llama.gguf");
  std::mt19937 random(7);
  for (const Checkpoint* checkpoint : {&types, &llama}) {
    for (const TensorView* tensor : checkpoint->tensors()) {
      const std::vector<float> whole = tensor->to_f32();
      for (int i = 0; i < 20; ++i) {
        const auto begin = static_cast<int64_t>(random() % whole.size());
        const auto count = static_cast<int64_t>(random() % (whole.size() - begin + 1));
        std::vector<float> piece(count);
        tensor->read_f32(begin, count, piece.data());
        const std::vector<float> wanted(whole.begin() + begin, whole.begin() + begin + count);
        ASSERT_EQ(differences(piece, wanted), 0) << tensor->name << " " << begin << " " << count;
      }
    }
  }
}

TEST(GgufModel, GivesALlamaItsNamesAndRowOrder) {
  const SafetensorsFile expected(kData + "llama.safetensors");
  expect_equal_tensors(Checkpoint(kData + "llama.gguf"), expected);
}

TEST(GgufModel, JoinsPartsFromAnyOfThem) {
  const SafetensorsFile expected(kData + "llama.safetensors");
  for (const char* part : {"split-00001-of-00004.gguf", "split-00003-of-00004.gguf"}) {
    const Checkpoint checkpoint(kData + part);
    EXPECT_EQ(checkpoint.num_files(), 4u);
    expect_equal_tensors(checkpoint, expected);
    EXPECT_EQ(checkpoint.content_hash(), Checkpoint(kData + "llama.gguf").content_hash());
    EXPECT_EQ(read_model_file(kData + part, "config.json"),
              read_model_file(kData + "llama.gguf", "config.json"));
  }
}

TEST(GgufModel, NamesPartsThatAreMissingOrSwapped) {
  TemporaryDirectory directory;
  const auto copy = [&](const std::string& from, const std::string& to) {
    put(directory / to, read_file(kData + from));
  };
  copy("split-00001-of-00004.gguf", "alone.gguf");
  EXPECT_ERROR(Checkpoint(directory / "alone.gguf"), FormatError,
               HasSubstr("-00001-of-00004.gguf"));
  for (const char* part : {"1", "2", "3"}) {
    const std::string name = std::string("split-0000") + part + "-of-00004.gguf";
    copy(name, name);
  }
  EXPECT_ERROR(Checkpoint(directory / "split-00001-of-00004.gguf"), FormatError,
               HasSubstr("split-00004-of-00004.gguf: is missing"));
  copy("split-00003-of-00004.gguf", "split-00004-of-00004.gguf");
  EXPECT_ERROR(Checkpoint(directory / "split-00001-of-00004.gguf"), FormatError,
               HasSubstr("split.no is 2 of 4, its name says 3 of 4"));
}

TEST(GgufModel, GivesTheConfiguration) {
  const Json config = read_model_config(kData + "llama.gguf");
  const Json original =
      read_json_file(std::string(CURVQ_TEST_DATA) + "/models/llama_gqa_tied/config.json");
  for (const char* key :
       {"architectures", "model_type", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id",
        "head_dim", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
        "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps",
        "rope_scaling", "rope_theta", "tie_word_embeddings", "vocab_size"}) {
    EXPECT_EQ(config.at(key), original.at(key)) << key;
  }
}

TEST(GgufModel, GivesTheTokenizer) {
  const auto text = read_model_file(kData + "llama.gguf", "tokenizer.json");
  ASSERT_TRUE(text.has_value());
  const Tokenizer tokenizer = Tokenizer::from_json(*text, "llama.gguf");
  const Tokenizer original =
      Tokenizer::from_file(std::string(CURVQ_TEST_DATA) + "/models/stories260K/tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), original.vocab_size());
  for (const char* sample :
       {"Once upon a time, there was a little girl named Lily.",
        " two  spaces,\nlines\tand \xC3\xA9\xE2\x98\x83 bytes", "", "1 < 2 <s> x"}) {
    const std::vector<int32_t> ids = tokenizer.encode(sample, true);
    EXPECT_EQ(ids, original.encode(sample, true)) << sample;
    EXPECT_EQ(tokenizer.decode(ids, true), original.decode(ids, true)) << sample;
  }
}

// Whatever byte of the head is wrong, the file is refused or all that it tells can be read.
TEST(GgufModel, SurvivesDamage) {
  TemporaryDirectory directory;
  const std::string path = directory / "x.gguf";
  const std::string good = read_file(kData + "types.gguf");
  const size_t head = good.size() - 24000;
  std::mt19937 random(11);
  int refused = 0, accepted = 0;
  const auto attempt = [&](const std::string& content) {
    put(path, content);
    try {
      const Checkpoint checkpoint(path);
      for (const TensorView* tensor : checkpoint.tensors()) {
        if (is_floating_point(tensor->dtype)) tensor->to_f32();
      }
      read_model_file(path, "config.json");
      ++accepted;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("x.gguf"));
      ++refused;
    }
  };
  for (size_t at = 0; at < head; ++at) {
    for (const int value : {0, 0xff, static_cast<int>(random() % 256)}) {
      std::string content = good;
      content[at] = static_cast<char>(value);
      attempt(content);
    }
  }
  for (size_t size = 0; size < good.size(); size += size < head ? 1 : 997) {
    attempt(good.substr(0, size));
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace curvq

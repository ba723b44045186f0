// Tokenizer files and texts that are made to hurt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"
#include "curvq/io/tokenizer.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kData = std::string(CURVQ_TEST_DATA) + "/tokenizer/";

using Ids = std::vector<int32_t>;

Json base_file() { return read_json_file(kData + "characters.json"); }

Tokenizer from(const Json& file) { return Tokenizer::from_json(file.dump(), "t.json"); }

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr char kSplit[] =
    "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": ";

std::string split_json(const std::string& regex) { return kSplit + Json(regex).dump() + "}}"; }

TEST(Tokenizer, NamesPatternSyntaxThatIsNotHandled) {
  for (const std::string pattern :
       {"(a)\\1", "[a[bc]]", "[a&&b]", "[[:alpha:]]", "(?m)a",   "\\p{Alpha}", "\\G",
        "a(?i)b", "(?x) a",  "\\k<a>", "a{2}?",       "(?(1)a)", "(*FAIL)",    "\\C",
        "(",      ")",       "[",      "\\",          "a\\",     "\\x",        "\\xFF",
        "\\p",    "\\p{",    "(?<",    "{2}",         "*",       "(?<=a+)b",   "\\p{NoSuchScript}",
        "[\\W]",  "(?",      "\\u12"}) {
    Json file = base_file();
    file["pre_tokenizer"] = Json::parse(split_json(pattern));
    EXPECT_THROW(from(file), UnsupportedError) << pattern;
    EXPECT_THAT(error_of([&] { from(file); }), HasSubstr("pre_tokenizer")) << pattern;
  }
}

// Each of these takes more than linear time, memory or stack if it is done in the obvious way.
class TokenizerHostile : public ::testing::Test {
 protected:
  void TearDown() override {
    const double seconds = static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 60) << "of processor time; a hundred times what it takes";
  }

 private:
  std::clock_t begin_ = std::clock();
};

TEST_F(TokenizerHostile, OneWordOfAMegabyte) {
  const Json file = Json::parse(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2, "b": 3, "ab": 4},
          "merges": [["a", "a"], "aa aa", "a b"]}})");
  const Tokenizer tokenizer = from(file);
  const Ids ids = tokenizer.encode(std::string(1 << 20, 'a'), false);
  EXPECT_EQ(ids, Ids((1 << 20) / 4, 2));
  std::string alternating;
  for (int i = 0; i < 1 << 19; ++i) alternating += "ab";
  EXPECT_EQ(tokenizer.encode(alternating, false), Ids(1 << 19, 4));
}

TEST_F(TokenizerHostile, PatternThatBacktracksWithoutEnd) {
  Json file = base_file();
  file["pre_tokenizer"] = Json::parse(split_json("(?:a|aa)+$"));
  const Tokenizer tokenizer = from(file);
  EXPECT_THROW(tokenizer.encode(std::string(200, 'a') + "b", false), FormatError);
  EXPECT_THAT(error_of([&] { tokenizer.encode(std::string(200, 'a') + "b", false); }),
              AllOf(HasSubstr("pre_tokenizer"), HasSubstr("(?:a|aa)+$")));
  EXPECT_EQ(tokenizer.encode("ab", false).empty(), false);
}

TEST_F(TokenizerHostile, PatternThatNeedsADeepStack) {
  Json file = base_file();
  file["pre_tokenizer"] = Json::parse(split_json("(?:a|b)*c"));
  const Tokenizer tokenizer = from(file);
  EXPECT_FALSE(tokenizer.encode(std::string(100000, 'a') + "c", false).empty());
}

TEST_F(TokenizerHostile, ReplacementsThatExplode) {
  Json file = base_file();
  Json replace = Json::parse(R"({"type": "Replace", "pattern": {"String": "a"}})");
  replace["content"] = std::string(1000, 'a');
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {replace, replace, replace}}};
  EXPECT_THROW(from(file).encode(std::string(1000, 'a'), false), ResourceError);
}

TEST_F(TokenizerHostile, ManyByteLevelsGrowTheText) {
  Json file = base_file();
  const Json level = Json::parse(R"({"type": "ByteLevel", "use_regex": false})");
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  for (int i = 0; i < 40; ++i) file["pre_tokenizer"]["pretokenizers"].push_back(level);
  EXPECT_THROW(from(file).encode(std::string(1000, '\n'), false), ResourceError);
  for (int i = 0; i < 40; ++i) file["pre_tokenizer"]["pretokenizers"].push_back(level);
  EXPECT_THROW(from(file), UnsupportedError);
}

TEST_F(TokenizerHostile, MillionCombiningMarks) {
  Json file = base_file();
  file["normalizer"] = {{"type", "NFC"}};
  std::string text = "a";
  for (int i = 0; i < 1 << 18; ++i) text += "\u0301\u0323";  // in the wrong order
  EXPECT_FALSE(from(file).encode(text, false).empty());
}

TEST_F(TokenizerHostile, SpacesThatAddedTokensStrip) {
  Json file = base_file();
  file["added_tokens"] = Json::parse(
      R"([{"id": 0, "content": " ", "lstrip": true, "rstrip": true, "normalized": false}])");
  file["model"]["vocab"].erase("<unk>");
  file["model"]["vocab"].erase(" ");
  file["model"]["vocab"][" "] = 0;
  file["model"]["merges"] = Json::array();
  EXPECT_EQ(from(file).encode(std::string(1 << 18, ' '), false),
            Ids{0});  // the first took them all
}

TEST_F(TokenizerHostile, AddedTokensThatAlmostMatchEverywhere) {
  Json file = base_file();
  const std::string token(1000, 'a');
  const int next = static_cast<int>(file["model"]["vocab"].size());
  file["added_tokens"] = {{{"id", next}, {"content", token}, {"special", true}}};
  const Tokenizer tokenizer = from(file);
  EXPECT_FALSE(tokenizer.encode(std::string(999, 'a') + "b", false).empty());
  EXPECT_EQ(tokenizer.encode(token, false), Ids{next});
  file["added_tokens"][0]["content"] = std::string(2000, 'a');
  EXPECT_THROW(from(file), UnsupportedError);
}

TEST_F(TokenizerHostile, WordPiecesThatAlmostMatchEverywhere) {
  Json file = Json::parse(R"({"model": {"type": "WordPiece", "unk_token": "a",
                              "max_input_chars_per_word": 1000000000}})");
  const std::string almost = "##" + std::string(1000, 'a') + "b";
  file["model"]["vocab"] = {{"a", 0}, {"##a", 1}, {almost, 2}};
  EXPECT_EQ(from(file).encode(std::string(1 << 16, 'a'), false).size(), 1u << 16);
  file["model"]["vocab"][std::string(2000, 'a')] = 3;
  EXPECT_THROW(from(file), UnsupportedError);
}

TEST_F(TokenizerHostile, WordPiecesFullOfWhatIsCleanedUp) {
  std::string token;
  for (int i = 0; i < 250; ++i) token += " do not";
  Json file = Json::parse(R"({"model": {"type": "BPE", "vocab": {}, "merges": []},
                              "decoder": {"type": "WordPiece"}})");
  for (int i = 0; i < 1000; ++i) file["model"]["vocab"][token + std::to_string(i)] = i;
  std::vector<int32_t> ids(2000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 1000);
  EXPECT_EQ(from(file).decode({0}, false).substr(0, 12), " don't don't");
  EXPECT_FALSE(from(file).decode(ids, false).empty());
}

TEST_F(TokenizerHostile, TemplateThatRepeatsTheText) {
  Json file = base_file();
  const Json text = Json::parse(R"({"Sequence": {"id": "A", "type_id": 0}})");
  file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {text, text}}};
  EXPECT_THROW(from(file), UnsupportedError);
}

TEST_F(TokenizerHostile, AnyTruncationOrFlippedByteIsAnErrorOrATokenizer) {
  const std::string content = read_file(kData + "gpt4.json");
  uint32_t state = 1;
  int truncations = 0, errors_of_truncations = 0;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525u + 1013904223u;
    std::string damaged = content;
    truncations += i % 2 == 0;
    if (i % 2 == 0) {
      damaged.resize(state % content.size());
    } else {
      damaged[state % content.size()] = static_cast<char>(state >> 24);
    }
    try {
      Tokenizer::from_json(damaged, "t.json").encode("a text, 123\n", true);
    } catch (const Error&) {
      errors_of_truncations += i % 2 == 0;
    }
  }
  EXPECT_EQ(errors_of_truncations, truncations);
}

}  // namespace
}  // namespace curvq

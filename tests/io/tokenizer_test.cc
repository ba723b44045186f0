#include "curvq/io/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kData = std::string(CURVQ_TEST_DATA) + "/tokenizer/";

using Ids = std::vector<int32_t>;

Ids ids_of(const Json& value) { return value.get<Ids>(); }

// What make_tokenizer_golden.py recorded for one text.
void expect_golden(const Tokenizer& tokenizer, const std::string& text, const Json& golden) {
  const Ids plain = ids_of(golden["ids"]);
  Ids special = ids_of(golden["before"]);
  special.insert(special.end(), plain.begin(), plain.end());
  for (const int32_t id : ids_of(golden["after"])) special.push_back(id);
  EXPECT_EQ(tokenizer.encode(text, false), plain);
  EXPECT_EQ(tokenizer.encode(text, true), special);
  EXPECT_EQ(tokenizer.decode(special, false), golden["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(special, true), golden["skipped"].get<std::string>());
}

class TokenizerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerGolden, EqualsTokenizersPackage) {
  const Json golden = read_json_file(kData + "golden.json")[GetParam()];
  const auto lines = read_json_file(kData + "text.json").get<std::vector<std::string>>();
  const Tokenizer tokenizer = Tokenizer::from_file(kData + GetParam() + ".json");
  ASSERT_GE(lines.size(), 200u);
  ASSERT_EQ(golden["lines"].size(), lines.size());
  std::string whole;
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i) + ": " + lines[i]);
    expect_golden(tokenizer, lines[i], golden["lines"][i]);
    whole += (i == 0 ? "" : "\n") + lines[i];
  }
  expect_golden(tokenizer, whole, golden["whole"]);
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGolden,
                         ::testing::Values("stories260K", "bytelevel", "gpt4", "metaspace",
                                           "wordpiece"));

Json base_file() { return read_json_file(kData + "characters.json"); }

Tokenizer from(const Json& file) { return Tokenizer::from_json(file.dump(), "t.json"); }

TEST(Tokenizer, ComponentsEqualTokenizersPackage) {
  const Json file = read_json_file(kData + "variants.json");
  const auto text = file["text"].get<std::vector<std::string>>();
  ASSERT_GE(file["variants"].size(), 70u);
  for (const Json& variant : file["variants"]) {
    Json patched = base_file();
    std::string name;
    for (const auto& [key, value] : variant.items()) {
      if (key == "ids" || key == "decoded") continue;
      name += key + " " + value.dump() + " ";
      if (key == "model") {
        patched[key].update(value);
      } else {
        patched[key] = value;
      }
    }
    const Tokenizer tokenizer = from(patched);
    for (size_t i = 0; i < text.size(); ++i) {
      SCOPED_TRACE(name + text[i]);
      const Ids ids = tokenizer.encode(text[i], true);
      if (variant.contains("decoded")) {
        EXPECT_EQ(tokenizer.decode(ids, true), variant["decoded"][i].get<std::string>());
      } else {
        EXPECT_EQ(ids, ids_of(variant["ids"][i]));
      }
    }
  }
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = Tokenizer::from_file(kData + "metaspace.json");
  const Json file = read_json_file(kData + "metaspace.json");
  const int32_t mask = tokenizer.token_id("[MASK]");
  int64_t largest = mask;
  for (const auto& entry : file["model"]["vocab"]) largest = std::max<int64_t>(largest, entry);
  for (const auto& entry : file["added_tokens"]) largest = std::max<int64_t>(largest, entry["id"]);
  EXPECT_EQ(tokenizer.token_id("<unk>"), 0);
  EXPECT_EQ(tokenizer.token_id("no such token"), -1);
  EXPECT_EQ(tokenizer.token_id(""), -1);
  EXPECT_EQ(tokenizer.vocab_size(), largest + 1);
  EXPECT_EQ(tokenizer.encode("[MASK]", false), Ids{mask});
  EXPECT_EQ(tokenizer.decode({1, mask, 2}, true), "");
  EXPECT_EQ(tokenizer.decode({}, true), "");
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
  EXPECT_EQ(tokenizer.encode("", true), (Ids{1, 2}));
}

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, RefusesIdsThatAreNotInTheVocabulary) {
  const Tokenizer tokenizer = Tokenizer::from_file(kData + "stories260K.json");
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_THROW(tokenizer.decode({512}, false), UsageError);
  EXPECT_THROW(tokenizer.decode({-1}, false), UsageError);
  EXPECT_THAT(error_of([&] {
                tokenizer.decode({1, 99999}, false);
              }),
              AllOf(HasSubstr("99999"), HasSubstr("512")));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = Tokenizer::from_file(kData + "stories260K.json");
  for (const std::string bad :
       {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5", "\xC3"}) {
    EXPECT_THROW(tokenizer.encode("abc" + bad, false), FormatError);
    EXPECT_THAT(error_of([&] { tokenizer.encode("abc" + bad, false); }), HasSubstr("at byte 3 of"));
  }
}

TEST(Tokenizer, ReplacesBytesThatAreNotUtf8WhenDecoding) {
  const Tokenizer stories = Tokenizer::from_file(kData + "stories260K.json");
  const int32_t a = stories.token_id("<0xE4>"), b = stories.token_id("<0xBD>");
  const int32_t c = stories.token_id("<0xA0>");
  EXPECT_EQ(stories.decode({a, b, c}, false), "\u4F60");
  EXPECT_EQ(stories.decode({a, b}, false), "\uFFFD\uFFFD");  // one for each byte
  const Tokenizer level = Tokenizer::from_file(kData + "bytelevel.json");
  const auto symbol = [&](const char* text) { return level.token_id(text); };
  EXPECT_EQ(level.decode({symbol("\u00E4"), symbol("\u00BD")}, false),
            "\uFFFD");  // E4 BD cut short
  EXPECT_EQ(level.decode({symbol("\u00BD"), symbol("x")}, false), "\uFFFDx");
}

TEST(Tokenizer, MissingFileIsAResourceError) {
  EXPECT_THROW(Tokenizer::from_file(kData + "no_such_file.json"), ResourceError);
}

struct BadFile {
  const char* pointer;      // where in characters.json
  const char* replacement;  // JSON
  const char* message;
};

void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.pointer << " " << bad.replacement;
}

class TokenizerDamaged : public ::testing::TestWithParam<BadFile> {};

TEST_P(TokenizerDamaged, IsAFormatErrorThatNamesTheField) {
  Json file = base_file();
  file[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().replacement);
  EXPECT_THROW(from(file), FormatError);
  EXPECT_THAT(error_of([&] { from(file); }),
              AllOf(HasSubstr("t.json"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, TokenizerDamaged,
    ::testing::Values(
        BadFile{"/model", "null", "model"}, BadFile{"/model/vocab", "[]", "model.vocab"},
        BadFile{"/model/vocab", "{\"a\": 1, \"b\": 1}", "same id 1"},
        BadFile{"/model/vocab/a", "-1", "-1"}, BadFile{"/model/vocab/a", "16777216", "16777216"},
        BadFile{"/model/vocab/a", "1.5", "\"a\""}, BadFile{"/model/vocab/a", "\"1\"", "\"a\""},
        BadFile{"/model/vocab/a", "1e300", "\"a\""}, BadFile{"/model/merges", "{}", "model.merges"},
        BadFile{"/model/merges/0", "[\"qqq\", \"a\"]", "model.merges[0]: \"qqq\""},
        BadFile{"/model/merges/0", "[\"z\", \"%\"]", "\"z%\" is not in the vocabulary"},
        BadFile{"/model/merges/0", "[\"a\"]", "model.merges[0]"},
        BadFile{"/model/merges/0", "\"a b c\"", "model.merges[0]"},
        BadFile{"/model/merges/0", "7", "model.merges[0]"},
        BadFile{"/model/byte_fallback", "1", "byte_fallback"},
        BadFile{"/model/unk_token", "[]", "unk_token"},
        BadFile{"/added_tokens", "{}", "added_tokens"},
        BadFile{"/added_tokens", "[{\"id\": 0}]", "added_tokens[0]: \"content\""},
        BadFile{"/added_tokens", "[{\"id\": 0, \"content\": \"\"}]", "content"},
        BadFile{"/added_tokens", "[{\"id\": 9, \"content\": \"<unk>\"}]", "added_tokens[0]"},
        BadFile{"/added_tokens", "[{\"id\": 9999, \"content\": \"<new>\"}]", "9999"},
        BadFile{"/added_tokens",
                "[{\"id\": 0, \"content\": \"<unk>\"}, {\"id\": 0, \"content\": \"<unk>\"}]",
                "occurs twice"},
        BadFile{"/normalizer", "{\"type\": 3}", "normalizer"},
        BadFile{"/normalizer", "{\"type\": \"Prepend\"}", "normalizer: \"prepend\""},
        BadFile{"/normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{}]}",
                "normalizer.normalizers[0]"},
        BadFile{"/normalizer", "{\"type\": \"Replace\", \"pattern\": 1, \"content\": \"\"}",
                "pattern"},
        BadFile{"/pre_tokenizer", "{\"type\": \"Punctuation\", \"behavior\": \"Odd\"}", "Odd"},
        BadFile{"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}",
                "replacement"},
        BadFile{"/pre_tokenizer",
                "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"x\"}",
                "prepend_scheme"},
        BadFile{"/pre_tokenizer", "{\"type\": \"Digits\", \"individual_digits\": 3}",
                "individual_digits"},
        BadFile{"/decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}",
                "start"},
        BadFile{"/decoder", "[]", "decoder"},
        BadFile{"/post_processor", "{\"type\": \"TemplateProcessing\"}",
                "post_processor: \"single\""},
        BadFile{
            "/post_processor",
            "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"s\"}}]}",
            "special_tokens"},
        BadFile{
            "/post_processor",
            "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"s\": {\"ids\": [99999]}},"
            " \"single\": [{\"SpecialToken\": {\"id\": \"s\"}}, {\"Sequence\": {\"id\": \"A\"}}]}",
            "99999"}));

class TokenizerUnsupported : public ::testing::TestWithParam<BadFile> {};

TEST_P(TokenizerUnsupported, NamesTheComponentAndWhatIsHandled) {
  Json file = base_file();
  file[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().replacement);
  EXPECT_THROW(from(file), UnsupportedError);
  EXPECT_THAT(error_of([&] { from(file); }),
              AllOf(HasSubstr("t.json"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Components, TokenizerUnsupported,
    ::testing::Values(
        BadFile{"/model/type", "\"Unigram\"", "Unigram is not handled; handled are BPE"},
        BadFile{"/model/dropout", "0.1", "dropout"},
        BadFile{"/model/continuing_subword_prefix", "\"##\"", "##"},
        BadFile{"/model/end_of_word_suffix", "\"</w>\"", "</w>"},
        BadFile{"/version", "\"2.0\"", "version 2.0"},
        BadFile{"/normalizer", "{\"type\": \"Nmt\"}", "Nmt is not handled; handled are"},
        BadFile{"/pre_tokenizer", "{\"type\": \"UnicodeScripts\"}", "UnicodeScripts"},
        BadFile{"/post_processor", "{\"type\": \"BertProcessing\"}", "BertProcessing"},
        BadFile{"/decoder", "{\"type\": \"CTC\"}", "CTC"}));

TEST(Tokenizer, UnknownTokenOutsideTheVocabularyIsAnErrorOnlyWhenNeeded) {
  const Tokenizer tokenizer = from(Json::parse(
      R"({"model": {"type": "BPE", "unk_token": "<u>", "vocab": {"a": 0}, "merges": []}})"));
  EXPECT_EQ(tokenizer.encode("aa", false), (Ids{0, 0}));
  EXPECT_THROW(tokenizer.encode("ab", false), FormatError);
}

TEST(Tokenizer, SuperscriptsAndFractionsOfLatin1AreWordCharactersInPatternsOnly) {
  Json file = base_file();
  file["pre_tokenizer"] =
      Json::parse(R"({"type": "Split", "behavior": "Removed", "pattern": {"Regex": "\\w+"}})");
  EXPECT_EQ(from(file).encode("a\u00B2\u00B3\u00B9\u00BC\u00BD\u00BEz", false), Ids{});
  EXPECT_EQ(from(file).encode("\u2074\u2155", false).empty(), false);
  file["pre_tokenizer"] = {{"type", "Whitespace"}};
  file["model"]["ignore_merges"] = true;
  const int32_t pair = static_cast<int32_t>(file["model"]["vocab"].size());
  file["model"]["vocab"]["a\u00B2"] = pair;
  EXPECT_NE(from(file).encode("a\u00B2", false), Ids{pair});
}

Json word_piece_file() {
  return Json::parse(
      R"({"model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 5, "vocab":
          {"?": 0, "a": 1, "ab": 2, "##c": 3, "##cc": 4, "ä": 5, "##ä": 6}}})");
}

TEST(Tokenizer, WordPieceTakesTheLongestTokenOrNone) {
  const Tokenizer tokenizer = from(word_piece_file());
  EXPECT_EQ(tokenizer.encode("abccc", false), (Ids{2, 4, 3}));
  EXPECT_EQ(tokenizer.encode("abcccc", false), Ids{0});               // six characters
  EXPECT_EQ(tokenizer.encode("äääää", false), (Ids{5, 6, 6, 6, 6}));  // ten bytes
  EXPECT_EQ(tokenizer.encode("abcx", false), Ids{0});                 // all of the word
  EXPECT_EQ(tokenizer.encode("##c", false), (Ids{3}));                // a token as it stands
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
}

TEST(Tokenizer, EveryCharacterIsWhatItIsToBert) {
  const Json golden = read_json_file(kData + "bert_characters.json");
  const Tokenizer tokenizer = from(golden[0]);
  const Json& ranges = golden[1];
  ASSERT_GT(ranges.size(), 500u);
  size_t next = 0;
  Ids expected;
  for (uint32_t c = 1; c < 0xE0200; ++c) {
    if (c == 0xD800) c = 0xE000;
    if (c == 0x30000) c = 0xE0000;
    if (next < ranges.size() && ranges[next][0] == c) expected = ids_of(ranges[next++][1]);
    std::string text = "a";
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      for (const uint32_t byte : {0xC0 | c >> 6, 0x80 | (c & 0x3F)})
        text += static_cast<char>(byte);
    } else if (c < 0x10000) {
      for (const uint32_t byte : {0xE0 | c >> 12, 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F)})
        text += static_cast<char>(byte);
    } else {
      for (const uint32_t byte :
           {0xF0 | c >> 18, 0x80 | (c >> 12 & 0x3F), 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F)})
        text += static_cast<char>(byte);
    }
    EXPECT_EQ(tokenizer.encode(text + "b", false), expected) << "U+" << std::hex << c;
  }
  EXPECT_EQ(next, ranges.size());
}

TEST(Tokenizer, WordPieceNamesTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> kBad[] = {
      {"/model/max_input_chars_per_word", "-1"},
      {"/model/continuing_subword_prefix", "3"},
      {"/model/vocab", "[]"},
      {"/model/vocab/a", "2"},
      {"/model/unk_token", "{}"},
      {"/normalizer", R"({"type": "BertNormalizer", "lowercase": 1})"},
      {"/decoder", R"({"type": "WordPiece", "cleanup": "no"})"}};
  for (const auto& [pointer, replacement] : kBad) {
    Json file = word_piece_file();
    file[Json::json_pointer(pointer)] = Json::parse(replacement);
    EXPECT_THROW(from(file), FormatError) << pointer;
    EXPECT_THAT(error_of([&] { from(file); }), HasSubstr("t.json")) << pointer;
  }
  Json file = word_piece_file();
  file["model"]["unk_token"] = "[UNK]";
  EXPECT_EQ(from(file).encode("ab", false), Ids{2});
  EXPECT_THROW(from(file).encode("x", false), FormatError);
}

// Parts of a long word are encoded by themselves where no merge can join them.
TEST(Tokenizer, LongWordsEqualTheirShortParts) {
  const Tokenizer tokenizer = Tokenizer::from_file(kData + "stories260K.json");
  const Ids part = tokenizer.encode("Once there was a dog", false);
  std::string text = "Once there was a dog";
  Ids expected = part;
  for (int i = 0; i < 50; ++i) {
    text += " Once there was a dog";
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(tokenizer.encode(text, false), expected);
}

TEST(Tokenizer, ServesSeveralThreads) {
  const Tokenizer tokenizer = Tokenizer::from_file(kData + "gpt4.json");
  const auto lines = read_json_file(kData + "text.json").get<std::vector<std::string>>();
  std::vector<Ids> expected;
  for (const std::string& line : lines) expected.push_back(tokenizer.encode(line, true));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < lines.size(); ++i) {
        const size_t k = (i * 7 + t * 31) % lines.size();
        if (tokenizer.encode(lines[k], true) != expected[k]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace curvq

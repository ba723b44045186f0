#include "curvq/io/token_windows.h"

#include <cstring>

#include "curvq/io/safetensors.h"
#include "curvq/io/tokenizer.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

template <typename Id>
std::string put_ids(const std::string& path, const std::string& name,
                    const std::vector<int64_t>& shape, const std::vector<Id>& ids) {
  SafetensorsWriter writer(path, {{name, sizeof(Id) == 8 ? DType::kI64 : DType::kI32, shape}});
  writer.write(name, ids.data(), static_cast<int64_t>(ids.size() * sizeof(Id)));
  writer.finish();
  return path;
}

TokenWindows load(const std::string& source, const TokenWindowsOptions& options = {}) {
  return load_token_windows(source, nullptr, options);
}

TEST(TokenIds, RowsAreWindows) {
  TemporaryDirectory directory;
  const std::string path = put_ids<int64_t>(directory / "d.safetensors", "input_ids", {2, 3},
                                            {1, 2, 3, 4, 5, 2147483646});
  const TokenWindows windows = load(path);
  EXPECT_EQ(windows.num_windows, 2);
  EXPECT_EQ(windows.length, 3);
  EXPECT_THAT(windows.ids, ElementsAre(1, 2, 3, 4, 5, 2147483646));
  EXPECT_EQ(windows.window(1)[0], 4);
  EXPECT_EQ(windows.origin, path + ":input_ids");
}

TEST(TokenIds, AnyTensorCanBeNamed) {
  TemporaryDirectory directory;
  const std::string path =
      put_ids<int32_t>(directory / "d.safetensors", "calib:x", {4}, {1, 2, 3, 4});
  const TokenWindows windows = load(path + ":calib:x");
  EXPECT_EQ(windows.num_windows, 1);  // a vector is one window
  EXPECT_THAT(windows.ids, ElementsAre(1, 2, 3, 4));
  EXPECT_ERROR(load(path), FormatError,
               AllOf(HasSubstr("has no tensor input_ids"), HasSubstr("calib:x")));
  EXPECT_ERROR(load(path + ":y"), FormatError, HasSubstr("has no tensor y"));
  EXPECT_ERROR(load(path + ":"), UsageError, HasSubstr("names no tensor"));
}

TEST(TokenIds, HashIsThatOfTheIds) {
  TemporaryDirectory directory;
  const auto wide = put_ids<int64_t>(directory / "a.safetensors", "input_ids", {1, 2}, {7, 8});
  const auto narrow = put_ids<int32_t>(directory / "b.safetensors", "input_ids", {1, 2}, {7, 8});
  const auto other = put_ids<int32_t>(directory / "c.safetensors", "input_ids", {1, 2}, {7, 9});
  EXPECT_EQ(load(wide).hash, load(narrow).hash);
  EXPECT_NE(load(wide).hash, load(other).hash);
  EXPECT_EQ(load(wide).hash.size(), 16u);
}

TEST(TokenIds, SamplesAndLengthAreCutFromTheFront) {
  TemporaryDirectory directory;
  const auto path =
      put_ids<int32_t>(directory / "d.safetensors", "input_ids", {3, 2}, {1, 2, 3, 4, 5, -9});
  EXPECT_THAT(load(path, {2, 0, 0}).ids, ElementsAre(1, 2, 3, 4));
  const TokenWindows cut = load(path, {0, 1, 6});  // the -9 is not used
  EXPECT_EQ(cut.length, 1);
  EXPECT_THAT(cut.ids, ElementsAre(1, 3, 5));
  EXPECT_THAT(load(path, {2, 100, 0}).ids, ElementsAre(1, 2, 3, 4));
  EXPECT_ERROR(load(path, {4, 1, 0}), UsageError,
               AllOf(HasSubstr("has 3 windows of 1 tokens"), HasSubstr("4 samples")));
}

TEST(TokenIds, IdsMustBeInTheVocabulary) {
  TemporaryDirectory directory;
  const auto path = put_ids<int64_t>(directory / "d.safetensors", "input_ids", {2, 2},
                                     {1, 99, 3, int64_t{1} << 40});
  EXPECT_ERROR(load(path, {1, 0, 99}), FormatError,
               AllOf(HasSubstr("input_ids: row 0 column 1 holds id 99"),
                     HasSubstr("from 0 to 98 (vocab_size - 1)")));
  EXPECT_THAT(load(path, {1, 0, 100}).ids, ElementsAre(1, 99));
  EXPECT_ERROR(load(path), FormatError, HasSubstr("row 1 column 1 holds id 1099511627776"));
  const auto negative = put_ids<int32_t>(directory / "n.safetensors", "input_ids", {2}, {0, -1});
  EXPECT_ERROR(load(negative), FormatError, HasSubstr("row 0 column 1 holds id -1"));
}

TEST(TokenIds, WrongKindsOfTensorsAreNamed) {
  TemporaryDirectory directory;
  const std::string path = directory / "d.safetensors";
  put_ids<int32_t>(path, "input_ids", {1, 1, 2}, {1, 2});
  EXPECT_ERROR(load(path), FormatError, HasSubstr("input_ids is I32 [1, 1, 2]"));
  put_ids<int32_t>(path, "input_ids", {}, {1});
  EXPECT_ERROR(load(path), FormatError, HasSubstr("is I32 []"));
  put_ids<int32_t>(path, "input_ids", {0, 8}, {});
  EXPECT_ERROR(load(path), FormatError, HasSubstr("no windows, its shape is [0, 8]"));
  put_ids<int32_t>(path, "input_ids", {8, 0}, {});
  EXPECT_ERROR(load(path), FormatError, HasSubstr("no windows"));
  {
    SafetensorsWriter writer(path, {{"input_ids", DType::kF32, {1}}});
    writer.write("input_ids", "abcd", 4);
    writer.finish();
  }
  EXPECT_ERROR(load(path), FormatError, HasSubstr("is F32 [1]"));
  SafetensorsWriter(path, {}).finish();
  EXPECT_ERROR(load(path), FormatError, HasSubstr("it has none at all"));
}

TEST(TokenWindowsUsage, SourcesAndOptionsAreChecked) {
  TemporaryDirectory directory;
  for (const char* name : {"x.txt", "x.jsonl", "x.safetensors", "x.safetensors:y"}) {
    EXPECT_ERROR(load(directory / name), UsageError, HasSubstr("does not exist"));
  }
  for (const char* name : {"x.json", "x", "", "x.txt:y", "x.TXT"}) {
    EXPECT_ERROR(load(name), UsageError, HasSubstr("FILE.safetensors[:NAME]"));
  }
  EXPECT_ERROR(load("x.txt", {-1, 0, 0}), UsageError, HasSubstr("num_samples -1"));
  put(directory / "x.txt", "abc");
  EXPECT_ERROR(load(directory / "x.txt", {0, 2, 0}), UsageError, HasSubstr("needs a tokenizer"));
  put(directory / "x.jsonl", "{}");
  EXPECT_ERROR(load(directory / "x.jsonl", {0, 2, 0}), UsageError, HasSubstr("needs a tokenizer"));
}

// One token a letter: a is 0, b is 1, ...
class TextWindows : public ::testing::Test {
 protected:
  TextWindows()
      : tokenizer_(Tokenizer::from_json(
            R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3,"e":4},"merges":[]}})",
            "t")) {}
  TokenWindows load_text(const std::string& name, const std::string& content,
                         const TokenWindowsOptions& options) {
    put(directory_ / name, content);
    return load_token_windows(directory_ / name, &tokenizer_, options);
  }
  TemporaryDirectory directory_;
  Tokenizer tokenizer_;
};

TEST_F(TextWindows, TextIsCutIntoConsecutiveWindows) {
  const TokenWindows windows = load_text("x.txt", "abcdeab", {0, 3, 5});
  EXPECT_EQ(windows.num_windows, 2);
  EXPECT_EQ(windows.length, 3);
  EXPECT_THAT(windows.ids, ElementsAre(0, 1, 2, 3, 4, 0));  // the rest "b" is dropped
  EXPECT_EQ(windows.origin, directory_ / "x.txt");
  EXPECT_THAT(load_text("x.txt", "abcdeab", {1, 3, 0}).ids, ElementsAre(0, 1, 2));
}

TEST_F(TextWindows, RecordsAreJoinedInOrder) {
  const std::string lines =
      "{\"text\":\"ab\"}\r\n\n  \n{\"id\":1,\"text\":\"c\"}\n{\"text\":\"\"}\n{\"text\":\"de\"}";
  const TokenWindows windows = load_text("x.jsonl", lines, {0, 2, 0});
  EXPECT_THAT(windows.ids, ElementsAre(0, 1, 2, 3));
}

TEST_F(TextWindows, RecordsAreReadAsFarAsNeeded) {
  EXPECT_THAT(load_text("x.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cd\"}\nnot read", {2, 2, 0}).ids,
              ElementsAre(0, 1, 2, 3));
}

TEST_F(TextWindows, DamagedRecordsNameTheirLine) {
  for (const char* line : {"{\"text\":1}", "{}", "[\"text\"]", "\"text\""}) {
    EXPECT_ERROR(load_text("x.jsonl", std::string("{\"text\":\"ab\"}\n\n") + line, {0, 2, 0}),
                 FormatError, AllOf(HasSubstr("x.jsonl line 3"), HasSubstr("string \"text\"")));
  }
  EXPECT_ERROR(load_text("x.jsonl", "{\"text\":\"a}", {0, 1, 0}), FormatError,
               HasSubstr("x.jsonl line 1"));
}

TEST_F(TextWindows, TextMustBeUtf8) {
  EXPECT_ERROR(load_text("x.txt", "ab\xE9z", {0, 1, 0}), FormatError,
               AllOf(HasSubstr("x.txt: is not UTF-8 at byte 2"), HasSubstr("0xe9")));
  EXPECT_ERROR(load_text("x.jsonl", "{\"text\":\"\xE9\"}", {0, 1, 0}), FormatError,
               HasSubstr("line 1"));
}

TEST_F(TextWindows, ShortTextNamesBothLengths) {
  EXPECT_ERROR(load_text("x.txt", "abcd", {0, 5, 0}), FormatError,
               AllOf(HasSubstr("has 4 tokens"), HasSubstr("needs 5")));
  EXPECT_ERROR(load_text("x.txt", "", {0, 5, 0}), FormatError, HasSubstr("has 0 tokens"));
  EXPECT_ERROR(load_text("x.jsonl", "\n", {0, 5, 0}), FormatError, HasSubstr("has 0 tokens"));
  EXPECT_ERROR(load_text("x.txt", "abcd", {3, 2, 0}), UsageError,
               HasSubstr("has 2 windows of 2 tokens"));
}

TEST_F(TextWindows, LengthAndVocabularyAreChecked) {
  EXPECT_ERROR(load_text("x.txt", "abcd", {0, 0, 0}), UsageError, HasSubstr("max_length"));
  EXPECT_ERROR(load_text("x.txt", "abcd", {INT64_MAX, 2, 0}), UsageError, HasSubstr("too many"));
  EXPECT_ERROR(load_text("x.txt", "abcd", {0, 2, 3}), FormatError,
               HasSubstr("row 1 column 1 holds id 3"));
}

}  // namespace
}  // namespace curvq

#include "curvq/io/sentences.h"

#include "curvq/io/token_windows.h"
#include "curvq/io/tokenizer.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

Tokenizer tokenizer() {
  return Tokenizer::from_file(std::string(CURVQ_TEST_DATA) + "/tokenizer/wordpiece.json");
}

TEST(Sentences, AreLinesOrRecordsWithSpecialTokens) {
  TemporaryDirectory directory;
  const Tokenizer t = tokenizer();
  const std::string text = directory / "s.txt", records = directory / "s.jsonl";
  put(text, "the harbour\r\n\n   \nnobody yet\nno line feed");
  put(records, "{\"text\": \"the harbour\\r\"}\n\n{\"text\": \"nobody yet\", \"id\": 3}\n");
  const Sentences lines = load_sentences(text, t, {.max_length = 40});
  ASSERT_EQ(lines.ids.size(), 3u);
  EXPECT_EQ(lines.ids[0], t.encode("the harbour", true));
  EXPECT_EQ(lines.ids[0].front(), t.token_id("[CLS]"));
  EXPECT_EQ(lines.ids[0].back(), t.token_id("[SEP]"));
  EXPECT_EQ(lines.ids[2], t.encode("no line feed", true));
  EXPECT_EQ(lines.tokens,
            static_cast<int64_t>(lines.ids[0].size() + lines.ids[1].size() + lines.ids[2].size()));
  EXPECT_EQ(lines.cut, 0);
  const Sentences two = load_sentences(text, t, {.num_sentences = 2, .max_length = 40});
  const Sentences of_records = load_sentences(records, t, {.max_length = 40});
  EXPECT_EQ(two.ids, of_records.ids);
  EXPECT_EQ(two.hash, of_records.hash);
  EXPECT_NE(two.hash, lines.hash);
}

TEST(Sentences, LoseTheirEndNotTheirSpecialTokens) {
  TemporaryDirectory directory;
  const std::string path = directory / "s.txt";
  put(path, "a b c d e\na b\n");
  const Tokenizer t = tokenizer();
  const Sentences sentences = load_sentences(path, t, {.max_length = 5});
  EXPECT_EQ(sentences.cut, 1);
  EXPECT_EQ(sentences.ids[0], t.encode("a b c", true));
  EXPECT_EQ(sentences.ids[1], t.encode("a b", true));
}

TEST(Sentences, NameWhatIsWrong) {
  TemporaryDirectory directory;
  const Tokenizer t = tokenizer();
  const std::string path = directory / "s.txt", records = directory / "s.jsonl";
  const auto load = [&](const std::string& source, SentenceOptions options = {.max_length = 9}) {
    return load_sentences(source, t, options);
  };
  EXPECT_ERROR(load(directory / "none.txt"), UsageError, HasSubstr("does not exist"));
  EXPECT_ERROR(load(directory / "ids.safetensors"), UsageError, HasSubstr("FILE.txt"));
  put(path, " \n\n");
  EXPECT_ERROR(load(path), FormatError, HasSubstr("no sentences"));
  put(path,
      "good\nb\xFF"
      "d\n");
  EXPECT_ERROR(load(path), FormatError, AllOf(HasSubstr("line 2"), HasSubstr("0xff")));
  put(path, "one\ntwo\n");
  EXPECT_ERROR(load(path, {.num_sentences = 3, .max_length = 9}), UsageError,
               AllOf(HasSubstr("2 sentences"), HasSubstr("3 samples")));
  EXPECT_ERROR(load(path, {.max_length = 2}), UsageError, HasSubstr("2 special tokens"));
  EXPECT_ERROR(load(path, {.max_length = 9, .vocab_size = 3}), FormatError,
               AllOf(HasSubstr("line 1"), HasSubstr("vocabulary has 3")));
  put(records, "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n");
  EXPECT_ERROR(load(records), FormatError, AllOf(HasSubstr("line 2"), HasSubstr("\"text\"")));
}

TEST(TokenWindowsOfEncoders, HoldTheSpecialTokens) {
  TemporaryDirectory directory;
  const std::string path = directory / "s.txt";
  put(path, "a b c d e f g h");
  const Tokenizer t = tokenizer();
  TokenWindowsOptions options;
  options.max_length = 5;
  options.special_tokens = true;
  const TokenWindows windows = load_token_windows(path, &t, options);
  EXPECT_EQ(windows.num_windows, 2);
  EXPECT_EQ(windows.length, 5);
  std::vector<int32_t> expected = t.encode("a b c", true);
  for (const int32_t id : t.encode("d e f", true)) expected.push_back(id);
  EXPECT_EQ(windows.ids, expected);
  options.max_length = 2;
  EXPECT_ERROR(load_token_windows(path, &t, options), UsageError, HasSubstr("2 special tokens"));
}

}  // namespace
}  // namespace curvq

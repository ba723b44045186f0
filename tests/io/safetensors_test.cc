#include "curvq/io/safetensors.h"

#include <sys/stat.h>

#include <cstring>
#include <numeric>
#include <random>

#include "curvq/core/log.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::put;
using testing::safetensors_bytes;
using testing::TemporaryDirectory;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  std::string file(const std::string& header, size_t data_bytes) {
    const std::string path = directory_ / "f.safetensors";
    put(path, safetensors_bytes(header, std::string(data_bytes, 'x')));
    return path;
  }
  void expect_rejected(const std::string& header, size_t data_bytes, const std::string& text) {
    EXPECT_ERROR(SafetensorsFile(file(header, data_bytes)), FormatError,
                 AllOf(HasSubstr(directory_ / "f.safetensors"), HasSubstr(text)));
  }
  TemporaryDirectory directory_;
};

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST_F(SafetensorsFileTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string header = std::string("{") + tensor("a", "F32", "[1,2]", "[3,11]") + "," +
                             tensor("z", "U8", "[3]", "[0,3]") +
                             ",\"__metadata__\":{\"format\":\"pt\"}}   ";
  const SafetensorsFile f(file(header, 11));
  ASSERT_EQ(f.tensors().size(), 2u);
  EXPECT_EQ(f.tensors()[0].name, "z");
  EXPECT_EQ(f.tensors()[1].name, "a");
  EXPECT_THAT(f.tensors()[1].shape, ElementsAre(1, 2));
  EXPECT_EQ(f.tensors()[1].data - f.tensors()[0].data, 3);
  EXPECT_EQ(f.tensors()[1].dtype, DType::kF32);
  EXPECT_EQ(f.find("a"), &f.tensors()[1]);
  EXPECT_EQ(f.find("b"), nullptr);
  EXPECT_EQ(f.metadata().at("format"), "pt");
  EXPECT_EQ(f.tensors()[0].file, f.path());
}

TEST_F(SafetensorsFileTest, ScalarsEmptyTensorsAndNoTensorsAreValid) {
  EXPECT_TRUE(SafetensorsFile(file("{}", 0)).tensors().empty());
  EXPECT_TRUE(SafetensorsFile(file(R"({"__metadata__":{}})", 0)).tensors().empty());
  const std::string header = std::string("{") + tensor("s", "I16", "[]", "[0,2]") + "," +
                             tensor("e1", "F32", "[0]", "[2,2]") + "," +
                             tensor("e2", "F32", "[4611686018427387904,8,0]", "[2,2]") + "," +
                             tensor("e0", "U8", "[3,0]", "[0,0]") + "," +
                             tensor("t", "BOOL", "[1]", "[2,3]") + "}";
  const SafetensorsFile f(file(header, 3));
  EXPECT_EQ(f.tensors().size(), 5u);
  EXPECT_EQ(f.at("s").num_elements(), 1);
  EXPECT_EQ(f.at("e2").num_bytes(), 0);
  EXPECT_TRUE(f.at("e1").to_f32().empty());
  f.release(f.at("e0"));
}

TEST_F(SafetensorsFileTest, ManyTensorsOpen) {
  constexpr int kCount = 200000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    const std::string offsets = format("[%d,%d]", i, i + 1);
    if (i > 0) header += ",";
    header += tensor(format("t%d", i), "U8", "[1]", offsets);
  }
  const SafetensorsFile f(file(header + "}", kCount));
  EXPECT_EQ(f.tensors().size(), static_cast<size_t>(kCount));
  EXPECT_EQ(f.at("t123456").data - f.tensors()[0].data, 123456);
}

TEST_F(SafetensorsFileTest, RejectsWhatIsNoSafetensorsFile) {
  const std::string path = directory_ / "f.safetensors";
  EXPECT_ERROR(SafetensorsFile(directory_ / "absent"), ResourceError, HasSubstr("no such file"));
  EXPECT_ERROR(SafetensorsFile(directory_.path()), FormatError, HasSubstr("is a directory"));
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(SafetensorsFile(directory_ / "pipe"), FormatError, HasSubstr("not a regular file"));
  put(path, "");
  EXPECT_ERROR(SafetensorsFile{path}, FormatError, HasSubstr("is empty"));
  for (const std::string& content :
       {std::string("x"), std::string(8, '\0'), std::string(7, '{'),
        std::string("hello, world, hello"), std::string(8, '\xff') + "{}",
        safetensors_bytes("[]", ""), safetensors_bytes(" {}", ""), safetensors_bytes("", "{}"),
        std::string("PK\3\4\0\0\0\0\0\0\0\0\0\0", 14)}) {
    put(path, content);
    EXPECT_ERROR(SafetensorsFile{path}, FormatError, HasSubstr("is not a safetensors file"));
  }
  put(path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n");
  EXPECT_ERROR(SafetensorsFile{path}, FormatError, HasSubstr("Git LFS"));
}

TEST_F(SafetensorsFileTest, RejectsTruncationAtEveryByte) {
  const std::string header = std::string("{") + tensor("a", "F32", "[2]", "[0,8]") + "}";
  const std::string whole = safetensors_bytes(header, "12345678");
  const std::string path = directory_ / "f.safetensors";
  for (size_t length = 0; length < whole.size(); ++length) {
    put(path, whole.substr(0, length));
    EXPECT_ERROR(SafetensorsFile{path}, FormatError, HasSubstr(path));
  }
  put(path, whole.substr(0, whole.size() - 3));
  EXPECT_ERROR(
      SafetensorsFile{path}, FormatError,
      HasSubstr("header wants 8 bytes of data, file has 5; the file is truncated, fetch it "
                "again"));
  put(path, whole.substr(0, 40));
  EXPECT_ERROR(SafetensorsFile{path}, FormatError, HasSubstr("truncated"));
  put(path, whole + "9");
  EXPECT_ERROR(SafetensorsFile{path}, FormatError,
               HasSubstr("header wants 8 bytes of data, file has 9; the file is longer"));
}

TEST_F(SafetensorsFileTest, RejectsDamagedHeaders) {
  expect_rejected("{\"a\":}", 0, "not valid JSON");
  expect_rejected("{\"a\":" + std::string(100, '[') + "}", 0, "nested deeper");
  const std::string a = tensor("a", "U8", "[1]", "[0,1]");
  expect_rejected(std::string("{") + a + "," + a + "}", 1, "\"a\" occurs twice");
  expect_rejected("{\"a\":1}", 0, "must be described by an object");
  expect_rejected(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\" is missing");
  expect_rejected(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "\"shape\" is missing");
  expect_rejected(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "\"data_offsets\" is missing");
  expect_rejected(R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})", 1,
                  "\"dtype\" is missing or");
  expect_rejected(std::string("{") + tensor("a", "F9", "[1]", "[0,1]") + "}", 1,
                  "a: dtype \"F9\" is not known");
  expect_rejected(std::string("{") + tensor("a", "U8", "[1]", "[0,1,2]") + "}", 1, "two integers");
  expect_rejected(R"({"__metadata__":{"k":1}})", 0, "\"k\" must be a string");
  expect_rejected(R"({"__metadata__":[]})", 0, "must be an object");
}

TEST_F(SafetensorsFileTest, RejectsSizesThatAreNoSizes) {
  for (const char* shape : {"[-1]", "[1.0]", "[1e3]", "[\"1\"]", "[null]", "[[1]]", "[true]",
                            "[9223372036854775808]", "[18446744073709551616]"}) {
    expect_rejected(std::string("{") + tensor("a", "U8", shape, "[0,1]") + "}", 1,
                    "a: sizes must be integers");
  }
  for (const char* offsets : {"[-1,0]", "[0,1.0]", "[0,9223372036854775808]", "[null,1]"}) {
    expect_rejected(std::string("{") + tensor("a", "U8", "[1]", offsets) + "}", 1,
                    "data_offsets must be integers");
  }
}

TEST_F(SafetensorsFileTest, RejectsSizesThatOverflow) {
  expect_rejected(std::string("{") + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", 0,
                  "2^63");
  expect_rejected(std::string("{") + tensor("a", "F32", "[4611686018427387904]", "[0,0]") + "}", 0,
                  "2^63");
  expect_rejected(std::string("{") + tensor("a", "U8", "[3037000500,3037000500,2]", "[0,8]") + "}",
                  8, "2^63");
}

TEST_F(SafetensorsFileTest, RejectsOffsetsThatLie) {
  expect_rejected(std::string("{") + tensor("a", "F32", "[2]", "[0,7]") + "}", 7,
                  "a: F32 [2] takes 8 bytes, data_offsets are [0, 7]");
  expect_rejected(std::string("{") + tensor("a", "U8", "[2]", "[2,0]") + "}", 2,
                  "data_offsets are [2, 0]");
  expect_rejected(std::string("{") + tensor("a", "U8", "[2]", "[1,3]") + "}", 3,
                  "a begins at byte 1, but the start");
  const std::string a = tensor("a", "U8", "[2]", "[0,2]");
  expect_rejected(std::string("{") + a + "," + tensor("b", "U8", "[2]", "[1,3]") + "}", 3,
                  "b begins at byte 1, but a ends at 2");
  expect_rejected(std::string("{") + a + "," + tensor("b", "U8", "[2]", "[3,5]") + "}", 5,
                  "b begins at byte 3, but a ends at 2");
  expect_rejected(std::string("{") + a + "," + tensor("b", "U8", "[2]", "[0,2]") + "}", 2,
                  "neither overlap");
  expect_rejected(std::string("{") + a + "," + tensor("b", "U8", "[0]", "[1,1]") + "}", 2,
                  "neither overlap");
  expect_rejected(std::string("{") +
                      tensor("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") + "}",
                  4, "header wants 9223372036854775807 bytes of data, file has 4");
}

TEST_F(SafetensorsFileTest, NamesInMessagesStayOnOneLine) {
  expect_rejected(std::string("{") + tensor("a\\nb", "F9", "[1]", "[0,1]") + "}", 1, "a?b: dtype");
}

TEST_F(SafetensorsFileTest, AtNamesTheNearest) {
  const SafetensorsFile f(
      file(std::string("{") + tensor("lm_head.weight", "U8", "[0]", "[0,0]") + "}", 0));
  EXPECT_ERROR(
      f.at("lm_haed.weight"), FormatError,
      AllOf(HasSubstr("has no tensor lm_haed.weight"), HasSubstr("nearest: lm_head.weight")));
}

TEST_F(SafetensorsFileTest, RandomDamageNeverEscapesAsAnotherError) {
  const std::string header = std::string("{") + tensor("a", "F32", "[2,1]", "[0,8]") + "," +
                             tensor("b", "U8", "[2]", "[8,10]") + R"(,"__metadata__":{"k":"v"}})";
  const std::string whole = safetensors_bytes(header, "0123456789");
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string content = whole;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      content[random() % content.size()] = static_cast<char>(random());
    }
    put(directory_ / "f", content);
    try {
      const SafetensorsFile f(directory_ / "f");
      for (const TensorView& t : f.tensors()) {
        int sum = 0;  // every byte can be read
        for (int64_t k = 0; k < t.num_bytes(); ++k) sum += static_cast<int>(t.data[k]);
        EXPECT_GE(sum, 0);
      }
    } catch (const FormatError&) {
    }
  }
}

TEST_F(SafetensorsFileTest, ReleasedPagesComeBack) {
  std::vector<uint8_t> data(1 << 20);
  std::iota(data.begin(), data.end(), uint8_t{0});
  const std::string path = directory_ / "f";
  SafetensorsWriter writer(path, {{"a", DType::kU8, {1 << 20}}});
  writer.write("a", data.data(), 1 << 20);
  writer.finish();
  const SafetensorsFile f(path);
  f.release(f.at("a"));
  EXPECT_EQ(std::memcmp(f.at("a").data, data.data(), data.size()), 0);
}

TEST_F(SafetensorsFileTest, MovesKeepViewsValid) {
  SafetensorsFile f(file(std::string("{") + tensor("a", "U8", "[1]", "[0,1]") + "}", 1));
  const TensorView* view = f.find("a");
  const SafetensorsFile moved = std::move(f);
  EXPECT_EQ(moved.find("a"), view);
  EXPECT_EQ(static_cast<char>(*view->data), 'x');
}

// The bytes that tests/data/io/make_safetensors.py puts.
std::string pattern(int64_t count, int seed) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += static_cast<char>((seed + 7 * i) % 251);
  return out;
}

TEST(SafetensorsFile, ReadsWhatThePythonPackageWrites) {
  const SafetensorsFile f(std::string(CURVQ_TEST_DATA) + "/io/python_every_dtype.safetensors");
  EXPECT_EQ(f.metadata().at("format"), "np");
  EXPECT_EQ(f.metadata().at("note"), "\xC3\xA9 \"x\" \\ \n");
  const std::vector<std::pair<const char*, DType>> dtypes = {{"bool", DType::kBool},
                                                             {"uint8", DType::kU8},
                                                             {"int8", DType::kI8},
                                                             {"float8_e4m3fn", DType::kF8E4M3},
                                                             {"float8_e5m2", DType::kF8E5M2},
                                                             {"float8_e8m0fnu", DType::kF8E8M0},
                                                             {"uint16", DType::kU16},
                                                             {"int16", DType::kI16},
                                                             {"float16", DType::kF16},
                                                             {"bfloat16", DType::kBF16},
                                                             {"uint32", DType::kU32},
                                                             {"int32", DType::kI32},
                                                             {"float32", DType::kF32},
                                                             {"uint64", DType::kU64},
                                                             {"int64", DType::kI64},
                                                             {"float64", DType::kF64}};
  EXPECT_EQ(f.tensors().size(), dtypes.size() + 4);
  const auto content = [](const TensorView& t) {
    return std::string(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.num_bytes()));
  };
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const TensorView& t = f.at(format("t.%s", dtypes[i].first));
    EXPECT_EQ(t.dtype, dtypes[i].second);
    EXPECT_THAT(t.shape, ElementsAre(2, 3));
    const std::string wanted =
        i == 0 ? std::string("\1\0\1\1\0\0", 6) : pattern(t.num_bytes(), static_cast<int>(i));
    EXPECT_EQ(content(t), wanted) << t.name;
  }
  EXPECT_TRUE(f.at("scalar").shape.empty());
  EXPECT_EQ(content(f.at("scalar")), pattern(4, 90));
  EXPECT_THAT(f.at("empty.b").shape, ElementsAre(3, 0, 2));
  EXPECT_EQ(f.at("empty.a").num_bytes(), 0);
  EXPECT_EQ(content(f.at("n\xC3\xA4me \"quoted\" \\")), pattern(5, 91));
  const SafetensorsFile none(std::string(CURVQ_TEST_DATA) + "/io/python_no_tensors.safetensors");
  EXPECT_TRUE(none.tensors().empty());
  EXPECT_EQ(none.metadata().at("a"), "b");
}

TEST(SafetensorsFile, OpeningALargeFileReadsNoData) {
  TemporaryDirectory directory;
  const std::string header =
      std::string("{") + tensor("a", "U8", "[1099511627776]", "[0,1099511627776]") + "}";
  put(directory / "f", safetensors_bytes(header, ""));
  fs::resize_file(directory / "f", 8 + header.size() + (uint64_t{1} << 40));  // sparse
  const SafetensorsFile f(directory / "f");
  EXPECT_EQ(f.at("a").data[(int64_t{1} << 40) - 1], std::byte{0});
}

}  // namespace
}  // namespace curvq

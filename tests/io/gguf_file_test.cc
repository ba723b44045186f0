#include <cstring>

#include "curvq/io/atomic_output.h"
#include "curvq/io/gguf.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

// Writes the parts of a GGUF one after the other.
struct Bytes {
  std::string content;

  template <class T>
  Bytes& add(T value) {
    content.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Bytes& u32(uint32_t value) { return add(value); }
  Bytes& u64(uint64_t value) { return add(value); }
  Bytes& text(const std::string& value) {
    u64(value.size());
    content += value;
    return *this;
  }
  Bytes& pad(size_t alignment) {
    content.resize((content.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
};

Bytes header(uint64_t tensors, uint64_t values, uint32_t version = 3) {
  return Bytes().u32(0x46554747).u32(version).u64(tensors).u64(values);
}

// One F32 tensor "a" [2, 4] behind `values` metadata values.
Bytes with_tensor(Bytes bytes, uint64_t offset = 0, uint32_t type = 0, size_t alignment = 32) {
  bytes.text("a").u32(2).u64(4).u64(2).u32(type).u64(offset).pad(alignment);
  bytes.content.resize(bytes.content.size() + 32);
  return bytes;
}

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFile open(const Bytes& bytes) {
    put(directory_ / "x.gguf", bytes.content);
    return GgufFile(directory_ / "x.gguf");
  }
  void rejects(const Bytes& bytes, const std::string& text) {
    EXPECT_ERROR(open(bytes), FormatError, AllOf(HasSubstr("x.gguf: "), HasSubstr(text)));
  }
  TemporaryDirectory directory_;
};

TEST_F(GgufFileTest, ReadsEveryTypeOfValue) {
  Bytes bytes = header(0, 13);
  bytes.text("u8").u32(0).add(uint8_t{200});
  bytes.text("i8").u32(1).add(int8_t{-5});
  bytes.text("u16").u32(2).add(uint16_t{60000});
  bytes.text("i16").u32(3).add(int16_t{-300});
  bytes.text("u32").u32(4).u32(4000000000u);
  bytes.text("i32").u32(5).add(int32_t{-70000});
  bytes.text("f32").u32(6).add(1e-5f);
  bytes.text("bool").u32(7).add(uint8_t{1});
  bytes.text("string").u32(8).text("\xC3\xA9");
  bytes.text("array").u32(9).u32(9).u64(2);
  bytes.u32(5).u64(2).add(int32_t{1}).add(int32_t{-2});
  bytes.u32(8).u64(1).text("x");
  bytes.text("u64").u32(10).u64(UINT64_MAX);
  bytes.text("i64").u32(11).add(int64_t{INT64_MIN});
  bytes.text("f64").u32(12).add(0.1);
  const GgufFile file = open(bytes);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_TRUE(file.tensors().empty());
  const Json expected = {{"u8", 200u},         {"i8", -5},
                         {"u16", 60000u},      {"i16", -300},
                         {"i32", -70000},      {"u32", 4000000000u},
                         {"f32", 1e-5},        {"bool", true},
                         {"string", "\u00e9"}, {"array", {{1, -2}, {"x"}}},
                         {"u64", UINT64_MAX},  {"i64", INT64_MIN},
                         {"f64", 0.1}};
  EXPECT_EQ(file.metadata(), expected);
}

TEST_F(GgufFileTest, ReadsTensorsOfVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile file = open(with_tensor(header(1, 0, version)));
    ASSERT_EQ(file.tensors().size(), 1u);
    EXPECT_EQ(file.tensors()[0].name, "a");
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(file.tensors()[0].bytes, 32);
  }
}

TEST_F(GgufFileTest, RejectsOtherFilesAndVersions) {
  rejects({"GGUX"}, "is not a GGUF file");
  rejects({"GG"}, "is not a GGUF file");
  EXPECT_ERROR(open(header(0, 0, 1)), UnsupportedError, HasSubstr("version 1; versions 2 and 3"));
  EXPECT_ERROR(open(header(0, 0, 0x03000000)), UnsupportedError, HasSubstr("big-endian"));
  EXPECT_ERROR(GgufFile(directory_ / "none.gguf"), ResourceError, HasSubstr("none.gguf"));
}

TEST_F(GgufFileTest, RejectsCountsThatTheFileCannotHold) {
  rejects(header(uint64_t{1} << 60, 0), "tensor count is 1152921504606846976, which the 8 bytes");
  rejects(header(0, 5), "metadata count is 5, which the 0 bytes left");
  rejects(Bytes().u32(0x46554747).u32(3).u64(0), "metadata count wants 8 bytes at byte 16");
}

TEST_F(GgufFileTest, RejectsDamagedMetadata) {
  rejects(header(0, 1).text("key-of-16-bytes.").u32(13).u64(0),
          "type of metadata key-of-16-bytes. is 13; 0 to 12 are known");
  rejects(header(0, 1).text("key").u32(8).u64(1000), "length of metadata key is 1000");
  rejects(header(0, 1).u64(UINT64_MAX).u64(0),
          "length of key 1 of the metadata is 18446744073709551615");
  rejects(header(0, 1).text("").u64(0).u64(0), "key 1 of the metadata has 0 bytes");
  rejects(header(0, 1).text(std::string(1025, 'k')).u32(0).u64(0), "has 1025 bytes");
  rejects(header(0, 1).text("key").u32(8).text("\xff\xfe"), "metadata key is not UTF-8 (byte 0)");
  rejects(header(0, 1).text("key").u32(7).u64(2), "metadata key is a bool of value 2");
  rejects(header(0, 2).text("key").u32(0).add(uint8_t{1}).text("key").u32(0).add(uint8_t{1}),
          "metadata key is there twice");
}

TEST_F(GgufFileTest, RejectsHugeAndDeepArrays) {
  rejects(header(0, 1).text("key").u32(9).u32(4).u64(uint64_t{1} << 62),
          "length of metadata key is 4611686018427387904");
  Bytes deep = header(0, 1).text("key").u32(9);
  for (int i = 0; i < 100000; ++i) deep.u32(9).u64(1);
  rejects(deep, "metadata key has arrays more than 4 deep");
  Bytes huge = header(0, 1).text("key").u32(9).u32(0).u64((uint64_t{1} << 25) + 1);
  huge.content.resize(huge.content.size() + (size_t{1} << 25) + 1);
  rejects(huge, "33554433 array elements");
}

TEST_F(GgufFileTest, RejectsAlignmentsThatAreNoPowersOfTwo) {
  for (const uint32_t alignment : {0u, 24u}) {
    rejects(with_tensor(header(1, 1).text("general.alignment").u32(4).u32(alignment)),
            "metadata general.alignment is " + std::to_string(alignment));
  }
  rejects(with_tensor(header(1, 1).text("general.alignment").u32(8).text("32")), "power of two");
  EXPECT_EQ(open(with_tensor(header(1, 1).text("general.alignment").u32(4).u32(256), 0, 0, 256))
                .tensors()
                .size(),
            1u);
}

TEST_F(GgufFileTest, RejectsDamagedTensors) {
  rejects(with_tensor(header(1, 0), 32), "tensor a has offset 32, the tensors before it end at 0");
  EXPECT_ERROR(open(with_tensor(header(1, 0), 0, 16)), UnsupportedError,
               AllOf(HasSubstr("tensor a has type 16, which is not read"), HasSubstr("IQ4_NL")));
  rejects(with_tensor(header(1, 0), 0, 2),
          "tensor a has rows of 4 elements, no whole blocks of 32");
  rejects(header(1, 0).text("a").u32(5).u64(1).u64(1), "tensor a has 5 dimensions");
  rejects(header(1, 0).text("a").u32(1).u64(0).u32(0).u64(0), "tensor a has dimension 1 of 0");
  rejects(header(1, 0).text("a").u32(2).u64(uint64_t{1} << 40).u64(uint64_t{1} << 40).u32(0).u64(0),
          "tensor a has dimension 2 of 1099511627776, which is 0 or too large");
  rejects(header(1, 0).text("a").u32(1).u64(uint64_t{1} << 40).u32(0).u64(0).pad(32),
          "tensor a takes 4398046511104 bytes, file has 0 there");
  Bytes twice =
      header(2, 0).text("a").u32(1).u64(8).u32(0).u64(0).text("a").u32(1).u64(8).u32(0).u64(32);
  twice.pad(32).content.resize(twice.content.size() + 64);
  rejects(twice, "tensor a is there twice");
}

TEST_F(GgufFileTest, RejectsFilesThatAreTooShortOrTooLong) {
  Bytes bytes = with_tensor(header(1, 0));
  bytes.content.pop_back();
  rejects(bytes, "tensor a takes 32 bytes, file has 31 there; the file is truncated");
  bytes.content.resize(bytes.content.size() + 2);
  rejects(bytes, "the file is longer than it says");
}

}  // namespace
}  // namespace curvq

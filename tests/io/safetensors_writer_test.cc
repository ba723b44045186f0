#include <random>
#include <stdexcept>

#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/safetensors.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::TemporaryDirectory;

TEST(TensorInfo, CountsElementsAndBytes) {
  EXPECT_EQ((TensorInfo{"a", DType::kF32, {}}.num_bytes()), 4);
  EXPECT_EQ((TensorInfo{"a", DType::kBF16, {3, 5}}.num_bytes()), 30);
  EXPECT_EQ((TensorInfo{"a", DType::kF64, {INT64_MAX, 0, INT64_MAX}}.num_bytes()), 0);
  EXPECT_ERROR((TensorInfo{"a", DType::kU8, {INT64_MAX, 2}}.num_elements()), FormatError,
               AllOf(HasSubstr("a: shape"), HasSubstr("9223372036854775807, 2")));
  EXPECT_ERROR((TensorInfo{"a", DType::kF64, {INT64_MAX}}.num_bytes()), FormatError,
               HasSubstr("2^63"));
  EXPECT_ERROR((TensorInfo{"a", DType::kU8, {-1}}.num_elements()), FormatError,
               HasSubstr("negative"));
  EXPECT_EQ(shape_string({576, 1536}), "[576, 1536]");
  EXPECT_EQ(shape_string({}), "[]");
}

TEST(SafetensorsWriter, RoundTripsEveryDtypeAligned) {
  TemporaryDirectory directory;
  std::vector<TensorInfo> infos;
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    infos.push_back({format("t%d", i), static_cast<DType>(i), {3, 1}});
  }
  infos.push_back({"empty", DType::kF64, {0, 4}});
  infos.push_back({"scalar", DType::kI8, {}});
  SafetensorsWriter writer(directory / "f", infos, {{"who", "curvq \"\xC3\xA9\""}});
  std::mt19937 random(2);
  std::map<std::string, std::string> written;
  for (size_t i = infos.size(); i-- > 0;) {  // in any order
    std::string bytes(static_cast<size_t>(infos[i].num_bytes()), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    writer.write(infos[i].name, bytes.data(), infos[i].num_bytes());
    written[infos[i].name] = bytes;
  }
  writer.finish();
  const SafetensorsFile f(directory / "f");
  EXPECT_EQ(f.metadata().at("who"), "curvq \"\xC3\xA9\"");
  ASSERT_EQ(f.tensors().size(), infos.size());
  for (const TensorInfo& info : infos) {
    const TensorView& view = f.at(info.name);
    EXPECT_EQ(view.dtype, info.dtype);
    EXPECT_EQ(view.shape, info.shape);
    const auto bytes = static_cast<size_t>(view.num_bytes());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.data), bytes), written[info.name]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % dtype_bytes(info.dtype), 0u) << info.name;
  }
}

TEST(SafetensorsWriter, HeaderIsExact) {
  TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "f", {{"b", DType::kU8, {2}}, {"a", DType::kBF16, {1, 1}}},
                             {{"format", "pt"}});
    writer.write("b", "xy", 2);
    writer.write("a", "zz", 2);
    writer.finish();
  }
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_file(directory / "f"), safetensors_bytes(header, "zzxy"));
}

TEST(SafetensorsWriter, UnfinishedFileIsRemoved) {
  TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "f", {{"a", DType::kU8, {2}}});
    EXPECT_GT(fs::file_size(directory / "f"), 10u);  // full size from the start
    EXPECT_THROW(writer.finish(), std::logic_error);
  }
  EXPECT_FALSE(fs::exists(directory / "f"));
}

TEST(SafetensorsWriter, MisuseIsALogicError) {
  TemporaryDirectory directory;
  SafetensorsWriter writer(directory / "f", {{"a", DType::kU8, {2}}});
  EXPECT_THROW(writer.write("b", "xy", 2), std::logic_error);
  EXPECT_THROW(writer.write("a", "x", 1), std::logic_error);
  writer.write("a", "xy", 2);
  EXPECT_THROW(writer.write("a", "xy", 2), std::logic_error);
  const std::string path = directory / "g";
  EXPECT_THROW(SafetensorsWriter(path, {{"a", DType::kU8, {}}, {"a", DType::kU8, {}}}),
               std::logic_error);
  EXPECT_THROW(SafetensorsWriter(path, {{"__metadata__", DType::kU8, {}}}), std::logic_error);
  EXPECT_ERROR(SafetensorsWriter(path, {}, {{"k", "\xff"}}), UsageError, HasSubstr("UTF-8"));
  EXPECT_FALSE(fs::exists(path));
}

TEST(SafetensorsWriter, NamesThePathThatCannotBeWritten) {
  TemporaryDirectory directory;
  EXPECT_ERROR(SafetensorsWriter(directory / "no/f", {}), ResourceError,
               AllOf(HasSubstr(directory / "no/f"), HasSubstr("cannot be opened for writing")));
}

}  // namespace
}  // namespace curvq

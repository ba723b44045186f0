#include "curvq/io/checkpoint.h"

#include <cstring>

#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

// A file of one-byte tensors with these names, each holding `value`.
void put_tensors(const std::string& path, const std::vector<std::string>& names, char value = 'x') {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) infos.push_back({name, DType::kU8, {1}});
  SafetensorsWriter writer(path, infos);
  for (const std::string& name : names) writer.write(name, &value, 1);
  writer.finish();
}

void put_index(const TemporaryDirectory& directory, const std::map<std::string, std::string>& map) {
  put(directory / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const TensorView* tensor : checkpoint.tensors()) names.push_back(tensor->name);
  return names;
}

TEST(Checkpoint, OpensABareFile) {
  TemporaryDirectory directory;
  put_tensors(directory / "a.safetensors", {"z", "a"});
  const Checkpoint checkpoint(directory / "a.safetensors");
  EXPECT_FALSE(checkpoint.is_directory());
  EXPECT_THAT(names_of(checkpoint), ElementsAre("a", "z"));
  EXPECT_EQ(checkpoint.find("z"), &checkpoint.at("z"));
  EXPECT_EQ(checkpoint.find("y"), nullptr);
  EXPECT_ERROR(checkpoint.at("zz"), FormatError,
               AllOf(HasSubstr("a.safetensors: has no tensor zz"), HasSubstr("nearest: z")));
}

TEST(Checkpoint, OpensADirectoryWithOneFile) {
  TemporaryDirectory directory;
  put_tensors(directory / "model.safetensors", {"a"});
  put_tensors(directory / "consolidated.safetensors", {"a"});  // another layout, not the model's
  const Checkpoint checkpoint(directory.path());
  EXPECT_TRUE(checkpoint.is_directory());
  EXPECT_THAT(names_of(checkpoint), ElementsAre("a"));
}

TEST(Checkpoint, OpensShardsThroughTheIndex) {
  TemporaryDirectory directory;
  put_tensors(directory / "s2.safetensors", {"a", "d"}, '2');
  put_tensors(directory / "s1.safetensors", {"b", "c"}, '1');
  put_tensors(directory / "other.safetensors", {"a"});
  put_index(directory, {{"a", "s2.safetensors"},
                        {"b", "s1.safetensors"},
                        {"c", "s1.safetensors"},
                        {"d", "s2.safetensors"}});
  Checkpoint opened(directory.path());
  const Checkpoint checkpoint = std::move(opened);
  ASSERT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.files()[0].path(), directory / "s1.safetensors");
  EXPECT_THAT(names_of(checkpoint), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(static_cast<char>(*checkpoint.at("d").data), '2');
  EXPECT_EQ(checkpoint.at("b").file, directory / "s1.safetensors");
  checkpoint.release(checkpoint.at("b"));
  EXPECT_EQ(static_cast<char>(*checkpoint.at("b").data), '1');
}

TEST(Checkpoint, TakesTheFilesThereAreWithoutIndex) {
  TemporaryDirectory directory;
  put_tensors(directory / "y.safetensors", {"a"});
  put_tensors(directory / "x.safetensors", {"b"});
  fs::create_directory(directory / "dir.safetensors");
  EXPECT_THAT(names_of(Checkpoint(directory.path())), ElementsAre("a", "b"));
}

TEST(Checkpoint, MissingNumberedShardIsNoticedWithoutIndex) {
  TemporaryDirectory directory;
  put_tensors(directory / "model-00001-of-00003.safetensors", {"a"});
  put_tensors(directory / "model-00003-of-00003.safetensors", {"b"});
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               HasSubstr("shard model-00002-of-00003.safetensors is missing"));
}

TEST(Checkpoint, FollowsSymlinks) {
  TemporaryDirectory directory;
  fs::create_directories(directory / "blobs");
  fs::create_directories(directory / "snapshot");
  put_tensors(directory / "blobs/0123", {"a"});
  put(directory / "blobs/4567", R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  fs::create_symlink("../blobs/0123", directory / "snapshot/model-00001-of-00001.safetensors");
  fs::create_symlink("../blobs/4567", directory / "snapshot/model.safetensors.index.json");
  fs::create_directory_symlink("snapshot", directory / "link");
  EXPECT_THAT(names_of(Checkpoint(directory / "link")), ElementsAre("a"));
}

TEST(Checkpoint, RefusesShardsOutsideOfTheDirectory) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "model");
  put_tensors(directory / "x.safetensors", {"a"});
  for (const std::string& shard : {std::string("../x.safetensors"), directory / "x.safetensors",
                                   std::string("sub/../../x.safetensors"), std::string()}) {
    put(directory / "model/model.safetensors.index.json",
        Json{{"weight_map", {{"a", shard}}}}.dump());
    EXPECT_ERROR(Checkpoint(directory / "model"), FormatError,
                 AllOf(HasSubstr("index.json"), HasSubstr("outside of the directory")));
  }
}

TEST(Checkpoint, RejectsAnIndexThatContradictsTheShards) {
  TemporaryDirectory directory;
  put_tensors(directory / "s1.safetensors", {"a"});
  put_tensors(directory / "s2.safetensors", {"b"});
  put_index(directory, {{"a", "s1.safetensors"}, {"b", "s3.safetensors"}});
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               AllOf(HasSubstr("s3.safetensors"), HasSubstr("missing")));
  put_index(directory, {{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s2.safetensors"}});
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               HasSubstr("says that c is in s2.safetensors, no shard has it"));
  put_index(directory, {{"a", "s2.safetensors"}, {"b", "s1.safetensors"}});
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               AllOf(HasSubstr("says that a is in s2.safetensors"), HasSubstr("it is in ")));
  put_tensors(directory / "s2.safetensors", {"a", "b"});
  put_index(directory, {{"a", "s1.safetensors"}, {"b", "s2.safetensors"}});
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               AllOf(HasSubstr("s2.safetensors: a is also in"), HasSubstr("s1.safetensors")));
}

TEST(Checkpoint, TensorThatTheIndexForgetsIsThere) {
  TemporaryDirectory directory;
  put_tensors(directory / "s1.safetensors", {"a", "b"});
  put_index(directory, {{"a", "s1.safetensors"}});
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(names_of(Checkpoint(directory.path())), ElementsAre("a", "b"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("b is not in model.safetensors.index.json"));
}

TEST(Checkpoint, RejectsDamagedIndexes) {
  TemporaryDirectory directory;
  for (const char* index : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                            R"({"weight_map":{"a":1}})", R"({"weight_map")", ""}) {
    put(directory / "model.safetensors.index.json", index);
    EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
                 HasSubstr("model.safetensors.index.json"));
  }
}

TEST(Checkpoint, SaysWhatWasLookedFor) {
  TemporaryDirectory directory;
  EXPECT_ERROR(Checkpoint(directory / "absent"), UsageError, HasSubstr("does not exist"));
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("*.safetensors")));
  put(directory / "pytorch_model.bin", "");
  EXPECT_ERROR(Checkpoint(directory.path()), FormatError,
               HasSubstr("pytorch_model.bin is there, but in another format"));
}

std::vector<TensorInfo> six_tensors() {
  std::vector<TensorInfo> infos;
  for (const char* name : {"c", "a", "b", "f", "e", "d"})
    infos.push_back({name, DType::kF32, {2, 5}});
  return infos;
}

void write_six(const std::string& directory, int64_t max_shard_bytes) {
  CheckpointWriter writer(directory, six_tensors(), max_shard_bytes);
  for (const TensorInfo& info : six_tensors()) {
    TensorData tensor;
    static_cast<TensorInfo&>(tensor) = info;
    tensor.data.assign(40, static_cast<std::byte>(info.name[0]));
    writer.write(tensor);
  }
  writer.finish();
}

TEST(CheckpointWriter, OneShardHasNoIndex) {
  TemporaryDirectory directory;
  write_six(directory.path(), 240);
  EXPECT_FALSE(fs::exists(directory / "model.safetensors.index.json"));
  const Checkpoint checkpoint(directory.path());
  EXPECT_EQ(checkpoint.metadata().at("format"), "pt");
  EXPECT_EQ(static_cast<char>(checkpoint.at("e").data[39]), 'e');
}

TEST(CheckpointWriter, ShardsFillUpInOrder) {
  TemporaryDirectory directory;
  write_six(directory.path(), 119);
  EXPECT_EQ(read_file(directory / "model.safetensors.index.json"),
            "{\n  \"metadata\": {\n    \"total_size\": 240\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00003.safetensors\",\n"
            "    \"b\": \"model-00002-of-00003.safetensors\",\n"
            "    \"c\": \"model-00001-of-00003.safetensors\",\n"
            "    \"d\": \"model-00003-of-00003.safetensors\",\n"
            "    \"e\": \"model-00003-of-00003.safetensors\",\n"
            "    \"f\": \"model-00002-of-00003.safetensors\"\n  }\n}\n");
  const Checkpoint checkpoint(directory.path());
  EXPECT_EQ(checkpoint.files().size(), 3u);
  EXPECT_THAT(names_of(checkpoint), ElementsAre("a", "b", "c", "d", "e", "f"));
}

TEST(CheckpointWriter, ALargerTensorGetsItsOwnShard) {
  TemporaryDirectory directory;
  write_six(directory.path(), 1);
  EXPECT_EQ(Checkpoint(directory.path()).files().size(), 6u);
}

TEST(CheckpointWriter, UnfinishedShardsAreRemoved) {
  TemporaryDirectory directory;
  {
    CheckpointWriter writer(directory.path(), six_tensors(), 80);
    EXPECT_THROW(writer.write("nope", nullptr, 0), std::logic_error);
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(CheckpointWriter, NoTensorsAtAll) {
  TemporaryDirectory directory;
  CheckpointWriter(directory.path(), {}).finish();
  EXPECT_TRUE(Checkpoint(directory.path()).tensors().empty());
  EXPECT_ERROR(CheckpointWriter(directory.path(), {}, 0), UsageError, HasSubstr("max_shard_bytes"));
}

TEST(ContentHash, DependsOnContentAndNotOnShards) {
  TemporaryDirectory one, many, other;
  write_six(one.path(), 1 << 20);
  write_six(many.path(), 40);
  const std::string hash = Checkpoint(one.path()).content_hash();
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(Checkpoint(many.path()).content_hash(), hash);

  const auto hash_of = [&other](const TensorInfo& info, const std::string& data) {
    SafetensorsWriter writer(other / "f.safetensors", {info});
    writer.write(info.name, data.data(), info.num_bytes());
    writer.finish();
    return Checkpoint(other.path()).content_hash();
  };
  const std::string base = hash_of({"a", DType::kU8, {4}}, "0123");
  EXPECT_EQ(hash_of({"a", DType::kU8, {4}}, "0123"), base);
  EXPECT_NE(hash_of({"b", DType::kU8, {4}}, "0123"), base);
  EXPECT_NE(hash_of({"a", DType::kI8, {4}}, "0123"), base);
  EXPECT_NE(hash_of({"a", DType::kU8, {2, 2}}, "0123"), base);
  EXPECT_NE(hash_of({"a", DType::kU8, {4}}, "0124"), base);
}

}  // namespace
}  // namespace curvq

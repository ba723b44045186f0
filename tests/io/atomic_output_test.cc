#include "curvq/io/atomic_output.h"

#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "curvq/io/safetensors.h"
#include "io/io_testing.h"
#include "io/replace.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::put;
using testing::TemporaryDirectory;
using Kind = AtomicOutput::Kind;

std::set<std::string> listing(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// The id of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

std::string temporary_name(const std::string& name, pid_t pid) {
  return "." + name + ".curvq-" + std::to_string(pid);
}

TEST(AtomicOutput, DirectoryAppearsAtCommitOnly) {
  TemporaryDirectory directory;
  {
    AtomicOutput output(directory / "out", Kind::kDirectory, false);
    EXPECT_THAT(listing(directory.path()), ElementsAre(temporary_name("out", ::getpid())));
    put(output.path() + "/a", "1");
    fs::create_directory(output.path() + "/sub");
    put(output.path() + "/sub/b", "2");
    EXPECT_FALSE(fs::exists(directory / "out"));
    output.commit();
  }
  EXPECT_THAT(listing(directory.path()), ElementsAre("out"));
  EXPECT_EQ(read_file(directory / "out/sub/b"), "2");
}

TEST(AtomicOutput, FileAppearsAtCommitOnly) {
  TemporaryDirectory directory;
  AtomicOutput output(directory / "f.safetensors", Kind::kFile, false);
  put(output.path(), "content");
  EXPECT_FALSE(fs::exists(directory / "f.safetensors"));
  output.commit();
  EXPECT_THAT(listing(directory.path()), ElementsAre("f.safetensors"));
  EXPECT_EQ(read_file(directory / "f.safetensors"), "content");
}

TEST(AtomicOutput, DestructorRemovesWhatWasWritten) {
  TemporaryDirectory directory;
  {
    AtomicOutput output(directory / "out", Kind::kDirectory, false);
    put(output.path() + "/a", "1");
    AtomicOutput file(directory / "f", Kind::kFile, false);
  }
  EXPECT_THAT(listing(directory.path()), IsEmpty());
}

TEST(AtomicOutput, MakesMissingParentsAndTakesTrailingSlashes) {
  TemporaryDirectory directory;
  AtomicOutput output(directory / "a/b/out//", Kind::kDirectory, false);
  output.commit();
  EXPECT_TRUE(fs::is_directory(directory / "a/b/out"));
}

TEST(AtomicOutput, EmptyDirectoryMayExist) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "out");
  AtomicOutput output(directory / "out", Kind::kDirectory, false);
  put(output.path() + "/a", "1");
  output.commit();
  EXPECT_THAT(listing(directory / "out"), ElementsAre("a"));
}

TEST(AtomicOutput, RefusesWhatExistsWithoutOverwrite) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "out");
  put(directory / "out/old", "old");
  put(directory / "f", "old");
  EXPECT_ERROR(
      AtomicOutput(directory / "out", Kind::kDirectory, false), UsageError,
      AllOf(HasSubstr(directory / "out"), HasSubstr("not empty"), HasSubstr("--overwrite")));
  EXPECT_ERROR(AtomicOutput(directory / "f", Kind::kFile, false), UsageError, HasSubstr("exists"));
  EXPECT_THAT(listing(directory.path()), ElementsAre("f", "out"));
}

TEST(AtomicOutput, OverwriteReplacesAtCommit) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "out");
  put(directory / "out/old", "old");
  put(directory / "f", "old");
  AtomicOutput output(directory / "out", Kind::kDirectory, true);
  put(output.path() + "/new", "new");
  AtomicOutput file(directory / "f", Kind::kFile, true);
  put(file.path(), "new");
  EXPECT_EQ(read_file(directory / "out/old"), "old");
  EXPECT_EQ(read_file(directory / "f"), "old");
  output.commit();
  file.commit();
  EXPECT_THAT(listing(directory.path()), ElementsAre("f", "out"));
  EXPECT_THAT(listing(directory / "out"), ElementsAre("new"));
  EXPECT_EQ(read_file(directory / "f"), "new");
}

TEST(AtomicOutput, RefusesTheOtherKindSymlinksAndDevices) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "d");
  put(directory / "f", "");
  fs::create_directory_symlink(directory / "d", directory / "link");
  for (const bool overwrite : {false, true}) {
    EXPECT_ERROR(AtomicOutput(directory / "d", Kind::kFile, overwrite), UsageError,
                 HasSubstr("is a directory"));
    EXPECT_ERROR(AtomicOutput(directory / "f", Kind::kDirectory, overwrite), UsageError,
                 HasSubstr("is a file"));
    EXPECT_ERROR(AtomicOutput(directory / "link/", Kind::kDirectory, overwrite), UsageError,
                 HasSubstr("symlink"));
    EXPECT_ERROR(AtomicOutput("/dev/null", Kind::kFile, overwrite), UsageError,
                 HasSubstr("device"));
  }
  EXPECT_ERROR(AtomicOutput("", Kind::kFile, false), UsageError, HasSubstr("empty name"));
}

TEST(AtomicOutput, RefusesTheCurrentDirectoryAndItsParents) {
  TemporaryDirectory directory;
  const fs::path before = fs::current_path();
  fs::create_directories(directory / "a/b");
  fs::current_path(directory / "a/b");
  for (const char* target : {".", "..", "./", "../../a", "../b/", "/"}) {
    EXPECT_ERROR(AtomicOutput(target, Kind::kDirectory, true), UsageError,
                 HasSubstr("current directory"));
  }
  AtomicOutput("c", Kind::kDirectory, true).commit();      // below is fine
  AtomicOutput("../bb", Kind::kDirectory, true).commit();  // and so is beside
  fs::current_path(before);
  EXPECT_THAT(listing(directory / "a"), ElementsAre("b", "bb"));
  EXPECT_THAT(listing(directory / "a/b"), ElementsAre("c"));
}

TEST(AtomicOutput, RemovesTemporariesOfDeadProcessesOnly) {
  TemporaryDirectory directory;
  const std::string dead = temporary_name("out", dead_process());
  const std::string alive = temporary_name("out", ::getppid());
  const std::string other = temporary_name("output", dead_process());
  const std::string backup = ".out.curvq-old-1";
  for (const std::string& name : {dead, alive, other, backup}) {
    fs::create_directory(directory / name);
    put(directory / (name + "/x"), "x");
  }
  fs::create_directory(directory / temporary_name("out", ::getpid()));  // of an earlier process
  AtomicOutput(directory / "out", Kind::kDirectory, false).commit();
  EXPECT_THAT(listing(directory.path()),
              ::testing::UnorderedElementsAre(alive, other, backup, "out"));
}

TEST(AtomicOutput, KilledProcessLeavesOnlyTheTemporary) {
  TemporaryDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicOutput output(directory / "out", Kind::kDirectory, false);
    put(output.path() + "/a", "1");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(listing(directory.path()), ElementsAre(temporary_name("out", child)));
  AtomicOutput(directory / "out", Kind::kDirectory, false).commit();
  EXPECT_THAT(listing(directory.path()), ElementsAre("out"));
}

TEST(AtomicOutput, TargetThatFillsUpMeanwhileIsNotLost) {
  TemporaryDirectory directory;
  AtomicOutput output(directory / "out", Kind::kDirectory, false);
  put(output.path() + "/new", "new");
  fs::create_directory(directory / "out");
  put(directory / "out/theirs", "x");
  EXPECT_ERROR(output.commit(), ResourceError,
               AllOf(HasSubstr("not empty"), HasSubstr("is kept at")));
  AtomicOutput file(directory / "f", Kind::kFile, false);
  put(directory / "f", "theirs");
  EXPECT_ERROR(file.commit(), ResourceError, HasSubstr("exists"));
  EXPECT_EQ(read_file(directory / "f"), "theirs");
  EXPECT_EQ(read_file(directory / "out/theirs"), "x");
  EXPECT_EQ(read_file(output.path() + "/new"), "new");
}

TEST(ReplaceDirectory, FailureKeepsTheOldOne) {
  for (const auto method : {io::ReplaceMethod::kExchange, io::ReplaceMethod::kBackup}) {
    TemporaryDirectory directory;
    fs::create_directory(directory / "out");
    put(directory / "out/old", "old");
    EXPECT_ERROR(io::replace_directory(directory / "absent", directory / "out", method),
                 ResourceError, HasSubstr("cannot be renamed"));
    EXPECT_THAT(listing(directory.path()), ElementsAre("out"));
    EXPECT_EQ(read_file(directory / "out/old"), "old");
  }
}

TEST(ReplaceDirectory, BothMethodsReplace) {
  for (const auto method : {io::ReplaceMethod::kExchange, io::ReplaceMethod::kBackup}) {
    TemporaryDirectory directory;
    for (const char* name : {"out", "next"}) {
      fs::create_directory(directory / name);
      put(directory / name + "/" + name, "x");
    }
    io::replace_directory(directory / "next", directory / "out", method);
    EXPECT_THAT(listing(directory.path()), ElementsAre("out"));
    EXPECT_THAT(listing(directory / "out"), ElementsAre("next"));
  }
}

// A file system of 1 MiB; needs root.
class TinyDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "cannot mount a tmpfs (needs root): full disks are NOT tested";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  TemporaryDirectory directory_;
  bool mounted_ = false;
};

TEST_F(TinyDisk, WriteFileSaysWhatFailedAndLeavesNothing) {
  EXPECT_ERROR(
      write_file(directory_ / "f", std::string(2 << 20, 'x')), ResourceError,
      AllOf(HasSubstr(directory_ / "f"), HasSubstr("2097152 bytes"), HasSubstr("no space")));
  EXPECT_THAT(listing(directory_.path()), IsEmpty());
}

TEST_F(TinyDisk, SafetensorsWriterKnowsAtOnce) {
  EXPECT_ERROR(SafetensorsWriter(directory_ / "f", {{"a", DType::kF32, {1 << 19}}}), ResourceError,
               AllOf(HasSubstr(directory_ / "f"), HasSubstr("are free"), HasSubstr("no space")));
  EXPECT_THAT(listing(directory_.path()), IsEmpty());
}

TEST_F(TinyDisk, RequireDiskSpaceNamesBothNumbers) {
  EXPECT_NO_THROW(require_disk_space(directory_ / "not/yet/there", 1 << 19));
  EXPECT_ERROR(require_disk_space(directory_ / "not/yet/there", 2 << 20), ResourceError,
               AllOf(HasSubstr("2097152 bytes are wanted"), HasSubstr("1048576 are free")));
}

TEST_F(TinyDisk, MountPointThatCannotBeReplacedKeepsItsContent) {
  put(directory_ / "old", "old");
  AtomicOutput output(directory_.path(), Kind::kDirectory, true);
  put(output.path() + "/new", "new");
  EXPECT_ERROR(output.commit(), ResourceError, HasSubstr("is kept at"));
  EXPECT_THAT(listing(directory_.path()), ElementsAre("old"));
  EXPECT_EQ(read_file(output.path() + "/new"), "new");
  fs::remove_all(output.path());
}

TEST(WriteFile, WritesReplacesAndFollowsSymlinks) {
  TemporaryDirectory directory;
  const std::string content("a\0b\n", 4);
  write_file(directory / "sub/f", "first");
  write_file(directory / "sub/f", content);
  EXPECT_EQ(read_file(directory / "sub/f"), content);
  fs::create_symlink(directory / "sub/f", directory / "link");
  write_file(directory / "link", "through");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(read_file(directory / "sub/f"), "through");
  EXPECT_THAT(listing(directory / "sub"), ElementsAre("f"));
}

TEST(WriteFile, WritesToDevicesAsTheyAre) {
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(ReadFile, NamesWhatCannotBeRead) {
  TemporaryDirectory directory;
  EXPECT_ERROR(read_file(directory / "absent"), ResourceError,
               AllOf(HasSubstr(directory / "absent"), HasSubstr("no such file")));
  EXPECT_ERROR(read_file(directory.path()), ResourceError, HasSubstr("directory"));
}

TEST(RequireDiskSpace, ComparesWithTheFileSystem) {
  EXPECT_NO_THROW(require_disk_space("/tmp", 1));
  EXPECT_ERROR(require_disk_space("/tmp/x/y", INT64_MAX), ResourceError,
               HasSubstr("9223372036854775807 bytes are wanted"));
}

}  // namespace
}  // namespace curvq

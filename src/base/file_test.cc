#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A temporary folder for each test.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = (fs::temp_directory_path() / "lockstep-file-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FileTest() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Put(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
};

using MappedFileTest = FileTest;
using AtomicFileTest = FileTest;
using ReadFileTest = FileTest;

template <typename F>
std::string ErrorOf(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// What cannot be opened for reading, for both readers.
TEST_F(FileTest, ReadersRefuseWhatIsNoReadableFile) {
  fs::create_directory(Path("folder"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink("loop", Path("loop"));
  const std::pair<std::string, std::string> cases[] = {
      {Path("missing"), Path("missing") + ": No such file or directory"},
      {Path("folder"), Path("folder") + ": expected a file, found a directory"},
      {Path("pipe"), Path("pipe") + ": expected a file, found a special file"},
      {Path("loop"), Path("loop") + ": Too many levels of symbolic links"},
      {"/dev/null", "/dev/null: expected a file, found a special file"},
      {"", ": No such file or directory"},
      {Path("new\nline"), Path("new") + "\\x0Aline: No such file or directory"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ErrorOf([&] { MappedFile file(c.first); }), c.second);
    EXPECT_EQ(ErrorOf([&] { ReadFile(c.first, 100); }), c.second);
  }
}

TEST_F(FileTest, PermissionIsHonoured) {
  Put("secret", "x");
  fs::permissions(Path("secret"), fs::perms::none);
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::others_exec | fs::perms::group_exec);
  // In a child that is no longer root, where it was.
  auto try_all = [&] {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(9);
    std::string denied = ": Permission denied";
    bool good = ErrorOf([&] { MappedFile file(Path("secret")); }) == Path("secret") + denied &&
                ErrorOf([&] { ReadFile(Path("secret"), 9); }) == Path("secret") + denied;
    if (getuid() == 65534) {
      good = good && ErrorOf([&] { AtomicFile file(Path("new")); }) == Path("new") + denied;
    }
    _exit(good ? 0 : 1);
  };
  EXPECT_EXIT(try_all(), testing::ExitedWithCode(0), "");
}

TEST_F(MappedFileTest, ShowsTheBytesAndMoves) {
  Put("a", "hello");
  MappedFile first(Path("a"));
  ASSERT_EQ(first.bytes().size(), 5u);
  MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());  // NOLINT: the moved-from state is the subject
  EXPECT_EQ(second.bytes()[4], std::byte{'o'});
  EXPECT_EQ(second.path(), Path("a"));
  Put("b", "xyz");
  MappedFile third(Path("b"));
  third = std::move(second);
  EXPECT_EQ(third.bytes().size(), 5u);
}

TEST_F(MappedFileTest, OfAnEmptyFileIsEmpty) {
  Put("empty", "");
  EXPECT_TRUE(MappedFile(Path("empty")).bytes().empty());
}

TEST_F(MappedFileTest, ReadsTheSameBytesAfterRelease) {
  std::string content(100000, 'x');
  content.back() = 'y';
  Put("a", content);
  MappedFile file(Path("a"));
  for (auto [offset, size] :
       {std::pair<size_t, size_t>{0, 100000}, {1, 10}, {5000, 90000}, {99999, 1}, {0, 0}}) {
    file.Release(offset, size);
    EXPECT_EQ(file.bytes()[0], std::byte{'x'});
    EXPECT_EQ(file.bytes()[99999], std::byte{'y'});
  }
}

TEST_F(AtomicFileTest, AppearsWholeWithCommit) {
  Put("a", "old");
  {
    AtomicFile file(Path("a"));
    file.Write("new ");
    file.Write("content");
    EXPECT_EQ(file.size(), 11u);
    EXPECT_EQ(ReadFile(Path("a"), 100), "old");
    file.Commit();
    EXPECT_EQ(ReadFile(Path("a"), 100), "new content");
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"a"});
  struct stat info;
  ASSERT_EQ(stat(Path("a").c_str(), &info), 0);
  mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  Put("kept", "old");
  {
    AtomicFile replaced(Path("kept"));
    AtomicFile fresh(Path("fresh"));
    replaced.Write("half");
    fresh.Write("half");
    EXPECT_EQ(Names().size(), 3u);
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"kept"});
  EXPECT_EQ(ReadFile(Path("kept"), 100), "old");
}

TEST_F(AtomicFileTest, WritesAtPlacesInAnyOrder) {
  const std::string path = Path("places");
  auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  AtomicFile file(path);
  file.Write("abc");
  file.WriteAt(6, bytes("gh"));
  EXPECT_EQ(file.size(), 8u);
  file.WriteAt(3, bytes("def"));
  file.Write("i");
  file.WriteAt(0, bytes("A"));
  file.Commit();
  EXPECT_EQ(ReadFile(path, 100), "Abcdefghi");
}

TEST_F(AtomicFileTest, FailsInOneLineWhereItCannotWrite) {
  fs::create_directory(Path("folder"));
  EXPECT_EQ(ErrorOf([&] { AtomicFile file(Path("folder")); }),
            Path("folder") + ": expected a file, found a directory");
  EXPECT_EQ(ErrorOf([&] { AtomicFile file(Path("no/such")); }),
            Path("no/such") + ": No such file or directory");
  EXPECT_EQ(ErrorOf([] {
              AtomicFile file("/dev/full");
              file.Write(std::string(100000, 'x'));
              file.Commit();
            }),
            "/dev/full: writing at byte 0: No space left on device");
}

TEST_F(AtomicFileTest, WritesStraightToDevices) {
  AtomicFile file("/dev/null");
  file.Write("gone");
  file.Commit();
  struct stat info;
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(AtomicFileTest, KeepsTheOldFileWhenTheRenameFails) {
  {
    AtomicFile file(Path("a"));
    file.Write("x");
    fs::create_directory(Path("a"));  // in the way since the file was opened
    EXPECT_THROW(file.Commit(), Error);
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(fs::is_directory(Path("a")));
}

TEST_F(ReadFileTest, ReadsUpToTheLimit) {
  Put("a", std::string("a\0b", 3));
  EXPECT_EQ(ReadFile(Path("a"), 3), std::string("a\0b", 3));
  EXPECT_EQ(ErrorOf([&] { ReadFile(Path("a"), 2); }),
            Path("a") + ": expected at most 2 bytes, found 3");
}

}  // namespace
}  // namespace lockstep

// A folder of its own for one test, removed afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace lockstep::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Failed("{}: cannot be made", name);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::string Put(std::string_view name, std::string_view content) const {
    std::string path = *this / name;
    AtomicFile file(path);
    file.Write(content);
    file.Commit();
    return path;
  }

 private:
  std::filesystem::path path_;
};

// The message of the Error that `run` throws, or "" where it throws none.
template <typename Run>
std::string MessageOf(Run run) {
  try {
    run();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace lockstep::test

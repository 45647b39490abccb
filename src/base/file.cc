#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// Opens a regular file for reading; `size` gets its size in bytes.
int OpenRegular(const std::string& path, uint64_t* size) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Refused("{}: {}", Printable(path, 4096), SystemErrorText(errno));
  struct stat info;
  if (fstat(fd, &info) != 0) {
    int error = errno;
    close(fd);
    throw Refused("{}: {}", Printable(path, 4096), SystemErrorText(error));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    throw Refused("{}: expected a file, found a {}", Printable(path, 4096),
                  S_ISDIR(info.st_mode) ? "directory" : "special file");
  }
  *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  uint64_t size = 0;
  int fd = OpenRegular(path, &size);
  if (size == 0) {
    close(fd);
    return;
  }
  void* base = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  int error = errno;
  close(fd);
  if (base == MAP_FAILED) {
    throw Refused("{}: mapping {} bytes: {}", Printable(path, 4096), size, SystemErrorText(error));
  }
  bytes_ = {static_cast<const std::byte*>(base), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::Release(size_t offset, size_t size) const {
  // Whole pages inside the range only: its neighbours may still be in use.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t first = (offset + page - 1) / page * page;
  size_t last = (offset + size) / page * page;
  if (offset + size == bytes_.size()) last = bytes_.size();
  if (first < last)
    madvise(const_cast<std::byte*>(bytes_.data()) + first, last - first, MADV_DONTNEED);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    throw Failed("{}: expected a file, found a directory", Printable(path_, 4096));
  }
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    // A device or pipe cannot be replaced by a rename; it takes the bytes as they come.
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = path_ + ".XXXXXX";
    fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
    if (fd_ >= 0) watch_.emplace(temporary_.c_str());
  }
  if (fd_ < 0) throw Failed("{}: {}", Printable(path_, 4096), SystemErrorText(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Write(std::span<const std::byte> bytes) { WriteAt(size_, bytes); }

void AtomicFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // A pipe has no places: what goes on at the end is written without one.
    ssize_t written = temporary_.empty() && offset == size_
                          ? write(fd_, bytes.data(), bytes.size())
                          : pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Failed("{}: writing at byte {}: {}", Printable(path_, 4096), offset,
                   SystemErrorText(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
    size_ = std::max(size_, offset);
  }
}

void AtomicFile::Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }

void AtomicFile::Commit() {
  if (!temporary_.empty()) {
    // mkostemp makes private files; an ordinary new file follows the umask.
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd_, 0666 & ~mask) != 0 || fsync(fd_) != 0 ||
        rename(temporary_.c_str(), path_.c_str()) != 0) {
      throw Failed("{}: {}", Printable(path_, 4096), SystemErrorText(errno));
    }
  }
  close(fd_);
  fd_ = -1;
}

std::string ReadFile(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  int fd = OpenRegular(path, &size);
  std::string content;
  int error = 0;
  if (size <= max_bytes) {
    content.resize(size);
    size_t done = 0;
    while (done < size) {
      ssize_t n = read(fd, content.data() + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error = errno;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    content.resize(done);
  }
  close(fd);
  if (error != 0) throw Refused("{}: {}", Printable(path, 4096), SystemErrorText(error));
  if (size > max_bytes) {
    throw Refused("{}: expected at most {} bytes, found {}", Printable(path, 4096), max_bytes,
                  size);
  }
  return content;
}

}  // namespace lockstep

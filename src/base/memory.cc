#include "base/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Buffer::Buffer(Size bytes, std::string_view who) {
  constexpr uint64_t kLimit = PTRDIFF_MAX - kHugePage;
  if (!bytes.fits(kLimit)) {
    throw Failed("{}: expected a size that can be addressed, found {}", who,
                 bytes.valid() ? fmt::format("{} bytes", *bytes.get()) : "an overflow");
  }
  size_t size = *bytes.get();
  if (size == 0) return;
  const bool large = size >= kHugePage;
  size_t mapping_size = large ? size + kHugePage : size;
  void* mapping =
      mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Failed("{}: allocating {} bytes: {}", who, size, SystemErrorText(errno));
  }
  mapping_ = mapping;
  mapping_size_ = mapping_size;
  size_ = size;
  data_ = static_cast<std::byte*>(mapping);
  if (large) {
    size_t past = reinterpret_cast<uintptr_t>(mapping) % kHugePage;
    if (past != 0) data_ += kHugePage - past;
    // Advice: where the system declines, small pages serve as well.
    madvise(data_, size_, MADV_HUGEPAGE);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(mapping_, taken.mapping_);
  std::swap(mapping_size_, taken.mapping_size_);
  return *this;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

std::span<std::byte> Arena::Take(size_t bytes) {
  Size end = Size(used_) + Rounded(bytes);
  // The last piece may end where the buffer does, short of its alignment.
  LOCKSTEP_CHECK((Size(used_) + bytes).fits(buffer_.size()), "arena of {} bytes: {} used, {} asked",
                 buffer_.size(), used_, bytes);
  std::span<std::byte> piece = buffer_.bytes().subspan(used_, bytes);
  used_ = end.fits(buffer_.size()) ? *end.get() : buffer_.size();
  return piece;
}

}  // namespace lockstep

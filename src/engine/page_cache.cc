#include "engine/page_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {

size_t PageCache::KeyHash::operator()(const Key& key) const {
  // FNV-1a; equality decides, so collisions cost time only.
  uint64_t hash = 14695981039346656037u ^ key.parent;
  for (int32_t token : key.tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
  return hash ^ hash >> 29;
}

PageCache::PageCache(int64_t pages, int64_t page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<size_t>(pages)) {
  for (int64_t i = pages; i-- > 0;) empty_.push_back(static_cast<int32_t>(i));
}

int64_t PageCache::free_pages() const { return static_cast<int64_t>(empty_.size() + idle_.size()); }

std::optional<int32_t> PageCache::Allocate() {
  if (empty_.empty()) {
    if (idle_.empty()) return std::nullopt;
    Evict(idle_.front());
  }
  const int32_t page = empty_.back();
  empty_.pop_back();
  Hold(page);
  return page;
}

void PageCache::Hold(int32_t index) {
  Page& page = At(index);
  if (page.holders++ == 0) ++held_;
  if (page.idle) idle_.erase(*std::exchange(page.idle, std::nullopt));
}

void PageCache::Release(int32_t index) {
  Page& page = At(index);
  LOCKSTEP_CHECK(page.holders > 0, "page {}", index);
  if (--page.holders > 0) return;
  --held_;
  if (page.serial == 0) {
    empty_.push_back(index);
  } else {
    page.idle = idle_.insert(idle_.end(), index);
  }
}

void PageCache::Evict(int32_t index) {
  Page& page = At(index);
  idle_.erase(*std::exchange(page.idle, std::nullopt));
  auto key = keys_.find(index);
  published_.erase(key->second);
  keys_.erase(key);
  page.serial = 0;
  empty_.push_back(index);
}

std::vector<int32_t> PageCache::Match(std::span<const int32_t> tokens, int64_t max_pages) {
  std::vector<int32_t> found;
  uint64_t parent = 0;
  const auto length = static_cast<size_t>(page_tokens_);
  while (std::ssize(found) < max_pages) {
    const size_t begin = found.size() * length;
    if (begin + length > tokens.size()) break;
    const auto page_tokens = tokens.subspan(begin, length);
    auto at = published_.find({parent, {page_tokens.begin(), page_tokens.end()}});
    if (at == published_.end()) break;
    parent = At(at->second).serial;
    Hold(at->second);
    found.push_back(at->second);
  }
  return found;
}

int32_t PageCache::Publish(std::span<const int32_t> before, int32_t index,
                           std::span<const int32_t> page_tokens) {
  Page& page = At(index);
  if (page.serial != 0) return index;
  const uint64_t parent = before.empty() ? 0 : At(before.back()).serial;
  LOCKSTEP_CHECK(before.empty() || parent != 0, "page {} after one that is not published", index);
  Key key{parent, {page_tokens.begin(), page_tokens.end()}};
  auto [at, fresh] = published_.try_emplace(key, index);
  if (!fresh) {
    const int32_t twin = at->second;
    Hold(twin);
    Release(index);
    return twin;
  }
  keys_.emplace(index, std::move(key));
  page.serial = next_serial_++;
  return index;
}

}  // namespace lockstep

// Who holds which page of the KV pool, and which full pages hold a known prefix of tokens.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace lockstep {

// Pages are counted: a page that no sequence holds but that holds a published prefix stays until
// room is needed, least recently used first. Two sequences whose tokens agree up to a page's end
// have the same bits in it, so sharing is exact.
class PageCache {
 public:
  // `page_tokens`: positions in a page.
  PageCache(int64_t pages, int64_t page_tokens);

  // A page with one holder, or nothing where every page is held.
  std::optional<int32_t> Allocate();
  // Gives up one hold. Of pages given up one after the other, the first is the first to be taken
  // for something else: a sequence's last page should come first, as those after a lost page are of
  // no use.
  void Release(int32_t page);

  // The pages of the longest published prefix of `tokens`, at most `max_pages`; each gets one more
  // holder.
  std::vector<int32_t> Match(std::span<const int32_t> tokens, int64_t max_pages);
  // Makes a full page, which the caller holds, findable. before: the pages of the same sequence in
  // front of it, all published. Returns the page to use from now on: where another page was
  // published for the same prefix, that one, held in place of `page`.
  int32_t Publish(std::span<const int32_t> before, int32_t page,
                  std::span<const int32_t> page_tokens);

  // The number of the prefix that a published page ends; no other prefix ever has it.
  uint64_t Prefix(int32_t page) const { return pages_[static_cast<size_t>(page)].serial; }

  int64_t free_pages() const;  // that Allocate() could give
  int64_t held_pages() const { return held_; }

 private:
  // A prefix is its last page's tokens after the prefix before it; prefixes are numbered and
  // numbers never come again.
  struct Key {
    uint64_t parent;
    std::vector<int32_t> tokens;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Page {
    int32_t holders = 0;
    uint64_t serial = 0;  // of its published prefix, 0: none
    // Place in idle_, which has the published pages without holders.
    std::optional<std::list<int32_t>::iterator> idle;
  };

  Page& At(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  void Hold(int32_t page);
  // Forgets the prefix of an idle page, which becomes empty.
  void Evict(int32_t page);

  const int64_t page_tokens_;
  std::vector<Page> pages_;
  std::vector<int32_t> empty_;  // neither held nor published
  std::list<int32_t> idle_;     // least recently used first
  std::unordered_map<Key, int32_t, KeyHash> published_;
  std::unordered_map<int32_t, Key> keys_;  // of published pages
  uint64_t next_serial_ = 1;
  int64_t held_ = 0;
};

}  // namespace lockstep

#include "engine/page_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace lockstep {
namespace {

constexpr int64_t kPageLength = 2;
using Tokens = std::vector<int32_t>;

// The same by the book: a published page is known by all tokens up to its end.
class NaivePages {
 public:
  explicit NaivePages(int64_t pages) : pages_(static_cast<size_t>(pages)) {}

  // What any page may be taken for something else: empty ones, then the least recently used.
  bool MayBeAllocated(int32_t page) const {
    const bool empty_left = std::ranges::any_of(
        pages_, [](const Page& p) { return p.holders == 0 && p.prefix.empty(); });
    if (empty_left) return At(page).holders == 0 && At(page).prefix.empty();
    if (At(page).holders != 0) return false;
    return std::ranges::all_of(
        pages_, [&](const Page& p) { return p.holders != 0 || p.used >= At(page).used; });
  }
  void Allocate(int32_t page) {
    At(page) = {};
    At(page).holders = 1;
  }
  void Hold(int32_t page) { ++At(page).holders; }
  void Release(int32_t page) {
    if (--At(page).holders == 0) At(page).used = ++clock_;
  }
  // The pages that hold a prefix of `tokens` from its start without a gap.
  std::vector<int32_t> Match(const Tokens& tokens, int64_t max_pages) const {
    std::vector<int32_t> found;
    std::vector<uint64_t> chain;
    while (std::ssize(found) < max_pages) {
      const size_t length = (found.size() + 1) * kPageLength;
      if (length > tokens.size()) break;
      const Tokens prefix(tokens.begin(), tokens.begin() + static_cast<int64_t>(length));
      auto at = std::ranges::find_if(
          pages_, [&](const Page& p) { return p.prefix == prefix && p.before == chain; });
      if (at == pages_.end()) break;
      found.push_back(static_cast<int32_t>(at - pages_.begin()));
      chain.push_back(at->generation);
    }
    return found;
  }
  void Publish(const std::vector<int32_t>& before, int32_t page, const Tokens& prefix) {
    At(page).prefix = prefix;
    for (int32_t p : before) At(page).before.push_back(At(p).generation);
    At(page).generation = ++clock_;
  }
  bool Published(int32_t page) const { return !At(page).prefix.empty(); }
  int64_t free_pages() const { return std::ranges::count(pages_, 0, &Page::holders); }

 private:
  struct Page {
    int holders = 0;
    Tokens prefix;                 // published for, empty: for none
    std::vector<uint64_t> before;  // generations of the pages in front
    uint64_t generation = 0;
    uint64_t used = 0;
  };
  Page& At(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  const Page& At(int32_t page) const { return pages_[static_cast<size_t>(page)]; }

  std::vector<Page> pages_;
  uint64_t clock_ = 0;
};

// A sequence under way, as the scheduler keeps it.
struct Sequence {
  Tokens tokens;
  std::vector<int32_t> pages;
  size_t published = 0;
};

class PageCacheWalk {
 public:
  PageCacheWalk(int64_t pages, uint32_t seed)
      : cache_(pages, kPageLength), naive_(pages), pages_(pages), random_(seed) {}

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        Begin();
        break;
      case 2:
        End();
        break;
      default:
        Grow();
        break;
    }
    EXPECT_EQ(cache_.free_pages(), naive_.free_pages());
    EXPECT_EQ(cache_.held_pages(), pages_ - naive_.free_pages());
  }

  int shared = 0, twins = 0, full = 0;

 private:
  void Begin() {
    Sequence sequence;
    for (size_t i = 0, length = 1 + random_() % 9; i < length; ++i)
      sequence.tokens.push_back(static_cast<int32_t>(random_() % 2));
    const auto most = static_cast<int64_t>((sequence.tokens.size() - 1) / kPageLength);
    const std::vector<int32_t> expected = naive_.Match(sequence.tokens, most);
    sequence.pages = cache_.Match(sequence.tokens, most);
    ASSERT_EQ(sequence.pages, expected);
    for (int32_t page : sequence.pages) naive_.Hold(page);
    sequence.published = sequence.pages.size();
    shared += static_cast<int>(sequence.published);
    sequences_.push_back(std::move(sequence));
  }

  // One page more, and what is full of the others becomes known.
  void Grow() {
    if (sequences_.empty()) return;
    Sequence& sequence = sequences_[random_() % sequences_.size()];
    const std::optional<int32_t> page = cache_.Allocate();
    ASSERT_EQ(page.has_value(), naive_.free_pages() > 0);
    if (!page) {
      ++full;
      return;
    }
    ASSERT_TRUE(naive_.MayBeAllocated(*page)) << *page;
    naive_.Allocate(*page);
    sequence.pages.push_back(*page);
    while (sequence.tokens.size() < sequence.pages.size() * kPageLength)
      sequence.tokens.push_back(static_cast<int32_t>(random_() % 2));
    if (random_() % 3 != 0) PublishNext(sequence);
  }

  void PublishNext(Sequence& sequence) {
    const size_t i = sequence.published;
    const Tokens prefix(sequence.tokens.begin(),
                        sequence.tokens.begin() + static_cast<int64_t>((i + 1) * kPageLength));
    const std::vector<int32_t> before(sequence.pages.begin(),
                                      sequence.pages.begin() + static_cast<int64_t>(i));
    const std::vector<int32_t> known = naive_.Match(prefix, static_cast<int64_t>(i) + 1);
    const int32_t own = sequence.pages[i];
    const int32_t used = cache_.Publish(before, own, std::span(prefix).last(kPageLength));
    if (known.size() == i + 1) {
      ASSERT_EQ(used, known.back());
      naive_.Hold(used);
      naive_.Release(own);
      ++twins;
    } else {
      ASSERT_EQ(used, own);
      naive_.Publish(before, own, prefix);
    }
    sequence.pages[i] = used;
    ++sequence.published;
  }

  void End() {
    if (sequences_.empty()) return;
    const size_t i = random_() % sequences_.size();
    std::ranges::reverse(sequences_[i].pages);
    for (int32_t page : sequences_[i].pages) {
      cache_.Release(page);
      naive_.Release(page);
    }
    sequences_.erase(sequences_.begin() + static_cast<int64_t>(i));
  }

  PageCache cache_;
  NaivePages naive_;
  int64_t pages_;
  std::mt19937 random_;
  std::vector<Sequence> sequences_;
};

TEST(PageCache, DoesWhatPagesByTheBookDo) {
  int shared = 0, twins = 0, full = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    PageCacheWalk walk(4 + seed % 24, seed);
    for (int i = 0; i < 400 && !testing::Test::HasFatalFailure(); ++i) walk.Step();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
    shared += walk.shared, twins += walk.twins, full += walk.full;
  }
  // The walk goes everywhere.
  EXPECT_GT(shared, 100);
  EXPECT_GT(twins, 100);
  EXPECT_GT(full, 100);
}

// Publishes `pages` of `tokens` in order.
void PublishAll(PageCache& cache, std::vector<int32_t>& pages, const Tokens& tokens) {
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i] = cache.Publish(std::span(pages).first(i), pages[i],
                             std::span(tokens).subspan(i * kPageLength, kPageLength));
  }
}

std::vector<int32_t> AllocateSome(PageCache& cache, int count) {
  std::vector<int32_t> pages;
  for (int i = 0; i < count; ++i) pages.push_back(cache.Allocate().value());
  return pages;
}

void ReleaseLastFirst(PageCache& cache, const std::vector<int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) cache.Release(*page);
}

TEST(PageCache, LosesTheEndOfAPrefixFirst) {
  PageCache cache(4, kPageLength);
  const Tokens tokens = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> pages = AllocateSome(cache, 3);
  PublishAll(cache, pages, tokens);
  ReleaseLastFirst(cache, pages);
  AllocateSome(cache, 2);
  EXPECT_EQ(cache.Match(tokens, 3), (std::vector<int32_t>{pages[0], pages[1]}));
}

TEST(PageCache, DoesNotReachPagesBehindALostOne) {
  PageCache cache(3, kPageLength);
  const Tokens tokens = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> pages = AllocateSome(cache, 3);
  PublishAll(cache, pages, tokens);
  for (int32_t page : pages) cache.Release(page);
  std::vector<int32_t> again = AllocateSome(cache, 1);
  EXPECT_EQ(again[0], pages[0]);
  EXPECT_TRUE(cache.Match(tokens, 3).empty());
  // Not even where the first page comes back: its old followers belong to a prefix that is gone.
  PublishAll(cache, again, tokens);
  EXPECT_EQ(cache.Match(tokens, 3), again);
}

TEST(PageCache, LetsASequencePublishBehindAnothersPages) {
  PageCache cache(8, kPageLength);
  const Tokens first = {1, 2, 3, 4}, second = {1, 2, 5, 6};
  std::vector<int32_t> a = AllocateSome(cache, 2), b = AllocateSome(cache, 2);
  PublishAll(cache, a, first);
  PublishAll(cache, b, second);
  EXPECT_EQ(b[0], a[0]);
  EXPECT_EQ(cache.held_pages(), 3);
  EXPECT_EQ(cache.Match(second, 2), b);
}

TEST(PageCache, NeverSharesPagesOfOtherTokens) {
  PageCache cache(8, kPageLength);
  std::vector<int32_t> pages = AllocateSome(cache, 2);
  PublishAll(cache, pages, {1, 2, 3, 4});
  EXPECT_TRUE(cache.Match(Tokens{1, 3, 3, 4}, 2).empty());
  EXPECT_TRUE(cache.Match(Tokens{3, 4}, 1).empty());
  EXPECT_TRUE(cache.Match(Tokens{1}, 1).empty());
  EXPECT_TRUE(cache.Match(Tokens{1, 2, 3, 4}, 0).empty());
  EXPECT_EQ(cache.Match(Tokens{1, 2, 3, 5}, 2), std::vector<int32_t>{pages[0]});
}

TEST(PageCacheDeathTest, RefusesToGiveUpAPageTwice) {
  PageCache cache(2, kPageLength);
  const int32_t page = cache.Allocate().value();
  cache.Release(page);
  EXPECT_DEATH(cache.Release(page), "holders > 0");
}

}  // namespace
}  // namespace lockstep

#include "text/tokenizer_trie.h"

#include <algorithm>
#include <functional>

namespace lockstep {

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::erase_if(entries,
                [](const Entry& e) { return e.text.empty() || e.text.size() > kMaxMatchedBytes; });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  // Breadth first: a node's children are appended together. Each node in the queue stands for the
  // entries [begin, end), which share its first `depth` bytes.
  struct Pending {
    size_t begin;
    size_t end;
    size_t depth;
  };
  nodes_.push_back({});
  std::vector<Pending> pending = {{0, entries.size(), 0}};
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Pending range = pending[n];
    size_t begin = range.begin;
    while (begin < range.end && entries[begin].text.size() == range.depth) {
      if (nodes_[n].value < 0) nodes_[n].value = entries[begin].value;
      ++begin;
    }
    nodes_[n].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < range.end) {
      const char byte = entries[begin].text[range.depth];
      size_t end = begin + 1;
      while (end < range.end && entries[end].text[range.depth] == byte) ++end;
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      pending.push_back({begin, end, range.depth + 1});
      ++nodes_[n].children;
      begin = end;
    }
  }
}

uint32_t ByteTrie::Child(uint32_t node, uint8_t byte) const {
  const Node& parent = nodes_[node];
  uint32_t low = parent.first_child;
  uint32_t count = parent.children;
  while (count > 0) {
    const uint32_t half = count / 2;
    if (nodes_[low + half].byte < byte) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  const bool found = low < parent.first_child + parent.children && nodes_[low].byte == byte;
  return found ? low : 0;
}

TokenIndex::TokenIndex(size_t capacity) {
  size_t size = 2;
  while (size < 2 * (capacity + 1)) size *= 2;
  slots_.resize(size);
}

size_t TokenIndex::SlotOf(std::string_view text) const {
  size_t at = std::hash<std::string_view>{}(text) & (slots_.size() - 1);
  while (slots_[at].id >= 0 && slots_[at].text != text) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void TokenIndex::Add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  Slot& slot = slots_[SlotOf(text)];
  if (slot.id >= 0 && slot.id < id) return;
  slot = {text, id};
  longest_ = std::max(longest_, text.size());
}

int32_t TokenIndex::Find(std::string_view text) const { return slots_[SlotOf(text)].id; }

}  // namespace lockstep

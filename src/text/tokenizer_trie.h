// Byte strings by prefix, and byte strings by their whole text: how token texts are found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Longer tokens are not looked for in text: without a limit, a file could make the search take
// quadratic time. Real vocabularies stay below 300 bytes.
inline constexpr size_t kMaxMatchedBytes = 512;

// A trie over bytes. Built once from all strings; where two are equal the first wins.
class ByteTrie {
 public:
  struct Entry {
    std::string_view text;  // left out where empty or longer than kMaxMatchedBytes
    int32_t value;          // at least 0
  };
  ByteTrie() = default;
  explicit ByteTrie(std::vector<Entry> entries);

  bool empty() const { return nodes_.size() <= 1; }

  // Walks down from the root while bytes match: visit(length, value) for every entry that `text`
  // begins with, shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    if (nodes_.empty()) return;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }
  struct Match {
    size_t length = 0;
    int32_t value = -1;  // -1: none
  };
  Match Longest(std::string_view text) const {
    Match match;
    ForEachPrefix(text, [&](size_t length, int32_t value) { match = {length, value}; });
    return match;
  }

 private:
  // Children of a node lie side by side, ascending by byte.
  struct Node {
    uint32_t first_child = 0;
    int32_t value = -1;
    uint16_t children = 0;
    uint8_t byte = 0;
  };
  uint32_t Child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;  // [0] is the root; no child has index 0
};

// Exact look-up of token texts. Where two are equal the lowest id wins. Holds views: the strings
// must outlive it.
class TokenIndex {
 public:
  TokenIndex() = default;
  explicit TokenIndex(size_t capacity);
  void Add(std::string_view text, int32_t id);
  // The id, or -1.
  int32_t Find(std::string_view text) const;
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    std::string_view text;
    int32_t id = -1;
  };
  size_t SlotOf(std::string_view text) const;

  std::vector<Slot> slots_ = std::vector<Slot>(2);  // a power of two, at most half full
  size_t longest_ = 0;
};

}  // namespace lockstep

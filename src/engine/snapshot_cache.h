// Which snapshot of recurrent states belongs to which cached prefix.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

namespace lockstep {

// Pages alone do not let a sequence go on where the model has recurrent states: a prefix is of use as far as a snapshot was taken at
// its end. Prefixes are known by PageCache::Prefix(), so that one whose pages were lost is never found again; snapshots are few, and the
// least recently used is given up first.
class SnapshotCache {
 public:
  explicit SnapshotCache(int64_t snapshots);

  // The snapshot of a prefix, which becomes the most recently used, or nothing.
  std::optional<int64_t> Find(uint64_t prefix);
  // A snapshot to write, which no prefix has; nothing where all are being written.
  std::optional<int64_t> Reserve();
  // Makes what Reserve() gave findable, or gives it back where the prefix has a snapshot already.
  void Publish(int64_t snapshot, uint64_t prefix);
  // Gives back what Reserve() gave.
  void Release(int64_t snapshot);
  // Forgets the snapshot of a prefix, if it has one.
  void Drop(uint64_t prefix);

 private:
  struct Entry {
    int64_t snapshot;
    uint64_t prefix;  // 0: none
    bool reserved;
  };
  using Entries = std::list<Entry>;

  Entries::iterator At(int64_t snapshot);

  Entries entries_;  // those of no use first, then the least recently used
  std::unordered_map<uint64_t, Entries::iterator> by_prefix_;
};

}  // namespace lockstep

#include "engine/snapshot_cache.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

SnapshotCache::SnapshotCache(int64_t snapshots) {
  for (int64_t i = 0; i < snapshots; ++i) entries_.push_back({i, 0, false});
}

std::optional<int64_t> SnapshotCache::Find(uint64_t prefix) {
  auto at = by_prefix_.find(prefix);
  if (at == by_prefix_.end()) return std::nullopt;
  entries_.splice(entries_.end(), entries_, at->second);
  return at->second->snapshot;
}

SnapshotCache::Entries::iterator SnapshotCache::At(int64_t snapshot) {
  auto at = std::ranges::find(entries_, snapshot, &Entry::snapshot);
  LOCKSTEP_CHECK(at != entries_.end() && at->reserved, "snapshot {} was not reserved", snapshot);
  return at;
}

std::optional<int64_t> SnapshotCache::Reserve() {
  auto at = std::ranges::find(entries_, false, &Entry::reserved);
  if (at == entries_.end()) return std::nullopt;
  by_prefix_.erase(at->prefix);
  at->prefix = 0;
  at->reserved = true;
  return at->snapshot;
}

void SnapshotCache::Publish(int64_t snapshot, uint64_t prefix) {
  Release(snapshot);
  if (Find(prefix)) return;
  Entries::iterator at = entries_.begin();
  at->prefix = prefix;
  by_prefix_.emplace(prefix, at);
  entries_.splice(entries_.end(), entries_, at);
}

void SnapshotCache::Release(int64_t snapshot) {
  auto at = At(snapshot);
  at->reserved = false;
  entries_.splice(entries_.begin(), entries_, at);
}

void SnapshotCache::Drop(uint64_t prefix) {
  auto at = by_prefix_.find(prefix);
  if (at == by_prefix_.end()) return;
  at->second->prefix = 0;
  entries_.splice(entries_.begin(), entries_, at->second);
  by_prefix_.erase(at);
}

}  // namespace lockstep

#include "exec/kv_pool.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {
namespace {

int64_t Aligned(int64_t bytes) { return RoundUp(bytes, static_cast<int64_t>(kMemoryAlignment)); }

}  // namespace

KvLayout KvLayoutOf(const StateSpec& state, const KvTypes& types) {
  const Format* v_type = state.values_in_keys ? types.k : types.v;
  return {state.kv_heads, state.dk, state.dv, types.k, v_type, state.values_in_keys, state.pool};
}

int64_t KvPool::PageBytes(const std::vector<StateSpec>& states, const KvTypes& types) {
  int64_t bytes = 0;
  for (const StateSpec& state : states) {
    if (state.kind != StateSpec::Kind::kKv) continue;
    const KvLayout layout = KvLayoutOf(state, types);
    bytes += Aligned(layout.k_bytes()) + Aligned(layout.v_bytes());
  }
  return bytes;
}

KvPool::KvPool(const std::vector<StateSpec>& states, const KvTypes& types, int64_t pages)
    : pages_(pages) {
  for (const Format* type : {types.k, types.v}) {
    if (!IsKvType(*type))
      throw Refused(
          "cache type: expected one of f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl, found {}",
          type->name);
  }
  layouts_.reserve(states.size());
  for (const StateSpec& state : states) {
    names_.push_back(state.name);
    if (state.kind != StateSpec::Kind::kKv) {
      views_.emplace_back();
      continue;
    }
    layouts_.push_back(KvLayoutOf(state, types));
    const KvLayout& layout = layouts_.back();
    const int64_t k_offset = page_bytes_, k_end = k_offset + Aligned(layout.k_bytes());
    views_.push_back({&layout, k_offset, layout.values_in_keys ? k_offset : k_end});
    page_bytes_ = k_end + Aligned(layout.v_bytes());
  }
  buffer_ = Buffer(Size(static_cast<uint64_t>(pages)) * Size(static_cast<uint64_t>(page_bytes_)),
                   "KV cache");
}

int32_t KvPool::slot(std::string_view state) const {
  const auto at = std::ranges::find(names_, state);
  LOCKSTEP_CHECK(at != names_.end(), "no state {}", state);
  return static_cast<int32_t>(at - names_.begin());
}

}  // namespace lockstep

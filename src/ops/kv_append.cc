#include "ops/attention.h"

namespace lockstep {

void KvAppendReference(const KvAppendTask& task, int64_t first, int64_t last, std::byte*) {
  const KvLayout& layout = task.layout;
  for (int64_t t = first; t < last; ++t) {
    const AttentionRow& row = task.rows[t];
    // The task's pages are read-only to attention, which shares the row's type; appending is what
    // writes them.
    std::byte* page = const_cast<std::byte*>(row.pages[row.position / kPageTokens]);
    const int64_t at = row.position % kPageTokens;
    for (int64_t g = 0; g < layout.kv_heads; ++g) {
      WriteKey(layout, task.k + t * task.k_stride + g * layout.dk,
               page + task.k_offset + g * layout.k_head_bytes(), at);
      if (task.v == nullptr) continue;
      WriteValue(layout, task.v + t * task.v_stride + g * layout.dv,
                 page + task.v_offset + g * layout.v_head_bytes(), at);
    }
  }
}

}  // namespace lockstep

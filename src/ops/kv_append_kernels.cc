#include <cstring>

#include "ops/attention.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

KvAppendFn KvAppend;

namespace {

constexpr float kMostF16 = 65504.0f, kMostBf16 = 0x1.FEp127f;

// As the formats encode: finite numbers stay finite.
LOCKSTEP_INLINE F32x16 Within(F32x16 x, F32x16 most) {
  const F32x16 within = Min(most, Max(Neg(most), x));
  return Select(Less(Abs(x), __builtin_inff()), within, x);
}

// [n] numbers as `kind` stores them, up to 15 more written after them.
void EncodeRow(KvKind kind, const float* in, int64_t n, std::byte* out) {
  ForEach16(n, [&](int64_t i, int count) {
    const F32x16 x = LoadN(in + i, count);
    if (kind == KvKind::kF32) {
      Store(reinterpret_cast<float*>(out) + i, x);
    } else if (kind == KvKind::kF16) {
      StoreF16(reinterpret_cast<uint16_t*>(out) + i, Within(x, kMostF16));
    } else {
      StoreBf16(reinterpret_cast<uint16_t*>(out) + i, Within(x, kMostBf16));
    }
  });
}

template <typename T>
void Weave(const std::byte* row, int64_t dk, std::byte* head, int64_t at) {
  const T* from = reinterpret_cast<const T*>(row);
  T* to = reinterpret_cast<T*>(head) + at / kStripTokens * dk * kStripTokens + at % kStripTokens;
  for (int64_t d = 0; d < dk; ++d) to[d * kStripTokens] = from[d];
}

}  // namespace

void KvAppend(const KvAppendTask& task, int64_t first, int64_t last, std::byte* scratch) {
  const KvLayout& layout = task.layout;
  const KvKind k_kind = KvKindOf(*layout.k_type), v_kind = KvKindOf(*layout.v_type);
  const int64_t k_head_bytes = layout.k_head_bytes(), v_head_bytes = layout.v_head_bytes();
  const int64_t v_row_bytes = layout.v_row_bytes();
  const int64_t k_row_bytes = layout.k_row_bytes(), k_bytes = layout.k_type->RowBytes(layout.dk);
  for (int64_t t = first; t < last; ++t) {
    const AttentionRow& row = task.rows[t];
    // Pages are read-only to attention, which shares the row's type; appending is what writes them.
    std::byte* page = const_cast<std::byte*>(row.pages[row.position / kPageTokens]);
    const int64_t at = row.position % kPageTokens;
    for (int64_t g = 0; g < layout.kv_heads; ++g) {
      const float* key = task.k + t * task.k_stride + g * layout.dk;
      std::byte* k_head = page + task.k_offset + g * k_head_bytes;
      if (k_kind == KvKind::kBlocks) {
        WriteKey(layout, key, k_head, at);
      } else {
        EncodeRow(k_kind, key, layout.dk, scratch);
        if (layout.keys_in_rows()) {
          std::memcpy(k_head + at * k_row_bytes, scratch, static_cast<size_t>(k_bytes));
        } else if (k_kind == KvKind::kF32) {
          Weave<float>(scratch, layout.dk, k_head, at);
        } else {
          Weave<uint16_t>(scratch, layout.dk, k_head, at);
        }
      }
      if (task.v == nullptr) continue;
      const float* value = task.v + t * task.v_stride + g * layout.dv;
      std::byte* v_head = page + task.v_offset + g * v_head_bytes;
      if (v_kind == KvKind::kBlocks) {
        WriteValue(layout, value, v_head, at);
      } else {
        EncodeRow(v_kind, value, layout.dv, v_head + at * v_row_bytes);
      }
    }
  }
}

}  // namespace lockstep::LOCKSTEP_ISA

#include "ops/kv_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/checked.h"

namespace lockstep {

namespace {

struct KvType {
  std::string_view name;
  KvKind kind;
};

constexpr KvType kKvTypes[] = {
    {"F32", KvKind::kF32},     {"F16", KvKind::kF16},     {"BF16", KvKind::kBf16},
    {"Q8_0", KvKind::kBlocks}, {"Q4_0", KvKind::kBlocks}, {"Q4_1", KvKind::kBlocks},
    {"Q5_0", KvKind::kBlocks}, {"Q5_1", KvKind::kBlocks}, {"IQ4_NL", KvKind::kBlocks},
};

const KvType* FindKvType(const Format& format) {
  for (const KvType& type : kKvTypes) {
    if (type.name == format.name) return &type;
  }
  return nullptr;
}

bool InBlocks(const Format& format) { return format.block > 1; }

// Where number d of the key at position `at` stands.
int64_t WovenOffset(const KvLayout& layout, int64_t at, int64_t d) {
  const int64_t strip = at / kStripTokens, lane = at % kStripTokens;
  return ((strip * layout.dk + d) * kStripTokens + lane) * layout.k_type->block_bytes;
}

// The row of [n] numbers in a format of blocks, by way of whole blocks.
void DecodeRow(const Format& format, const std::byte* row, int64_t n, float* out) {
  const int64_t whole = n / format.block;
  format.decode(row, whole, out);
  if (whole * format.block == n) return;
  std::array<float, kKvBlock> last;
  format.decode(row + whole * format.block_bytes, 1, last.data());
  std::copy_n(last.data(), n - whole * format.block, out + whole * format.block);
}

void EncodeRow(const Format& format, const float* in, int64_t n, std::byte* row) {
  const int64_t whole = n / format.block;
  format.encode(in, whole, row);
  if (whole * format.block == n) return;
  std::array<float, kKvBlock> last{};
  std::copy_n(in + whole * format.block, n - whole * format.block, last.data());
  format.encode(last.data(), 1, row + whole * format.block_bytes);
}

}  // namespace

bool IsKvType(const Format& format) { return FindKvType(format) != nullptr; }

KvKind KvKindOf(const Format& format) { return FindKvType(format)->kind; }

bool KvLayout::keys_in_rows() const { return values_in_keys || InBlocks(*k_type); }

int64_t KvLayout::k_row_bytes() const {
  return k_type->RowBytes(RoundUp(dk, InBlocks(*k_type) ? kKvBlock : 16));
}

int64_t KvLayout::k_head_bytes() const {
  return page_entries() * (keys_in_rows() ? k_row_bytes() : k_type->RowBytes(dk));
}

int64_t KvLayout::v_row() const { return RoundUp(dv, InBlocks(*v_type) ? kKvBlock : 16); }

int64_t KvLayout::v_row_bytes() const {
  return values_in_keys ? k_row_bytes() : v_type->RowBytes(v_row());
}

int64_t KvLayout::v_head_bytes() const { return page_entries() * v_row_bytes(); }

void ReadKey(const KvLayout& layout, const std::byte* head, int64_t at, float* key) {
  const Format& type = *layout.k_type;
  if (layout.keys_in_rows()) {
    DecodeRow(type, head + at * layout.k_row_bytes(), layout.dk, key);
    return;
  }
  for (int64_t d = 0; d < layout.dk; ++d)
    type.decode(head + WovenOffset(layout, at, d), 1, key + d);
}

void WriteKey(const KvLayout& layout, const float* key, std::byte* head, int64_t at) {
  const Format& type = *layout.k_type;
  if (layout.keys_in_rows()) {
    EncodeRow(type, key, layout.dk, head + at * layout.k_row_bytes());
    return;
  }
  for (int64_t d = 0; d < layout.dk; ++d)
    type.encode(key + d, 1, head + WovenOffset(layout, at, d));
}

void ReadValue(const KvLayout& layout, const std::byte* head, int64_t at, float* value) {
  DecodeRow(*layout.v_type, head + at * layout.v_row_bytes(), layout.dv, value);
}

void WriteValue(const KvLayout& layout, const float* value, std::byte* head, int64_t at) {
  EncodeRow(*layout.v_type, value, layout.dv, head + at * layout.v_row_bytes());
}

namespace {

void CopyKey(const KvLayout& layout, const std::byte* from, int64_t from_at, std::byte* to,
             int64_t to_at) {
  if (layout.keys_in_rows()) {
    const int64_t bytes = layout.k_row_bytes();
    std::memcpy(to + to_at * bytes, from + from_at * bytes, static_cast<size_t>(bytes));
    return;
  }
  const auto bytes = static_cast<size_t>(layout.k_type->block_bytes);
  for (int64_t d = 0; d < layout.dk; ++d) {
    std::memcpy(to + WovenOffset(layout, to_at, d), from + WovenOffset(layout, from_at, d), bytes);
  }
}

}  // namespace

void CopyPosition(const KvLayout& layout, const std::byte* from, KvPlace from_place,
                  int64_t from_at, std::byte* to, KvPlace to_place, int64_t to_at) {
  const int64_t row = layout.v_row_bytes();
  for (int64_t g = 0; g < layout.kv_heads; ++g) {
    const int64_t k_head = g * layout.k_head_bytes(), v_head = g * layout.v_head_bytes();
    CopyKey(layout, from + from_place.k_offset + k_head, from_at, to + to_place.k_offset + k_head,
            to_at);
    if (layout.v_bytes() == 0) continue;
    std::memcpy(to + to_place.v_offset + v_head + to_at * row,
                from + from_place.v_offset + v_head + from_at * row, static_cast<size_t>(row));
  }
}

}  // namespace lockstep

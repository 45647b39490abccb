#include "formats/packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "formats/packing_table.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

constexpr int kLanes = kPanelRows;

int CodeBits(CodeLayout layout) {
  switch (layout) {
    case CodeLayout::kBits2:
      return 2;
    case CodeLayout::kBits3:
      return 3;
    case CodeLayout::kBits4:
      return 4;
    case CodeLayout::kBits5:
      return 5;
    case CodeLayout::kBits6:
      return 6;
    case CodeLayout::kBits8:
      return 8;
    default:
      return 0;
  }
}

int64_t ScaleBytes(const Format& format, ScaleLayout layout) {
  const int64_t groups = format.group == 0 ? 0 : std::max(format.block, kBlockK) / format.group;
  switch (layout) {
    case ScaleLayout::kNone:
      return 0;
    case ScaleLayout::kF16:
      return 2 * kLanes;
    case ScaleLayout::kF16Min:
      return 4 * kLanes;
    case ScaleLayout::kE8m0:
      return kLanes;
    case ScaleLayout::kUe4m3:
      return groups * kLanes;
    case ScaleLayout::kSuper:
      return (2 + groups) * kLanes;
    case ScaleLayout::kSuperMin:
      return (4 + 2 * groups) * kLanes;
    case ScaleLayout::kSuperMin4:
      return (4 + groups) * kLanes;
    case ScaleLayout::kSuperOne:
      return 2 * kLanes;
  }
  return 0;
}

// The codes of one lane in a 32-block: word g holds k-group g, a byte for each of its four codes.
using LaneWords = std::array<uint32_t, 8>;

// Bits [bit, bit + bits) of every byte, moved to the bottom.
constexpr uint32_t ByteField(uint32_t word, int bit, int bits) {
  return word >> bit & 0x01010101u * ((1u << bits) - 1);
}

// Stores planes of `bits` bits, taken from bit `from` of the codes: 8 / bits groups share a byte. `step`: groups between neighbours in
// a byte.
void WeavePlane(const LaneWords& words, int from, int bits, int step, int lane, std::byte* plane) {
  const int share = 8 / bits, vectors = bits;
  for (int v = 0; v < vectors; ++v) {
    uint32_t word = 0;
    for (int i = 0; i < share; ++i) {
      const int group = step == 1 ? v * share + i : v + i * step;
      word |= ByteField(words[group], from, bits) << (i * bits);
    }
    std::memcpy(plane + v * 64 + lane * 4, &word, sizeof(word));
  }
}

void WeaveBlock(CodeLayout layout, const LaneWords& words, int lane, std::byte* block) {
  switch (layout) {
    case CodeLayout::kBits2:
      WeavePlane(words, 0, 2, 1, lane, block);
      break;
    case CodeLayout::kBits3:
      WeavePlane(words, 0, 2, 1, lane, block);
      WeavePlane(words, 2, 1, 1, lane, block + 128);
      break;
    case CodeLayout::kBits4:
      WeavePlane(words, 0, 4, 4, lane, block);
      break;
    case CodeLayout::kBits5:
      WeavePlane(words, 0, 4, 4, lane, block);
      WeavePlane(words, 4, 1, 1, lane, block + 256);
      break;
    case CodeLayout::kBits6:
      WeavePlane(words, 0, 4, 4, lane, block);
      WeavePlane(words, 4, 2, 1, lane, block + 256);
      break;
    default:
      WeavePlane(words, 0, 8, 1, lane, block);
  }
}

// Maps an 8-bit code of the integer view to the stored code.
std::array<uint8_t, 256> StoredCodes(const Packing& packing) {
  std::array<uint8_t, 256> stored{};
  for (int code = -128; code < 128; ++code) {
    int u = packing.bias_log2 < 0 ? code : code + (1 << packing.bias_log2);
    if (packing.table != nullptr) {
      u = static_cast<int>(std::find(packing.table, packing.table + 16, code) - packing.table);
    }
    stored[static_cast<uint8_t>(code)] = static_cast<uint8_t>(u);
  }
  return stored;
}

void PutU16(std::byte* at, int lane, uint16_t value) { std::memcpy(at + 2 * lane, &value, 2); }

// Stores the scales of one lane of a unit. scales, mins: the integer view's, [groups]
void WeaveScales(const Format& format, const Packing& packing, const std::byte* block,
                 const float* scales, const float* mins, int lane, std::byte* unit) {
  const int groups = format.block / format.group;
  switch (packing.scales) {
    case ScaleLayout::kNone:
      break;
    case ScaleLayout::kF16Min:
      PutU16(unit + 2 * kLanes, lane, F32ToF16(mins[0]));
      [[fallthrough]];
    case ScaleLayout::kF16:
    case ScaleLayout::kSuperOne:
      PutU16(unit, lane, F32ToF16(scales[0]));
      break;
    default: {
      uint16_t d = 0, e = 0;
      std::array<uint8_t, 16> s{}, m{};
      packing.factors(block, &d, &e, s.data(), m.data());
      std::byte* at = unit;
      const bool has_d =
          packing.scales != ScaleLayout::kE8m0 && packing.scales != ScaleLayout::kUe4m3;
      const bool has_min =
          packing.scales == ScaleLayout::kSuperMin || packing.scales == ScaleLayout::kSuperMin4;
      if (has_d) PutU16(at, lane, d), at += 2 * kLanes;
      if (has_min) PutU16(at, lane, e), at += 2 * kLanes;
      for (int g = 0; g < groups; ++g) {
        at[lane] = static_cast<std::byte>(s[g]), at += kLanes;
        if (packing.scales == ScaleLayout::kSuperMin)
          at[lane] = static_cast<std::byte>(m[g]), at += kLanes;
      }
    }
  }
}

template <typename T>
bool AllFinite(const T* values, int64_t count) {
  return std::all_of(values, values + count, [](T v) { return std::isfinite(v); });
}

// Float formats: [k][16] in the file's own type.
std::optional<BadWeight> PackFloatPanel(const std::byte* rows, int64_t panel,
                                        PackedMatrix& matrix) {
  const int64_t size = matrix.format->block_bytes, row_bytes = matrix.format->RowBytes(matrix.k);
  std::byte* out = matrix.data + panel * matrix.panel_bytes();
  const int64_t lanes = std::min<int64_t>(kLanes, matrix.n - panel * kLanes);
  std::memset(out, 0, static_cast<size_t>(matrix.panel_bytes()));
  std::vector<float> row(static_cast<size_t>(matrix.k));
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const std::byte* in = rows + (panel * kLanes + lane) * row_bytes;
    matrix.format->decode(in, matrix.k, row.data());
    if (!AllFinite(row.data(), matrix.k)) {
      auto bad = std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
      return BadWeight{panel * kLanes + lane, bad - row.begin()};
    }
    for (int64_t i = 0; i < matrix.k; ++i)
      std::memcpy(out + (i * kLanes + lane) * size, in + i * size, size);
  }
  return std::nullopt;
}

std::optional<BadWeight> PackQuantizedPanel(const std::byte* rows, int64_t panel,
                                            PackedMatrix& matrix) {
  const Format& format = *matrix.format;
  const Packing& packing = *matrix.packing;
  const bool raw = packing.codes == CodeLayout::kRaw;
  const auto stored = StoredCodes(packing);
  const int64_t scale_bytes = ScaleBytes(format, packing.scales),
                code_bytes = CodeBits(packing.codes) * 64;
  const int64_t row_bytes = format.RowBytes(matrix.k), units = matrix.k / matrix.unit;
  const int64_t lanes = std::min<int64_t>(kLanes, matrix.n - panel * kLanes);
  std::byte* out = matrix.data + panel * matrix.panel_bytes();
  std::memset(out, 0, static_cast<size_t>(matrix.panel_bytes()));

  std::vector<int8_t> codes(static_cast<size_t>(format.block));
  std::vector<float> scales(static_cast<size_t>(format.block / format.group)), mins(scales.size());
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t row = panel * kLanes + lane;
    for (int64_t u = 0; u < units; ++u) {
      const std::byte* block = rows + row * row_bytes + u * format.block_bytes;
      std::byte* unit = out + u * matrix.unit_bytes;
      format.integers(block, codes.data(), scales.data(), mins.data());
      if (!AllFinite(scales.data(), scales.size()) ||
          (format.has_min && !AllFinite(mins.data(), mins.size()))) {
        return BadWeight{row, u * format.block};
      }
      if (raw) {
        std::memcpy(unit + lane * format.block_bytes, block,
                    static_cast<size_t>(format.block_bytes));
        continue;
      }
      WeaveScales(format, packing, block, scales.data(), mins.data(), static_cast<int>(lane), unit);
      for (int begin = 0; begin < format.block; begin += kBlockK) {
        std::array<uint8_t, kBlockK> bytes;
        for (int i = 0; i < kBlockK; ++i) bytes[i] = stored[static_cast<uint8_t>(codes[begin + i])];
        WeaveBlock(packing.codes, std::bit_cast<LaneWords>(bytes), static_cast<int>(lane),
                   unit + scale_bytes + begin / kBlockK * code_bytes);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

const Packing& PackingFor(const Format& format) {
  static constexpr Packing kRawPacking = {0, CodeLayout::kRaw, ScaleLayout::kNone,
                                          7, nullptr,          nullptr};
  for (const Packing& row : Packings()) {
    if (row.id == format.id) return row;
  }
  return kRawPacking;
}

PackedMatrix::PackedMatrix(const Format& matrix_format, int64_t rows, int64_t columns)
    : format(&matrix_format),
      packing(&PackingFor(matrix_format)),
      n(rows),
      k(columns),
      unit(matrix_format.block) {
  if (packing->codes == CodeLayout::kRaw || format->group == 0) {
    unit_bytes = format->block_bytes * kLanes;
  } else {
    unit_bytes =
        ScaleBytes(*format, packing->scales) + unit / kBlockK * CodeBits(packing->codes) * 64;
  }
}

std::optional<BadWeight> PackPanels(const std::byte* rows, int64_t first, int64_t last,
                                    PackedMatrix& matrix) {
  for (int64_t panel = first; panel < last; ++panel) {
    auto bad = matrix.quantized() ? PackQuantizedPanel(rows, panel, matrix)
                                  : PackFloatPanel(rows, panel, matrix);
    if (bad) return bad;
  }
  return std::nullopt;
}

}  // namespace lockstep

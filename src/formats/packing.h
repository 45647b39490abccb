// How weights lie in memory for the matrix kernels: panels of 16 output rows, woven so that SIMD
// lanes run across rows.
//
// A panel holds 16 rows x all k, cut in *units* of k (32, or the block of the file's format). A
// unit holds the scales of its 16 rows, then the codes of its 32-blocks. Within a 32-block the
// codes are woven in eight k-groups: group g is 64 bytes, four consecutive k of row 0, then of row
// 1 ... So one load feeds 16 rows, one broadcast of four activations feeds one group, and one-token
// and many-token kernels share one order of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "formats/format.h"

namespace lockstep {

inline constexpr int kPanelRows = 16;  // output rows in a panel
inline constexpr int kBlockK = 32;     // k of a woven code block

// How the codes of a 32-block are stored: `bits` per code as unsigned numbers, low planes first.
//   2 bits: 2 x 64 bytes, byte j of vector v holds groups 4v .. 4v+3 at bits 0, 2, 4, 6
//   3 bits: the 2-bit plane, then 64 bytes whose bit g is the third bit of group g
//   4 bits: 4 x 64 bytes, vector v holds group v in the low and group v+4 in the high nibble
//   5 bits: the 4-bit plane, then 64 bytes whose bit g is the fifth bit of group g
//   6 bits: the 4-bit plane, then a 2-bit plane
//   8 bits: 8 x 64 bytes
enum class CodeLayout : uint8_t {
  kBits2,
  kBits3,
  kBits4,
  kBits5,
  kBits6,
  kBits8,
  kRaw,  // the file's blocks of row 0, of row 1 ...; taken apart when used
  kFloat32,
  kFloat16,
  kBfloat16  // [k][16] plain numbers, no scales
};

// How the scales of a unit are stored, each field for 16 rows side by side.
enum class ScaleLayout : uint8_t {
  kNone,
  kF16,        // f16 scale                                    unit 32
  kF16Min,     // f16 scale, f16 min                           unit 32
  kE8m0,       // e8m0 of twice the scale                      unit 32
  kUe4m3,      // per group: ue4m3 of twice the scale          unit 64
  kSuper,      // f16 d; per group: int8 s; scale = d s        unit 256
  kSuperMin,   // f16 d, f16 e; per group: uint8 s, uint8 m; scale = d s, min = -e m
  kSuperMin4,  // the same with s in the low and m in the high nibble of one byte
  kSuperOne,   // f16 d, scale = d in every group
};

// The packing of one format. A stored code u means the integer u - bias, or table[u] where there is
// a table.
struct Packing {
  uint32_t id;  // the format's GGUF type id
  CodeLayout codes;
  ScaleLayout scales;
  int bias_log2;  // bias is 1 << bias_log2; -1: none. 7: codes over 127 occur, kernels use their
                  // biased product
  const int8_t* table;  // 16 entries or null
  // Factors of a super-block: d and e as f16 bits, s and m per group as their layout stores them (m
  // null but for kSuperMin). Null for layouts that follow from the integer view.
  void (*factors)(const std::byte* block, uint16_t* d, uint16_t* e, uint8_t* s, uint8_t* m);
};

// Formats without a row of their own are packed raw.
const Packing& PackingFor(const Format& format);

// Where the weights of a matrix [n, k] lie; does not own them.
struct PackedMatrix {
  const Format* format = nullptr;
  const Packing* packing = nullptr;
  int64_t n = 0;           // output rows
  int64_t k = 0;           // summed width
  int64_t unit = 0;        // k of a unit
  int64_t unit_bytes = 0;  // bytes of a unit of one panel
  std::byte* data = nullptr;

  PackedMatrix() = default;
  // k must be a multiple of format.block.
  PackedMatrix(const Format& format, int64_t n, int64_t k);

  int64_t panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  int64_t panel_bytes() const { return k / unit * unit_bytes; }
  int64_t bytes() const { return panels() * panel_bytes(); }
  bool quantized() const { return format->group != 0; }
};

// A weight that is not a finite number.
struct BadWeight {
  int64_t row;
  int64_t column;  // first column of the block that holds it
};

// Packs panels [first, last) of `matrix` from rows as the file stores them; rows past n become
// zero. Different panels may be packed at the same time. Returns where a scale, min or weight is
// NaN or infinite, if one is.
std::optional<BadWeight> PackPanels(const std::byte* rows, int64_t first, int64_t last,
                                    PackedMatrix& matrix);

}  // namespace lockstep

// A weight format: how a file stores numbers in blocks. One file a format, one row in the table
// (formats/table.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// One weight format of GGUF. Every function takes whole blocks and cannot fail: hostile blocks
// decode to something.
//
// The *float view* (`decode`) is what the file means; it equals the `gguf` Python package's
// dequantisation bit for bit.
//
// The *integer view* (`integers`) is what matrix multiplication uses: within a group of `group`
// consecutive weights
//     weight = scale * code + min
// with an 8-bit code and an f32 scale and min. Scales and mins here are exact (products of the
// file's f16 and small integers fit f32), so this view rounds less than the float view, never more.
struct Format {
  std::string_view name;  // as llama.cpp spells it, upper case: "Q4_K"
  uint32_t id;            // type id in GGUF files
  int32_t block;          // weights in a block; 1 for plain numbers
  int32_t block_bytes;    // bytes in a block

  // in: [blocks * block_bytes], out: [blocks * block]
  void (*decode)(const std::byte* in, int64_t blocks, float* out);
  // Null where the format has no encoder. Deterministic, finite for any finite input. in: [blocks *
  // block]
  void (*encode)(const float* in, int64_t blocks, std::byte* out);
  // A slower encoder that searches for the least weighted squared error (formats/fit.h); null where
  // `encode` leaves nothing to search for. importance: [blocks * block] the mean square of what
  // each weight is multiplied by, finite and not negative, or null where it is not known. A block's
  // bytes depend on that block alone. in: [blocks * block]
  void (*fit)(const float* in, const float* importance, int64_t blocks, std::byte* out);
  bool needs_importance;  // too few bits to be of use without `importance`

  // Integer view; `group` is 0 and `integers` null for float formats and for those no matrix can
  // have (I8 .. I64, F64).
  int32_t group;  // 16 or 32, divides `block`
  bool has_min;   // false: mins are all zero and `mins` may be null
  // One block. codes: [block], scales: [block / group], mins: [block / group]
  void (*integers)(const std::byte* in, int8_t* codes, float* scales, float* mins);

  // Bytes of a row of `n` weights, which must be a multiple of `block`.
  int64_t RowBytes(int64_t n) const { return n / block * block_bytes; }
};

// All formats, by ascending id.
std::span<const Format* const> AllFormats();
// The format with this GGUF type id, or null.
const Format* FindFormat(uint32_t id);
// The format of this name in any case ("q4_k"), or null.
const Format* FindFormat(std::string_view name);

}  // namespace lockstep

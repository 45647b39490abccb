#include "convert/packed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// E4M3 without infinities (OCP 8-bit floating point 1.0): the largest code is NaN.
float E4m3ToF32(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, rest = code & 0x7F;
  if (rest == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  const float magnitude = std::bit_cast<float>(rest << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

float FromF64(const std::byte* at) { return static_cast<float>(Load<double>(at)); }
float FromF32(const std::byte* at) { return Load<float>(at); }
float FromF16(const std::byte* at) { return F16ToF32(Load<uint16_t>(at)); }
float FromBf16(const std::byte* at) { return Bf16ToF32(Load<uint16_t>(at)); }
float FromE4m3(const std::byte* at) { return E4m3ToF32(Load<uint8_t>(at)); }
// The upper byte of an f16.
float FromE5m2(const std::byte* at) {
  return F16ToF32(static_cast<uint16_t>(Load<uint8_t>(at) << 8));
}
// Of tables that name other things: exact up to 2^24.
float FromI64(const std::byte* at) { return static_cast<float>(Load<int64_t>(at)); }
float FromE8m0(const std::byte* at) { return E8m0ToF32(Load<uint8_t>(at)); }

struct Plain {
  std::string_view type;
  std::string_view own;  // the format that loses nothing, or as little as a release lost
  float (*decode)(const std::byte* at);
};

constexpr Plain kPlain[] = {
    {"F64", "F32", FromF64},       {"F32", "F32", FromF32},       {"F16", "F16", FromF16},
    {"BF16", "BF16", FromBf16},    {"F8_E4M3", "BF16", FromE4m3}, {"F8_E5M2", "BF16", FromE5m2},
    {"F8_E8M0", "BF16", FromE8m0}, {"I64", "F32", FromI64},
};

[[noreturn]] void RefuseScales(const SafetensorsTensor& scales, const SafetensorsTensor& numbers) {
  throw Refused("{}: expected scales of blocks of {} [{}], found {} [{}]", Printable(scales.name),
                Printable(numbers.name), fmt::join(numbers.shape, ", "), scales.type->name,
                fmt::join(scales.shape, ", "));
}

// The block's size along one axis: as given, or the entries over the scales where that is whole.
uint64_t BlockSize(uint64_t entries, uint64_t scales, int64_t given, const auto& refuse) {
  if (scales == 0 || entries == 0) refuse();
  if (given > 0) {
    const auto size = static_cast<uint64_t>(given);
    if ((entries + size - 1) / size == scales) return size;
    // A scale for all entries of the axis, whatever the blocks of other tensors are.
    if (scales != 1) refuse();
  }
  if (entries % scales != 0) refuse();
  return entries / scales;
}

}  // namespace

Values PlainValues(const SafetensorsTensor& tensor) {
  const auto plain = std::ranges::find(kPlain, tensor.type->name, &Plain::type);
  if (plain == std::end(kPlain)) {
    throw Refused("{}: expected numbers of type F32, F16, BF16 or F8_E4M3, found {}",
                  Printable(tensor.name), tensor.type->name);
  }
  const uint64_t size = tensor.type->bits / 8;
  const auto decode = plain->decode;
  return Values(tensor.name, tensor.shape, *FindFormat(plain->own),
                [data = tensor.data, size, decode](uint64_t begin, uint64_t count, float* out) {
                  const std::byte* at = data.data() + begin * size;
                  for (uint64_t i = 0; i < count; ++i) out[i] = decode(at + i * size);
                });
}

Values ScaledValues(const SafetensorsTensor& numbers, const SafetensorsTensor& scales,
                    std::span<const int64_t> block) {
  const Values codes = PlainValues(numbers), factors = PlainValues(scales);
  const auto refuse = [&] { RefuseScales(scales, numbers); };
  const size_t rank = numbers.shape.size();
  std::vector<uint64_t> grid = scales.shape;
  if (scales.elements() == 1) grid.assign(rank, 1);
  if (rank < 2 || grid.size() != rank) refuse();
  const uint64_t rows = numbers.shape[rank - 2], columns = numbers.shape[rank - 1];
  const uint64_t down = grid[rank - 2], across = grid[rank - 1];
  const bool whole = scales.elements() == 1;
  if (!whole && !std::equal(grid.begin(), grid.end() - 2, numbers.shape.begin())) refuse();
  const uint64_t block_rows = BlockSize(rows, down, block.empty() ? 0 : block[0], refuse);
  const uint64_t block_columns =
      BlockSize(columns, across, block.size() < 2 ? 0 : block[1], refuse);
  return Values(
      numbers.name, numbers.shape, codes.own(), [=](uint64_t begin, uint64_t left, float* out) {
        codes.Read(begin, left, out);
        while (left > 0) {
          const uint64_t row = begin / columns, column = begin % columns;
          const uint64_t at =
              (row / rows * down + row % rows / block_rows) * across + column / block_columns;
          const uint64_t end = std::min(columns, (column / block_columns + 1) * block_columns);
          const uint64_t run = std::min(left, end - column);
          float scale;
          factors.Read(whole ? 0 : at, 1, &scale);
          for (uint64_t i = 0; i < run; ++i) out[i] *= scale;
          begin += run, left -= run, out += run;
        }
      });
}

bool IsMxFp4Pair(const SafetensorsTensor& numbers, const SafetensorsTensor& scales) {
  const bool packed = numbers.type->name == "I8" || numbers.type->name == "U8";
  const size_t rank = numbers.shape.size();
  return packed && scales.type->bits == 8 && rank > 0 && scales.shape.size() == rank &&
         std::equal(scales.shape.begin(), scales.shape.end() - 1, numbers.shape.begin()) &&
         numbers.shape[rank - 1] % 16 == 0 && numbers.shape[rank - 1] / 16 == scales.shape[rank - 1];
}

Values MxFp4Values(const SafetensorsTensor& blocks, const SafetensorsTensor& scales) {
  constexpr uint64_t kBytes = 16, kGroup = 32;
  static constexpr float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  Values::Dims dims = blocks.shape;
  if (IsMxFp4Pair(blocks, scales)) {
    // The same bytes with blocks as rows.
    dims = scales.shape;
    dims.push_back(kBytes);
  }
  if (blocks.type->bits != 8 || scales.type->bits != 8 || dims.empty() ||
      dims.back() != kBytes ||
      !std::ranges::equal(std::span(dims).first(dims.size() - 1), scales.shape) ||
      scales.shape.empty() || !(Size(dims[dims.size() - 2]) * kGroup).valid()) {
    RefuseScales(scales, blocks);
  }
  dims.pop_back();
  dims.back() *= kGroup;
  return Values(
      blocks.name, dims, *FindFormat(std::string_view("MXFP4")),
      [data = blocks.data, exponents = scales.data](uint64_t begin, uint64_t count, float* out) {
        for (uint64_t i = begin; i < begin + count; ++i) {
          const auto byte = static_cast<uint8_t>(data[i / 2]);
          const uint8_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
          const float scale = E8m0ToF32(static_cast<uint8_t>(exponents[i / kGroup]));
          *out++ = (code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7]) * scale;
        }
      });
}

}  // namespace lockstep

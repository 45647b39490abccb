// Matrix multiplication of many tokens: a piece of two panels is taken apart into scratch once, then met by all tokens.
// Included by kernel files only, once per instruction set.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "formats/gemm_groups.h"

namespace lockstep::LOCKSTEP_ISA {

inline constexpr int kTileColumns = kRegisters >= 32 ? 5 : kRegisters >= 8 ? 3 : 1;
inline constexpr int64_t kColumnBlock = 120;  // tokens that share a piece of weights taken apart
inline constexpr int64_t kPieceK = 512;       // k of such a piece, so that it stays in the first-level cache

// A piece of P panels taken apart: blocks of 32 k, each as woven bytes and scales of f32.
struct Piece {
  static constexpr int kCodeBytes = 512;      // of one panel and 32-block
  static constexpr int64_t kBlocks = kPieceK / kBlockK;
  std::byte* codes;    // [block, panel, 512]
  float* scales;       // [block, group, panel, 16]
  float* mins;         // the same, where the format has mins
  float* sums;         // [token, panel, 16]
  float* levels;       // [kTreeLevels, token, panel, 16]

  static constexpr size_t kCodesSize = kBlocks * kPanelPair * kCodeBytes;
  static constexpr size_t kScalesSize = kBlocks * 2 * kPanelPair * kPanelRows * sizeof(float);
  static constexpr size_t kSumsSize = kColumnBlock * kPanelPair * kPanelRows * sizeof(float);
  static constexpr size_t kSize = kCodesSize + 2 * kScalesSize + (1 + kTreeLevels) * kSumsSize;

  explicit Piece(std::byte* scratch) : codes(scratch) {
    scales = reinterpret_cast<float*>(codes + kCodesSize);
    mins = scales + kScalesSize / sizeof(float);
    sums = mins + kScalesSize / sizeof(float);
    levels = sums + kSumsSize / sizeof(float);
  }
};
static_assert(Piece::kSize <= kMatMulScratchBytes);

// Takes apart blocks [block, block + blocks) of panel `panel` into place `p` of the piece.
template <class C>
struct Unpacker {
  static constexpr int kGroup = C::Scales::kGroup;
  static constexpr bool kHasMin = C::Scales::kHasMin;
  static constexpr int kBias = C::kBias;

  static void Run(const PackedMatrix& w, int64_t panel, int64_t block, int64_t blocks, int p, Piece& piece) {
    using Scales = typename C::Scales;
    constexpr int kUnitBlocks = Scales::kUnit / kBlockK, kGroups = kBlockK / kGroup;
    const std::byte* base = w.data + panel * w.panel_bytes();
    for (int64_t i = 0; i < blocks; ++i) {
      const std::byte* unit = base + (block + i) / kUnitBlocks * C::kUnitBytes;
      const int b = static_cast<int>((block + i) % kUnitBlocks);
      const std::byte* codes = unit + Scales::kBytes + b * C::Codes::kBytes;
      std::byte* out = piece.codes + (i * kPanelPair + p) * Piece::kCodeBytes;
      StaticFor<8>([&](auto g) { StoreBytes(out + 64 * g, C::Codes::template Load<g>(codes)); });
      for (int g = 0; g < kGroups; ++g) {
        const GroupScale s = Scales::Load(unit, b * kGroups + g);
        const int64_t at = ((i * kGroups + g) * kPanelPair + p) * kPanelRows;
        Store(piece.scales + at, s.scale);
        if constexpr (kHasMin) Store(piece.mins + at, s.min);
      }
    }
  }
};

// Formats without a codec: the format's own integer view, one row after the other.
template <int kGroupSize, bool kMin>
struct RawUnpacker {
  static constexpr int kGroup = kGroupSize;
  static constexpr bool kHasMin = kMin;
  static constexpr int kBias = 7;

  static void Run(const PackedMatrix& w, int64_t panel, int64_t block, int64_t blocks, int p, Piece& piece) {
    const Format& format = *w.format;
    constexpr int kGroups = kBlockK / kGroup;
    int8_t codes[256];
    float scales[256 / kGroup], mins[256 / kGroup];
    const std::byte* base = w.data + panel * w.panel_bytes();
    for (int lane = 0; lane < kPanelRows; ++lane) {
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t k = (block + i) * kBlockK, in_unit = k % format.block;
        if (i == 0 || in_unit == 0) {
          format.integers(base + k / format.block * w.unit_bytes + lane * format.block_bytes, codes, scales, mins);
        }
        std::byte* out = piece.codes + (i * kPanelPair + p) * Piece::kCodeBytes + 4 * lane;
        for (int j = 0; j < kBlockK; ++j) {
          out[j / 4 * 64 + j % 4] = static_cast<std::byte>(codes[in_unit + j] + 128);
        }
        for (int g = 0; g < kGroups; ++g) {
          const int64_t at = ((i * kGroups + g) * kPanelPair + p) * kPanelRows + lane;
          piece.scales[at] = scales[in_unit / kGroup + g];
          if constexpr (kHasMin) piece.mins[at] = mins[in_unit / kGroup + g];
        }
      }
    }
  }
};

// The codec that a piece taken apart looks like.
template <class U>
struct PieceCodec {
  using Codes = Codes8;
  static constexpr int kBias = U::kBias;
};

// Adds a piece of `blocks` blocks to the sums of N tokens.
template <class U, int N>
void Tile(const Piece& piece, int64_t blocks, const ActivationBlock<N>& start, float* sums_at) {
  constexpr int P = kPanelPair, kGroups = kBlockK / U::kGroup;
  ActivationBlock<N> x = start;
  F32x16 sums[P][N];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sums[p][n] = Load(sums_at + (n * P + p) * kPanelRows);
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const std::byte* codes[P];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) codes[p] = piece.codes + (i * P + p) * Piece::kCodeBytes;
    StaticFor<kGroups>([&](auto g) {
      GroupScale w[P];
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        const int64_t at = ((i * kGroups + g) * P + p) * kPanelRows;
        w[p].scale = Load(piece.scales + at);
        if constexpr (U::kHasMin) w[p].min = Load(piece.mins + at);
      }
      AddGroup<PieceCodec<U>, U::kGroup, g, U::kHasMin, P, N>(codes, w, x, sums);
    });
    x.Next();
  }
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) Store(sums_at + (n * P + p) * kPanelRows, sums[p][n]);
  }
}

// The same fold as TreeCounter over sums in memory; `size` floats.
inline void PushLevel(Piece& piece, int64_t count, int64_t size) {
  const auto [filled, merged] = After(count);
  const int64_t stride = Piece::kSumsSize / sizeof(float);
  for (int64_t i = 0; i < size; i += 16) {
    F32x16 sum = Load(piece.sums + i);
    for (int d = 1; d <= merged; ++d) sum = Add(Load(piece.levels + (filled - d) * stride + i), sum);
    Store(piece.levels + (filled - merged) * stride + i, sum);
    Store(piece.sums + i, Zero());
  }
}

inline void FinishLevels(Piece& piece, int64_t count, int64_t size) {
  const int64_t stride = Piece::kSumsSize / sizeof(float);
  for (int at = __builtin_popcountll(static_cast<uint64_t>(count)); at-- > 0;) {
    for (int64_t i = 0; i < size; i += 16) {
      Store(piece.sums + i, Add(Load(piece.levels + at * stride + i), Load(piece.sums + i)));
    }
  }
}

template <class U>
void TileColumns(const Piece& piece, int64_t blocks, const QuantizedRows& rows, int64_t block, int64_t tokens) {
  constexpr int64_t kStride = kPanelPair * kPanelRows;
  int64_t t = 0;
  for (; t + kTileColumns <= tokens; t += kTileColumns) {
    Tile<U, kTileColumns>(piece, blocks, {rows.From(t), block}, piece.sums + t * kStride);
  }
  for (; t < tokens; ++t) Tile<U, 1>(piece, blocks, {rows.From(t), block}, piece.sums + t * kStride);
}

// The outputs of `panels` panels and `tokens` tokens, root by root.
template <class U>
void TileRoots(const MatMulTask& task, int64_t panel, int panels, int64_t token, int64_t tokens, Piece& piece) {
  const int64_t stride = kPanelPair * kPanelRows, size = tokens * stride;
  const int64_t segment_blocks = CeilDiv(task.segment_length(), kBlockK), all_blocks = task.w->k / kBlockK;
  int64_t folded = 0;
  std::fill(piece.sums, piece.sums + size, 0.0f);
  for (RootCursor cursor{task}; cursor.segment < cursor.run.last;) {
    int64_t block = cursor.segment * segment_blocks;
    const int64_t end = std::min(all_blocks, block + segment_blocks);
    while (block < end) {
      const int64_t blocks = std::min(Piece::kBlocks, end - block);
      for (int p = 0; p < panels; ++p) U::Run(*task.w, panel + p, block, blocks, p, piece);
      TileColumns<U>(piece, blocks, task.q.From(token), block, tokens);
      block += blocks;
    }
    if (!cursor.EndSegment()) {
      PushLevel(piece, folded++, size);
      continue;
    }
    FinishLevels(piece, folded, size);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int p = 0; p < panels; ++p) {
        cursor.Store(token + t, panel + p, Load(piece.sums + t * stride + p * kPanelRows));
      }
    }
    std::fill(piece.sums, piece.sums + size, 0.0f);
    folded = 0;
    cursor.NextRoot();
  }
}

template <class U>
void Tiles(const MatMulTask& task) {
  Piece piece(task.scratch);
  for (int64_t panel = task.panel_begin; panel < task.panel_end; panel += kPanelPair) {
    const int panels = static_cast<int>(std::min<int64_t>(kPanelPair, task.panel_end - panel));
    if (panels < kPanelPair) std::memset(piece.codes, 0, Piece::kCodesSize + 2 * Piece::kScalesSize);
    for (int64_t token = 0; token < task.tokens; token += kColumnBlock) {
      TileRoots<U>(task, panel, panels, token, std::min(kColumnBlock, task.tokens - token), piece);
    }
  }
}

}  // namespace lockstep::LOCKSTEP_ISA

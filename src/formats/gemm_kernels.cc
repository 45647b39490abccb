// Matrix multiplication, compiled once per instruction set. Two shapes share every sum's order (formats/gemm.h):
//   strip    few tokens: panels are read once, codes are taken apart in registers
//   tiles    many tokens: a piece of two panels is taken apart into scratch once, then met by all tokens
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "formats/codec.h"
#include "formats/gemm_entry.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

constexpr int kPanelPair = kRegisters >= 32 ? 2 : 1;  // panels met at once: as many accumulators as registers hold
constexpr int kTileColumns = kRegisters >= 32 ? 5 : kRegisters >= 8 ? 3 : 1;
constexpr int64_t kColumnBlock = 120;   // tokens that share a piece of weights taken apart
constexpr int64_t kPieceK = 512;        // k of such a piece, so that it stays in the first-level cache
constexpr int64_t kStripTokens = 8;     // up to here the strip is quicker

// Calls run(constant 0), run(constant 1) ... for indices that must be known when compiling.
template <int kCount, class F>
LOCKSTEP_INLINE void StaticFor(F run) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (run(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, kCount>());
}

// Folds segment sums in the left-complete binary tree with a binary counter. `V` values side by side.
template <int V>
struct TreeCounter {
  F32x16 level[kTreeLevels][V];
  int64_t count = 0;

  // Takes the sums of the next segment and leaves them zero.
  void Push(F32x16* sums) {
    int depth = 0;
    for (int64_t i = count; i & 1; i >>= 1) ++depth;
    const int filled = __builtin_popcountll(static_cast<uint64_t>(count));
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      F32x16 sum = sums[v];
      for (int d = 1; d <= depth; ++d) sum = Add(level[filled - d][v], sum);
      level[filled - depth][v] = sum;
      sums[v] = Zero();
    }
    ++count;
  }

  // The sum of all segments, the last of which is in `sums`; begins anew.
  void Finish(F32x16* sums) {
    for (int at = __builtin_popcountll(static_cast<uint64_t>(count)); at-- > 0;) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[v] = Add(level[at][v], sums[v]);
    }
    count = 0;
  }
};

// Where the roots of a task go, one after the other as its segments end.
struct RootCursor {
  const MatMulTask& task;
  LeafRange run = task.run();
  int64_t segment = run.first;  // the one being summed
  int64_t root_end = task.RootEnd(run.first);
  float* y = task.y;

  // Whether the segment that now ends completes a root; moves on to the next segment.
  bool EndSegment() { return ++segment == root_end; }
  void NextRoot() {
    y += task.root_stride;
    if (segment < run.last) root_end = task.RootEnd(segment);
  }
  void Store(int64_t token, int64_t panel, F32x16 sum) const {
    float* at = y + token * task.y_stride + panel * kPanelRows;
    const int64_t rows = task.w->n - panel * kPanelRows;
    if (rows >= kPanelRows) {
      LOCKSTEP_ISA::Store(at, sum);
    } else {
      StorePartial(at, sum, static_cast<int>(rows));
    }
  }
};

// The running sums of a strip, folded as segments end.
template <int P, int N>
class StripSums {
 public:
  StripSums(const MatMulTask& task, int64_t token, int64_t panel)
      : cursor_{task}, token_(token), panel_(panel) {}

  // Takes the sums of the segment that ends and leaves them zero.
  LOCKSTEP_INLINE void EndSegment(F32x16 (&sums)[P][N]) {
    if (!cursor_.EndSegment()) return tree_.Push(&sums[0][0]);
    tree_.Finish(&sums[0][0]);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        cursor_.Store(token_ + n, panel_ + p, sums[p][n]);
        sums[p][n] = Zero();
      }
    }
    cursor_.NextRoot();
  }

 private:
  RootCursor cursor_;
  TreeCounter<P * N> tree_;
  int64_t token_, panel_;
};

// The integer sum of a group's products, stored codes u against activations, for `P` panels and `N` tokens.
// kGroup: 32, or 16 with `half` saying which one.
template <class C, int kGroup, int half, int P, int N>
inline void GroupDots(const std::byte* const* blocks, const int8_t* const* a, const int32_t* const* minus_sums,
                      I32x16 (&dots)[P][N]) {
  constexpr bool kBiased = C::kBias == 7;
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    const int32_t minus_sum = minus_sums[n][kGroup == 16 ? half : 2];
    I32x16 start = 0;
    if constexpr (kBiased) {
      start = Dot4BiasedStart(-minus_sum);
    } else if constexpr (C::kBias >= 0) {
      start = minus_sum * (1 << C::kBias);
    }
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) dots[p][n] = start;
  }
  StaticFor<kGroup / 4>([&](auto i) {
    constexpr int g = i + (kGroup == 16 ? 4 * half : 0);
    U8x64 w[P];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) w[p] = C::Codes::template Load<g>(blocks[p]);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const auto x = Broadcast4(a[n] + 4 * g);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        dots[p][n] = kBiased ? Dot4Biased(dots[p][n], w[p], x) : Dot4(dots[p][n], w[p], x);
      }
    }
  });
}

// A run of activations of `N` tokens at one 32-block.
template <int N>
struct ActivationBlock {
  const int8_t* codes[N];
  const float* scales[N];
  const int32_t* minus_sums[N];
  const float* scaled_sums[N];

  ActivationBlock(const QuantizedRows& rows, int64_t block) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      codes[n] = rows.codes + n * rows.stride + block * kBlockK;
      scales[n] = rows.scales + n * rows.blocks() + block;
      minus_sums[n] = rows.minus_sums + (n * rows.blocks() + block) * 3;
      scaled_sums[n] = rows.scaled_sums + (n * rows.blocks() + block) * 3;
    }
  }
  void Next() {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) codes[n] += kBlockK, ++scales[n], minus_sums[n] += 3, scaled_sums[n] += 3;
  }
};

// Adds one group of one 32-block to the running sums.
template <class C, int kGroup, int half, bool kHasMin, int P, int N>
inline void AddGroup(const std::byte* const* blocks, const GroupScale* w, const ActivationBlock<N>& x,
                     F32x16 (&sums)[P][N]) {
  I32x16 dots[P][N];
  GroupDots<C, kGroup, half, P, N>(blocks, x.codes, x.minus_sums, dots);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    const F32x16 scale_x = Set1(*x.scales[n]);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) sums[p][n] = Fma(Mul(w[p].scale, scale_x), ToF32(dots[p][n]), sums[p][n]);
    if constexpr (kHasMin) {
      const F32x16 sum_x = Set1(x.scaled_sums[n][kGroup == 16 ? half : 2]);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sums[p][n] = Fma(w[p].min, sum_x, sums[p][n]);
    }
  }
}

// `P` panels from `panel` on for `N` tokens from `token` on, codes taken apart in registers.
template <class C, int P, int N>
void Strip(const MatMulTask& task, int64_t token, int64_t panel) {
  using Scales = typename C::Scales;
  constexpr int kBlocks = Scales::kUnit / kBlockK;
  constexpr int kGroups = kBlockK / Scales::kGroup;
  // Far enough ahead to cover memory latency at full bandwidth with two streams a core (bench/: 2 KiB; more did not help).
  constexpr int64_t kAhead = 2304;
  const LeafRange run = task.run();
  const int64_t segment_units = CeilDiv(task.segment_length(), Scales::kUnit), units = task.w->k / Scales::kUnit;
  const int64_t first_unit = run.first * segment_units;
  const std::byte* unit[P];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
    unit[p] = task.w->data + (panel + p) * task.w->panel_bytes() + first_unit * C::kUnitBytes;
  }
  ActivationBlock<N> x(task.q.From(token), first_unit * kBlocks);
  F32x16 sums[P][N];
  for (auto& row : sums) std::fill(row, row + N, Zero());
  StripSums<P, N> roots(task, token, panel);
  for (int64_t s = run.first; s < run.last; ++s) {
    const int64_t end = std::min(units, (s + 1) * segment_units);
    for (int64_t u = s * segment_units; u < end; ++u) {
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        for (int64_t line = 0; line < C::kUnitBytes; line += 64) Prefetch(unit[p] + kAhead + line);
      }
      for (int b = 0; b < kBlocks; ++b) {
        const std::byte* blocks[P];
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) blocks[p] = unit[p] + Scales::kBytes + b * C::Codes::kBytes;
        StaticFor<kGroups>([&](auto g) {
          GroupScale w[P];
#pragma GCC unroll 16
          for (int p = 0; p < P; ++p) w[p] = Scales::Load(unit[p], b * kGroups + g);
          AddGroup<C, Scales::kGroup, g, Scales::kHasMin, P, N>(blocks, w, x, sums);
        });
        x.Next();
      }
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) unit[p] += C::kUnitBytes;
    }
    roots.EndSegment(sums);
  }
}

// Calls run(token, N as a constant) over all tokens, with the largest N of 8, 4, 2, 1 that registers bear and tokens fill.
template <class F>
inline void ForTokenSteps(int64_t tokens, F run) {
  constexpr int kMost = kRegisters >= 32 ? 8 : kRegisters >= 8 ? 2 : 1;
  int64_t t = 0;
  StaticFor<4>([&](auto i) {
    constexpr int N = 8 >> i;
    if constexpr (N <= kMost) {
      for (; t + N <= tokens; t += N) run(t, std::integral_constant<int, N>());
    }
  });
}

template <class C>
void Strips(const MatMulTask& task) {
  ForTokenSteps(task.tokens, [&](int64_t token, auto n) {
    constexpr int N = decltype(n)::value;
    // Two streams a core keep memory busy; with many tokens one panel fills the registers.
    constexpr int P = N <= 4 && kRegisters >= 32 ? 2 : 1;
    int64_t panel = task.panel_begin;
    for (; panel + P <= task.panel_end; panel += P) Strip<C, P, N>(task, token, panel);
    for (; panel < task.panel_end; ++panel) Strip<C, 1, N>(task, token, panel);
  });
}

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
void PushLevel(Piece& piece, int64_t count, int64_t size) {
  int depth = 0;
  for (int64_t i = count; i & 1; i >>= 1) ++depth;
  const int filled = __builtin_popcountll(static_cast<uint64_t>(count));
  const int64_t stride = Piece::kSumsSize / sizeof(float);
  for (int64_t i = 0; i < size; i += 16) {
    F32x16 sum = Load(piece.sums + i);
    for (int d = 1; d <= depth; ++d) sum = Add(Load(piece.levels + (filled - d) * stride + i), sum);
    Store(piece.levels + (filled - depth) * stride + i, sum);
    Store(piece.sums + i, Zero());
  }
}

void FinishLevels(Piece& piece, int64_t count, int64_t size) {
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

template <class C>
void Quantized(const MatMulTask& task) {
  if (task.tokens <= kStripTokens) {
    Strips<C>(task);
  } else {
    Tiles<Unpacker<C>>(task);
  }
}

// Plain numbers: T::Load gives 16 weights of one k.
struct Float32 {
  using Stored = float;
  static F32x16 LoadWeights(const float* w) { return Load(w); }
};
struct Float16 {
  using Stored = uint16_t;
  static F32x16 LoadWeights(const uint16_t* w) { return LoadF16(w); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  static F32x16 LoadWeights(const uint16_t* w) { return LoadBf16(w); }
};

template <class T, int P, int N>
void FloatStrip(const MatMulTask& task, int64_t token, int64_t panel) {
  const PackedMatrix& w = *task.w;
  const typename T::Stored* weights[P];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
    weights[p] = reinterpret_cast<const typename T::Stored*>(w.data + (panel + p) * w.panel_bytes());
  }
  const float* x[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) x[n] = task.x + (token + n) * task.x_stride;
  F32x16 sums[P][N];
  for (auto& row : sums) std::fill(row, row + N, Zero());
  StripSums<P, N> roots(task, token, panel);
  const LeafRange run = task.run();
  for (int64_t s = run.first; s < run.last; ++s) {
    const int64_t begin = s * task.segment_length(), end = std::min(w.k, begin + task.segment_length());
    for (int64_t i = begin; i < end; ++i) {
      F32x16 v[P];
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) v[p] = T::LoadWeights(weights[p] + i * kPanelRows);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        const F32x16 xi = Set1(x[n][i]);
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) sums[p][n] = Fma(v[p], xi, sums[p][n]);
      }
    }
    roots.EndSegment(sums);
  }
}

template <class T>
void Float(const MatMulTask& task) {
  constexpr int P = kPanelPair;
  int64_t panel = task.panel_begin;
  for (; panel < task.panel_end; panel += P) {
    const bool pair = panel + P <= task.panel_end;
    ForTokenSteps(task.tokens, [&](int64_t token, auto n) {
      constexpr int N = decltype(n)::value;
      if (pair) {
        FloatStrip<T, P, N>(task, token, panel);
      } else {
        FloatStrip<T, 1, N>(task, token, panel);
      }
    });
  }
}

void Raw(const MatMulTask& task) {
  const Format& format = *task.w->format;
  if (format.group == 16) {
    format.has_min ? Tiles<RawUnpacker<16, true>>(task) : Tiles<RawUnpacker<16, false>>(task);
  } else {
    format.has_min ? Tiles<RawUnpacker<32, true>>(task) : Tiles<RawUnpacker<32, false>>(task);
  }
}

using Iq4Codes = CodesTable<kIq4Values, 128>;
using E2m1Codes = CodesTable<kE2m1Doubled, 16>;

struct KernelRow {
  uint32_t id;
  void (*run)(const MatMulTask&);
};
constexpr KernelRow kKernels[] = {
    {0, Float<Float32>},                                       // F32
    {1, Float<Float16>},                                       // F16
    {30, Float<Bfloat16>},                                     // BF16
    {2, Quantized<Codec<Codes4, ScalesF16, 3>>},               // Q4_0
    {3, Quantized<Codec<Codes4, ScalesF16Min, -1>>},           // Q4_1
    {6, Quantized<Codec<Codes5, ScalesF16, 4>>},               // Q5_0
    {7, Quantized<Codec<Codes5, ScalesF16Min, -1>>},           // Q5_1
    {8, Quantized<Codec<Codes8, ScalesF16, 7>>},               // Q8_0
    {10, Quantized<Codec<Codes2, ScalesSuperMin4, -1>>},       // Q2_K
    {11, Quantized<Codec<Codes3, ScalesSuper<16>, 2>>},        // Q3_K
    {12, Quantized<Codec<Codes4, ScalesSuperMin, -1>>},        // Q4_K
    {13, Quantized<Codec<Codes5, ScalesSuperMin, -1>>},        // Q5_K
    {14, Quantized<Codec<Codes6, ScalesSuper<16>, 5>>},        // Q6_K
    {20, Quantized<Codec<Iq4Codes, ScalesF16, 7>>},            // IQ4_NL
    {23, Quantized<Codec<Iq4Codes, ScalesSuper<32>, 7>>},      // IQ4_XS
    {35, Quantized<Codec<Codes2, ScalesSuperOne, 0>>},         // TQ2_0
    {39, Quantized<Codec<E2m1Codes, ScalesE8m0, 4>>},          // MXFP4
    {40, Quantized<Codec<E2m1Codes, ScalesUe4m3, 4>>},         // NVFP4
};

}  // namespace

void MatMul(const MatMulTask& task) {
  const uint32_t id = task.w->packing->id;
  if (task.w->packing->codes == CodeLayout::kRaw) return Raw(task);
  for (const KernelRow& row : kKernels) {
    if (row.id == id) return row.run(task);
  }
}

}  // namespace lockstep::LOCKSTEP_ISA

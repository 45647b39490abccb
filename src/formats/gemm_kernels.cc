// Matrix multiplication, compiled once per instruction set: which loops serve which format. Strips and tiles keep every
// sum in the order of formats/gemm.h.
#include "formats/gemm_strips.h"
#include "formats/gemm_tiles.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

constexpr int64_t kStripTokens = 8;  // up to here the strip is quicker

template <class C>
void Quantized(const MatMulTask& task) {
  if (task.tokens <= kStripTokens) {
    Strips<C>(task);
  } else {
    Tiles<Unpacker<C>>(task);
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

#include "ops/elementwise.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

AddRowsFn AddRows;
AddScaledRowsFn AddScaledRows;
MulRowsFn MulRows;
ScaleRowFn ScaleRow;

void AddRows(const float* a, const float* b, int64_t n, float* y) {
  ForEach16(n, [&](int64_t i, int count) {
    StoreN(y + i, Add(LoadN(a + i, count), LoadN(b + i, count)), count);
  });
}

void AddScaledRows(const float* a, const float* b, float scale, int64_t n, float* y) {
  ForEach16(n, [&](int64_t i, int count) {
    StoreN(y + i, Fma(LoadN(b + i, count), scale, LoadN(a + i, count)), count);
  });
}

void MulRows(const float* a, const float* b, int64_t n, float* y) {
  ForEach16(n, [&](int64_t i, int count) {
    StoreN(y + i, Mul(LoadN(a + i, count), LoadN(b + i, count)), count);
  });
}

void ScaleRow(const float* x, float scale, int64_t n, float* y) {
  ForEach16(n,
            [&](int64_t i, int count) { StoreN(y + i, Mul(LoadN(x + i, count), scale), count); });
}

}  // namespace lockstep::LOCKSTEP_ISA

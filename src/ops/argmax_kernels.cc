#include "ops/argmax.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

ArgmaxFn Argmax;

int64_t Argmax(const float* x, int64_t d) {
  // A lane that has met no number holds -Inf and index -1, and takes even -Inf.
  F32x16 best = -__builtin_inff();
  I32x16 place = -1;
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = KeepN(LoadN(x + i, count), count, __builtin_nanf(""));
    Mask16 first = And(Greater(I32x16(0), place), Equal(v, v));
    Mask16 better = Or(Less(best, v), first);
    best = Select(better, v, best);
    place = Select(better, Add(Iota(), static_cast<int32_t>(i)), place);
  });
  float values[16];
  int32_t places[16];
  Store(values, best);
  StoreI32(places, place);
  int winner = -1;
  for (int lane = 0; lane < 16; ++lane) {
    if (places[lane] < 0) continue;
    bool wins = winner < 0 || values[lane] > values[winner] ||
                (values[lane] == values[winner] && places[lane] < places[winner]);
    if (wins) winner = lane;
  }
  return winner < 0 ? -1 : places[winner];
}

}  // namespace lockstep::LOCKSTEP_ISA

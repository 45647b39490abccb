// I64: 64-bit integers, rounded to f32. Never a matrix.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct I64 {
  using Stored = int64_t;
  static float Decode(int64_t v) { return static_cast<float>(v); }
};

}  // namespace

constinit const Format kFormatI64 = PlainFormat<I64>("I64", 27);

}  // namespace lockstep

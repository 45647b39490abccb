// F64: IEEE binary64, rounded to f32; beyond its range to infinity. Never a matrix.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct F64 {
  using Stored = double;
  static float Decode(double v) { return static_cast<float>(v); }
};

}  // namespace

constinit const Format kFormatF64 = PlainFormat<F64>("F64", 28);

}  // namespace lockstep

// I32: 32-bit integers, rounded to f32. Never a matrix.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct I32 {
  using Stored = int32_t;
  static float Decode(int32_t v) { return static_cast<float>(v); }
};

}  // namespace

constinit const Format kFormatI32 = PlainFormat<I32>("I32", 26);

}  // namespace lockstep

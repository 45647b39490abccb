// F32: IEEE binary32.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct F32 {
  using Stored = float;
  static float Decode(float v) { return v; }
  static float Encode(float v) { return v; }
};

}  // namespace

constinit const Format kFormatF32 = PlainFormat<F32>("F32", 0);

}  // namespace lockstep
